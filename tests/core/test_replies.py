"""Request and reply under a policy: whose a dynamic address is, and who may send to the reply-to of a message."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from memory_net import ACCEPTED, REJECTED, RELEASED, Client, Net, Receiver, Sender, Vhosts, ruleset_of
from test_redecision import enforce

from policy.addressing.text import is_dynamic

NOT_ALLOWED = "amqp:unauthorized-access"
ASKER = {"remoteHosts": "*", "targets": "service, board", "sources": "board", "allowDynamicSource": True}
SERVICE = {"remoteHosts": "*", "sources": "service", "allowReplies": True, "allowAnonymousSender": True}
SPELLINGS = [
    "amqp:/_topo/0/QDR/{}",
    "_topo/0/QDR/{}",
    "_topo/all/QDR/{}",
    "/_topo/0/QDR/{}",
    "amqp://any.where/_topo/0/QDR/{}",
    "x:/_topo/0/QDR/{}",
    "_local/{}",
    "amqp:/_local/{}",
    "_local/{}/",
    "_edge/QDR/{}",
    "amqp:/_edge/QDR/{}.",
]
FORGED = ["secret", "amqp:/secret", "x:/secret", "board/x:/secret", "$management", "_local/x", "_$qd.x"]
FORGED += ["amqp:/_topo/0/QDR/$management", "_topo/0/OTHER/x", "_topo/0/all/x"]
MOBILE = ["amqp:/_${}", "_${}", "/_${}", "_${}/", "x:/_${}"]


def house(service: dict[str, Any] | None = None, asker: dict[str, Any] | None = None, **more: Any) -> Vhosts:
    groups = {"asker": {**ASKER, **(asker or {})}, "service": {**SERVICE, **(service or {})}, **more}
    return Vhosts({name: {"allowUnknownUser": True, "groups": {"$default": group}} for name, group in groups.items()})


def dynamic(client: Client, **terms: Any) -> tuple[Receiver, str]:
    receiver = client.receiver(None, source={"dynamic": True}, accepts=True, **terms)
    client.net.pump()
    return receiver, receiver.link.remote_source.address


class Exchange:
    """An asker with a dynamic source, and a service that has its requests."""

    def __init__(self, net: Net, **asker: Any) -> None:
        self.net = net
        self.asker, self.service = net.client(hostname="asker", **asker), net.client(hostname="service")
        self.requests = self.service.receiver("service", credit=100, accepts=True)
        self.replies, self.address = dynamic(self.asker, credit=100)
        self.sender = self.asker.sender("service")
        net.pump()

    def ask(self, reply_to: str | None = None, body: bytes = b"?") -> None:
        self.sender.send(body, reply_to=self.address if reply_to is None else reply_to)
        self.net.pump()

    def replier(self, address: str | None = None) -> Sender:
        sender = self.service.sender(self.address if address is None else address)
        self.net.pump()
        return sender


def reasons(net: Net) -> list[str]:
    return [event["reason"] for event in net.audits]


# Whose an address is


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_nobody_else_receives_from_a_dynamic_source(spelling: str) -> None:
    """Attack: bob, who may receive from everything, reads alice's temporary queue."""
    net = Net(vhosts=house(bob={"remoteHosts": "*", "sources": "*", "targets": "*"}))
    receiver, address = dynamic(net.client(hostname="asker"), credit=9)
    name = address.rpartition("/")[2]
    bobs = net.client(hostname="bob").receiver(spelling.format(name), credit=9)
    net.pump()
    assert bobs.is_detached
    assert bobs.refusal.name == NOT_ALLOWED
    sender = net.client(hostname="bob").sender(address)
    net.pump()
    sender.send(b"for alice")
    net.pump()
    assert (receiver.bodies, bobs.bodies) == ([b"for alice"], [])
    (event,) = net.audits
    assert (event["reason"], event["stage"], event["direction"]) == ("dynamic_address_not_own", "attach", "receive")
    assert event["rule"]["item"] == "only the connection that made a dynamic address receives from it"
    (line,) = (text for text in net.log_texts("POLICY") if "DENY" in text)
    assert "[dynamic_address_not_own: only the connection that made" in line
    assert "of group '$default' of vhost 'bob'" in line


