"""What the gate decides of connections, what it counts and what it writes. Spec: docs/spec/policy-and-auth.md §3."""

from typing import Any, cast

import pytest
from memory_net import Vhosts, ruleset_of

from auth.identity import Grants, Identity
from policy.ban_set import BanSet
from policy.ruleset import Ruleset
from policy.usage import UsageLedger
from router.admission.candidate import Shadow
from router.admission.folding import Folding
from router.admission.gate import Admission, Gate
from router.admission.guessing import nobody_guesses
from router.admission.refusals import MOVED, Refusal
from router.effects import Audit, Effect, Log

HOST = "192.0.2.1"
NOW = 1.85e9  # 2028
REFUSED = Refusal(condition="amqp:resource-limit-exceeded", description="connection disallowed by local policy")
ALL = {"remoteHosts": "*", "sources": "*", "targets": "*"}


def rules(**vhosts: dict[str, Any]) -> Ruleset:
    return ruleset_of(Vhosts(vhosts))


def for_all(**limits: Any) -> dict[str, Any]:
    """A vhost for everybody."""
    return {"allowUnknownUser": True, "groups": {"$default": ALL}, **limits}


def of_connectors(**group: Any) -> dict[str, Any]:
    return {"groups": {"$connector": {**ALL, **group}}}


class Asked:
    """A shadow that notes what it is asked about an Open, and has no opinion."""

    def __init__(self) -> None:
        self.opens: list[tuple[Any, ...]] = []
        self.closed = 0

    def opened(self, facts: Any, judged: Any, describe: Any, *, is_connector: bool = False) -> "Asked":
        self.opens.append((facts, judged, describe(), is_connector))
        return self

    def close(self) -> None:
        self.closed += 1


class House:
    """A gate, and everything that it emits."""

    def __init__(self, ruleset: Ruleset, **more: Any) -> None:
        self.effects: list[Effect] = []
        self.ledger = UsageLedger()
        self.gate = Gate(ruleset, self.ledger, self.effects.append, **more)
        self.number = 6

    def connection(
        self, *, host: str = HOST, is_governed: bool = True, is_accepted: bool = True, name: str = ""
    ) -> Admission:
        self.number += 1
        name = name or f"{host}:{self.number}"
        if is_accepted:
            assert self.gate.accept(connection_id=self.number, remote_host=host, connection_name=name, listener="l:1")
        return Admission(
            self.gate, connection_id=self.number, connection_name=name, remote_host=host, listener="l:1",
            is_governed=is_governed, is_accepted=is_accepted,
        )  # fmt: skip

    def open(self, user: str | None = "eve", vhost: str = "v", **more: Any) -> Admission:
        connection = self.connection(**more)
        assert admit(connection, user, vhost) is None
        return connection

    def adopt(self, vhost: str = "v", user: str | None = None) -> tuple[Admission, Refusal | None]:
        connection = self.connection(is_governed=False, is_accepted=False)
        refusal = connection.adopt_connector(Identity(user=user), policy_vhost=vhost, is_encrypted=True, now=NOW - 1)
        return connection, refusal

    def change(self, ruleset: Ruleset, *connections: Admission) -> None:
        """Put other rules in force and decide the connections again."""
        self.gate.ruleset = ruleset
        self.gate.begin_epoch("policy_change", lambda _connection: True, NOW)
        for connection in connections:
            connection.catch_up()

    @property
    def events(self) -> list[Any]:
        return [each.event for each in self.effects if isinstance(each, Audit)]

    def lines(self) -> list[tuple[str, str]]:
        found = [each for each in self.effects if isinstance(each, Log)]
        assert {each.module for each in found} <= {"POLICY"}
        return [(each.level, each.text) for each in found]

    def using(self, vhost: str = "v") -> dict[str, Any]:
        """Whose connections the vhost has."""
        self.ledger.ensure_vhost(vhost)
        stats = self.ledger.vhost_stats(vhost)
        return {"now": stats["connectionsCurrent"], "users": stats["perUserState"], "hosts": stats["perHostState"]}


def admit(connection: Admission, user: str | None = "eve", vhost: str = "v") -> Refusal | None:
    return connection.admit(
        Identity(user=user), hostname="asked.example", policy_vhost=vhost, is_encrypted=True, now=NOW - 1
    )


