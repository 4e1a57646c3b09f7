"""Answers of the router itself to receivers that are slower than those who ask: none is lost, and few wait."""

import pytest
from managed import manage
from memory_net import Client, Fleet, Net

from router.amqp.codec import decode_message, encode_message
from router.core.budget import Limits
from router.core.in_links import InLink, is_over_budget
from router.core.out_links import OutLink
from router.core.views import router_totals


def request(reply_to: str, number: int, operation: str = "GET-MGMT-NODES") -> bytes:
    properties = {"operation": operation, "type": "org.amqp.management", "name": "self"}
    return encode_message(reply_to=reply_to, correlation_id=f"r{number}", application_properties=properties, body={})


def no_faults(net: Net) -> None:
    """The agent of the test knows nothing of what is asked: that is an answer, too."""
    assert [entry for entry in net.logs if entry.level == "error" and entry.module != "AGENT"] == []


def everybody_leaves(net: Net) -> None:
    """The addresses of the management stay, and nothing else."""
    for client in net.clients:
        client.kill()
    net.pump()
    no_faults(net)
    assert not net.core.links
    assert not net.work.refill
    assert not net.work.touched
    assert not net.timers


class Manager:
    """Asks as fast as it may; reads with a window that it tops up at once, where it `reads` at all."""

    def __init__(self, net: Net, client: Client, *, window: int, senders: int = 1, to: str = "$management") -> None:
        self.net = net
        self.receiver = client.receiver(None, source={"dynamic": True})
        self.senders = [client.sender(to) for _ in range(senders)]
        net.pump()
        self.window = window
        self.asked = 0

    def ask(self, total: int) -> None:
        while self.asked < total:
            before = self.asked
            for sender in self.senders:
                while sender.credit > 0 and self.asked < total:
                    sender.send_bytes(request(self.receiver.link.remote_source.address, self.asked))
                    self.asked += 1
            self.read()
            if self.asked == before:
                return

    def read(self) -> None:
        if self.window:
            self.receiver.flow(self.window - self.receiver.credit)
        self.net.pump()

    def have_answered(self, total: int) -> int:
        """Ask for the rest and read until nothing comes; returns how many answers have come, none of them twice."""
        for _ in range(total):
            before = self.asked, len(self.receiver.complete)
            self.ask(total)
            self.read()
            if before == (self.asked, len(self.receiver.complete)):
                break
        answers = self.answers
        assert len(set(answers)) == len(answers)
        return len(answers)

    @property
    def answers(self) -> list[str]:
        return [str(decode_message(bytes(item.payload)).correlation_id) for item in self.receiver.complete]


@pytest.mark.parametrize("senders", [1, 4])
def test_no_answer_is_lost_where_more_are_asked_for_than_a_receiver_takes(senders: int) -> None:
    """Issue 34, bugs/05: with a window of 100, 500 answers of 1,200 were dropped; from several senders, too"""
    total = 600
    net = Net()
    manage(net)
    manager = Manager(net, net.client(), window=100, senders=senders)
    assert manager.have_answered(total) == total
    assert router_totals(net.core)["droppedPresettledDeliveries"] == 0
    assert {sender.credit for sender in manager.senders} == {250}
    everybody_leaves(net)


def test_who_does_not_read_has_its_window_of_answers_and_no_more() -> None:
    """Attack: to ask without end, and read nothing. What waits is the asker's, and holds up nobody else."""
    net = Net()
    manage(net)
    greedy, other = Manager(net, net.client(), window=0), Manager(net, net.client(), window=10)
    greedy.ask(1000)
    assert greedy.asked == 250
    assert greedy.senders[0].credit == 0
    (out,) = (link for link in net.core.links.values() if isinstance(link, OutLink) and link.queue)
    assert len(out.queue) == 250
    account = net.peer(greedy.receiver.client).attachment.account
    assert account.held > sum(len(item.payload) for item in out.queue)
    assert other.have_answered(300) == 300
    greedy.window = 300
    assert greedy.have_answered(300) == 300
    everybody_leaves(net)
    assert account.held == 0


def test_what_is_not_answered_costs_no_credit() -> None:
    """Without a reply-to, with one that nobody receives at, and what cannot be read"""
    net = Net()
    manage(net)
    sender = net.client().sender("$management")
    net.pump()
    for payload in (request("", 1), request("nobody", 2), b"\x00\x53\x77\x40", b"\x00"):
        for is_settled in (False, True):
            for _ in range(100):
                sender.send_bytes(payload, is_settled=is_settled)
            net.pump()
    assert sender.credit == 250
    everybody_leaves(net)


def test_credit_returns_when_the_receiver_goes_with_answers_that_wait() -> None:
    net = Net()
    manage(net)
    client = net.client()
    manager = Manager(net, client, window=0)
    manager.ask(250)
    manager.receiver.close()
    net.pump()
    assert manager.senders[0].credit == 250
    everybody_leaves(net)


def test_large_answers_that_nobody_reads_are_bounded_by_bytes() -> None:
    """Attack: requests for large answers, and none is read: a window of them would be 250 times as much."""
    net = Net(limits=Limits(link=64 * 1024))
    manage(net)
    manager = Manager(net, net.client(), window=0)
    manager.ask(1000)
    assert manager.asked == 250
    (link,) = (link for link in net.core.links.values() if isinstance(link, InLink))
    assert is_over_budget(link)
    assert link.delivery_count < 100
    assert link.held < 70 * 1024
    manager.window = 100
    assert manager.have_answered(300) == 300
    everybody_leaves(net)


@pytest.mark.parametrize("way", [("E", "A"), ("B", "A")])
def test_answers_over_another_router_hold_up_nobody_there(way: tuple[str, str]) -> None:
    """Attack: a client that asks another router and reads nothing. The link between them is everybody's."""
    fleet = Fleet("A", "B", edges=("E",))
    fleet.connect("B", "A")
    fleet.connect("E", "A", role="edge")
    manage(fleet["A"])
    fleet.settle()
    near, far = way
    client = fleet[near].client()
    receiver, sender = client.receiver(None, source={"dynamic": True}), client.sender(f"_topo/0/{far}/$management")
    other, here = fleet[near].client(), fleet[far].client().receiver("a", credit=1000, accepts=True)
    working = other.sender("a")
    fleet.settle()
    for _ in range(3):
        for number in range(sender.credit):
            sender.send_bytes(request(receiver.link.remote_source.address, number))
        fleet.pump()
    for _ in range(100):
        working.send(b"m")
    fleet.pump()
    assert len(here.bodies) == 100
    for net in fleet.nets.values():
        no_faults(net)
