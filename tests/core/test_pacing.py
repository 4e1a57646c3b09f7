"""maxMessageRate and maxByteRate: what one connection may send in a second, held back by credit, never dropped."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from memory_net import ACCEPTED, REJECTED, Client, Net, Receiver, Sender, Vhosts, ruleset_of
from test_credit_rules import force_send

from router.core.in_links import InLink
from router.core.rates import Rates

STEP_S = 0.05
EVERYBODY = {"users": "*", "remoteHosts": "*", "sources": "*", "targets": "*", "allowAnonymousSender": True}
PIECE_BYTES = 256 * 1024  # what may be taken at once, however few bytes are left


def paced(capacity: int = 250, **group: object) -> Net:
    """Hostname `slow` has a group with these attributes; everybody else has no limits."""
    return Net(
        vhosts=Vhosts({"$default": {"groups": {"g": EVERYBODY}}, "slow": {"groups": {"g": {**EVERYBODY, **group}}}}),
        capacity=capacity,
        idle_timeout_s=0,
    )


class Load:
    """Clients that send as much as they are let, and how much of it was taken by when."""

    def __init__(self, net: Net, senders: list[Sender], *, is_settled: bool = False, size: int = 10) -> None:
        self.net = net
        self.senders = senders
        self.is_settled = is_settled
        self.body = bytes(size)
        self.sent = 0
        self.taken = [(net.now, self.count())]

    def count(self) -> int:
        return sum(link.delivery_count for link in self.links())

    def links(self) -> list[InLink]:
        names = {sender.link.name for sender in self.senders}
        return [link for link in self.net.peer(self.senders[0].client).attachment.in_links if link.name in names]

    def run(self, seconds: float, step: float = STEP_S) -> "Load":
        end = self.net.now + seconds
        while self.net.now < end - 1e-9:
            self.burst()
            self.net.advance(step, step=step)
            self.taken.append((self.net.now, self.count()))
        return self

    def burst(self) -> None:
        """Everything there is credit for, again and again until there is none or what is sent is not taken."""
        while True:
            before = self.sent
            for sender in self.senders:
                while sender.credit > 0 and sender.link.session.outgoing_bytes < 100_000:
                    sender.send(self.body, is_settled=self.is_settled)
                    self.sent += 1
            self.net.pump()
            self.taken.append((self.net.now, self.count()))
            if self.sent == before:
                return

    def check(self, rate: float, burst: float, each: float = 1.0) -> None:
        """In no stretch of time was more taken than rate x time + burst."""
        for index, (began, before) in enumerate(self.taken):
            for ended, after in self.taken[index:]:
                assert (after - before) * each <= rate * (ended - began) + burst + 1e-6


def attach(net: Net, count: int = 1, hostname: str = "slow", address: str | None = "a") -> tuple[Client, list[Sender]]:
    client = net.client(hostname=hostname)
    senders = [client.sender(address) for _ in range(count)]
    net.pump()
    return client, senders


def drain(net: Net, address: str = "a") -> Receiver:
    receiver = net.client().receiver(address, credit=1_000_000, accepts=True)
    net.pump()
    return receiver


@given(
    rate=st.integers(1, 60),
    links=st.integers(1, 4),
    is_settled=st.booleans(),
    capacity=st.sampled_from([1, 5, 250]),
    pauses=st.lists(st.floats(0.0, 2.5), max_size=3),
)
@settings(max_examples=25, deadline=None)
def test_no_more_messages_than_the_rate_in_any_time(
    rate: int, links: int, is_settled: bool, capacity: int, pauses: list[float]
) -> None:
    net = paced(capacity, maxMessageRate=rate)
    receiver = drain(net)
    _, senders = attach(net, links)
    load = Load(net, senders, is_settled=is_settled)
    for pause in (*pauses, 0.0):
        load.run(0.8, step=0.1)
        net.advance(pause)
    load.check(rate, burst=rate)
    net.advance(load.sent / rate + 1)
    assert len(receiver.complete) == load.sent
    net.nothing_left()


def test_a_sender_has_its_rate_but_no_more() -> None:
    """After the first second's worth: what is granted in three more, to one link, although its capacity is less."""
    net = paced(maxMessageRate=1000)
    drain(net)
    _, senders = attach(net)
    load = Load(net, senders).run(3)
    assert 3_500 <= load.count() <= 4_000
    load.check(1000, burst=1000)


