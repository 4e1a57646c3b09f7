"""python-qpid-proton's own clients, the reactor and the blocking one, against a router that enforces a policy.

They speak TLS only where they were built with OpenSSL. Where they were not, the tests that need it are skipped and say
so; test_clients_rhea.py then shows the same over TLS with a client that always has it.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
from harness import USERS, RunningRouter
from proton import SSL, Condition, ConnectionException, Delivery, Message, SSLDomain
from proton.handlers import MessagingHandler
from proton.reactor import AtMostOnce, Container
from proton.utils import BlockingConnection, ConnectionClosed, LinkDetached

TIMEOUT_S = 20
COUNT = 1000

needs_tls = pytest.mark.skipif(
    not SSL.present(),
    reason="this python-qpid-proton was built without OpenSSL; test_clients_rhea.py covers TLS",
)


def tls(router: RunningRouter, client: str | None = None) -> SSLDomain:
    """Trusts the tests' authority and checks the server's name; with `client`, shows that certificate."""
    domain = SSLDomain(SSLDomain.MODE_CLIENT)
    domain.set_trusted_ca_db(router.certificates.ca)
    domain.set_peer_authentication(SSLDomain.VERIFY_PEER_NAME)
    if client is not None:
        domain.set_credentials(*router.certificates.pair(client), None)
    return domain


def options(router: RunningRouter, user: str | None, *, password: str | None = None) -> dict[str, Any]:
    """How to connect as somebody: alice and bob with passwords over TLS, carol by certificate, None anonymously.

    proton compares the certificate with DNS names only, and takes the virtual host for the server's name.
    """
    if user is None:
        return {"url": f"amqp://127.0.0.1:{router.ports['clear']}", "allowed_mechs": "ANONYMOUS"}
    if user in USERS:
        found = {"user": user, "password": USERS[user] if password is None else password, "allowed_mechs": "PLAIN"}
        url = f"amqps://127.0.0.1:{router.ports['password']}"
        return {"url": url, "ssl_domain": tls(router), "virtual_host": "localhost", **found}
    url = f"amqps://127.0.0.1:{router.ports['certificate']}"
    return {"url": url, "ssl_domain": tls(router, user), "allowed_mechs": "EXTERNAL", "virtual_host": "localhost"}


@contextmanager
def blocking(router: RunningRouter, user: str | None, **more: Any) -> Iterator[BlockingConnection]:
    password = more.pop("password", None)
    connection = BlockingConnection(timeout=TIMEOUT_S, **(options(router, user, password=password) | more))
    try:
        yield connection
    finally:
        connection.close()


class Client(MessagingHandler):
    """One reactor client that ends by itself. `conditions` are the errors it was given, `name: description`."""

    def __init__(self, router: RunningRouter, user: str | None, **settings: Any) -> None:
        super().__init__(**settings)
        self.connection_options = options(router, user)
        self.conditions: list[str] = []
        self.is_timed_out = False

    def on_start(self, event: Any) -> None:
        self.timer = event.container.schedule(TIMEOUT_S, self)
        connection = event.container.connect(reconnect=False, **self.connection_options)
        self.begin(event.container, connection)

    def begin(self, container: Any, connection: Any) -> None:
        """Open the links."""

    def finish(self, event: Any) -> None:
        self.timer.cancel()
        event.connection.close()

    def on_timer_task(self, event: Any) -> None:
        self.is_timed_out = True
        event.container.stop()

    def note(self, condition: Any) -> None:
        if condition is not None:
            self.conditions.append(f"{condition.name}: {condition.description}")

    def on_link_error(self, event: Any) -> None:
        self.note(event.link.remote_condition)
        self.finish(event)

    def on_connection_error(self, event: Any) -> None:
        self.note(event.connection.remote_condition)
        self.finish(event)

    def on_transport_error(self, event: Any) -> None:
        self.note(event.transport.condition)
        self.finish(event)

    def run(self) -> "Client":
        Container(self).run()
        assert not self.is_timed_out, f"not finished in {TIMEOUT_S} s; errors so far: {self.conditions}"
        return self


class Exchange(Client):
    """Sends `count` numbered messages and receives them on the same connection; `decide` settles each delivery."""

    def __init__(
        self,
        router: RunningRouter,
        user: str | None,
        address: str,
        *,
        decide: Callable[[Delivery], None],
        count: int = COUNT,
        size: int = 0,
    ) -> None:
        super().__init__(router, user, auto_accept=False)
        self.address, self.count, self.decide = address, count, decide
        self.body = b"x" * size
        self.sent = 0
        self.received: list[Any] = []
        self.sizes: set[int] = set()
        self.outcomes: Counter[str] = Counter()

    def begin(self, container: Any, connection: Any) -> None:
        container.create_receiver(connection, self.address)
        container.create_sender(connection, self.address)

    def on_sendable(self, event: Any) -> None:
        while event.sender.credit and self.sent < self.count:
            event.sender.send(Message(id=self.sent, body=self.body))
            self.sent += 1

    def on_message(self, event: Any) -> None:
        self.received.append(event.message.id)
        self.sizes.add(len(event.message.body))
        self.decide(event.delivery)
        event.delivery.settle()

    def on_settled(self, event: Any) -> None:
        self.outcomes[event.delivery.remote_state.name] += 1
        if self.outcomes.total() == self.count:
            self.finish(event)


def update_to(state: int) -> Callable[[Delivery], None]:
    return lambda delivery: delivery.update(state)


ACCEPT = update_to(Delivery.ACCEPTED)


# Sent and received


@needs_tls
@pytest.mark.parametrize(("user", "mechanism"), [("alice", "PLAIN"), ("carol", "EXTERNAL")])
def test_the_reactor_sends_and_receives_over_tls(user: str, mechanism: str, router: RunningRouter) -> None:
    """policy 48, 56."""
    since = router.mark()
    client = Exchange(router, user, "orders.reactor", decide=ACCEPT, count=10)
    client.run()
    assert client.received == list(range(10))
    assert client.outcomes == {"ACCEPTED": 10}
    router.wait_for_log(rf"Connection Opened: .* encrypted=TLSv1\.3 auth={mechanism} user={user} ", since=since)


@needs_tls
@pytest.mark.parametrize("user", ["alice", "carol"])
def test_the_blocking_client_sends_and_receives_over_tls(user: str, router: RunningRouter) -> None:
    """`send` returns when the outcome has come, so that the receiver needs a thread of its own."""

    with blocking(router, user) as sending, blocking(router, user) as receiving, ThreadPoolExecutor(1) as pool:
        receiver = receiving.create_receiver("orders.blocking", credit=5)
        received = pool.submit(receive_five, receiver)
        sender = sending.create_sender("orders.blocking")
        for number in range(5):
            assert sender.send(Message(body=f"message {number}")).remote_state == Delivery.ACCEPTED
        assert received.result(TIMEOUT_S) == [f"message {number}" for number in range(5)]


def receive_five(receiver: Any) -> list[str]:
    bodies = []
    for _ in range(5):
        bodies.append(receiver.receive(timeout=TIMEOUT_S).body)
        receiver.accept()
    receiver.close()  # the last outcome leaves only when the client has something to wait for
    return bodies


def test_an_anonymous_client_sends_and_receives_in_the_clear(router: RunningRouter) -> None:
    """policy 54: where the listener lets it, and as the policy's user `anonymous`."""
    client = Exchange(router, None, "guests.hall", decide=ACCEPT, count=10)
    client.run()
    assert client.outcomes == {"ACCEPTED": 10}