def test_a_gate_uses_what_it_is_given() -> None:
    effects: list[Effect] = []
    folding, bans, guesses = Folding(effects.append), BanSet(), nobody_guesses()
    gate = Gate(rules(), UsageLedger(), effects.append, bans=bans, folding=folding, guesses=guesses)
    assert gate.folding is folding
    assert gate.recorder.folding is folding
    assert gate.bans.bans is bans
    assert gate.guesses is guesses


def test_the_entrance_counts_in_the_ledger_and_writes_where_the_gate_does() -> None:
    house = House(rules())
    connection = house.connection()
    house.gate.entrance.refuse_for_descriptors(connection.facts(), 9)
    assert house.ledger.policy_counters()["connectionsDenied"] == 1
    assert [event["reason"] for event in house.events] == ["descriptor_limit"]


# Accept


def test_an_accepted_socket_is_counted_and_logged() -> None:
    house = House(rules())
    assert house.gate.accept(connection_id=7, remote_host=HOST, connection_name=f"{HOST}:7", listener="l:1") is True
    assert house.ledger.open_connections == 1
    text = f"ALLOW Connection '{HOST}' based on global connection count. nConnections= 1"
    assert house.lines() == [("trace", text)]
    assert house.events == []


def test_a_socket_beyond_the_limit_is_refused_with_all_that_is_known_of_it() -> None:
    ruleset = ruleset_of(Vhosts(policy={"maxConnections": 1}))
    house = House(ruleset)
    house.connection()
    house.effects.clear()
    assert house.gate.accept(connection_id=8, remote_host=HOST, connection_name=f"{HOST}:8", listener="l:1") is False
    assert house.ledger.open_connections == 1
    assert house.ledger.policy_counters()["connectionsDenied"] == 1
    (event,) = house.events
    assert event == {
        "connection": 8, "connection_name": f"{HOST}:8", "listener": "l:1", "remote_host": HOST,
        "ruleset_digest": ruleset.digest, "stage": "accept", "decision": "deny", "reason": "router_connection_limit",
        "rule": {"vhost": None, "group": None, "item": "maxConnections: 1", "file": None, "line": None},
        "usage": {"open_connections": 1}, "limit": 1,
    }  # fmt: skip
    place = "[router_connection_limit: maxConnections: 1]"
    text = f"DENY Connection '{HOST}' based on global connection count. nConnections= 1 {place}"
    assert house.lines() == [("info", text)]


# Open


def test_nobody_is_denied_anything_before_the_open() -> None:
    connection = House(rules(v=for_all())).connection()
    assert not connection.is_denied
    assert connection.addresses is None
    assert connection.facts()["listener"] == "l:1"


def test_an_open_is_judged_by_what_the_peer_said_and_what_is_known_of_it() -> None:
    house = House(rules(v={"allowUnknownUser": False, "groups": {"g": {**ALL, "users": "ann"}}}))
    connection = house.connection()
    assert admit(connection, "eve") == REFUSED
    assert connection.hostname == "asked.example"
    (event,) = house.events
    assert (event["requested_vhost"], event["vhost"], event["user"], event["is_encrypted"]) == ("v", "v", "eve", True)
    assert event["reason"] == "unknown_user"
    assert connection.settings is None


@pytest.mark.parametrize(("hostname", "vhost", "asked"), [("h", "p", "p"), ("h", None, "h"), (None, None, "")])
def test_the_vhost_that_is_asked_for(hostname: str | None, vhost: str | None, asked: str) -> None:
    connection = House(rules(v=for_all())).connection()
    connection.admit(Identity(user="eve"), hostname=hostname, policy_vhost=vhost, is_encrypted=False, now=NOW)
    assert connection.requested_vhost == asked


@pytest.mark.parametrize("user", ["eve", None])
@pytest.mark.parametrize("limit", ["maxConnections", "maxConnectionsPerUser", "maxConnectionsPerHost"])
def test_limits_count_the_connections_of_the_vhost_that_governs(user: str | None, limit: str) -> None:
    """The peer without a user is one user more. Asked for by its alias it is the same vhost."""
    house = House(rules(v=for_all(aliases="other", **{limit: 2})))
    house.open(user)
    house.open(user, vhost="other")
    third = house.connection()
    assert admit(third, user) == REFUSED
    event = house.events[-1]
    assert event["usage"] == {"total": 2, "of_user": 2, "of_host": 2}
    assert house.using()["users"].keys() == {user or ""}


