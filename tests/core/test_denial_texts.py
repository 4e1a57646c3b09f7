"""Every denial names its rule in the log and in the audit event, and to the peer with policy.verboseDenials."""

from collections.abc import Callable
from typing import Any

import pytest
from memory_net import Client, Net, Vhosts

RULES = {
    "remoteHosts": "*",
    "sources": "a",
    "targets": "a, b",
    "denyTargets": "b",
    "maxSessions": 2,
    "maxMessageSize": 2000,
    "maxReceivers": 1,
    "allowAnonymousSender": True,
}
GROUP = "vhost 'v', group '$default'"
LINK, SESSION, OPEN = (f"{what} disallowed by local policy" for what in ("link", "session", "connection"))


def governed(**vhost: Any) -> Net:
    attributes = {"allowUnknownUser": True, "groups": {"$default": RULES}, **vhost}
    return Net(vhosts=Vhosts({"v": attributes}, {"enableVhostPolicy": True, "defaultVhost": ""}))


def end(link: Any) -> Callable[[], str]:
    return lambda: str(link.condition.description)


def target(client: Client) -> Callable[[], str]:
    return end(client.sender("c"))


def denied_target(client: Client) -> Callable[[], str]:
    return end(client.sender("b"))


def source(client: Client) -> Callable[[], str]:
    return end(client.receiver("b"))


def dynamic(client: Client) -> Callable[[], str]:
    return end(client.receiver(None, source={"dynamic": True}))


def limit(client: Client) -> Callable[[], str]:
    client.receiver("a")
    return end(client.receiver("a"))


def session(client: Client) -> Callable[[], str]:
    """Proton's clients keep to the channel-max: only who does not is refused."""
    refusals = [client.router.gate.begin() for _ in range(2)]
    return lambda: refusals[1].description if refusals[1] is not None else ""


def message(client: Client) -> Callable[[], str]:
    sender = client.sender(None)
    client.net.pump()
    sending = sender.send(address="c")
    return lambda: str(sending.updates[0].condition.description)  # type: ignore[union-attr]


def user_id(client: Client) -> Callable[[], str]:
    client.receiver("a", credit=1)
    sender = client.sender("a")
    client.net.pump()
    sending = sender.send(user_id=b"root")
    return lambda: str(sending.updates[0].condition.description)  # type: ignore[union-attr]


def size(client: Client) -> Callable[[], str]:
    client.receiver("a", credit=1)
    sender = client.sender("a")
    client.net.pump()
    sender.send(b"x" * 3000)
    return lambda: str(client.condition.description)  # type: ignore[union-attr]


CASES = [
    (target, LINK, f"target_not_allowed, {GROUP}, targets"),
    (denied_target, LINK, f"target_not_allowed, {GROUP}, denyTargets: b"),
    (source, LINK, f"source_not_allowed, {GROUP}, sources"),
    (dynamic, LINK, f"dynamic_source, {GROUP}, allowDynamicSource: false"),
    (limit, LINK, f"receiver_limit, {GROUP}, maxReceivers: 1"),
    (session, SESSION, f"session_limit, {GROUP}, maxSessions: 2"),
    (message, "policy violation on target", f"message_target_not_allowed, {GROUP}, targets"),
    (user_id, "user_id proxy violation", f"user_id_proxy, {GROUP}, allowUserIdProxy: false"),
    (size, "Message size exceeded", f"message_too_large, {GROUP}, maxMessageSize: 2000"),
]


@pytest.mark.parametrize("explains", [False, True])
@pytest.mark.parametrize(("deny", "text", "rule"), CASES, ids=[case[0].__name__ for case in CASES])
def test_a_denial_names_its_rule(
    deny: Callable[[Client], Callable[[], str]], text: str, rule: str, explains: bool
) -> None:
    net = governed()
    net.gate.recorder.explains = explains
    client = net.client(hostname="v")
    net.pump()
    told = deny(client)
    net.pump()
    assert told() == (f"{text}: {rule}" if explains else text)
    (event,) = net.audits
    reason, _, _, item = rule.split(", ")
    assert (event["reason"], event["rule"]["item"]) == (reason, item)
    assert (event["rule"]["vhost"], event["rule"]["group"]) == ("v", "$default")
    assert event["detail"] == told()
    (line,) = (line for line in net.log_texts("POLICY") if "DENY" in line)
    assert line.endswith(f" [{reason}: {item} of group '$default' of vhost 'v']")


@pytest.mark.parametrize(
    ("hostname", "vhost", "rule", "place"),
    [
        ("other", {}, "no_vhost, defaultVhost: ", "no_vhost: defaultVhost: "),
        ("v", {"allowUnknownUser": False}, "unknown_user, vhost 'v', allowUnknownUser: false",
         "unknown_user: allowUnknownUser: false of vhost 'v'"),
        ("v", {"maxConnections": 0}, "vhost_connection_limit, vhost 'v', maxConnections: 0",
         "vhost_connection_limit: maxConnections: 0 of vhost 'v'"),
    ],
)  # fmt: skip
def test_a_refused_connection_is_told_as_well(hostname: str, vhost: dict[str, Any], rule: str, place: str) -> None:
    net = governed(**vhost)
    net.gate.recorder.explains = True
    client = net.client(hostname=hostname)
    net.pump()
    assert client.condition is not None
    assert client.condition.description == f"{OPEN}: {rule}"
    (line,) = (line for line in net.log_texts("POLICY") if "DENY AMQP Open" in line)
    assert line.endswith(f" [{place}]")


def test_a_long_rule_is_cut_for_the_peer() -> None:
    """An item of a list is as long as the operator likes, and a description is not."""
    net = Net(
        vhosts=Vhosts({"v": {"allowUnknownUser": True, "groups": {"$default": {**RULES, "denyTargets": "a" * 900}}}})
    )
    net.gate.recorder.explains = True
    sender = net.client(hostname="v").sender("a" * 900)
    net.pump()
    assert sender.condition is not None
    assert len(sender.condition.description or "") < 300
    assert (sender.condition.description or "").endswith("aaa...")
