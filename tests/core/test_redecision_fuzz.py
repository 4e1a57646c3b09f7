"""Rules that change at any moment of a connection's life, on any connection, and passes that are cut short."""

import random
from typing import Any

import pytest
from memory_net import Client, Net, Receiver, Sender, Vhosts, at, free_clients, ruleset_of

from router.connection.stack import Stage
from router.core.in_links import InLink

ADDRESSES = ("a", "b", "c", None)
HEAD = b"\x00\x53\x75\xb0" + (400_000).to_bytes(4, "big")


def rules(chance: random.Random) -> Vhosts:
    def some() -> str:
        return ",".join(chance.sample(("a", "b", "c"), chance.randint(1, 3)))

    group: dict[str, Any] = {"remoteHosts": "*", "sources": some(), "targets": some()}
    for key in ("allowAnonymousSender", "allowDynamicSource", "allowUserIdProxy"):
        group[key] = chance.random() < 0.7
    for key in ("maxSessions", "maxSenders", "maxReceivers", "maxMessageSize"):
        if chance.random() < 0.3:
            group[key] = chance.randint(1, 3) * (500 if key == "maxMessageSize" else 1)
    if chance.random() < 0.05:
        group["remoteHosts"] = "192.0.2.1"
    vhost = {"allowUnknownUser": True, "groups": {"$default": group}}
    if chance.random() < 0.2:
        vhost["maxConnections"] = chance.randint(1, 6)
    other = chance.random() < 0.3
    return Vhosts({"w": {**vhost, "aliases": "v"}} if other else {"v": vhost})


class Fuzz:
    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        tenants = self.chance.random() < 0.2
        self.net = Net({"c": "multicast"}, vhosts=rules(self.chance), is_multi_tenant=tenants, read_bytes=4096)
        self.clients: list[Client] = []
        self.ends: list[Sender | Receiver] = []

    def step(self) -> None:
        chance = self.chance
        actions = [self.connect, self.attach, self.attach, self.send, self.send, self.stream, self.detach, self.leave]
        actions += [self.session, self.change, self.some_of_a_pass, self.whole_pass]
        chance.choice(actions)()
        if chance.random() < 0.8:
            self.net.pump()

    def connect(self) -> None:
        self.clients.append(self.net.client(hostname="v"))

    def living(self) -> Client | None:
        alive = [each for each in self.clients if not each.is_dead and not each.router_closed]
        return self.chance.choice(alive) if alive else None

    def attach(self) -> None:
        client, chance = self.living(), self.chance
        if client is None:
            return
        address = chance.choice(ADDRESSES)
        if chance.random() < 0.5:
            self.ends.append(client.sender(address))
        elif address is None:
            self.ends.append(client.receiver(None, credit=3, source={"dynamic": True}))
        else:
            self.ends.append(client.receiver(address, credit=chance.choice((0, 3, 50)), accepts=chance.random() < 0.7))

    def session(self) -> None:
        if (client := self.living()) is not None:
            session = client.connection.session()
            session.open()
            self.ends.append(client.sender("a", session=session))

    def usable(self, kind: type) -> Any:
        found = [
            end
            for end in self.ends
            if isinstance(end, kind) and end.is_attached and not end.is_detached and not end.client.router_closed
        ]
        return self.chance.choice(found) if found else None

    def send(self) -> None:
        sender = self.usable(Sender)
        for _ in range(self.chance.randint(1, 4) if sender is not None else 0):
            to = {"address": self.chance.choice("abc")} if self.chance.random() < 0.5 else {}
            sender.send(bytes(self.chance.choice((10, 700))), is_settled=self.chance.random() < 0.3, **to)

    def stream(self) -> None:
        """Half of a large message."""
        sender = self.usable(Sender)
        if sender is not None and sender.credit > 0:
            sender.start()
            sender.append(HEAD + bytes(150_000))
            self.ends.remove(sender)

    def detach(self) -> None:
        end = self.usable(self.chance.choice((Sender, Receiver)))
        if end is not None:
            end.close()

    def leave(self) -> None:
        client = self.living()
        if client is not None and self.chance.random() < 0.5:
            client.kill() if self.chance.random() < 0.5 else client.close()

    def change(self) -> None:
        self.net.gate.ruleset = ruleset_of(rules(self.chance))
        self.net.gate.begin_epoch("policy_change", lambda _connection: True, 1.9e9)

    def some_of_a_pass(self) -> None:
        """A pass that another change will begin anew."""
        for client in list(self.net.clients)[: self.chance.randint(0, 3)]:
            for _ in client.router.redecide():
                if self.chance.random() < 0.3:
                    break
            if self.chance.random() < 0.5:
                self.net.work.finish()

    def whole_pass(self) -> None:
        net = self.net
        for client in list(net.clients):
            for _ in client.router.redecide():
                if self.chance.random() < 0.1:
                    net.work.finish()
        for client in reversed(list(net.clients)):
            client.router.keep_within_limits()
        net.gate.end_epoch()
        net.work.finish()

    def check(self) -> None:
        """After a pass nobody has more than the rules in force allow, and every count is right."""
        net = self.net
        net.pump()
        net.no_errors()
        counted: dict[str, int] = {}
        for client in net.clients:
            peer, gate = client.router.peer, client.router.gate
            if client.router.stage is not Stage.AMQP or peer is None or not peer.is_open:
                continue
            settings = gate.settings
            assert settings is not None
            assert gate.refusal is None
            assert settings.origin is net.gate.ruleset.vhosts[settings.vhost].groups["$default"]
            counted[settings.vhost] = counted.get(settings.vhost, 0) + 1
            wires = [wire for wire in peer.engine.links.values() if wire.is_counted]
            senders = [wire for wire in wires if isinstance(wire.core, InLink)]
            assert len(senders) <= settings.max_senders
            assert gate.open_senders + gate.open_receivers == len(wires)
            assert gate.open_sessions == sum(session.is_counted for session in peer.engine.sessions.values())
            assert not settings.max_sessions or gate.open_sessions <= settings.max_sessions
            for wire in senders:
                target = wire.target.address if wire.target is not None else None
                allowed = settings.allow_anonymous_sender if target is None else settings.targets.judge(at(target)).item
                assert allowed
                link: Any = wire.core
                assert link.max_message_bytes == settings.max_message_size
        for name in net.ledger.vhost_names():
            assert net.ledger.vhost_stats(name)["connectionsCurrent"] == counted.get(name, 0)
            if name in net.gate.ruleset.vhosts:
                assert counted.get(name, 0) <= net.gate.ruleset.vhosts[name].max_connections


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(30))
def test_rules_may_change_at_any_moment(seed: int) -> None:
    """issue 5"""
    fuzz = Fuzz(seed)
    for _ in range(60):
        fuzz.step()
    fuzz.change()
    fuzz.whole_pass()
    fuzz.check()
    fuzz.net.nothing_left()
    free_clients(fuzz.net)
