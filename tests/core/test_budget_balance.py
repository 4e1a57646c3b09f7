"""Whatever happens: the accounts hold what is held, the levels the sum of it, and nothing at the end."""

import random
from typing import Any

import pytest
from memory_net import MODIFIED, RELEASED, Client, Net, Receiver, Sender

from router.amqp.engine.library import lib
from router.amqp.engine.links import DELIVERY_BYTES, SESSION_BYTES
from router.core.budget import RECORD_BYTES, Account, Limits
from router.core.core import Core
from router.core.forward import Fanout
from router.core.in_links import InLink
from router.core.out_links import OutLink
from router.core.streams import Leg, Stream
from router.core.weights import COPIES, LARGE_BYTES, Weights
from router.core.work import FULL_BUFFER_BYTES

ADDRESSES = ("a", "b", "m", "m2")
SIZES = (10, 900, 5_000, 70_000, 300_000)
LIMITS = Limits(link=200_000, connection=500_000, user=900_000, host=1_200_000, router=1_500_000)


def payers(core: Core) -> dict[Any, int]:
    """Bytes that wait on receivers' links, by the object that has to pay: counted anew, message by message."""
    held: dict[Any, int] = {}
    seen: set[int] = set()

    def pay(payer: Any, size: int) -> None:
        held[payer] = held.get(payer, 0) + size

    streams: set[Stream] = set()
    for out in core.links.values():
        if isinstance(out, OutLink) and out.leg is not None:
            assert isinstance(out.leg, Leg)
            streams.add(out.leg.stream)
        for item in out.queue if isinstance(out, OutLink) else ():
            payer = item.charge.payer
            if item.leg is not None:
                assert isinstance(item.leg, Leg)
                assert payer is item.leg.stream.link
                pay(payer, RECORD_BYTES)
                streams.add(item.leg.stream)
                continue
            origin = item.origin
            if isinstance(origin, InLink):
                assert payer is origin
            elif isinstance(origin, Fanout):
                assert payer is origin.link
            size = len(item.payload) * (COPIES if len(item.payload) > LARGE_BYTES else 1)
            pay(payer, RECORD_BYTES if id(item.charge) in seen else RECORD_BYTES + size)
            seen.add(id(item.charge))
    for stream in streams:
        legs = [leg for leg in stream.legs if not leg.is_over]
        begun = sum(leg.handle is not None for leg in legs)
        assert all(not leg.own for leg in stream.legs if leg.is_over)
        assert stream.parts.kept == sum(map(len, stream.parts._parts))
        pay(stream.link, stream.parts.kept + sum(len(leg.own) for leg in legs))
        pay(stream.link, begun * (RECORD_BYTES + stream.piece_bytes))
    return held


def held_by(client: Client) -> int:
    """What the engine and the core hold for one connection."""
    peer = client.router.peer
    if peer is None or peer.engine.is_freed:
        return 0
    engine, attachment = peer.engine, peer.attachment
    size = FULL_BUFFER_BYTES * attachment._has_full_buffer
    size += sum(link.size for link in engine.links.values())
    for session in engine.sessions.values():
        session.charge_incoming()  # deliveries behind one that is read: counted a few sessions at a time
        assert session.incoming == SESSION_BYTES + lib.pn_session_incoming_bytes(session.pointer) + (
            session.untaken * DELIVERY_BYTES
        )
        size += session.incoming + session.outgoing
    for link in attachment.out_links:
        size += link.records * RECORD_BYTES
        if (weights := link.weights) is not None:
            assert isinstance(weights, Weights)
            assert set(weights._sizes) <= set(link.unsettled)
            assert weights.held == COPIES * sum(weights._sizes.values())
            assert weights.held <= weights.charged <= 2 * weights.held
            size += weights.charged
    return size