@pytest.mark.parametrize("is_settled", [True, False])
def test_many_links_share_one_rate_and_none_is_starved(is_settled: bool) -> None:
    net = paced(maxMessageRate=40)
    drain(net)
    client = net.client(hostname="slow")
    senders = [client.sender("a") for _ in range(5)]
    other = client.connection.session()
    other.open()
    senders += [client.sender("a", session=other) for _ in range(5)]
    net.pump()
    load = Load(net, senders, is_settled=is_settled).run(20)
    load.check(40, burst=40)
    assert load.count() >= 40 * 20
    counts = [link.delivery_count for link in load.links()]
    assert min(counts) >= 40


def test_more_connections_than_one_have_each_their_own_rate() -> None:
    net = paced(maxMessageRate=20)
    drain(net)
    loads = [Load(net, attach(net)[1]) for _ in range(2)]
    for _ in range(20):
        for load in loads:
            load.run(0.1)
    assert all(load.count() >= 50 for load in loads)


def test_another_connection_is_not_slowed() -> None:
    net = paced(maxMessageRate=5)
    drain(net)
    slow, fast = Load(net, attach(net)[1]), Load(net, attach(net, hostname="else")[1])
    slow.run(1)
    assert net.now - slow.taken[0][0] == pytest.approx(1)
    before = net.now
    for _ in range(5):
        for sender in fast.senders:
            for _ in range(sender.credit):
                sender.send()
        net.pump()
    assert net.now == before  # no time has passed
    assert fast.count() == 5 * 250


def test_a_held_back_connection_shows_it() -> None:
    net = paced(maxMessageRate=5)
    drain(net)
    client, senders = attach(net)
    assert net.peer(client).attachment.held_back_count == 0
    Load(net, senders).run(2)
    assert net.peer(client).attachment.held_back_count >= 3


def test_credit_is_bounded_by_the_rate_from_the_start() -> None:
    net = paced(maxMessageRate=7)
    drain(net)
    _, (one, other) = attach(net, 2)
    assert (one.credit, other.credit) == (7, 7)
    for _ in range(7):
        one.send()
    net.pump()
    assert (one.credit, one.outcomes) == (0, [ACCEPTED] * 7)
    for _ in range(7):
        other.send()
    net.pump()
    assert other.outcomes == [None] * 7
    _, (late,) = attach(net)  # another connection
    assert late.credit == 7


def test_what_attaches_while_senders_wait_gets_its_credit_later() -> None:
    net = paced(maxMessageRate=3)
    drain(net)
    client, (sender,) = attach(net)
    for _ in range(3):
        sender.send()
    net.pump()
    late = client.sender("a")
    net.pump()
    assert late.credit == 0
    net.advance(2)
    assert late.credit == 3


@pytest.mark.parametrize("key", ["maxMessageRate", "maxByteRate"])
def test_a_rate_of_nothing_lets_nothing_through(key: str) -> None:
    net = paced(**{key: 0})
    receiver = drain(net)
    _, (sender,) = attach(net)
    assert sender.credit == 0
    net.advance(10)
    assert sender.credit == 0
    assert receiver.received == []
    assert not net.timers
    net.nothing_left()


def test_anonymous_senders_are_held_back_too() -> None:
    net = paced(maxMessageRate=4)
    receiver = drain(net)
    _, (sender,) = attach(net, address=None)
    for _ in range(4):
        sender.send(address="a")
    net.pump()
    assert sender.credit == 0
    net.advance(0.75)
    assert len(receiver.complete) == 4
    assert sender.credit == 4