@pytest.mark.parametrize("state", ["ACCEPTED", "REJECTED", "RELEASED", "MODIFIED"])
def test_every_outcome_reaches_the_sender(state: str, router: RunningRouter) -> None:
    """A thousand of each; MODIFIED, which the reactor's own handlers take for released, is told apart here."""
    client = Exchange(router, None, "guests.outcomes", decide=update_to(getattr(Delivery, state)))
    client.run()
    assert client.outcomes == {state: COUNT}
    assert client.received == list(range(COUNT))


def test_what_the_receiver_says_of_a_refusal_reaches_the_sender(router: RunningRouter) -> None:
    """The condition of rejected, and the fields of modified."""
    details: list[Any] = []

    class Refused(Exchange):
        def on_settled(self, event: Any) -> None:
            remote = event.delivery.remote
            details.append((remote.condition, remote.failed, remote.undeliverable, remote.annotations))
            super().on_settled(event)

    def reject(delivery: Delivery) -> None:
        delivery.local.condition = Condition("tests:not-today", "come back tomorrow")
        delivery.update(Delivery.REJECTED)

    def modify(delivery: Delivery) -> None:
        delivery.local.failed = True
        delivery.local.undeliverable = True
        delivery.update(Delivery.MODIFIED)

    Refused(router, None, "guests.details", decide=reject, count=1).run()
    Refused(router, None, "guests.details", decide=modify, count=1).run()
    (rejected, *_), (_, has_failed, is_undeliverable, _) = details
    assert (rejected.name, rejected.description) == ("tests:not-today", "come back tomorrow")
    assert (has_failed, is_undeliverable) == (True, True)