def test_an_open_that_is_allowed_is_logged_with_its_group() -> None:
    house = House(rules(v=for_all()))
    connection = house.connection()
    house.effects.clear()
    assert admit(connection) is None
    text = f"ALLOW AMQP Open lookup_user: eve, rhost: {HOST}, vhost: v, connection: {HOST}:7. Usergroup: '$default'"
    assert ("trace", f"[C7] {text}") in house.lines()


def test_the_vhost_that_governs_in_the_place_of_another_is_logged() -> None:
    house = House(rules(v=for_all(aliases="other")))
    house.open(None, "other")
    assert [text for level, text in house.lines() if level == "debug"] == [
        f"AMQP Open for user '', rhost '{HOST}', vhost 'other': proceeds using vhost 'v' ruleset",
        "AMQP Open lookup settings for vhost 'other': proceeds using vhost 'v' ruleset",
    ]


def test_what_an_authentication_service_grants_holds_without_a_policy() -> None:
    connection = House(ruleset_of(None)).connection()
    granted = Identity(user="eve", grants=Grants(sources=("hers",), targets=()))
    assert connection.admit(granted, hostname=None, policy_vhost=None, is_encrypted=False, now=NOW) is None
    assert connection.settings is not None
    assert not connection.settings.is_of_vhost


def test_without_a_policy_and_grants_there_is_nothing_to_hold_to() -> None:
    house = House(ruleset_of(None))
    assert house.open().settings is None
    assert house.events == []


# Connectors


def test_the_settings_of_a_connector_are_those_of_its_vhost_and_its_user() -> None:
    house = House(rules(v=of_connectors(sources="${user}.*")))
    connection, refusal = house.adopt(user="robot")
    assert refusal is None
    assert connection.settings is not None
    assert (connection.settings.vhost, connection.settings.user) == ("v", "robot")
    assert connection.is_encrypted
    assert not connection.is_denied
    assert house.using()["now"] == 0, "limits are on those that come in"


def test_a_connector_without_a_group_is_refused_with_all_that_is_known_of_it() -> None:
    house = House(rules(v=for_all()))
    connection, refusal = house.adopt()
    assert refusal == REFUSED
    assert connection.settings is None
    (audit,) = (each for each in house.effects if isinstance(each, Audit))
    event: Any = audit.event
    assert audit.time_s == NOW - 1
    assert (event["stage"], event["reason"], event["vhost"]) == ("open", "no_vhost", "v")
    assert (event["requested_vhost"], event["is_encrypted"], event["group"]) == ("v", True, None)


def test_a_shadow_is_told_that_it_is_a_connector() -> None:
    asked = Asked()
    house = House(rules(v=of_connectors()), shadow=cast(Shadow, asked))
    connection, _refusal = house.adopt(user="robot")
    ((facts, judged, members, is_connector),) = asked.opens
    assert (facts.user, facts.requested_vhost, facts.now, is_connector) == ("robot", "v", NOW - 1, True)
    assert judged.decision.is_allowed
    assert members["ruleset_digest"] == house.gate.ruleset.digest
    assert connection.shadow is cast(Any, asked)
    connection.close()
    connection.close()
    assert asked.closed == 1


def test_a_connector_is_decided_again_as_a_connector() -> None:
    """Its vhost has no group for those that come in, and would refuse it as one of them."""
    house = House(rules(v=of_connectors(sources="a")))
    connection, _refusal = house.adopt(user="robot")
    before = connection.settings
    house.change(rules(v=of_connectors(sources="b")), connection)
    assert connection.refusal is None
    assert connection.settings is not None
    assert connection.settings is not before
    assert connection.settings.user == "robot"
    assert not connection.is_denied


def test_a_connector_whose_group_is_gone_ends() -> None:
    house = House(rules(v=of_connectors()))
    connection, _refusal = house.adopt(user="robot")
    ruleset = rules(v=for_all())
    house.change(ruleset, connection)
    assert connection.refusal == REFUSED
    assert connection.is_denied
    (audit,) = (each for each in house.effects if isinstance(each, Audit))
    event: Any = audit.event
    assert audit.time_s == NOW
    assert (event["reason"], event["redecision"], event["vhost"]) == ("no_vhost", "policy_change", "v")
    assert event["ruleset_digest"] == ruleset.digest
    item = "[no_vhost: groups: $connector of vhost 'v']"
    text = f"[C7] Failed to find policyVhost settings for connection '7', policyVhost: 'v' {item}"
    assert ("error", text) in house.lines()