# Bytes


@given(rate=st.integers(1000, 300_000), size=st.integers(1, 40_000), links=st.integers(1, 3), is_settled=st.booleans())
@settings(max_examples=20, deadline=None)
def test_no_more_bytes_than_the_rate_in_any_time(rate: int, size: int, links: int, is_settled: bool) -> None:
    net = paced(20, maxByteRate=rate)
    receiver = drain(net)
    _, senders = attach(net, links)
    load = Load(net, senders, is_settled=is_settled, size=size).run(2, step=0.1)
    load.check(rate, burst=rate + size + 100, each=size)
    net.advance(load.sent * (size + 100) / rate + 1)
    assert len(receiver.complete) == load.sent
    net.nothing_left()


@pytest.mark.parametrize("is_settled", [True, False])
def test_a_large_message_is_read_no_faster_than_its_bytes_may_come(is_settled: bool) -> None:
    """A message of 4 MB at 1 MB/s: what is read of it is held back by the session's window."""
    rate, size = 1_000_000, 4_000_000
    net = paced(maxByteRate=rate)
    receiver = drain(net)
    client, (sender,) = attach(net)
    sending = sender.start()
    sender.append(b"\x00\x53\x75\xb0" + size.to_bytes(4, "big") + bytes(size))
    if is_settled:
        sending.settle()
    else:
        sender.finish()
    net.pump()
    taken = [(net.now, len(receiver.received[0].payload))]
    while not receiver.complete:
        assert net.now - taken[0][0] < 10
        net.advance(STEP_S, step=STEP_S)
        taken.append((net.now, len(receiver.received[0].payload)))
    for index, (began, before) in enumerate(taken):
        for ended, after in taken[index:]:
            assert after - before <= rate * (ended - began) + rate + PIECE_BYTES
    assert 2.5 <= net.now - taken[0][0] <= 3.5
    assert len(receiver.complete[0].payload) == size + 8
    assert sending.outcome == (None if is_settled else ACCEPTED)
    assert net.peer(client).attachment.held_back_count > 0
    net.nothing_left()


def test_a_large_message_is_followed_by_what_waits_behind_it() -> None:
    net = paced(maxByteRate=200_000)
    receiver = drain(net)
    _, (sender,) = attach(net)
    for number in range(4):
        sender.send(bytes(300_000) if number % 2 == 0 else b"small")
    net.advance(10)
    assert [len(body) for body in receiver.bodies] == [300_000, 5, 300_000, 5]
    net.nothing_left()


def test_a_large_message_leaves_room_for_the_other_links() -> None:
    """They are served in turn: who streams does not take all there is, each time."""
    net = paced(maxByteRate=100_000)
    drain(net)
    receiver = drain(net, "b")
    client, (large,) = attach(net)
    small = client.sender("b")
    net.pump()
    large.send(bytes(3_000_000))
    net.pump()
    sendings = []
    for _ in range(10):
        sendings.append(small.send(b"between"))
        net.advance(2)
    assert len(receiver.complete) >= 5
    assert all(sending.outcome == ACCEPTED for sending in sendings[:5])
    assert large.outcomes == [None]
    net.nothing_left()


def test_bytes_that_nobody_gets_count_all_the_same() -> None:
    """Attack: messages that are released unread would cost us what the rate was to spare."""
    net = paced(maxByteRate=100_000)
    receiver = net.client().receiver("a", credit=10)
    _, (sender,) = attach(net)
    sending = sender.start()
    size = 1_000_000
    sender.append(b"\x00\x53\x75\xb0" + size.to_bytes(4, "big") + bytes(300_000))
    net.pump()
    receiver.close()
    sender.append(bytes(size - 300_000))
    sender.finish()
    net.advance(5)
    assert sending.outcome is None
    net.advance(6)
    assert sending.outcome is not None
    net.nothing_left()


# Nothing lost, nothing left


