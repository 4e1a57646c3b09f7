"""onPolicyChange: enforce. What open connections keep and lose when other rules come into force (issue 5)."""

from typing import Any

import pytest
from memory_net import ACCEPTED, MODIFIED, REJECTED, RELEASED, Client, Net, Vhosts, at, ruleset_of
from proton import symbol

from policy.rights import NOTHING, UNRESTRICTED, UNSET
from router.amqp.engine.connection import MAX_UNANSWERED_DETACHES

NOW = 1.85e9  # 2028
END = 1_893_456_000.0  # 2030-01-01
UNAUTHORIZED, LIMIT = "amqp:unauthorized-access", "amqp:resource-limit-exceeded"
OPEN = {"remoteHosts": "*", "sources": "*", "targets": "*", "allowAnonymousSender": True, "allowDynamicSource": True}


def rules(vhost: dict[str, Any] | None = None, **group: Any) -> Vhosts:
    """One vhost `v`, also called `alias`, with one group for everybody."""
    attributes = {"allowUnknownUser": True, "groups": {"$default": {**OPEN, **group}}, **(vhost or {})}
    return Vhosts({"v": attributes})


def change(net: Net, vhosts: Vhosts) -> None:
    """Put other rules in force, and nothing more."""
    net.gate.ruleset = ruleset_of(vhosts)
    net.gate.begin_epoch("policy_change", lambda _connection: True, NOW)


def enforce(net: Net, vhosts: Vhosts) -> None:
    """Put other rules in force and decide every open connection again."""
    change(net, vhosts)
    for client in net.clients:
        for _ in client.router.redecide():
            pass
    for client in reversed(net.clients):
        client.router.keep_within_limits()
    net.gate.end_epoch()
    net.work.finish()
    net.pump()


def client_of(net: Net, **more: Any) -> Client:
    client = net.client(hostname="v", **more)
    net.pump()
    return client


def test_rights_of_management_are_those_of_the_settings_now() -> None:
    net = Net(vhosts=rules(management="operator"))
    client = client_of(net)
    gate = client.router.gate
    assert str(gate.management_rights()) == "operator"
    net.gate.ruleset = ruleset_of(rules(management="observer"))
    assert str(gate.management_rights()) == "operator"  # kept, as long as nothing says to enforce
    change(net, rules(management="observer"))
    assert gate.management_rights() is NOTHING  # until it is decided again
    gate.catch_up()
    assert str(gate.management_rights()) == "observer"
    change(net, rules({"allowUnknownUser": False}))
    gate.catch_up()
    assert gate.management_rights() is NOTHING


def test_without_a_group_that_says_so_rights_are_those_of_1_20_but_for_the_host() -> None:
    assert client_of(Net(vhosts=rules())).router.gate.management_rights() is UNSET
    assert client_of(Net()).router.gate.management_rights() is UNRESTRICTED


def test_only_what_is_denied_goes() -> None:
    """policy 26 with enforce: a denied link is detached as at its attach, its neighbours do not notice"""
    net = Net(vhosts=rules())
    client = client_of(net)
    sender, other = client.sender("a"), client.sender("b")
    receiver = client.receiver("a", credit=10, accepts=True)
    net.pump()
    enforce(net, rules(targets="a"))
    assert (other.is_detached, other.was_closed, other.refusal.name) == (True, True, UNAUTHORIZED)
    assert other.refusal.description == "link disallowed by local policy"
    sendings = [sender.send(b"%d" % number) for number in range(3)]
    net.pump()
    assert [sending.outcome for sending in sendings] == [ACCEPTED] * 3
    assert receiver.bodies == [b"0", b"1", b"2"]
    (event,) = net.audits
    assert (event["stage"], event["reason"], event["address"], event["direction"]) == (
        "attach", "target_not_allowed", "b", "send",
    )  # fmt: skip
    assert event["redecision"] == "policy_change"
    assert event["ruleset_digest"] == net.gate.ruleset.digest
    assert net.ledger.policy_counters()["linksDenied"] == 1
    gate = client.router.gate
    assert (gate.open_senders, gate.open_receivers) == (1, 1)
    net.nothing_left()


