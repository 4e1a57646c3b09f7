"""Exchanges, bindings and fallback destinations of a running router: its file, management, tools and real clients."""

import json
from collections.abc import Callable
from itertools import count
from typing import Any

import pytest
from daemon_process import LISTENER, Daemon
from proton import Message, symbol
from proton.reactor import AtMostOnce, ReceiverOption
from proton.utils import BlockingConnection, SendException

from router.management.client import BadRequestStatus

pytestmark = pytest.mark.interop

PREFIX = "org.apache.qpid.dispatch.router.config"
EXCHANGES = """
exchange {
    name: news
    address: news
    alternateAddress: rest
}
binding {
    exchangeName: news
    bindingKey: sport.#
    nextHopAddress: sport
}
address {
    prefix: alerts
    enableFallback: yes
}
"""
EXPERIMENTAL = r"AGENT \(warning\) The Exchange/Binding feature is currently EXPERIMENTAL\."


def test_exchanges_of_the_file_are_there_and_change_while_the_router_runs(daemon: Callable[..., Daemon]) -> None:
    """routing 123, 124, management 59: made, shown, refused and deleted by qdmanage; the log says what they are."""
    router = daemon(EXCHANGES + LISTENER)
    assert len(router.log(EXPERIMENTAL)) == 1
    (row,) = json.loads(router.tool("qdmanage", "query", "--type=exchange").out)
    assert (row["name"], row["address"], row["alternateAddress"], row["bindingCount"]) == ("news", "news", "rest", 1)
    made = router.tool("qdmanage", "create", "type=exchange", "name=mq", "address=mq", "matchMethod=mqtt")
    assert json.loads(made.out)["matchMethod"] == "mqtt"
    assert len(router.log(EXPERIMENTAL)) == 1
    with router.client() as client:

        def refusal(kind: str, name: str, **attributes: Any) -> str:
            with pytest.raises(BadRequestStatus) as raised:
                client.create({"type": f"{PREFIX}.{kind}", "name": name, **attributes})
            return str(raised.value)

        assert "expected an address that clients use" in refusal("exchange", "e", address="$management")
        assert "expected an address that clients use" in refusal(
            "exchange", "e", address="a", alternateAddress="_topo/0/B/x"
        )
        assert "another spelling" in refusal("exchange", "e", address="/news")
        assert "the exchange's own address" in refusal("exchange", "e", address="a", alternateAddress="a")
        inside = refusal("binding", "b", exchangeName="news", nextHopAddress="_$qd.edge_heartbeat")
        assert "expected an address that clients use" in inside
        assert "own address" in refusal("binding", "b", exchangeName="news", nextHopAddress="amqp:/news")
        invalid = refusal("binding", "b", exchangeName="mq", nextHopAddress="x", bindingKey="#/a")
        assert invalid.endswith("The binding key pattern is invalid")
        assert len(client.query(f"{PREFIX}.exchange").rows) == 2
        assert len(client.query(f"{PREFIX}.binding").rows) == 1
    two = ("type=binding", "name=two", "exchangeName=news", "bindingKey=*.uk", "nextHopAddress=uk")
    assert json.loads(router.tool("qdmanage", "create", *two).out)["matchedCount"] == 0
    with Clients(router.port()) as clients:
        sport, uk, rest = (clients.receive(address) for address in ("sport", "uk", "rest"))
        assert clients.send("news", *("sport.uk", "sport", "other", None)) == ["ACCEPTED"] * 4
        received = [each.subjects(number) for each, number in ((sport, 2), (uk, 1), (rest, 2))]
    assert received == [["sport.uk", "sport"], ["sport.uk"], ["other", None]]
    (row, _) = json.loads(router.tool("qdmanage", "query", "--type=exchange").out)
    counts = [row[f"{each}Count"] for each in ("binding", "received", "forwarded", "diverted", "dropped")]
    assert counts == [2, 4, 4, 2, 0]
    bindings = json.loads(router.tool("qdmanage", "query", "--type=binding").out)
    assert [each["matchedCount"] for each in bindings] == [2, 1]
    assert router.tool("qdmanage", "delete", "--type=exchange", "--name=news").status == 0
    assert json.loads(router.tool("qdmanage", "query", "--type=binding").out) == []
    with Clients(router.port()) as clients:
        assert clients.send("news", "sport", is_anonymous=True) == ["RELEASED"]


def test_a_fallback_destination_is_counted_by_qdstat(daemon: Callable[..., Daemon]) -> None:
    """routing 122: of the address and of the router."""
    router = daemon(EXCHANGES + LISTENER)
    with Clients(router.port()) as clients:
        kept = clients.receive("alerts", capability="qd.fallback")
        assert clients.send("alerts", "1", "2") == ["ACCEPTED"] * 2
        regular = clients.receive("alerts")
        assert clients.send("alerts", "3") == ["ACCEPTED"]
        assert (kept.subjects(2), regular.subjects(1)) == (["1", "2"], ["3"])
        rows = [line.split() for line in router.tool("qdstat", "-a").out.splitlines() if " alerts " in line]
        assert sorted(row[-1] for row in rows) == ["0", "2"]
    assert [line.split()[-1] for line in router.tool("qdstat", "-g").out.splitlines() if "to Fallback" in line] == ["2"]


class Clients:
    """Receivers and senders of one connection. A message is its subject."""

    def __init__(self, port: int) -> None:
        self._connection = BlockingConnection(f"127.0.0.1:{port}", timeout=10, allowed_mechs="ANONYMOUS")
        self._names = count()

    def __enter__(self) -> "Clients":
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def receive(self, address: str, *, capability: str | None = None) -> "Inbox":
        options = [AtMostOnce(), *([_Capable(capability)] if capability is not None else [])]
        name = f"r{next(self._names)}"
        return Inbox(self._connection.create_receiver(address, credit=100, name=name, options=options))

    def send(self, address: str, *subjects: str | None, is_anonymous: bool = False) -> list[str]:
        """One message for each; returns their outcomes."""
        sender = self._connection.create_sender(None if is_anonymous else address, name=f"s{next(self._names)}")
        states = []
        for subject in subjects:
            try:
                sender.send(Message(address=address, subject=subject, body="x"), timeout=10)
                states.append("ACCEPTED")
            except SendException as refused:
                state: Any = refused.state  # proton says int
                states.append(state.name)
        sender.close()
        return states


class Inbox:
    """What comes to a receiver. It comes settled: the router accepts it for the receiver when it is written."""

    def __init__(self, receiver: Any) -> None:
        self._receiver = receiver

    def subjects(self, number: int) -> list[str | None]:
        return [self._receiver.receive(timeout=10).subject for _ in range(number)]


class _Capable(ReceiverOption):
    def __init__(self, capability: str) -> None:
        self._capability = capability

    def apply(self, receiver: Any) -> None:
        receiver.source.capabilities.put_object(symbol(self._capability))