@pytest.mark.parametrize("how", ["detach", "close", "kill", "end"])
@pytest.mark.parametrize("is_settled", [True, False])
def test_what_has_come_is_delivered_when_its_link_goes(how: str, is_settled: bool) -> None:
    net = paced(maxMessageRate=5)
    receiver = drain(net)
    client, senders = attach(net, 2)
    for sender in senders:
        for _ in range(5):
            sender.send(is_settled=is_settled)
    net.pump()
    assert len(receiver.complete) == 5
    if how == "detach":
        for sender in senders:
            sender.detach()
    elif how == "close":
        client.close()
    elif how == "end":
        assert client.session is not None
        client.session.close()
    else:
        client.kill()
    net.pump()
    assert len(receiver.complete) == 10
    assert not net.timers
    net.nothing_left()


def test_a_link_that_goes_leaves_its_debt_to_the_connection() -> None:
    """Attack: attach, send, detach, again: each time a window would pass that the rate does not allow."""
    net = paced(maxMessageRate=10)
    receiver = drain(net)
    client = net.client(hostname="slow")
    began = net.now
    for _ in range(200):
        sender = client.sender("a")
        net.pump()
        for _ in range(sender.credit):
            sender.send(is_settled=True)
        net.pump()
        sender.detach()
        net.advance(STEP_S, step=STEP_S)
    assert len(receiver.complete) <= 10 * (net.now - began) + 2 * 10
    net.nothing_left()


def test_a_sender_that_ignores_its_credit_is_closed_when_its_messages_are_looked_at() -> None:
    net = paced(maxMessageRate=2)
    receiver = drain(net)
    _, (sender,) = attach(net)
    for _ in range(40):
        force_send(sender)
    net.advance(3)
    assert sender.is_detached
    assert sender.condition is not None
    assert sender.condition.name == "amqp:link:transfer-limit-exceeded"
    assert len(receiver.received) <= 10
    net.nothing_left()


def test_credit_that_was_kept_is_not_given_when_nobody_can_receive_any_more() -> None:
    """routing 60: as without a rate"""
    net = paced(maxMessageRate=2)
    receiver = drain(net)
    _, (sender,) = attach(net)
    for _ in range(2):
        sender.send()
    net.pump()
    receiver.close()
    net.advance(5)
    assert sender.credit == 0
    drain(net)
    assert sender.credit == 2


@pytest.mark.parametrize("size", [100_000, 600_000])
def test_a_message_that_is_too_large_ends_the_connection_as_without_a_rate(size: int) -> None:
    net = paced(maxByteRate=50_000, maxMessageSize=300_000)
    receiver = drain(net)
    client, (sender,) = attach(net)
    sending = sender.send(bytes(size))
    net.advance(20)
    assert client.is_closed_by_router == (size > 300_000)
    assert len(receiver.complete) == (size <= 300_000)
    assert sending.outcome == (ACCEPTED if size <= 300_000 else REJECTED)
    net.nothing_left()


def test_a_failure_while_waiting_messages_are_taken_ends_that_connection_only() -> None:
    net = paced(maxMessageRate=1)
    drain(net)
    client, (sender, other) = attach(net, 2)
    bystander = attach(net, hostname="else")[1][0]
    sender.send()
    net.pump()
    other.send()
    net.pump()
    (link,) = (link for link in net.core.links.values() if link.name == other.link.name and not link.delivery_count)

    def fail(*_: object) -> None:
        raise RuntimeError("a mistake of ours")

    link.wire.forward = fail
    net.advance(3)
    assert client.is_closed_by_router
    bystander.send()
    net.pump()
    assert bystander.outcomes == [ACCEPTED]
    assert not net.timers


def test_what_waits_on_a_link_that_policy_ends_goes_nowhere() -> None:
    """Decided again, and denied: what the router has not taken yet is not forwarded."""
    net = paced(maxMessageRate=5)
    receiver = drain(net)
    client, (sender, other) = attach(net, 2)
    for each in (sender, other):
        for _ in range(5):
            each.send()
    net.pump()
    change(net, client, maxMessageRate=5, targets="b")
    assert sender.is_detached
    assert other.is_detached
    assert len(receiver.complete) == 5
    assert not net.timers
    net.nothing_left()