def test_a_connector_whose_group_is_not_valid_yet_ends() -> None:
    """By the time of the epoch, not that of its Open."""
    house = House(rules(v=of_connectors()))
    connection, _refusal = house.adopt()
    house.change(rules(v=of_connectors(validUntil="2028-01-01T00:00:00Z")), connection)
    assert connection.refusal == REFUSED
    assert house.events[-1]["reason"] == "group_not_valid"


def test_a_connector_stays_while_its_group_is_valid() -> None:
    house = House(rules(v=of_connectors()))
    connection, _refusal = house.adopt()
    house.change(rules(v=of_connectors(validUntil="2030-01-01T00:00:00Z")), connection)
    assert connection.refusal is None


def test_a_policy_that_is_switched_off_and_on_again_governs_again() -> None:
    house = House(rules(v=of_connectors()))
    connection, _refusal = house.adopt()
    house.change(ruleset_of(None), connection)
    assert connection.settings is None
    house.change(rules(v=of_connectors()), connection)
    assert connection.settings is not None
    assert connection.settings.vhost == "v"


# Once more


def test_each_epoch_is_a_new_one() -> None:
    house = House(rules(v=for_all()))
    connection = house.open()
    for number in range(1, 4):
        house.change(rules(v=for_all()))
        assert house.gate.epoch == number
        assert connection.is_denied, "until it has caught up"
        assert not connection.is_redecided
        connection.catch_up()
        assert not connection.is_denied
        assert connection.is_redecided
        assert not house.open().is_denied, "who comes later is judged by these rules already"


def test_a_connection_that_is_denied_later_ends_and_counts_for_nothing() -> None:
    house = House(rules(v=for_all()))
    first, second = house.open("ann"), house.open("eve")
    assert house.using()["now"] == 2
    house.change(rules(v={"allowUnknownUser": False, "groups": {"g": {**ALL, "users": "bob"}}}), first, second)
    assert (first.refusal, second.refusal) == (REFUSED, REFUSED)
    assert house.gate.ended == {"connections": 2}
    assert house.using()["now"] == 0
    audits = [each for each in house.effects if isinstance(each, Audit)]
    assert {each.time_s for each in audits} == {NOW}
    assert [(each["vhost"], each["group"], each["redecision"]) for each in house.events] == [
        ("v", None, "policy_change")
    ] * 2
    assert ("info", "[C7] Connection closed: decided again after policy_change") in house.lines()
    for connection in (first, second):
        connection.close()
    assert house.using()["now"] == 0
    assert house.ledger.open_connections == 0


def test_a_connection_that_moves_to_another_vhost_counts_there() -> None:
    house = House(rules(v=for_all(), w={**for_all(), "groups": {"$default": {**ALL, "sources": "a"}}}))
    staying, moving = house.open(None, "w"), house.open(None, "v")
    ruleset = rules(w=for_all(aliases="v"))
    house.change(ruleset, staying, moving)
    assert house.using("v")["now"] == 0
    assert house.using("w")["now"] == 2
    assert house.using("w")["users"].keys() == {""}
    stats = house.ledger.vhost_stats("w")
    assert stats["connectionsApproved"] == 2, "who stays is not counted again"
    for connection in (staying, moving):
        connection.close()
    assert house.using("w")["now"] == 0


def test_who_had_no_policy_is_not_given_back_to_one() -> None:
    """A connection that was never counted gives nothing back when it ends."""
    house = House(rules(v=for_all()))
    governed, ungoverned = house.open(), house.open(is_governed=False)
    assert house.using()["now"] == 1
    house.change(rules(v=for_all()), governed, ungoverned)
    ungoverned.refuse_move()
    ungoverned.close()
    assert house.using()["now"] == 1
    governed.refuse_move()
    governed.refuse_move()
    governed.close()
    assert house.using()["now"] == 0