def test_deliveries_of_a_link_that_goes_are_settled_as_those_of_a_lost_one() -> None:
    net = Net(vhosts=rules())
    client = client_of(net)
    sender, receiver = client.sender("a"), client.receiver("a", credit=1)
    net.pump()
    first, second = sender.send(), sender.send()
    net.pump()
    assert len(receiver.complete) == 1
    enforce(net, rules(sources="b"))
    assert receiver.is_detached
    assert [first.outcome, second.outcome] == [MODIFIED, RELEASED]  # sent, and waiting for credit
    net.nothing_left()


def test_a_message_that_is_half_sent_on_a_denied_link_is_aborted() -> None:
    net = Net(vhosts=rules())
    client = client_of(net)
    sender, receiver = client.sender("a"), client.receiver("a", credit=5)
    net.pump()
    sender.start()
    sender.append(b"\x00\x53\x75\xb0" + (400_000).to_bytes(4, "big") + bytes(200_000))
    net.pump()
    enforce(net, rules(targets="b"))
    assert sender.is_detached
    assert [item.is_aborted for item in receiver.received] == [True]
    net.nothing_left()


@pytest.mark.parametrize(("limit", "role"), [("maxSenders", "sender"), ("maxReceivers", "receiver")])
def test_of_too_many_links_the_newest_go(limit: str, role: str) -> None:
    net = Net(vhosts=rules())
    client = client_of(net)
    ends = [getattr(client, role)(f"a{number}") for number in range(4)]
    net.pump()
    enforce(net, rules(None, **{limit: 2}))
    assert [end.is_detached for end in ends] == [False, False, True, True]
    assert {end.condition.name for end in ends[2:]} == {LIMIT}
    assert [event["usage"]["open_links"] for event in net.audits] == [2, 2]
    assert {event["limit"] for event in net.audits} == {2}
    ends[0].close()
    net.pump()
    again = getattr(client, role)("b")
    net.pump()
    assert again.is_attached  # the slots that remain are counted
    assert not again.is_detached
    net.nothing_left()


def test_a_client_that_loses_very_many_links_may_go_on() -> None:
    """Links refused and left standing end a connection; these are not of the client's making."""
    net = Net(vhosts=rules())
    client = client_of(net)
    ends = [client.sender(f"b{number}") for number in range(MAX_UNANSWERED_DETACHES + 10)]
    net.pump()
    client.stop_reading()
    enforce(net, rules(targets="a"))
    sender = client.sender("a")
    client.push_to_router()
    client.resume_reading()
    net.pump()
    assert all(end.is_detached for end in ends)
    assert not sender.is_detached
    assert not client.is_closed_by_router
    net.nothing_left()


def test_links_on_a_session_that_was_ended_are_bounded() -> None:
    """Attack: go on attaching on it and never answer the End; none of these links is refused, and all would stay."""
    net = Net(vhosts=rules())
    client = client_of(net)
    extra = client.connection.session()
    extra.open()
    net.pump()
    client.stop_reading()
    enforce(net, rules(maxSessions=1))
    for number in range(MAX_UNANSWERED_DETACHES + 10):
        client.sender(f"b{number}", session=extra)
    net.pump()
    assert client.is_closed_by_router
    assert "closed by us without an answer" in net.audits[-1]["detail"]
    net.nothing_left()