@pytest.mark.parametrize("spelling", MOBILE)
def test_nobody_else_receives_from_a_dynamic_target(spelling: str) -> None:
    """What JMS makes of a temporary queue: a sender with a dynamic target, and receivers of the same connection."""
    more = {"allowAnonymousSender": True}
    net = Net(vhosts=house(asker=more, bob={"remoteHosts": "*", "sources": "*", "targets": "*"}))
    alice = net.client(hostname="asker")
    sender = alice.sender(None, target={"dynamic": True})
    net.pump()
    address = sender.link.remote_target.address
    name = address.removeprefix("amqp:/_$")
    own, bobs = alice.receiver(spelling.format(name)), net.client(hostname="bob").receiver(spelling.format(name))
    net.pump()
    assert not own.is_detached
    assert bobs.is_detached
    assert reasons(net) == ["dynamic_address_not_own"]


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_the_owner_needs_no_entry_for_its_own(spelling: str) -> None:
    net = Net(vhosts=house())
    alice = net.client(hostname="asker")
    _, address = dynamic(alice)
    second = alice.receiver(spelling.format(address.rpartition("/")[2]), credit=1)
    net.pump()
    assert not second.is_detached
    assert net.audits == []


def test_another_connection_of_the_same_user_is_another() -> None:
    net = Net(vhosts=house())
    _, address = dynamic(net.client(hostname="asker"))
    other = net.client(hostname="asker").receiver(address)
    net.pump()
    assert other.is_detached


def test_deny_sources_holds_against_the_owner_too() -> None:
    net = Net(vhosts=house(asker={"denySources": "_local/*"}))
    alice = net.client(hostname="asker")
    _, address = dynamic(alice)
    second = alice.receiver("_local/" + address.rpartition("/")[2])
    net.pump()
    assert second.is_detached
    assert net.audits[0]["rule"]["item"] == "denySources: _local/*"


@pytest.mark.parametrize("gone", ["link", "connection"])
def test_a_dead_address_is_nobodys(gone: str) -> None:
    """Attack: wait until alice is gone and take over the name that replies are still sent to."""
    net = Net(vhosts=house(bob={"remoteHosts": "*", "sources": "*", "targets": "*"}))
    alice = net.client(hostname="asker")
    receiver, address = dynamic(alice)
    sender = net.client(hostname="bob").sender(address)  # keeps the address in the table
    net.pump()
    if gone == "link":
        receiver.link.close()
    else:
        alice.kill()
    net.pump()
    bobs = net.client(hostname="bob").receiver(address, credit=1)
    again = net.client(hostname="asker").receiver(address, credit=1)
    net.pump()
    assert bobs.is_detached
    assert again.is_detached
    assert not sender.is_detached
    sender.link.close()
    net.pump()
    third = net.client(hostname="bob").receiver(address, credit=1)
    net.pump()
    assert third.is_detached


def test_receivers_of_an_address_go_with_the_link_it_was_made_for() -> None:
    net = Net(vhosts=house())
    alice = net.client(hostname="asker")
    maker, address = dynamic(alice)
    second = alice.receiver(address, credit=1)
    net.pump()
    maker.link.close()
    net.pump()
    assert (second.is_detached, second.refusal.name) == (True, "amqp:resource-deleted")
    assert alice.router.gate.open_receivers == 0
    net.no_errors()


def test_without_a_policy_everything_is_as_it_was() -> None:
    net = Net()
    alice = net.client()
    maker, address = dynamic(alice)
    second = net.client().receiver(address, credit=1)
    net.pump()
    assert not second.is_detached
    maker.link.close()
    net.pump()
    assert not second.is_detached


def test_a_listed_name_that_looks_alike_is_not_closed() -> None:
    """Only the exact form is the router's: 15 characters of its alphabet."""
    net = Net(vhosts=house(bob={"remoteHosts": "*", "sources": "*"}))
    receivers = [net.client(hostname="bob").receiver(each) for each in ("_local/temp.readings", "temp.abcdefghijklmno")]
    net.pump()
    assert [receiver.is_detached for receiver in receivers] == [False, False]


def test_a_connection_without_settings_does_not_read_it_either() -> None:
    """Attack: the peer of a listener or connector that no vhost governs."""
    net = Net(vhosts=house())
    _, address = dynamic(net.client(hostname="asker"))
    other = net.client(role="route-container")
    other.router.gate.is_governed = False
    net.pump()
    other.router.gate.settings = None
    receiver = other.receiver(address, credit=1)
    net.pump()
    assert receiver.is_detached
    assert reasons(net) == ["dynamic_address_not_own"]


# Replies