# Changes while connections are open


def change(net: Net, client: Client, **group: object) -> None:
    """Other rules, and the open connection follows."""
    net.gate.ruleset = ruleset_of(Vhosts({"slow": {"groups": {"g": {**EVERYBODY, **group}}}}))
    net.gate.begin_epoch("policy_change", lambda _connection: True, net.wall_s)
    for _ in client.router.redecide():
        pass
    net.gate.end_epoch()
    net.work.finish()
    net.pump()


def taken_in(net: Net, senders: list[Sender], seconds: float) -> int:
    load = Load(net, senders)
    before = load.count()
    load.run(seconds)
    return load.count() - before


@pytest.mark.parametrize("links", [1, 3])
def test_a_rate_can_be_set_changed_and_lifted(links: int) -> None:
    net = paced()
    receiver = drain(net)
    client, senders = attach(net, links)
    assert [sender.credit for sender in senders] == [250] * links
    change(net, client, maxMessageRate=10)
    assert taken_in(net, senders, 2) <= 30
    change(net, client, maxMessageRate=100)
    assert 190 <= taken_in(net, senders, 2) <= 310
    change(net, client, maxMessageRate=2)
    assert taken_in(net, senders, 3) <= 8
    change(net, client)
    assert not net.timers
    assert net.peer(client).attachment.pacing is None
    assert all(sender.credit == 250 for sender in senders)
    load = Load(net, senders)
    for sender in senders:
        for _ in range(250):
            sender.send()
    net.pump()
    assert load.count() - load.taken[0][1] == 250 * links
    assert all(outcome == ACCEPTED for sender in senders for outcome in sender.outcomes)
    assert len(receiver.complete) == sum(len(sender.sent) for sender in senders)
    net.nothing_left()


@pytest.mark.parametrize("key", ["maxMessageRate", "maxByteRate"])
def test_credit_from_before_is_worth_nothing_at_a_rate_of_nothing(key: str) -> None:
    net = paced()
    receiver = drain(net)
    client, (sender,) = attach(net)
    change(net, client, **{key: 0})
    for _ in range(20):
        sender.send()
    net.advance(5)
    assert receiver.received == []
    change(net, client)
    assert sender.outcomes == [ACCEPTED] * 20


def test_a_link_of_a_slow_time_has_the_whole_window_afterwards() -> None:
    net = paced(maxMessageRate=3)
    drain(net)
    client, (sender,) = attach(net)
    assert sender.credit == 3
    change(net, client, maxMessageRate=100)
    assert sender.credit == 100
    change(net, client)
    assert sender.credit == 250


def test_a_rate_is_lifted_in_the_middle_of_a_large_message() -> None:
    net = paced(maxByteRate=10_000)
    receiver = drain(net)
    client, (sender,) = attach(net)
    sending = sender.send(bytes(2_000_000))
    net.advance(1)
    assert not receiver.complete
    change(net, client)
    net.pump()
    assert len(receiver.complete) == 1
    assert sending.outcome == ACCEPTED
    net.nothing_left()


def test_lifting_a_rate_takes_the_rest_of_what_nobody_gets() -> None:
    net = paced(maxByteRate=10_000)
    receiver = net.client().receiver("a", credit=10)
    client, (sender,) = attach(net)
    sending = sender.start()
    sender.append(b"\x00\x53\x75\xb0\x00\x10\x00\x00" + bytes(300_000))
    net.pump()
    receiver.close()
    sender.append(bytes((1 << 20) - 300_000))
    sender.finish()
    net.advance(1)
    assert sending.outcome is None
    change(net, client)
    assert sending.outcome is not None
    net.nothing_left()