@pytest.mark.parametrize("user", [None, pytest.param("alice", marks=needs_tls)])
def test_large_messages_arrive_whole(user: str | None, router: RunningRouter) -> None:
    """routing 93: three of 5 MB, each many frames, in the clear and through TLS."""
    address = "guests.large" if user is None else "orders.large"
    client = Exchange(router, user, address, decide=ACCEPT, count=3, size=5_000_000)
    client.run()
    assert client.outcomes == {"ACCEPTED": 3}
    assert client.sizes == {5_000_000}


@needs_tls
def test_a_request_is_answered_on_a_dynamic_address_by_an_anonymous_sender(router: RunningRouter) -> None:
    """policy 32: alice may have a dynamic source, and send to it through a sender without a target."""
    with blocking(router, "alice") as connection:
        replies = connection.create_receiver(None, credit=1, dynamic=True)
        address = replies.link.remote_source.address
        assert address
        requests = connection.create_receiver("orders.requests", credit=1)
        question = Message(body="question", reply_to=address)
        connection.create_sender("orders.requests", options=AtMostOnce()).send(question)
        reply_to = requests.receive(timeout=TIMEOUT_S).reply_to
        connection.create_sender(None, options=AtMostOnce()).send(Message(address=reply_to, body="answer"))
        assert replies.receive(timeout=TIMEOUT_S).body == "answer"


class ToOthers(Client):
    """An anonymous sender: a message each to the addresses, in their order. `refusals` by address."""

    def __init__(self, router: RunningRouter, user: str, addresses: list[str], receive: str) -> None:
        super().__init__(router, user)
        self.addresses, self.receive = addresses, receive
        self.refusals: dict[str, str] = {}
        self.received: list[str] = []
        self.waiting: dict[Any, str] = {}

    def begin(self, container: Any, connection: Any) -> None:
        container.create_receiver(connection, self.receive)
        self.sender = container.create_sender(connection, None)

    def on_sendable(self, event: Any) -> None:
        for address in self.addresses:
            delivery = event.sender.send(Message(address=address, body=address))
            self.waiting[delivery.tag] = address
        self.addresses = []

    def on_message(self, event: Any) -> None:
        self.received.append(event.message.body)

    def on_settled(self, event: Any) -> None:
        address = self.waiting.pop(event.delivery.tag)
        condition = event.delivery.remote.condition
        if condition is not None:
            self.refusals[address] = f"{condition.name}: {condition.description}"
        if not self.waiting:
            self.finish(event)


@needs_tls
def test_an_anonymous_senders_messages_are_judged_one_by_one(router: RunningRouter) -> None:
    """policy 37: what is not allowed is rejected alone; link and credit survive."""
    since = router.mark()
    client = ToOthers(router, "alice", ["orders.one", "secret", "orders.one"], receive="orders.one")
    client.run()
    assert client.refusals == {"secret": "amqp:unauthorized-access: policy violation on target"}
    assert client.received == ["orders.one", "orders.one"]
    router.wait_for_log(r"POLICY \(info\) \[C\d+\] DENY AMQP message to 'secret' for user 'alice'", since=since)
    event = router.wait_for_audit(stage="transfer", address="secret")
    assert (event["user"], event["reason"], event["decision"]) == ("alice", "message_target_not_allowed", "deny")


# Denied

OPEN_REFUSED = "'amqp:resource-limit-exceeded', 'connection disallowed by local policy'"