@pytest.mark.parametrize("is_anonymous", [False, True])
def test_a_service_replies_to_what_it_received(is_anonymous: bool) -> None:
    exchange = Exchange(Net(vhosts=house()))
    exchange.ask()
    replier = exchange.replier("" if is_anonymous else None) if not is_anonymous else exchange.service.sender(None)
    exchange.net.pump()
    sending = replier.send(b"!", address=exchange.address)
    exchange.net.pump()
    assert sending.outcome == ACCEPTED
    assert exchange.replies.bodies == [b"!"]
    assert exchange.net.audits == []


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_a_reply_goes_there_by_any_spelling(spelling: str) -> None:
    exchange = Exchange(Net(vhosts=house()))
    exchange.ask()
    replier = exchange.replier(spelling.format(exchange.address.rpartition("/")[2]))
    sending = replier.send(b"!")
    exchange.net.pump()
    assert sending.outcome == ACCEPTED


def test_jms_temporary_queues_are_replied_to() -> None:
    exchange = Exchange(Net(vhosts=house(asker={"allowAnonymousSender": True})))
    maker = exchange.asker.sender(None, target={"dynamic": True})
    exchange.net.pump()
    queue = maker.link.remote_target.address
    consumer = exchange.asker.receiver(queue, credit=1, accepts=True)
    exchange.ask(queue)
    sending = exchange.replier(queue).send(b"!")
    exchange.net.pump()
    assert (sending.outcome, consumer.bodies) == (ACCEPTED, [b"!"])


def test_what_was_not_received_is_not_replied_to() -> None:
    exchange = Exchange(Net(vhosts=house()))
    assert exchange.replier().refusal.name == NOT_ALLOWED
    sending = exchange.service.sender(None)
    exchange.net.pump()
    refused = sending.send(b"!", address=exchange.address)
    exchange.net.pump()
    assert refused.outcome == REJECTED
    assert reasons(exchange.net) == ["reply_not_expected"] * 2
    assert [event["stage"] for event in exchange.net.audits] == ["attach", "transfer"]
    assert {event["rule"]["item"] for event in exchange.net.audits} == {"allowReplies: true"}


def test_a_message_that_waits_for_credit_has_not_been_received() -> None:
    exchange = Exchange(Net(vhosts=house(service={"replyWindow": 10})))
    slow = exchange.net.client(hostname="service")
    exchange.requests.link.close()
    queue = slow.receiver("service", accepts=True)
    exchange.net.pump()
    exchange.ask()
    refused = slow.sender(exchange.address)
    exchange.net.now += 60
    exchange.net.pump()
    assert refused.is_detached
    queue.flow(1)
    exchange.net.pump()
    allowed = slow.sender(exchange.address)  # the window begins when the message comes
    exchange.net.pump()
    assert not allowed.is_detached


def test_the_window_ends_and_begins_again_with_the_next_request() -> None:
    exchange = Exchange(Net(vhosts=house(service={"replyWindow": 10})))
    net = exchange.net
    exchange.ask()
    replier, anonymous = exchange.replier(), exchange.service.sender(None)
    net.now += 9.5
    assert [each.send(b"1", address=exchange.address) for each in (replier, anonymous)]
    net.pump()
    net.now += 0.5
    late = [each.send(b"2", address=exchange.address) for each in (replier, anonymous)]
    again = exchange.replier()  # pumps
    assert [each.outcome for each in late] == [REJECTED] * 2
    assert late[0].updates[0].refusal.name == NOT_ALLOWED
    assert (replier.is_detached, again.is_detached) == (False, True)
    assert reasons(net) == ["reply_window_over"] * 3
    assert {event["rule"]["item"] for event in net.audits} == {"replyWindow: 10"}
    exchange.ask()
    sending = replier.send(b"3")
    net.pump()
    assert sending.outcome == ACCEPTED
    assert exchange.replies.bodies == [b"1", b"1", b"3"]


def test_large_requests_are_replied_to() -> None:
    exchange = Exchange(Net(vhosts=house()))
    exchange.ask(body=b"x" * 600_000)
    assert not exchange.replier().is_detached


@pytest.mark.parametrize("distribution", ["balanced", "closest", "multicast"])
@pytest.mark.parametrize("is_settled", [False, True])
def test_every_way_to_a_receiver_counts(distribution: str, is_settled: bool) -> None:
    exchange = Exchange(Net({"service": distribution}, vhosts=house()))
    exchange.sender.send(b"?", reply_to=exchange.address, is_settled=is_settled)
    exchange.net.pump()
    assert not exchange.replier().is_detached