class World:
    def __init__(self, seed: int, limits: Limits) -> None:
        self.chance = random.Random(seed)
        self.net = Net({"m": "multicast", "m2": "multicast"}, limits=limits, capacity=self.chance.choice((5, 250)))
        self.accounts: dict[Client, Account] = {}
        self.limits = limits

    def client(self) -> Client:
        self.net.remote_host = self.chance.choice(("10.0.0.1", "10.0.0.2"))
        client = self.net.client()
        self.net.pump()
        return client

    def check(self) -> None:
        net = self.net
        for client in net.clients:
            if client.router.peer is not None:
                self.accounts.setdefault(client, client.router.peer.attachment.account)
        held = payers(net.core)
        links = {payer: size for payer, size in held.items() if isinstance(payer, InLink)}
        for payer, size in links.items():
            assert payer.held == size
        total = 0
        sizes = {client: held_by(client) for client in self.accounts}
        for client, account in self.accounts.items():
            size = sizes[client] + sum(
                size
                for payer, size in held.items()
                if payer is account or (isinstance(payer, InLink) and payer.attachment.account is account)
            )
            assert account.held == size
            total += size
        budgets = net.core.budgets
        assert budgets.router.held == total
        for level in budgets.levels():
            assert level.held == sum(account.held for account in level.accounts)
            assert level.leaving == sum(account.held for account in level.accounts if not account.is_open)
            assert level.using == sum(account.held > 0 for account in level.accounts)
            assert set(level.held_back) <= set(level.accounts)
        for account in self.accounts.values():
            assert all(account in level.held_back for level in account.behind)

    def live(self) -> list[Client]:
        return [client for client in self.net.clients if not client.is_dead and not client.router_closed]

    def step(self) -> None:
        chance, clients = self.chance, self.live()
        if not clients or chance.random() < 0.05:
            self.client()
            return
        client = chance.choice(clients)
        ends = [end for end in client.ends.values() if not end.is_detached and end.is_attached]
        senders = [end for end in ends if isinstance(end, Sender)]
        receivers = [end for end in ends if isinstance(end, Receiver)]
        what = chance.random()
        if what < 0.12:
            # It does not settle back: an update of what it has settled would be none to the test's client.
            client.sender(chance.choice((*ADDRESSES, None))).settles_back = False
        elif what < 0.25:
            client.receiver(chance.choice(ADDRESSES), credit=chance.choice((0, 0, 3, 1000)))
        elif what < 0.70 and senders:
            sender = chance.choice(senders)
            for _ in range(min(chance.randrange(6), sender.credit)):
                body = bytes(chance.choice(SIZES))
                address = {} if sender.link.target.address else {"address": chance.choice(ADDRESSES)}
                sender.send(body, is_settled=chance.random() < 0.3, **address)
        elif what < 0.80 and receivers:
            chance.choice(receivers).flow(chance.choice((1, 5, 50)))
        elif what < 0.90 and receivers:
            for item in chance.choice(receivers).complete[:20]:
                if not item.is_settled_here:
                    item.give(chance.choice((0x24, 0x24, RELEASED, MODIFIED)), is_settled=chance.random() < 0.6)
        elif what < 0.92 and senders:
            for sending in chance.choice(senders).sent[-20:]:
                if sending.updates and not sending.updates[-1].is_settled and not sending.is_settled_here:
                    sending.settle()  # where receivers wait for it, and where not all have decided
        elif what < 0.94:
            client.is_reading = not client.is_reading
        elif what < 0.97 and ends:
            chance.choice(ends).close()
        elif what < 0.98:
            client.kill()
        else:
            self.net.advance(1)
        self.net.pump()


@pytest.mark.parametrize("limits", [Limits(), LIMITS], ids=["ample", "tight"])
@pytest.mark.parametrize("seed", range(12))
def test_accounts_hold_what_is_held_and_end_at_zero(seed: int, limits: Limits) -> None:
    world = World(seed, limits)
    for _ in range(150):
        world.step()
        world.check()
    for client in world.net.clients:
        client.kill()
    world.net.pump()
    world.check()
    budgets = world.net.core.budgets
    assert budgets.router.held == 0
    assert [level.kind for level in budgets.levels()] == ["router"]
