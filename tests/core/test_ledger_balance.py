"""Whatever happens to connections, in whatever order: the ledger ends empty, and no limit is exceeded on the way."""

import random
from collections.abc import Iterator
from typing import Any

import pytest
from memory_net import Vhosts, ruleset_of

from auth.identity import Identity
from policy.ruleset import Ruleset
from policy.usage import UsageLedger
from router.admission.connection_gate import ConnectionGate, Gate

STEPS = 100_000
USERS, HOSTS, NAMES = ("ann", "bob", None), ("10.0.0.1", "10.0.0.2", "::ffff:10.0.0.1"), ("v", "w", "x", "nowhere")
MOST = 12


def rulesets() -> Iterator[Ruleset]:
    """Rules that differ in all a connection is counted by: its vhost, its group, the limits, whether it may stay."""
    for number in range(24):
        group: dict[str, Any] = {"users": "*", "remoteHosts": "10.0.0.1" if number % 5 == 0 else "*"}
        if number % 3 == 0:
            group |= {"maxConnectionsPerUser": 1 + number % 4, "maxConnectionsPerHost": 2 + number % 3}
        if number % 4 == 1:
            group["users"] = "ann"
        limits: dict[str, Any] = {"maxConnections": number % (MOST + 1), "maxConnectionsPerUser": 1 + number % 5}
        limits["groups"] = {"g": group}
        alias = {"aliases": "x"} if number % 2 else {}
        yield ruleset_of(Vhosts({"v": {**limits, **alias}, "w": limits} if number % 7 else {"v": limits}))


class Trial:
    """The daemon's way with the gate, without anything else."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.rules = list(rulesets())
        self.ledger = UsageLedger()
        self.gate = Gate(self.rules[1], self.ledger, lambda _effect: None)
        self.open: list[ConnectionGate] = []  # the oldest first
        self.number = 0

    def connect(self) -> None:
        chance = self.chance
        self.number += 1
        host = chance.choice(HOSTS)
        name = f"{host}:{chance.randrange(20)}"  # two listeners may have connections of one name
        if not self.gate.accept(connection_id=self.number, remote_host=host, connection_name=name, listener="l"):
            return
        connection = ConnectionGate(
            self.gate, connection_id=self.number, connection_name=name, remote_host=host, listener="l",
            is_governed=chance.random() < 0.9,
        )  # fmt: skip
        self.open.append(connection)
        if chance.random() < 0.1:
            return  # never comes to its Open
        identity = Identity(user=chance.choice(USERS))
        name = chance.choice(NAMES)
        refusal = connection.admit(identity, hostname=name, policy_vhost=None, is_encrypted=False, now=1e9)
        if refusal is None:
            self.within_limits(connection)
        elif chance.random() < 0.5:
            self.lose(connection)  # the others linger, as refused sockets may

    def within_limits(self, connection: ConnectionGate) -> None:
        """A connection that was let in found room."""
        settings = connection.settings
        if settings is not None:
            vhost = self.gate.ruleset.vhosts[settings.vhost]
            usage = self.ledger.usage(settings.vhost, settings.user, connection.remote_host)
            per_user = settings.origin.max_connections_per_user
            assert usage.total <= vhost.max_connections
            assert usage.of_user <= (vhost.max_connections_per_user if per_user is None else per_user)

    def lose(self, connection: ConnectionGate) -> None:
        self.open.remove(connection)
        connection.close()

    def change(self) -> None:
        self.gate.ruleset = self.chance.choice(self.rules)
        if self.chance.random() < 0.8:
            self.gate.begin_epoch("policy_change", lambda _connection: True, 1.9e9)

    def redecide(self) -> None:
        """The pass, which may be cut short by another change or come too late for some."""
        for connection in list(self.open):
            if self.chance.random() < 0.02:
                return
            connection.catch_up()
            if connection.is_denied and self.chance.random() < 0.5:
                self.lose(connection)
        for connection in reversed(list(self.open)):
            if not connection.keep_within_limits() and self.chance.random() < 0.5:
                self.lose(connection)
        for connection in self.open:
            if connection.is_redecided and connection.refusal is None:
                self.within_limits(connection)
        self.gate.end_epoch()

    def step(self) -> None:
        number = self.chance.random()
        if number < 0.5:
            self.connect()
        elif number < 0.93 and self.open:
            connection = self.chance.choice(self.open)
            if number < 0.55:
                connection.catch_up()  # it asks for something new
            elif number < 0.57 and connection.settings is not None and connection.refusal is None:
                connection.refuse_move()
            else:
                self.lose(connection)
        elif number < 0.965:
            self.change()
        else:
            self.redecide()
        self.balance()

    def balance(self) -> None:
        assert self.ledger.open_connections == len(self.open)

    def recount(self) -> None:
        """What the ledger says is what there is."""
        for vhost in self.ledger.vhost_names():
            counted = [
                each
                for each in self.open
                if each.settings is not None and each.settings.vhost == vhost and each.refusal is None
            ]
            assert self.ledger.vhost_stats(vhost)["connectionsCurrent"] == len(counted)


@pytest.mark.slow
def test_a_hundred_thousand_opens_closes_and_changes_of_the_rules() -> None:
    """issue 5"""
    trial = Trial(seed=1)
    for number in range(STEPS):
        trial.step()
        if number % 50 == 0:
            trial.recount()
    for connection in list(trial.open):
        trial.lose(connection)
    trial.recount()
    assert trial.ledger.open_connections == 0
    for vhost in trial.ledger.vhost_names():
        stats = trial.ledger.vhost_stats(vhost)
        assert stats["connectionsApproved"]
        assert not any(names for key in ("perUserState", "perHostState") for names in stats[key].values())  # type: ignore[attr-defined]