def test_router_annotations_and_replies_go_together() -> None:
    exchange = Exchange(Net(vhosts=house(), strip="in"))
    exchange.ask()
    assert not exchange.replier().is_detached


def test_a_receiver_that_has_all_settled_replies_too() -> None:
    exchange = Exchange(Net(vhosts=house()))
    exchange.requests.link.close()
    exchange.service.receiver("service", credit=5, snd_settle_mode=1)
    exchange.net.pump()
    exchange.ask()
    assert not exchange.replier().is_detached


def test_targets_are_as_ever_and_remembered_as_ever() -> None:
    exchange = Exchange(Net(vhosts=house(service={"targets": "log"})))
    anonymous = exchange.service.sender(None)
    exchange.net.pump()
    for _ in range(3):
        assert anonymous.send(b"x", address="log").updates == []
        exchange.net.pump()
    denied = exchange.service.sender("other")
    exchange.net.pump()
    assert denied.is_detached
    assert reasons(exchange.net) == ["target_not_allowed"]


def test_deny_targets_holds_against_replies() -> None:
    exchange = Exchange(Net(vhosts=house(service={"denyTargets": "amqp:/_topo/*"})))
    exchange.ask()
    for address in (exchange.address, exchange.address.removeprefix("amqp:/")):
        assert exchange.replier(address).is_detached
    assert {event["rule"]["item"] for event in exchange.net.audits} == {
        "denyTargets: amqp:/_topo/*",
        "denyTargets: _topo/*",
    }


# What counts as a reply-to


def test_a_reply_queue_counts_where_its_asker_may_send_to_it() -> None:
    exchange = Exchange(Net(vhosts=house()))
    board = exchange.asker.receiver("board", credit=5, accepts=True)
    exchange.ask("board")
    sending = exchange.replier("board").send(b"!")
    exchange.net.pump()
    assert (sending.outcome, board.bodies) == (ACCEPTED, [b"!"])


@pytest.mark.parametrize("address", FORGED)
def test_a_forged_reply_to_does_not_count(address: str) -> None:
    """Attack: have the service write where its asker may not write."""
    rules = {"targets": "service, board/*"} if "secret" in address else {"targets": "*"}
    net = Net(vhosts=house(asker=rules))
    for inside in ("$management", "_local/$management"):
        net.core.subscribe(inside, lambda _payload, _link: None)
    exchange = Exchange(net)
    exchange.ask(address)
    assert exchange.replier(address).is_detached
    assert reasons(net) == ["target_not_allowed"]


def test_the_dynamic_address_of_another_does_not_count() -> None:
    """Attack: make the service write to alice what mallory asked for."""
    exchange = Exchange(Net(vhosts=house(mallory={"remoteHosts": "*", "targets": "*"})))
    sender = exchange.net.client(hostname="mallory").sender("service")
    exchange.net.pump()
    sender.send(b"?", reply_to=exchange.address)
    exchange.net.pump()
    assert exchange.replier().is_detached
    assert reasons(exchange.net) == ["reply_not_expected"]


def test_a_name_that_means_something_else_to_the_service_does_not_count() -> None:
    """Attack: `board` of a tenant is `asker/board`, and that of the service another."""
    net = Net(vhosts=house(service={"sources": "asker/service"}))
    asker, service = net.client(hostname="asker", is_multi_tenant=True), net.client(hostname="service")
    requests = service.receiver("asker/service", credit=9, accepts=True)
    sender = asker.sender("service")
    _, address = dynamic(asker)
    for reply_to in ("board", address):
        sender.send(b"?", reply_to=reply_to)
    net.pump()
    assert len(requests.bodies) == 2
    repliers = [service.sender(each) for each in ("board", "asker/board", address)]
    net.pump()
    assert [each.is_detached for each in repliers] == [True, True, False]


def test_tenants_have_temporary_queues_of_their_own() -> None:
    """routing 3.4: dynamic addresses are not changed, the mobile ones neither"""
    net = Net(vhosts=house(asker={"allowAnonymousSender": True}, other={"remoteHosts": "*", "sources": "*"}))
    alice, bob = (net.client(hostname=name, is_multi_tenant=True) for name in ("asker", "other"))
    maker = alice.sender(None, target={"dynamic": True})
    net.pump()
    own, bobs = (client.receiver(maker.link.remote_target.address, credit=1) for client in (alice, bob))
    net.pump()
    assert (own.is_detached, bobs.is_detached) == (False, True)
    maker.send(b"mine")
    net.pump()
    assert own.bodies == [b"mine"]


