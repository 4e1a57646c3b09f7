"""Five clients in four languages against a router that enforces a policy: every feature of features.py.

They log in over TLS with a password, where the test says nothing else; see programs.py for what they are asked.
"""

import functools
import itertools
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from certificates import Certificates
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.serialization import pkcs12
from features import CLIENTS, END, FEATURES, PAGE, page_with_table
from harness import CHEAP, USERS, RunningRouter, eventually, running_router
from issuer import AUDIENCE, ISSUER, Issuer
from open_house import OPEN_HOUSE, port_of
from programs import ClientError, Program

from auth.secrets import Secret
from auth.verifiers.files import set_user
from router.management.client import ManagementClient

CONFIGURATION = (
    OPEN_HOUSE
    + """
vhost {
    hostname: clients
    groups: {
        traders: {
            users: alice, carol
            remoteHosts: *
            sources: orders.*
            targets: orders.*
        }
        services: {
            users: service
            remoteHosts: *
            sources: requests.*
            allowReplies: true
            allowAnonymousSender: true
        }
        askers: {
            users: asker
            remoteHosts: *
            targets: requests.*
            allowDynamicSource: true
            # A temporary queue of JMS is a target that the router names.
            allowAnonymousSender: true
        }
    }
}
listener {
    name: clients
    host: 127.0.0.1
    port: 0
    sslProfile: interop-tls
    requireSsl: yes
    authenticatePeer: yes
    saslMechanisms: PLAIN
    policyVhost: clients
}
fileAuthenticator {
    name: people
    path: FOLDER/people
}
tokenAuthenticator {
    name: issuer
    keysFile: FOLDER/keys.json
    issuer: ISSUER
    audience: AUDIENCE
}
listener {
    name: mechanisms
    host: 127.0.0.1
    port: 0
    sslProfile: interop-tls
    requireSsl: yes
    authenticatePeer: yes
    authenticators: people issuer
    policyVhost: clients
}
listener {
    name: certificates
    host: 127.0.0.1
    port: 0
    sslProfile: interop-tls
    requireSsl: yes
    authenticatePeer: yes
    saslMechanisms: EXTERNAL
    policyVhost: clients
}
"""
)
LARGE = 20_000_000
LINK_DENIED = ("amqp:unauthorized-access", "link disallowed by local policy")
CONNECTION_DENIED = ("amqp:resource-limit-exceeded", "connection disallowed by local policy")

numbers = itertools.count(1)
claimed: set[str] = set()