@needs_tls
def test_a_wrong_password_is_refused(router: RunningRouter) -> None:
    with pytest.raises(ConnectionException, match=r"Authentication failed \[mech=PLAIN\]"):
        blocking(router, "alice", password="not alice's password").__enter__()
    event = router.wait_for_audit(stage="sasl")
    assert (event["mechanism"], event["decision"]) == ("PLAIN", "deny")
    router.wait_for_log(r"amqp:unauthorized-access .*\(Failed to authenticate client \[mech=PLAIN\]\)")
    assert not router.has_logged("not alice's password")


@needs_tls
def test_a_strangers_certificate_is_refused(router: RunningRouter) -> None:
    """policy 48: signed by an authority the router does not know; the name in it does not matter."""
    with pytest.raises(ConnectionException):
        blocking(router, "stranger").__enter__()
    event = router.wait_for_audit(stage="tls", reason="tls_handshake_failed")
    assert event["user"] is None
    router.wait_for_log(r"failed: amqp:connection:framing-error SSL Failure: ")


@needs_tls
@pytest.mark.parametrize("user", ["mallory", "dave"])
def test_a_user_of_no_group_is_told_so_in_open_and_close(user: str, router: RunningRouter) -> None:
    """policy 21: who they are is proved, by password or certificate; the policy does not know them."""
    with pytest.raises(ConnectionClosed, match=OPEN_REFUSED):
        blocking(router, user).__enter__()
    event = router.wait_for_audit(stage="open", user=user)
    assert (event["reason"], event["condition"]) == ("unknown_user", "amqp:resource-limit-exceeded")


def test_an_unknown_vhost_is_told_so_in_open_and_close(router: RunningRouter) -> None:
    """policy 18."""
    with pytest.raises(ConnectionClosed, match=OPEN_REFUSED):
        blocking(router, None, virtual_host="elsewhere.example").__enter__()
    event = router.wait_for_audit(stage="open", requested_vhost="elsewhere.example")
    assert event["reason"] == "no_vhost"


class Attempt(Client):
    """Opens one link and reports what became of it."""

    def __init__(self, router: RunningRouter, user: str, open_link: Callable[[Any, Any], None]) -> None:
        super().__init__(router, user)
        self.open_link = open_link

    def begin(self, container: Any, connection: Any) -> None:
        self.open_link(container, connection)

    def on_link_opened(self, event: Any) -> None:
        link = event.link
        terminus = link.remote_target if link.is_sender else link.remote_source
        if terminus.type:  # a refusal is an attach without terminus, then a detach
            self.conditions.append("attached")
            self.finish(event)


LINK_REFUSED = "amqp:unauthorized-access: link disallowed by local policy"


@needs_tls
@pytest.mark.parametrize(
    ("what", "open_link", "facts"),
    [
        (
            "a target that is not listed",
            lambda container, connection: container.create_sender(connection, "secret"),
            {"reason": "target_not_allowed", "address": "secret", "direction": "send"},
        ),
        (
            "a source that is not listed",
            lambda container, connection: container.create_receiver(connection, "secret"),
            {"reason": "source_not_allowed", "address": "secret", "direction": "receive"},
        ),
        (
            "a dynamic source",
            lambda container, connection: container.create_receiver(connection, None, dynamic=True),
            {"reason": "dynamic_source", "direction": "receive"},
        ),
        (
            "an anonymous sender",
            lambda container, connection: container.create_sender(connection, None, name="anonymous"),
            {"reason": "anonymous_sender", "direction": "send"},
        ),
    ],
)
def test_bob_is_refused_links(
    what: str, open_link: Callable[[Any, Any], None], facts: dict[str, Any], router: RunningRouter
) -> None:
    """policy 29, 32."""
    client = Attempt(router, "bob", open_link)
    client.run()
    assert client.conditions == [LINK_REFUSED], what
    event = router.wait_for_audit(stage="attach", user="bob", **facts)
    assert event["condition"] == "amqp:unauthorized-access"


@needs_tls
def test_a_refused_link_leaves_the_others_alone(router: RunningRouter) -> None:
    """policy 29."""
    with blocking(router, "bob") as bob:
        receiver = bob.create_receiver("orders.kept", credit=1)
        with pytest.raises(LinkDetached, match="'amqp:unauthorized-access', 'link disallowed by local policy'"):
            bob.create_sender("orders.kept")
        with blocking(router, "alice") as alice:
            alice.create_sender("orders.kept", options=AtMostOnce()).send(Message(body="still here"))
        assert receiver.receive(timeout=TIMEOUT_S).body == "still here"