def test_another_connection_of_the_service_has_not_received_it() -> None:
    exchange = Exchange(Net(vhosts=house()))
    exchange.ask()
    refused = exchange.net.client(hostname="service").sender(exchange.address)
    exchange.net.pump()
    assert refused.is_detached


def test_replies_to_who_has_left_are_released() -> None:
    exchange = Exchange(Net(vhosts=house()))
    exchange.ask()
    anonymous = exchange.service.sender(None)
    exchange.asker.kill()
    exchange.net.pump()
    sending = anonymous.send(b"!", address=exchange.address)
    exchange.net.pump()
    assert sending.outcome == RELEASED
    assert exchange.net.audits == []


@pytest.mark.parametrize("reply_to", ["", "x" * 3000])
def test_what_cannot_be_an_address_is_no_matter(reply_to: str) -> None:
    exchange = Exchange(Net(vhosts=house(asker={"targets": "*"})))
    exchange.ask(reply_to)
    assert len(exchange.requests.bodies) == 1
    if reply_to:
        assert exchange.replier(reply_to).is_detached
    exchange.net.no_errors()


# The rules change


def test_links_that_reply_are_decided_again() -> None:
    """onPolicyChange: enforce: they stay while the reply may be sent, and go with the right"""
    exchange = Exchange(Net(vhosts=house()))
    net = exchange.net
    exchange.ask()
    replier = exchange.replier()
    enforce(net, house(service={"maxSenders": 7}))
    assert not replier.is_detached
    enforce(net, house(service={"allowReplies": False}))
    assert replier.is_detached
    assert (net.audits[-1]["reason"], net.audits[-1]["redecision"]) == ("target_not_allowed", "policy_change")
    enforce(net, house())
    exchange.ask()
    again = exchange.replier()
    assert not again.is_detached
    net.now += 300
    enforce(net, house(service={"maxSenders": 7}))
    assert again.is_detached
    assert net.audits[-1]["reason"] == "reply_window_over"


def test_open_receivers_learn_that_replies_are_allowed_now() -> None:
    exchange = Exchange(Net(vhosts=house(service={"allowReplies": False})))
    exchange.ask()
    assert exchange.replier().is_detached
    enforce(exchange.net, house())
    exchange.ask()
    assert not exchange.replier().is_detached


def test_the_window_follows_the_rules() -> None:
    exchange = Exchange(Net(vhosts=house(service={"replyWindow": 600})))
    exchange.ask()
    replier = exchange.replier()
    exchange.net.now += 60
    enforce(exchange.net, house(service={"replyWindow": 30}))
    assert replier.is_detached


def test_a_link_that_was_to_reply_becomes_one_like_others_when_targets_name_it() -> None:
    exchange = Exchange(Net(vhosts=house()))
    exchange.ask()
    replier = exchange.replier()
    enforce(exchange.net, house(service={"targets": "amqp:/_topo/*"}))
    exchange.net.now += 1000
    sending = replier.send(b"!")
    exchange.net.pump()
    assert sending.outcome == ACCEPTED


# A candidate


@pytest.mark.parametrize("is_enabled", [True, False])
def test_a_candidate_with_allow_replies_is_asked_what_it_would_do(is_enabled: bool) -> None:
    """In force is the way of old, targets for all dynamic addresses; the candidate would do without."""
    old = house(service={"allowReplies": False, "targets": "amqp:/_topo/*"})
    old.policy = {"enableVhostPolicy": is_enabled}
    net = Net(vhosts=old, candidate=house())
    exchange = Exchange(net)
    exchange.ask()
    replier, anonymous = exchange.replier(), exchange.service.sender(None)
    net.pump()
    for each in (replier, anonymous):
        each.send(b"!", address=exchange.address)
        net.pump()
    assert exchange.replies.bodies == [b"!", b"!"]
    net.shadow.disagreements.flush()  # type: ignore[union-attr]
    assert net.audits == []
    stranger, address = dynamic(net.client(hostname="asker"), credit=1)
    anonymous.send(b"!", address=address)
    net.pump()
    assert stranger.bodies == [b"!"]
    net.shadow.disagreements.flush()  # type: ignore[union-attr]
    (event,) = net.audits
    assert (event["decision"], event["shadow"]["reason"]) == ("shadow_deny", "reply_not_expected")