def every_client(feature: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """The test, once for each client that has the feature; a worker has all the tests of a client."""
    claimed.add(feature)
    having = [name for name, client in CLIENTS.items() if feature not in client.lacks]
    cases = [pytest.param(name, marks=pytest.mark.xdist_group(name)) for name in having]
    mark: Callable[[Callable[..., None]], Callable[..., None]]
    mark = pytest.mark.parametrize("program", cases, indirect=True)
    return mark


class Connection:
    """One connection of the client program."""

    def __init__(
        self,
        program: Program,
        router: RunningRouter,
        user: str = "alice",
        *,
        listener: str = "clients",
        mechanism: str = "PLAIN",
        password: str | None = None,
        pair: tuple[str, str, str] | tuple[None, None, None] = (None, None, None),
        reconnect: bool = False,
    ) -> None:
        """password  the user's own where none is given
        pair      files: certificate, key, key store
        """
        self.program = program
        self.name = f"connection{next(numbers)}"
        members = dict(zip(("certificate", "key", "key_store"), pair, strict=True))
        members |= {"as": self.name, "user": user, "password": password or USERS.get(user), "mechanism": mechanism}
        port, ca = port_of(router, listener), router.certificates.ca
        program.ask("connect", **members, port=port, ca=ca, reconnect=reconnect)

    def sender(self, address: str | None, mode: str | None = None) -> "Link":
        return self._link("sender", address, mode, None)

    def receiver(
        self, address: str | None, mode: str | None = None, settles: str | None = None, *, credit: int = 10
    ) -> "Link":
        link = self._link("receiver", address, mode, settles)
        if credit:
            link.ask("credit", count=credit)
        return link

    def _link(self, kind: str, address: str | None, mode: str | None, settles: str | None) -> "Link":
        name = f"{kind}{next(numbers)}"
        reply = self.program.ask(kind, **{"as": name}, on=self.name, address=address, mode=mode, settles=settles)
        # Of the attach reply; a library that does not show its modes says nothing.
        assert mode is None or reply.get("mode", mode) == mode
        assert settles is None or reply.get("settles", settles) == settles
        return Link(self.program, name, reply.get("address", address))

    def close(self) -> None:
        self.program.ask("close", on=self.name)


class Link:
    """A link of the client program; `ask` is of this link."""

    def __init__(self, program: Program, name: str, address: str | None) -> None:
        self.program = program
        self.name = name
        self.address = address

    def ask(self, op: str, **members: object) -> dict[str, object]:
        return self.program.ask(op, on=self.name, **members)

    def send(self, identity: str, *, size: int = 10, settled: bool = False, **members: object) -> None:
        self.ask("send", id=identity, size=size, settled=settled, **members)

    def receive(self) -> dict[str, object]:
        return self.ask("receive", limit_ms=30000)


@pytest.fixture(scope="module")
def issuer() -> Issuer:
    return Issuer()


@pytest.fixture(scope="module")
def router(
    certificates: Certificates, issuer: Issuer, router_python: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningRouter]:
    """Of its users only alice has SCRAM keys."""
    folder = tmp_path_factory.mktemp("users")
    secret = Secret(USERS["alice"])
    set_user(str(folder / "people"), "alice", secret, cost=CHEAP, scram=("SHA-256", "SHA-512"), must_exist=False)
    issuer.write(folder / "keys.json")
    text = CONFIGURATION.replace("FOLDER", str(folder)).replace("ISSUER", ISSUER).replace("AUDIENCE", AUDIENCE)
    with running_router(tmp_path_factory.mktemp("router"), certificates, python=router_python, extra=text) as running:
        yield running


@pytest.fixture
def connection(program: Program, router: RunningRouter) -> Iterator[Connection]:
    made = Connection(program, router)
    yield made
    made.close()


@pytest.fixture
def address() -> str:
    """Alice's own, and no other test's."""
    return f"orders.client{next(numbers)}"


@every_client("login")
def test_a_client_logs_in_over_tls(program: Program, router: RunningRouter) -> None:
    since = router.mark()
    Connection(program, router).close()
    router.wait_for_log(r"Connection Opened: .* encrypted=TLSv1\.\d auth=PLAIN user=alice ", since=since)


def a_message_goes_through(connection: Connection, address: str) -> None:
    receiver, sender = connection.receiver(address), connection.sender(address)
    sender.send("a")
    assert receiver.receive()["id"] == "a"
    receiver.ask("settle", outcome="accepted")
    assert sender.ask("outcome")["outcome"] == "accepted"
    connection.close()


@every_client("scram")
def test_a_client_logs_in_by_scram(program: Program, router: RunningRouter, address: str) -> None:
    """Inside TLS the server offers the -PLUS forms as well; a client that cannot bind the channel says so rightly."""

    def connected(mechanism: str, password: str | None = None) -> Connection:
        return Connection(program, router, listener="mechanisms", mechanism=mechanism, password=password)

    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        since = router.mark()
        a_message_goes_through(connected(mechanism), address)
        router.wait_for_log(rf"Connection Opened: .* auth={mechanism} user=alice ", since=since)
        refusal(functools.partial(connected, mechanism, "wrong"))
        router.wait_for_audit(stage="sasl", reason="sasl_failed", mechanism=mechanism, user="alice")


@every_client("external")
def test_a_client_logs_in_by_its_certificate(
    program: Program, router: RunningRouter, address: str, tmp_path: Path
) -> None:
    since = router.mark()
    certificate, key = (Path(path) for path in router.certificates.pair("carol"))
    store = tmp_path / "carol.p12"
    store.write_bytes(
        pkcs12.serialize_key_and_certificates(
            b"carol",
            serialization.load_pem_private_key(key.read_bytes(), None),  # type: ignore[arg-type]  # an EC key
            x509.load_pem_x509_certificate(certificate.read_bytes()),
            None,
            serialization.BestAvailableEncryption(b"password"),
        )
    )
    pair = str(certificate), str(key), str(store)
    made = Connection(program, router, "carol", listener="certificates", mechanism="EXTERNAL", pair=pair)
    a_message_goes_through(made, address)
    router.wait_for_log(r"Connection Opened: .* auth=EXTERNAL user=carol ", since=since)


@every_client("token")
def test_a_client_logs_in_by_a_token(program: Program, router: RunningRouter, issuer: Issuer, address: str) -> None:
    def connected(token: str) -> Connection:
        return Connection(program, router, listener="mechanisms", mechanism="XOAUTH2", password=token)

    since = router.mark()
    a_message_goes_through(connected(issuer.token(exp=time.time() + 300)), address)
    router.wait_for_log(r"Connection Opened: .* auth=XOAUTH2 user=alice ", since=since)
    refusal(lambda: connected(issuer.token(exp=time.time() - 300)))
    router.wait_for_audit(stage="sasl", reason="sasl_failed", mechanism="XOAUTH2")


# Settlement. In each mode a message goes through, and both sides see the same end of it.


@every_client("settled")
def test_what_the_sender_settles_first_arrives_settled(connection: Connection, address: str) -> None:
    receiver = connection.receiver(address, "settled")
    sender = connection.sender(address, "settled")
    for identity in "abc":
        sender.send(identity, settled=True)
        assert sender.ask("outcome")["outcome"] == "settled"
        assert receiver.receive()["id"] == identity


@every_client("unsettled")
def test_what_the_receiver_settles_is_settled_for_the_sender(connection: Connection, address: str) -> None:
    receiver, sender = connection.receiver(address), connection.sender(address, "unsettled")
    for identity in "abc":
        sender.send(identity)
        assert receiver.receive()["id"] == identity
        receiver.ask("settle", outcome="accepted")
        assert sender.ask("outcome")["outcome"] == "accepted"


@every_client("mixed")
def test_each_message_of_a_mixed_link_is_settled_as_it_says(connection: Connection, address: str) -> None:
    receiver, sender = connection.receiver(address, "mixed"), connection.sender(address, "mixed")
    sender.send("settled", settled=True)
    assert receiver.receive()["id"] == "settled"
    assert sender.ask("outcome")["outcome"] == "settled"
    sender.send("unsettled")
    assert receiver.receive()["id"] == "unsettled"
    receiver.ask("settle", outcome="accepted")
    assert sender.ask("outcome")["outcome"] == "accepted"


@every_client("second")
def test_a_receiver_that_settles_last_waits_for_the_sender(connection: Connection, address: str) -> None:
    """The attach reply says `second`; the receiver's outcome is settled once the sender has it."""
    receiver, sender = connection.receiver(address, settles="second"), connection.sender(address)
    for identity in "abc":
        sender.send(identity)
        assert receiver.receive()["id"] == identity
        receiver.ask("settle", outcome="accepted")
        assert sender.ask("outcome")["outcome"] == "accepted"


# Size, credit, outcomes


@every_client("large")
def test_a_message_of_20_mb_arrives_whole(connection: Connection, address: str) -> None:
    receiver, sender = connection.receiver(address), connection.sender(address)
    sender.send("large", size=LARGE)
    message = receiver.receive()
    assert (message["id"], message["size"], message["is_whole"]) == ("large", LARGE, True)
    receiver.ask("settle", outcome="accepted")
    assert sender.ask("outcome")["outcome"] == "accepted"


@every_client("drain")
def test_a_drain_is_answered_with_credit_and_without(connection: Connection, address: str) -> None:
    """What was drained is gone: a message waits for new credit."""
    receiver, sender = connection.receiver(address, credit=10), connection.sender(address)
    receiver.ask("drain")
    receiver.ask("drain")
    sender.send("after")
    if not CLIENTS[connection.program.name].pulls:
        assert refusal(lambda: receiver.ask("receive", limit_ms=200))[0] is None
        receiver.ask("credit", count=1)
    assert receiver.receive()["id"] == "after"
    receiver.ask("settle", outcome="accepted")
    assert sender.ask("outcome")["outcome"] == "accepted"


@every_client("release")
def test_released_reaches_the_sender(connection: Connection, address: str) -> None:
    receiver, sender = connection.receiver(address), connection.sender(address)
    sender.send("a")
    receiver.receive()
    receiver.ask("settle", outcome="released")
    assert sender.ask("outcome")["outcome"] == "released"


@every_client("reject")
def test_rejected_reaches_the_sender_with_its_reason(connection: Connection, address: str) -> None:
    receiver, sender = connection.receiver(address), connection.sender(address)
    sender.send("a")
    receiver.receive()
    receiver.ask("settle", outcome="rejected", condition="test:no", description="not this one")
    told = sender.ask("outcome")
    assert told["outcome"] == "rejected"
    if CLIENTS[connection.program.name].gives_reasons:
        assert (told["condition"], told["description"]) == ("test:no", "not this one")
    else:
        assert told.get("condition") is None


@every_client("modify")
def test_modified_reaches_the_sender_with_its_flags(connection: Connection, address: str) -> None:
    receiver, sender = connection.receiver(address), connection.sender(address)
    sender.send("a")
    receiver.receive()
    receiver.ask("settle", outcome="modified")
    told = sender.ask("outcome")
    assert (told["outcome"], told["failed"], told["elsewhere"]) == ("modified", True, True)


@every_client("reply")
def test_a_reply_goes_to_a_dynamic_address(program: Program, router: RunningRouter, address: str) -> None:
    """The requester's address is the router's; the replier sends without a target."""
    asker, service = Connection(program, router, "asker"), Connection(program, router, "service")
    replies = asker.receiver(None)
    assert replies.address is not None
    requests, answers = service.receiver(f"requests.{address}"), service.sender(None)
    sender = asker.sender(f"requests.{address}")
    sender.send("question", reply_to=replies.address)
    request = requests.receive()
    requests.ask("settle", outcome="accepted")
    assert sender.ask("outcome")["outcome"] == "accepted"
    answers.send("answer", to=request["reply_to"])
    assert replies.receive()["id"] == "answer"
    replies.ask("settle", outcome="accepted")
    assert answers.ask("outcome")["outcome"] == "accepted"
    asker.close()
    service.close()


# Refused and thrown out


@every_client("reconnect")
def test_a_client_connects_again_after_a_forced_close(
    program: Program, router: RunningRouter, client: ManagementClient, address: str
) -> None:
    """Management sets the connection's adminStatus to deleted: the socket ends without a Close, as with 1.20."""
    first = Connection(program, router)
    force_closed(client)
    assert program.ask("closed", on=first.name) == {"condition": None}
    if CLIENTS[program.name].reconnects:
        made = Connection(program, router, reconnect=True)
        receiver, sender = made.receiver(address), made.sender(address)
        force_closed(client)
        program.ask("restored", on=made.name)
        receiver.ask("credit", count=10)
    else:
        made = Connection(program, router)
        receiver, sender = made.receiver(address), made.sender(address)
    sender.send("again")
    assert receiver.receive()["id"] == "again"
    receiver.ask("settle", outcome="accepted")
    assert sender.ask("outcome")["outcome"] == "accepted"
    made.close()


def force_closed(client: ManagementClient) -> None:
    """Alice's only connection."""

    def alices() -> list[object]:
        return [row["identity"] for row in client.query("connection").entities() if row["user"] == "alice"]

    # Those of the tests before may still be closing.
    assert eventually(lambda: len(alices()) == 1, 10.0), alices()
    client.update({"adminStatus": "deleted"}, type="connection", identity=str(alices()[0]))


@every_client("denied_connection")
def test_a_client_is_told_why_it_may_not_connect(program: Program, router: RunningRouter) -> None:
    assert refusal(lambda: Connection(program, router, "mallory")) == CONNECTION_DENIED
    router.wait_for_audit(stage="open", user="mallory", reason="unknown_user")


@every_client("denied_link")
def test_a_client_is_told_why_it_may_not_open_a_link(connection: Connection, address: str) -> None:
    """The connection stays, and serves what is allowed."""
    assert refusal(lambda: connection.sender("secret")) == LINK_DENIED
    assert refusal(lambda: connection.receiver("secret")) == LINK_DENIED
    receiver, sender = connection.receiver(address), connection.sender(address)
    sender.send("allowed")
    assert receiver.receive()["id"] == "allowed"
    receiver.ask("settle", outcome="accepted")
    assert sender.ask("outcome")["outcome"] == "accepted"


def refusal(attempt: Callable[[], object]) -> tuple[str | None, str | None]:
    with pytest.raises(ClientError) as caught:
        attempt()
    return caught.value.condition, caught.value.description


# The page


def test_every_feature_of_the_table_has_a_test() -> None:
    assert claimed == set(FEATURES)


def test_the_page_shows_the_table_as_tested() -> None:
    """`python tests/clients/features.py` writes it."""
    text = PAGE.read_text("utf-8")
    assert END in text
    assert page_with_table(text) == text


def test_every_difference_has_its_reason() -> None:
    """Rows of four cells, none of them empty; a heading stands alone in its row."""
    _, _, text = PAGE.read_text("utf-8").partition("## The books")
    rows = [line for line in text.splitlines() if line.startswith("|") and not line.startswith(("|---", "| **"))]
    assert len(rows) > 90
    assert [row for row in rows if len(cells := row.strip("|").split("|")) != 4 or not all(map(str.strip, cells))] == []
