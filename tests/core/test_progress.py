"""Messages under way that make no progress, and receivers that take nothing of one (core.progress, routing §10.6)."""

from typing import Any

import pytest
from memory_net import ACCEPTED, MODIFIED, REJECTED, Net, Receiver, Sender, Vhosts, encoded
from test_streaming import MEGABYTE, Upload, held_bytes

from router.core.budget import Limits
from router.core.progress import MIN_BYTES_PER_S

TIMEOUT_S = 8
# Until what stalls is noticed at the latest.
NOTICED_S = TIMEOUT_S * 1.25 + 2
CONDITION = "amqp:resource-limit-exceeded"


def net_of(distributions: dict[str, str] | None = None, **terms: Any) -> Net:
    """Nobody is idle too long for the router: what time passes here is for messages."""
    return Net(distributions, progress_s=TIMEOUT_S, idle_timeout_s=0, **{"session_bytes": MEGABYTE, **terms})


def begin(sender: Sender, size: int, *, of: int = 10 * MEGABYTE) -> Any:
    """The first `size` bytes of a larger message."""
    sending = sender.start()
    sender.append(encoded(bytes(of), address="a")[:size])
    return sending


def reasons(net: Net) -> list[tuple[str, str | None]]:
    return [(event["reason"], event["direction"]) for event in net.audits]


def given_up(net: Net) -> tuple[int, int]:
    return net.progress.messages_given_up, net.progress.receivers_given_up


@pytest.mark.parametrize("target", ["a", None])
def test_a_message_that_never_ends_is_aborted_and_others_go_on(target: str | None) -> None:
    net = net_of()
    receiver = net.client("receives").receiver("a", credit=10, accepts=True)
    attacker, honest = net.client("attacks").sender(target), net.client("sends").sender("a")
    net.pump()
    sending = begin(attacker, 200_000)
    net.pump()
    waiting = honest.send(b"waits")
    net.pump()
    assert not receiver.complete
    net.advance(TIMEOUT_S - 1)
    assert not attacker.is_detached
    net.advance(NOTICED_S - TIMEOUT_S + 1)
    assert receiver.received[0].is_aborted
    assert receiver.bodies == [b"waits"]
    assert waiting.outcome == ACCEPTED
    assert sending.updates[-1].state == REJECTED
    assert sending.updates[-1].refusal.name == CONDITION
    assert attacker.was_closed
    assert attacker.refusal.name == CONDITION
    assert attacker.refusal.description == f"a message under way made no progress for {TIMEOUT_S} seconds"
    assert reasons(net) == [("message_stalled", "send")]
    assert net.audits[0]["limit"] == TIMEOUT_S
    assert [line for line in net.log_texts("POLICY") if "message_stalled" in line][1:] == []
    assert given_up(net) == (1, 0)
    net.nothing_left()


@pytest.mark.parametrize("size", [1, 100_000, 200_000])
def test_a_trickle_is_no_progress(size: int) -> None:
    """A byte now and then, of a message that is forwarded already or still gathered."""
    net = net_of()
    receiver = net.client().receiver("a", credit=10)
    attacker = net.client().sender("a")
    net.pump()
    begin(attacker, size)
    net.pump()
    for _ in range(round(NOTICED_S)):
        attacker.append(b"x")
        net.advance(1)
    assert attacker.was_closed
    assert not receiver.complete
    assert reasons(net) == [("message_stalled", "send")]
    net.nothing_left()