def test_equal_rates_change_nothing() -> None:
    net = paced(maxMessageRate=5)
    drain(net)
    client, senders = attach(net)
    Load(net, senders).run(1)
    pacing = net.peer(client).attachment.pacing
    change(net, client, maxMessageRate=5)
    assert net.peer(client).attachment.pacing is pacing
    assert taken_in(net, senders, 1) <= 6


def test_a_connection_without_a_rate_has_nothing_of_it() -> None:
    """The hot path pays nothing: the slots hold what they would without pacing."""
    net = paced()
    drain(net)
    client, _ = attach(net, hostname="else")
    (link,) = net.peer(client).attachment.in_links
    assert link.attachment.pacing is None
    assert link.address is not None
    assert link.wire.forward is link.address.forward
    assert link.grant == link.wire.grant


def test_rates_are_compared_by_value() -> None:
    assert Rates() == Rates(messages=None, bytes=None) != Rates(messages=0)



# Anything at all

steps = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.integers(0, 3), st.sampled_from([1, 500, 140_000, 400_000]), st.booleans()),
        st.tuples(st.just("begin"), st.integers(0, 3), st.integers(1, 200_000)),
        st.tuples(st.just("abort"), st.integers(0, 3)),
        st.tuples(st.just("detach"), st.integers(0, 3)),
        st.tuples(st.just("attach")),
        st.tuples(st.just("leave")),
        st.tuples(st.just("come")),
        st.tuples(st.just("pass"), st.floats(0.1, 3.0)),
        st.tuples(
            st.just("change"),
            st.none() | st.integers(0, 20),
            st.none() | st.sampled_from([0, 1, 50_000, 1_000_000]),
        ),
    ),
    max_size=25,
)


@given(st.integers(1, 20), st.none() | st.integers(1, 500_000), st.sampled_from(["balanced", "multicast"]), steps)
@settings(max_examples=60, deadline=None)
def test_whatever_happens_every_message_has_an_outcome_and_nothing_is_left(
    messages: int, size: int | None, distribution: str, script: list[tuple[Any, ...]]
) -> None:
    rates = {"maxMessageRate": messages} | ({} if size is None else {"maxByteRate": size})
    net = paced(capacity=6, **rates)
    net.distributions["a"] = distribution
    receivers = [net.client().receiver("a", credit=1_000_000, accepts=True)]
    client, senders = attach(net, 2)
    for name, *more in script:
        sender = senders[more[0] % len(senders)] if name in ("send", "begin", "abort", "detach") else None
        open_ = sender.sent[-1] if sender and sender.sent and not sender.sent[-1].is_settled_here else None
        is_partial = open_ is not None and sender is not None and sender.link.current == open_.delivery
        if name == "send" and sender is not None and sender.credit > 0 and not is_partial:
            sender.send(bytes(more[1]), is_settled=more[2])
        elif name == "begin" and sender is not None and sender.credit > 0 and not is_partial:
            sender.start()
            sender.append(bytes(more[1]))
        elif name == "abort" and is_partial and open_ is not None:
            open_.abort()
        elif name == "detach" and sender is not None and len(senders) > 1 and not is_partial:
            senders.remove(sender)
            sender.detach()
        elif name == "attach" and len(senders) < 4:
            senders.append(client.sender("a"))
        elif name == "leave" and receivers:
            receivers.pop().close()
        elif name == "come" and len(receivers) < 3:
            receivers.append(net.client().receiver("a", credit=1_000_000, accepts=True))
        elif name == "pass":
            net.advance(more[0])
        elif name == "change":
            rates = dict(zip(("maxMessageRate", "maxByteRate"), more, strict=True))
            change(net, client, **{key: rate for key, rate in rates.items() if rate is not None})
        net.pump()
    net.no_errors()
    change(net, client)
    assert not net.timers
    for sender in senders:
        for sending in sender.sent:
            is_partial = not sending.is_settled_here and sender.link.current == sending.delivery
            assert sending.outcome is not None or sending.is_settled_here or is_partial
    net.nothing_left()