def test_links_that_were_refused_are_forgotten_with_their_session() -> None:
    """A client that ends its session in place of answering each Detach may go on for ever."""
    net = Net(vhosts=rules(targets="a"))
    client = client_of(net)
    net.pump()
    for _ in range(3):
        session = client.connection.session()
        session.open()
        net.pump()
        client.stop_reading()
        for number in range(MAX_UNANSWERED_DETACHES // 2):
            client.sender(f"b{number}", session=session)
        net.pump()
        session.close()
        net.pump()
        client.resume_reading()
        net.pump()
    assert net.peer(client).engine.unanswered == 0
    assert not client.is_closed_by_router
    net.nothing_left()


def test_of_too_many_sessions_the_newest_end() -> None:
    net = Net(vhosts=rules())
    client = client_of(net)
    extra = [client.connection.session() for _ in range(2)]
    for session in extra:
        session.open()
    kept = client.sender("a")
    client.sender("b", session=extra[1])
    net.pump()
    enforce(net, rules(maxSessions=2))
    ended = extra[1].remote_condition
    assert ended is not None
    assert (ended.name, ended.description) == (LIMIT, "session disallowed by local policy")
    assert extra[0].remote_condition is None
    client.receiver("a", credit=5, accepts=True)
    net.pump()
    sending = kept.send()
    net.pump()
    assert sending.outcome == ACCEPTED
    gate = client.router.gate
    assert (gate.open_sessions, gate.open_senders) == (2, 1)
    assert [(event["stage"], event["reason"]) for event in net.audits] == [("begin", "session_limit")]
    net.nothing_left()


def test_a_connection_that_is_denied_is_closed_as_at_its_open() -> None:
    net = Net(vhosts=rules())
    client = client_of(net)
    receiver = client.receiver("a", credit=5)
    net.pump()
    enforce(net, rules(remoteHosts="192.0.2.1"))
    assert client.is_closed_by_router
    assert (client.refusal.name, client.refusal.description) == (LIMIT, "connection disallowed by local policy")
    (event,) = net.audits
    assert (event["stage"], event["reason"], event["redecision"]) == ("open", "host_not_allowed", "policy_change")
    assert event["condition"] == LIMIT
    assert net.ledger.vhost_stats("v")["connectionsCurrent"] == 0
    assert net.ledger.vhost_stats("v")["connectionsDenied"] == 1
    assert not receiver.received
    net.nothing_left()


def test_of_too_many_connections_the_newest_go() -> None:
    """Their own count is not held against them: two of two may stay."""
    net = Net(vhosts=rules())
    clients = [client_of(net) for _ in range(5)]
    enforce(net, rules({"maxConnections": 2}))
    assert [client.is_closed_by_router for client in clients] == [False, False, True, True, True]
    assert [event["usage"]["total"] for event in net.audits] == [4, 3, 2]
    assert net.ledger.vhost_stats("v")["connectionsCurrent"] == 2
    enforce(net, rules({"maxConnections": 2}))
    assert not clients[1].is_closed_by_router
    net.nothing_left()


def test_a_connection_is_counted_where_it_is_now() -> None:
    """The vhost a connection asked for has become another's alias."""
    net = Net(vhosts=rules())
    clients = [client_of(net) for _ in range(3)]
    new = {"aliases": "v", "allowUnknownUser": True, "maxConnections": 2, "groups": {"$default": OPEN}}
    enforce(net, Vhosts({"w": new}))
    assert [client.is_closed_by_router for client in clients] == [False, False, True]
    assert net.ledger.vhost_stats("v")["connectionsCurrent"] == 0
    assert net.ledger.vhost_stats("w")["connectionsCurrent"] == 2
    for client in clients:
        client.kill()
    assert net.ledger.vhost_stats("w")["connectionsCurrent"] == 0
    net.nothing_left()


def test_a_tenant_does_not_take_its_links_into_another_address_space() -> None:
    net = Net(vhosts=rules(), is_multi_tenant=True)
    client = client_of(net)
    client.receiver("a", credit=1)
    net.pump()
    enforce(net, Vhosts({"w": {"aliases": "v", "allowUnknownUser": True, "groups": {"$default": OPEN}}}))
    assert client.is_closed_by_router
    assert client.refusal.name == "amqp:connection:forced"
    assert [(event["stage"], event["reason"]) for event in net.audits] == [("open", "vhost_changed")]
    net.nothing_left()


def test_the_size_limit_of_open_links_follows() -> None:
    net = Net(vhosts=rules())
    client, other = client_of(net), client_of(net)
    sender, receiver = client.sender("a"), other.receiver("a", credit=5, accepts=True)
    net.pump()
    sender.send(b"x" * 500)
    net.pump()
    enforce(net, rules(maxMessageSize=100))
    sending = sender.send(b"y" * 500)
    net.pump()
    assert sending.outcome == REJECTED
    assert client.refusal.description == "Message size exceeded"
    assert receiver.bodies == [b"x" * 500]
    net.nothing_left()


def test_a_size_limit_that_is_gone_lets_larger_messages_pass() -> None:
    net = Net(vhosts=rules(maxMessageSize=100))
    client = client_of(net)
    sender = client.sender("a")
    client.receiver("a", credit=5, accepts=True)
    net.pump()
    enforce(net, rules())
    sending = sender.send(b"y" * 500)
    net.pump()
    assert sending.outcome == ACCEPTED
    net.nothing_left()


def test_the_user_id_check_of_open_links_follows() -> None:
    net = Net(vhosts=rules(allowUserIdProxy=True))
    client = client_of(net)
    sender = client.sender("a")
    client.receiver("a", credit=5, accepts=True)
    net.pump()
    enforce(net, rules())
    foreign, own = sender.send(user_id=b"somebody"), sender.send(user_id=b"anonymous")
    net.pump()
    assert [foreign.outcome, own.outcome] == [REJECTED, ACCEPTED]
    net.nothing_left()


def test_targets_remembered_on_an_anonymous_link_are_asked_about_again() -> None:
    net = Net(vhosts=rules())
    client = client_of(net)
    anonymous = client.sender(None)
    client.receiver("a", credit=5, accepts=True)
    net.pump()
    before = anonymous.send(address="a")
    net.pump()
    enforce(net, rules(targets="b"))
    after = anonymous.send(address="a")
    net.pump()
    assert [before.outcome, after.outcome] == [ACCEPTED, REJECTED]
    assert not anonymous.is_detached
    net.nothing_left()


def test_a_remembered_target_is_asked_about_again_before_the_connections_turn() -> None:
    """Attack: go on sending where it was allowed, while the router is busy with other connections."""
    net = Net(vhosts=rules())
    client = client_of(net)
    anonymous = client.sender(None)
    client.receiver("a", credit=5, accepts=True)
    net.pump()
    before = anonymous.send(address="a")
    net.pump()
    change(net, rules(targets="b"))
    after = anonymous.send(address="a")
    net.pump()
    assert [before.outcome, after.outcome] == [ACCEPTED, REJECTED]
    net.nothing_left()


def test_what_is_new_is_judged_by_the_new_rules_before_the_connections_turn() -> None:
    """Attack: attach quickly while the router is busy with other connections."""
    net = Net(vhosts=rules())
    client = client_of(net)
    old, anonymous = client.sender("a"), client.sender(None)
    net.pump()
    change(net, rules(targets="b", maxSessions=1))
    new, message = client.sender("a2"), anonymous.send(address="a3")
    session = client.connection.session()
    session.open()
    net.pump()
    assert new.refusal.name == UNAUTHORIZED
    assert message.outcome == REJECTED
    assert session.remote_condition is not None
    assert session.remote_condition.name == LIMIT
    assert not old.is_detached  # its turn will come
    net.nothing_left()


def test_a_connection_that_is_denied_is_closed_when_it_asks_for_anything_new() -> None:
    net = Net(vhosts=rules())
    client, quiet = client_of(net), client_of(net)
    change(net, rules(remoteHosts="192.0.2.1"))
    client.sender("a")
    net.pump()
    assert client.refusal.name == LIMIT
    assert not quiet.is_closed_by_router
    assert [event["reason"] for event in net.audits] == ["host_not_allowed"]  # audited once
    assert not net.core.links
    net.nothing_left()


def test_management_is_not_done_for_a_connection_that_is_denied_now() -> None:
    net = Net(vhosts=rules())
    gate = client_of(net).router.gate
    assert gate.may_update_admin_status()
    assert gate.may_send_to(at("a"))
    change(net, rules(allowAdminStatusUpdate=False, targets="b"))
    gate.catch_up()
    assert gate.may_send_to(at("b"))
    assert not gate.may_update_admin_status()
    assert not gate.may_send_to(at("a"))
    change(net, rules(remoteHosts="192.0.2.1", targets="b"))
    gate.catch_up()
    assert not gate.may_send_to(at("b"))


def test_questions_change_nothing_and_are_answered_no_until_the_connection_has_caught_up() -> None:
    """A predicate that decided, logged and recorded would do so in the middle of another connection's work."""
    net = Net(vhosts=rules(management="operator"))
    client = client_of(net)
    anonymous = client.sender(None)
    client.receiver("a", credit=5, accepts=True)
    net.pump()
    anonymous.send(address="a")
    net.pump()
    gate = client.router.gate

    def answers() -> list[object]:
        rights = (gate.may_send_to(at("a")), gate.may_name(at("a")), gate.may_update_admin_status())
        return [gate.known_target("a") is not None, *rights, str(gate.management_rights())]

    assert answers() == [True, True, True, True, "operator"]
    for vhosts in (rules(management="operator"), rules(remoteHosts="192.0.2.1")):
        change(net, vhosts)
        effects, counted = len(net.effects), net.ledger.vhost_stats("v")
        assert answers() == [False, False, False, False, str(NOTHING)]
        assert (len(net.effects), net.ledger.vhost_stats("v"), gate.refusal) == (effects, counted, None)
        gate.catch_up()
        is_allowed = vhosts.vhosts == rules(management="operator").vhosts
        assert answers()[1:4] == [is_allowed] * 3
        assert (gate.refusal is None) == is_allowed


def test_a_fault_while_deciding_again_leaves_it_undecided(monkeypatch: pytest.MonkeyPatch) -> None:
    """Taken for decided it would go on with what it had been granted."""
    net = Net(vhosts=rules())
    gate = client_of(net).router.gate
    change(net, rules(remoteHosts="192.0.2.1"))

    def fail(_ledger: object, _vhost: str) -> None:
        raise RuntimeError

    with monkeypatch.context() as broken:
        broken.setattr(type(net.gate.ledger), "count_open_denied", fail)
        with pytest.raises(RuntimeError):
            gate.catch_up()
        assert not gate.may_send_to(at("a"))
    gate.catch_up()
    assert not gate.may_send_to(at("a"))


def test_without_enforce_open_connections_keep_what_they_have() -> None:
    """policy 26"""
    net = Net(vhosts=rules())
    client = client_of(net)
    sender = client.sender("a")
    net.pump()
    net.gate.ruleset = ruleset_of(rules(targets="b", remoteHosts="192.0.2.1"))
    later = client.sender("a")
    net.pump()
    assert not sender.is_detached
    assert not later.is_detached
    assert not net.audits


def test_only_those_who_are_concerned_are_decided_again() -> None:
    net = Net(vhosts=rules())
    one, other = client_of(net), client_of(net)
    net.gate.ruleset = ruleset_of(rules({"maxConnections": 0}, remoteHosts="192.0.2.1"))
    net.gate.begin_epoch("policy_change", lambda connection: connection is one.router.gate, NOW)
    for client in net.clients:
        for _ in client.router.redecide():
            pass
        client.router.keep_within_limits()
    net.work.finish()
    net.pump()
    assert [one.is_closed_by_router, other.is_closed_by_router] == [True, False]


def expire(net: Net, at: float) -> None:
    """The clock has come to `at`, and connections whose group is over are decided again."""
    net.gate.begin_epoch("expiry", lambda connection: connection.is_over_at(at), at)
    for client in net.clients:
        for _ in client.router.redecide():
            pass
        client.router.keep_within_limits()
    net.gate.end_epoch()
    net.work.finish()
    net.pump()


def test_the_end_of_a_group_ends_its_connections() -> None:
    """issue 5, validUntil: whatever onPolicyChange says"""
    net = Net(vhosts=rules(validUntil="2030-01-01T00:00:00Z"))
    client = client_of(net)
    expire(net, END - 1)
    assert not client.is_closed_by_router
    expire(net, END)
    assert client.is_closed_by_router
    assert client.condition.name == LIMIT
    (event,) = net.audits
    assert (event["stage"], event["reason"], event["redecision"]) == ("open", "group_not_valid", "expiry")
    net.nothing_left()


def test_who_is_over_is_decided_by_the_rules_in_force_and_nobody_else_is() -> None:
    """A validUntil that has been put off holds; the new rules are no business of who keeps the old ones."""
    net = Net(vhosts=rules(validUntil="2030-01-01T00:00:00Z"))
    client = client_of(net)
    net.gate.ruleset = ruleset_of(rules(validUntil="2040-01-01T00:00:00Z"))
    other = client_of(net)
    net.gate.ruleset = ruleset_of(rules(validUntil="2040-01-01T00:00:00Z", targets="b"))
    ends = [client.sender("a"), other.sender("a")]
    net.pump()
    expire(net, END)
    assert [end.is_detached for end in ends] == [True, False]
    assert not client.is_closed_by_router
    net.nothing_left()


def test_a_connection_not_governed_is_left_alone() -> None:
    net = Net(vhosts=rules(), router_id="QDR")
    client = client_of(net, role="inter-router")
    client.receiver(None, source={"capabilities": symbol("qd.router")})
    sender = client.sender("a")
    net.pump()
    enforce(net, rules(remoteHosts="192.0.2.1", targets="b"))
    assert not sender.is_detached
    assert not client.is_closed_by_router


def test_an_error_inside_a_decision_closes_that_connection_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    net = Net(vhosts=rules())
    client, other = client_of(net), client_of(net)
    monkeypatch.setattr(client.router.peer, "redecide", lambda: iter([1 // 0]))
    enforce(net, rules())
    assert client.is_closed_by_router
    assert not other.is_closed_by_router