def test_a_connection_that_has_to_move_is_told_so() -> None:
    house = House(rules(v=for_all()))
    connection = house.open()
    house.change(house.gate.ruleset, connection)
    connection.refuse_move()
    assert connection.refusal == MOVED
    (event,) = house.events
    assert event == {
        **connection.facts(), "ruleset_digest": house.gate.ruleset.digest, "stage": "open", "decision": "deny",
        "rule": None, "reason": "vhost_changed", "condition": "amqp:connection:forced",
        "detail": "connection is in another vhost by policy", "redecision": "policy_change",
    }  # fmt: skip


@pytest.mark.parametrize("limit", ["maxConnections", "maxConnectionsPerUser", "maxConnectionsPerHost"])
def test_a_limit_that_is_lowered_hits_as_many_as_there_are_too_many(limit: str) -> None:
    house = House(rules(v=for_all()))
    connections = [house.open() for _ in range(3)]
    house.change(rules(v=for_all(**{limit: 2})), *connections)
    assert [connection.keep_within_limits() for connection in reversed(connections)] == [False, True, True]
    audits = [each for each in house.effects if isinstance(each, Audit)]
    assert [each.time_s for each in audits] == [NOW]
    (event,) = house.events
    assert (event["vhost"], event["group"], event["redecision"]) == ("v", "$default", "policy_change")
    assert event["usage"] == {"total": 2, "of_user": 2, "of_host": 2}
    assert house.using()["now"] == 2
    assert [connection.keep_within_limits() for connection in reversed(connections)] == [False, True, True]


@pytest.mark.parametrize(("own", "others"), [("eve", "ann"), (None, "ann")])
def test_limits_of_a_user_are_those_of_its_own_connections(own: str | None, others: str) -> None:
    house = House(rules(v=for_all()))
    connections = [house.open(others), house.open(others), house.open(own, host="192.0.2.9")]
    house.change(rules(v=for_all(maxConnectionsPerUser=1, maxConnectionsPerHost=1)), *connections)
    assert [connection.keep_within_limits() for connection in reversed(connections)] == [True, False, True]


def test_limits_concern_no_connector() -> None:
    house = House(rules(v={**of_connectors()}))
    connection, _refusal = house.adopt()
    house.change(rules(v={**of_connectors(), "maxConnections": 0}), connection)
    assert connection.keep_within_limits()
    assert house.events == []


def test_targets_that_were_remembered_are_judged_again() -> None:
    """One byte of the bound is that of the first that is remembered afterwards."""
    house = House(rules(v=for_all()))
    connection = house.open()
    connection._allowed_targets["a"] = cast(Any, None)
    connection._allowed_targets_bytes = 700
    house.change(rules(v=for_all()), connection)
    assert connection._allowed_targets == {}
    assert connection._allowed_targets_bytes == 0


def test_connections_of_one_name_are_counted_one_by_one() -> None:
    """One `ip:port` may be connected to two listeners: the end of one, twice over, gives back nothing of the other."""
    house = House(rules(v=for_all()))
    first, second = (house.open(name=f"{HOST}:9") for _ in range(2))
    house.change(house.gate.ruleset, first, second)
    first.refuse_move()
    first.refuse_move()
    first.close()
    assert house.using() == {"now": 1, "users": {"eve": [f"{HOST}:9"]}, "hosts": {HOST: [f"{HOST}:9"]}}
    second.close()
    assert house.using()["now"] == 0


# The end


class Forgetful(Folding):
    """Notes which connections it is told to forget."""

    forgotten: list[int]

    def forget(self, connection_id: int) -> None:
        self.forgotten.append(connection_id)
        super().forget(connection_id)


@pytest.mark.parametrize("is_accepted", [True, False])
def test_sums_of_a_connection_are_written_when_it_ends(is_accepted: bool) -> None:
    effects: list[Effect] = []
    folding = Forgetful(effects.append)
    folding.forgotten = []
    House(rules(), folding=folding).connection(is_accepted=is_accepted).close()
    assert folding.forgotten == [7]


def test_the_end_of_a_connection_is_logged_with_what_it_was_denied() -> None:
    house = House(rules(v=for_all()))
    connection = house.open()
    house.effects.clear()
    connection.close()
    text = (
        f"[C7] Connection '{HOST}:7' closed with resources n_sessions=0, n_senders=0, n_receivers=0, "
        "sessions_denied=0, senders_denied=0, receivers_denied=0, max_message_size_denied:0, nConnections= 0."
    )
    assert house.lines() == [("debug", text)]
    assert connection.settings is None
    assert house.using()["now"] == 0