@pytest.mark.parametrize("size", [10_000, 200_000])
def test_a_slow_message_arrives(size: int) -> None:
    """As many bytes in a second as count for progress: however long it takes."""
    net = net_of()
    receiver = net.client().receiver("a", credit=10, accepts=True)
    sender = net.client().sender("a")
    net.pump()
    whole = encoded(bytes(MEGABYTE // 4))
    sending = sender.start()
    sender.append(whole[:size])
    for at in range(size, size + 60 * MIN_BYTES_PER_S, MIN_BYTES_PER_S):
        sender.append(whole[at : at + MIN_BYTES_PER_S])
        net.advance(1)
    assert not sender.is_detached
    sender.append(whole[size + 60 * MIN_BYTES_PER_S :])
    sender.finish()
    net.pump()
    assert sending.outcome == ACCEPTED
    assert len(receiver.complete[0].body) == MEGABYTE // 4
    assert given_up(net) == (0, 0)
    net.nothing_left()


def test_never_is_never() -> None:
    net = net_of()
    net.progress.timeout_s = 0
    receiver = net.client().receiver("a", credit=10)
    sender = net.client().sender("a")
    net.pump()
    begin(sender, 200_000)
    net.advance(10_000, step=100)
    assert not sender.is_detached
    assert not receiver.received[0].is_aborted
    net.nothing_left()


def test_messages_that_follow_each_other_are_none_that_never_ends() -> None:
    """Each time that is looked another one has come in part: same size, same place in the engine."""
    net = net_of()
    net.client().receiver("a", credit=1000, accepts=True)
    sender = net.client().sender("a")
    net.pump()
    whole = encoded(bytes(20_000))
    for payload, is_aborted in ((whole, False), (b"\xff" * 20_000, False), (whole, True)):
        for _ in range(round(3 * NOTICED_S)):
            sending = sender.start()
            sender.append(payload[:10_000])
            net.advance(1)
            if is_aborted:
                sending.abort()
            else:
                sender.append(payload[10_000:])
                sender.finish()
    assert not sender.is_detached
    assert given_up(net) == (0, 0)
    net.nothing_left()


def test_the_rest_of_a_message_that_nobody_gets_ends_as_well() -> None:
    """To a consumer inside the router, such as management: more than it takes is refused, and the rest thrown away."""
    net = net_of()
    net.core.subscribe("_inside", lambda _payload, _link: None)
    sender = net.client().sender("_inside")
    net.pump()
    small = begin(sender, 100_000)
    net.advance(1)
    assert held_bytes(net) < 128 * 1024
    sender.append(bytes(100_000))
    net.pump()
    assert not small.updates
    assert held_bytes(net) == 0
    net.advance(TIMEOUT_S - 1)
    assert not sender.is_detached
    net.advance(NOTICED_S - TIMEOUT_S + 2)
    assert small.updates[-1].state == REJECTED
    assert small.updates[-1].refusal.name == "amqp:link:message-size-exceeded"
    assert sender.was_closed
    assert sender.refusal.name == CONDITION
    assert given_up(net) == (1, 0)
    net.no_errors()


def test_the_session_of_a_message_given_up_stays_usable() -> None:
    """What is on its way when the link is closed does not use up the session's window."""
    net = net_of()
    client = net.client()
    receiver = net.client().receiver("b", credit=100, accepts=True)
    for _ in range(3):
        stalls, goes_on = client.sender("a"), client.sender("b")
        gone = net.client().receiver("a", credit=1)
        net.pump()
        begin(stalls, 200_000)
        net.pump()
        client.stop_reading()
        net.advance(NOTICED_S)
        for _ in range(10):
            stalls.append(bytes(100_000))
            net.pump()
        client.resume_reading()
        net.pump()
        assert stalls.was_closed
        gone.client.kill()
        upload = Upload(goes_on, 3 * MEGABYTE)
        while upload.left:
            assert upload.push(net) > 0
        upload.finish()
        net.pump()
        assert upload.sending.outcome == ACCEPTED
    assert len(receiver.complete) == 3
    net.nothing_left()


# Receivers


def stall(receiver: Receiver, how: str, session: Any = None) -> None:
    """The receiver takes nothing from now on."""
    if how == "socket":
        receiver.client.stop_reading()
    elif how == "window":
        receiver._on_readable = lambda delivery: None  # type: ignore[method-assign]


def receiver_that(net: Net, how: str, address: str) -> Receiver:
    """One that is about to stall: it reads nothing, opens no session window, or grants no credit."""
    client = net.client("stalls")
    session = client.session
    if how == "window":
        session = client.connection.session()
        session.incoming_capacity = 4 * 32768
        session.open()
    receiver = client.receiver(address, credit=0 if how == "credit" else 10, session=session)
    net.pump()
    stall(receiver, how)
    return receiver


@pytest.mark.parametrize("how", ["socket", "window", "credit"])
@pytest.mark.parametrize("is_settled", [True, False])
def test_a_receiver_that_stalls_a_multicast_is_given_up(how: str, is_settled: bool) -> None:
    net = net_of({"m": "multicast"})
    good = net.client("good").receiver("m", credit=10, accepts=True)
    bad = receiver_that(net, how, "m")
    sender = net.client("sends").sender("m")
    net.pump()
    upload = Upload(sender, 5 * MEGABYTE)
    upload.push(net)
    assert upload.left
    net.advance(NOTICED_S)
    assert not sender.is_detached
    while upload.left:
        assert upload.push(net) > 0
    upload.finish()
    if is_settled:
        upload.sending.settle()
    net.pump()
    assert len(good.complete[0].body) == 5 * MEGABYTE
    if not is_settled:
        assert upload.sending.outcome == ACCEPTED
    assert reasons(net) == [("receiver_stalled", "receive")]
    assert net.audits[0]["connection"] == bad.client.router.connection_id
    assert given_up(net) == (0, 1)
    if how == "window":
        bad._on_readable = Receiver._on_readable.__get__(bad)  # type: ignore[method-assign]
        delivery = bad.link.current
        bad._on_readable(delivery)
    bad.client.resume_reading()
    net.pump()
    assert bad.was_closed
    assert bad.refusal.name == CONDITION
    assert bad.refusal.description == f"a message under way was not taken for {TIMEOUT_S} seconds"
    assert [item.is_aborted for item in bad.received] == ([] if how == "credit" else [True])
    assert held_bytes(net) == 0
    net.nothing_left()


def test_nobody_is_told_accepted_for_what_only_stalled_receivers_had() -> None:
    net = net_of({"m": "multicast"})
    for how in ("socket", "window"):
        receiver_that(net, how, "m")
    sender = net.client("sends").sender("m")
    net.pump()
    upload = Upload(sender, 3 * MEGABYTE)
    for _ in range(2):  # the one has a smaller buffer than the other
        upload.push(net)
        assert upload.left
        net.advance(NOTICED_S)
    while upload.left:
        assert upload.push(net) > 0
    upload.finish()
    net.pump()
    assert upload.sending.outcome == MODIFIED
    assert given_up(net) == (0, 2)
    net.nothing_left()


@pytest.mark.parametrize("how", ["socket", "window"])
def test_the_only_receiver_that_stalls_frees_its_sender(how: str) -> None:
    net = net_of()
    bad = receiver_that(net, how, "a")
    sender = net.client("sends").sender("a")
    net.pump()
    upload = Upload(sender, 5 * MEGABYTE)
    upload.push(net)
    assert upload.left
    net.advance(NOTICED_S)
    good = net.client("good").receiver("a", credit=10, accepts=True)
    while upload.left:
        assert upload.push(net) > 0
    upload.finish()
    sender.send(b"next")
    net.pump()
    assert upload.sending.outcome == MODIFIED
    assert good.bodies == [b"next"]
    assert not bad.complete
    assert given_up(net) == (0, 1)
    net.nothing_left()


def test_a_receiver_may_grant_its_credit_when_it_likes() -> None:
    """As for small messages: nobody but the sender waits."""
    net = net_of()
    receiver = net.client().receiver("a")
    sender = net.client().sender("a")
    net.pump()
    upload = Upload(sender, 5 * MEGABYTE)
    upload.push(net)
    assert upload.left
    net.advance(20 * NOTICED_S)
    assert given_up(net) == (0, 0)
    receiver.flow(1)
    while upload.left:
        assert upload.push(net) > 0
    upload.finish()
    net.pump()
    assert len(receiver.complete[0].body) == 5 * MEGABYTE
    net.nothing_left()


def test_receivers_of_a_multicast_that_all_wait_hold_up_nobody() -> None:
    net = net_of({"m": "multicast"})
    receivers = [net.client().receiver("m") for _ in range(2)]
    sender = net.client().sender("m")
    net.pump()
    upload = Upload(sender, 5 * MEGABYTE)
    upload.push(net)
    net.advance(5 * NOTICED_S)
    assert given_up(net) == (0, 0)
    receivers[0].flow(1)
    net.advance(NOTICED_S)
    assert given_up(net) == (0, 1)
    while upload.left:
        assert upload.push(net) > 0
    upload.finish()
    net.pump()
    assert len(receivers[0].complete[0].body) == 5 * MEGABYTE
    assert receivers[1].was_closed
    net.nothing_left()


def test_a_slow_receiver_gets_its_message() -> None:
    """Some of it now and then: as much as counts for progress."""
    net = net_of({"m": "multicast"})
    good = net.client("good").receiver("m", credit=10, accepts=True)
    slow = net.client("slow").receiver("m", credit=10, accepts=True)
    sender = net.client("sends").sender("m")
    net.pump()
    upload = Upload(sender, 3 * MEGABYTE)
    slow.client.stop_reading()
    upload.push(net)
    for _ in range(100):
        slow.client.is_reading = True
        slow.client.pull_from_router()
        slow.client.is_reading = False
        upload.push(net)
        if not upload.left:
            break
        net.advance(TIMEOUT_S / 2)
    assert given_up(net) == (0, 0)
    slow.client.resume_reading()
    net.pump()
    upload.push(net)
    assert upload.left == 0
    upload.finish()
    net.pump()
    assert [len(each.complete[0].body) for each in (good, slow)] == [3 * MEGABYTE] * 2
    assert upload.sending.outcome == ACCEPTED
    net.nothing_left()


def test_a_sender_that_its_receiver_holds_up_is_not_at_fault() -> None:
    """It fills its session and may send no more: the receiver is looked at, and not the sender."""
    net = net_of({"m": "multicast"})
    net.client().receiver("m", credit=10)
    receiver_that(net, "socket", "m")
    sender = net.client().sender("m")
    net.pump()
    Upload(sender, 5 * MEGABYTE).push(net)
    net.advance(NOTICED_S)
    assert reasons(net) == [("receiver_stalled", "receive")]
    assert not sender.is_detached
    net.nothing_left()


def test_many_unfinished_messages_in_one_queue_end_at_the_same_time() -> None:
    """Attack: each would take its turn to stall."""
    net = net_of()
    receiver = net.client().receiver("a", credit=100, accepts=True)
    attackers = [net.client().sender("a") for _ in range(5)]
    honest = net.client().sender("a")
    net.pump()
    for attacker in attackers:
        begin(attacker, 200_000)
    net.pump()
    sending = honest.send(b"waits")
    net.advance(NOTICED_S)
    assert all(attacker.was_closed for attacker in attackers)
    assert sending.outcome == ACCEPTED
    assert receiver.bodies == [b"waits"]
    assert given_up(net) == (5, 0)
    net.nothing_left()


def test_a_full_session_does_not_excuse_a_message_for_which_others_wait() -> None:
    """Attack: fill the session by another link, whose receiver grants no credit, and stall."""
    net = net_of(limits=Limits(connection=2 * MEGABYTE))  # little of what waits is taken
    victim = net.client().receiver("a", credit=10, accepts=True)
    net.client("accomplice").receiver("b")
    client = net.client("attacks")
    stalls, fills = client.sender("a"), client.sender("b")
    net.pump()
    begin(stalls, 200_000)
    net.pump()
    Upload(fills, 5 * MEGABYTE).push(net)
    net.advance(NOTICED_S)
    assert stalls.was_closed
    assert not fills.is_detached
    assert victim.received[0].is_aborted
    assert given_up(net) == (1, 0)
    net.nothing_left()


def test_a_rate_that_holds_a_message_back_is_no_fault_of_its_sender() -> None:
    group = {"users": "*", "remoteHosts": "*", "sources": "*", "targets": "*"}
    vhost = {"maxConnections": 10, "groups": {"$default": {**group, "maxByteRate": 4096}}, "allowUnknownUser": True}
    net = net_of(vhosts=Vhosts({"$default": vhost}))
    receiver = net.client().receiver("a", credit=10, accepts=True)
    sender = net.client().sender("a")
    net.pump()
    upload = Upload(sender, MEGABYTE)
    for _ in range(100):
        upload.push(net)
        if not upload.left:
            break
        net.advance(TIMEOUT_S / 2, step=0.5)
    assert upload.left == 0
    upload.finish()
    net.advance(300, step=1)
    assert given_up(net) == (0, 0)
    assert len(receiver.complete[0].body) == MEGABYTE
    net.nothing_left()


# Others pass


@pytest.mark.parametrize("distribution", ["balanced", "closest"])
def test_others_pass_an_unfinished_message_where_a_receiver_is_free(distribution: str) -> None:
    """However many of theirs are unsettled there."""
    net = net_of({"a": distribution})
    receivers = [net.client().receiver("a", credit=200) for _ in range(2)]
    attacker, honest = net.client().sender("a"), net.client().sender("a")
    net.pump()
    begin(attacker, 200_000)
    net.pump()
    for number in range(100):
        honest.send(b"%d" % number)
    honest.send(bytes(200_000))
    net.pump()
    assert sorted(len(receiver.complete) for receiver in receivers) == [0, 101]
    net.advance(NOTICED_S)
    for receiver in receivers:
        receiver.accept_all()
    net.pump()
    assert all(outcome == ACCEPTED for outcome in honest.outcomes)
    honest.send(b"again to both")
    honest.send(b"again to both")
    net.pump()
    assert [receiver.bodies.count(b"again to both") for receiver in receivers] == [1, 1]
    net.nothing_left()


def test_a_request_to_the_router_never_goes_to_a_clients_receiver() -> None:
    """Small ones go to the consumer inside the router; one that is too large goes nowhere."""
    net = net_of()
    got: list[bytes] = []
    net.core.subscribe("_inside", lambda payload, _link: got.append(payload))
    eavesdropper = net.client().receiver("_inside", credit=10)
    sender = net.client().sender("_inside")
    net.pump()
    small, large = sender.send(b"small"), sender.send(bytes(300_000))
    net.pump()
    assert small.outcome == ACCEPTED
    assert large.outcome == REJECTED
    assert not eavesdropper.received
    assert len(got) == 1
    net.no_errors()