def test_a_candidate_that_comes_later_begins_to_remember() -> None:
    old = house(service={"allowReplies": False, "targets": "amqp:/_topo/*"})
    net = Net(vhosts=old, candidate=old)
    exchange = Exchange(net)
    assert net.shadow is not None
    net.shadow.use(ruleset_of(house()))
    for client in net.clients:
        for _ in client.router.ask_candidate(net.wall_s):
            pass
    exchange.ask()
    exchange.replier()
    net.shadow.disagreements.flush()
    assert net.audits == []


# What it costs who does not use it


def test_who_may_not_reply_pays_nothing() -> None:
    net = Net(vhosts=house(service={"allowReplies": False}))
    client = net.client(hostname="service")
    client.receiver("service", credit=1)
    net.pump()
    (link,) = net.core.links.values()
    assert (link.compose, link.on_sending) == (None, None)  # type: ignore[union-attr]
    assert client.router.peer is not None
    assert client.router.peer.messages.replies is not None
    assert client.router.peer.messages.replies.memory is None


@pytest.mark.parametrize("service", [{}, {"allowReplies": False}])
def test_who_made_an_address_may_send_to_it_as_well(service: dict[str, Any]) -> None:
    """Nobody but itself receives from it."""
    net = Net(vhosts=house(service={"allowDynamicSource": True, **service}))
    client = net.client(hostname="service")
    receiver, address = dynamic(client, credit=9)
    links = [client.sender(address), client.sender(None)]
    net.pump()
    sendings = [link.send(b"x", address=address) for link in links]
    net.pump()
    assert [sending.outcome for sending in sendings] == [ACCEPTED] * 2
    assert receiver.bodies == [b"x", b"x"]


def test_nothing_is_left() -> None:
    exchange = Exchange(Net(vhosts=house()))
    exchange.ask()
    exchange.replier()
    exchange.net.nothing_left()


# Whatever anybody does

PREFIXES = ["", "amqp:/", "/", "amqp://h/", "x:/", "x:/y:/", "//h/", "amqp:/amqp:/"]
HEADS = ["_topo/0/QDR/", "_topo/all/QDR/", "_topo/all/all/", "_topo/1/QDR/", "_edge/QDR/", "_edge/R/", "_local/", "_$"]
SUFFIXES = ["", "/", ".", "//", "x"]


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(st.data())
def test_no_receiver_is_ever_bound_to_the_dynamic_address_of_another(data: st.DataObject) -> None:
    """Three connections make addresses, let them go, and attach to each other's by every spelling there may be."""
    everything = {"remoteHosts": "*", "sources": "*", "targets": "*", "allowDynamicSource": True}
    net = Net(vhosts=house(asker={**everything, "allowAnonymousSender": True}))
    tenants = data.draw(st.lists(st.booleans(), min_size=3, max_size=3))
    clients = [net.client(hostname="asker", is_multi_tenant=is_tenant) for is_tenant in tenants]
    net.pump()
    links: list[Any] = []
    names: list[str] = ["temp.aaaaaaaaaaaaaaa"]
    for _ in range(data.draw(st.integers(3, 14))):
        client = data.draw(st.sampled_from(clients))
        match data.draw(st.sampled_from(["source", "target", "receive", "receive", "receive", "send", "close"])):
            case "source":
                link, address = dynamic(client)
                names.append(address.rpartition("/")[2])
                links.append(link)
            case "target":
                sender = client.sender(None, target={"dynamic": True})
                net.pump()
                names.append(sender.link.remote_target.address.rpartition("$")[2])
                links.append(sender)
            case "close" if links:
                link = links.pop(data.draw(st.integers(0, len(links) - 1)))
                if not link.is_detached:
                    link.link.close()
            case kind:
                parts = [data.draw(st.sampled_from(each)) for each in (PREFIXES, HEADS, names, SUFFIXES)]
                links.append((client.sender if kind == "send" else client.receiver)("".join(parts)))
        net.pump()
        for live in net.core.table.addresses.values():
            receivers = {link.attachment for link in live.out_links}
            if live.made_by is not None:
                assert receivers <= {live.made_by.attachment}
            elif is_dynamic(live.key.replace("M0", "").replace("L", "_local/", 1)):
                assert receivers == set()
    net.no_errors()
    net.nothing_left()
