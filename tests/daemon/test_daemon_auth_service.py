"""`authServicePlugin`: a running router, and services that behave or do not (docs/spec/policy-and-auth.md §9)."""

import contextlib
import os
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Self

import proton
import pytest
from certificates import Certificates
from daemon_process import LISTENER, Daemon, denials, eventually, start
from free_ports import free_port
from proton.handlers import MessagingHandler
from proton.reactor import Container
from raw_peer import AMQP, ATTACH, CLOSE, DETACH, OPEN, SASL, begin, frame, open_frame, plain, sasl_init
from server_peer import INIT, MECHANISMS, OUTCOME, Behaviour, Call, Hangup, Server, serving

from auth.secrets import Secret
from router.management.client import BadRequestStatus, ConnectionException, ManagementError
from router.values import Array, Described, symbol, ubyte, uint, ulong, ushort

pytestmark = pytest.mark.interop

CHALLENGE, RESPONSE = 0x42, 0x43


def configuration(*hosts: str, plugin: str = "", listener: str = "", policy: str = "") -> str:
    return (
        f"authServicePlugin {{\n name: remote\n host: {', '.join(hosts)}\n realm: EXAMPLE.COM\n{plugin}\n}}\n"
        f"listener {{\n name: login\n host: 127.0.0.1\n port: 0\n authenticatePeer: yes\n saslPlugin: remote\n"
        f"{listener}\n}}\n{policy}{LISTENER}"
    )


def at(server: Server) -> str:
    return f"127.0.0.1:{server.port}"


def sub(name: str) -> dict[str, Any]:
    return {"authenticated-identity": {symbol("sub"): name}}


def granted(**addresses: tuple[str, ...]) -> dict[str, Any]:
    """address=(permission, ...)"""
    return {"address-authz": {name: Array(str, permissions) for name, permissions in addresses.items()}}


def good(properties: Mapping[str, Any]) -> Behaviour:
    """Lets everybody in whose password is `right`."""

    def behave(call: Call) -> None:
        assert call.read(8) == SASL
        call.send(SASL + frame(MECHANISMS, Array(symbol, (symbol("PLAIN"),)), kind=1))
        call.init = call.expect(INIT)
        is_right = call.init[1].endswith(b"\0right")
        call.send(frame(OUTCOME, ubyte(0 if is_right else 1), kind=1))
        if is_right:
            call.open(properties=dict(properties))
        call.stay()

    return behave


def is_let_in(router: Daemon, password: str = "right", user: str = "alice", listener: str = "login") -> bool:
    try:
        # The service has SCRAM, of which not every user has keys.
        router.client(listener, username=user, password=Secret(password), mechanisms=("PLAIN",)).close()
    except ConnectionException:
        return False
    return True


class Peer:
    """A client of frames."""

    def __init__(self, router: Daemon, listener: str = "login") -> None:
        connected = socket.create_connection(("127.0.0.1", router.port(listener)))
        connected.settimeout(20)
        self.call = Call(connected, 0.0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.call.socket.close()

    def offered(self) -> list[str]:
        self.call.send(SASL)
        assert self.call.read(8) == SASL
        (names,) = self.call.expect(MECHANISMS)
        return [str(name) for name in names]

    def outcome(self) -> int:
        return int(self.call.expect(OUTCOME)[0])

    def is_closed(self) -> bool:
        with contextlib.suppress(Hangup):
            self.call.read(1)
            return False
        return True

    def enter(self, user: str, password: str = "right", hostname: str = "localhost") -> None:
        """Log in, open, begin."""
        self.offered()
        self.call.send(plain(user, password))
        assert self.outcome() == 0
        self.call.send(AMQP + open_frame(hostname) + begin())
        assert self.call.read(8) == AMQP
        self.call.expect(OPEN)

    def may(self, direction: str, address: str | None, handle: int, *, is_dynamic: bool = False) -> bool:
        """Does the router let a link stay?"""
        source, target = [address, None, None, None, is_dynamic or None], [address]
        name = f"{direction}-{handle}"
        is_receiver = direction == "receive"
        ends = (
            Described(ulong(0x28), source if is_receiver else []),
            Described(ulong(0x29), [] if is_receiver else target),
        )
        self.call.send(frame(ATTACH, name, uint(handle), is_receiver, None, None, *ends, None, None, uint(0)))
        self.call.send(frame(DETACH, uint(handle), True))
        self.call.expect(ATTACH)
        error = dict(enumerate(self.call.expect(DETACH))).get(2)
        assert error is None or error.value[0] == "amqp:unauthorized-access"
        return error is None


def test_who_the_service_lets_in_has_the_name_it_gives(daemon: Callable[..., Daemon]) -> None:
    """Policy 58, 60, 61."""
    with serving(good({**sub("alice@EXAMPLE.COM"), "groups": Array(str, ("staff", "ops"))})) as service:
        router = daemon(configuration(at(service)))
        assert router.log(rf"CONN_MGR \(info\) Using auth service {at(service)} from  SASL Plugin remote")
        with router.client("login", username="alice", password=Secret("right")) as client:
            rows = client.query("connection", attribute_names=["user", "sasl", "isAuthenticated"]).rows
            assert rows == (("alice@EXAMPLE.COM", "PLAIN", True),)
        assert not is_let_in(router, "wrong")
        (call, refused) = service.wait_for_calls(2)
        assert call.init is not None
        assert (str(call.init[0]), call.init[1], call.init[2]) == ("PLAIN", b"\0alice\0right", "EXAMPLE.COM")
        assert call.peer_open is not None
        container, hostname, frame_size, channels, *_, desired, properties = call.peer_open
        assert (container, hostname, frame_size, channels) == ("", "127.0.0.1", 32768, 32767)
        assert desired == Array(symbol, (symbol("ADDRESS-AUTHZ"),))
        assert properties["product"] == "qpid-dispatch-router"
        assert isinstance(properties["version"], str)
        assert refused.peer_open is None
        assert router.wait_for_log(r"AUTHSERVICE \(info\) authenticated as alice@EXAMPLE.COM")
        assert router.log(rf"SERVER \(info\) \[C\d+\] Enabling remote authentication service {at(service)}")
        refusal = r"failed: amqp:unauthorized-access Failed to authenticate client \[mech=PLAIN\]"
        assert router.wait_for_log(refusal)


def test_the_client_hears_of_success_when_the_service_has_named_it(daemon: Callable[..., Daemon]) -> None:
    """Policy 59."""

    def behave(call: Call) -> None:
        call.sasl(("PLAIN",))
        assert call.read(8) == AMQP
        call.expect(OPEN)
        call.socket.settimeout(0.3)
        with contextlib.suppress(TimeoutError):
            call.socket.recv(1)
        asked.append(call)

    asked: list[Call] = []
    with serving(behave) as service:
        router = daemon(configuration(at(service)))
        with Peer(router) as peer:
            assert peer.offered() == ["PLAIN"]
            peer.call.send(plain("alice", "right") + AMQP + open_frame())
            # The service closes without an Open: what it said with its outcome does not count.
            assert peer.outcome() == 1
            assert peer.is_closed()
        assert router.wait_for_log(r"AUTHSERVICE \(warning\) Downstream disconnected: it closed the connection")
    with serving(good(sub("alice"))) as service:
        router = daemon(configuration(at(service)))
        assert is_let_in(router)
        (call,) = service.wait_for_calls(1)
        assert eventually(lambda: call.socket.fileno() == -1), "the router closes its connection to the service"


# Services that do not do what they should


def silent(call: Call) -> None:
    """Accepts, and never says a word."""
    call.stay()


def challenging(call: Call) -> None:
    """Goes on challenging, whatever the client says."""
    assert call.read(8) == SASL
    call.send(SASL + frame(MECHANISMS, Array(symbol, (symbol("PLAIN"),)), kind=1))
    call.expect(INIT)
    with contextlib.suppress(Hangup):
        while True:
            call.send(frame(CHALLENGE, b"more", kind=1))
            call.expect(RESPONSE)
    call.stay()


def flooding(call: Call) -> None:
    """Does not wait for the client's answers."""
    call.read(8)
    call.send(SASL + frame(MECHANISMS, Array(symbol, (symbol("PLAIN"),)), kind=1))
    call.expect(INIT)
    with contextlib.suppress(OSError):
        for _ in range(2000):
            call.socket.sendall(frame(CHALLENGE, b"x" * 400, kind=1) * 100)
    call.stay()


def saying(data: bytes) -> Behaviour:
    """Before it hears anything."""

    def behave(call: Call) -> None:
        call.send(data)
        call.stay()

    return behave


def resetting(call: Call) -> None:
    call.sasl(("PLAIN",))
    call.reset()


def after_outcome(*frames: bytes) -> Behaviour:
    """Says yes, and then something else than an honest Open."""

    def behave(call: Call) -> None:
        call.sasl(("PLAIN",))
        call.send(b"".join(frames))
        call.stay()

    return behave


def opened_with(properties: object) -> Behaviour:
    fields = ("service", None, uint(65536), ushort(100), None, None, None, None, None, properties)
    return after_outcome(AMQP, frame(OPEN, *fields))


def error(condition: str) -> Described:
    return Described(ulong(0x1D), [symbol(condition), "no"])


HOSTILE: dict[str, tuple[Behaviour, str]] = {
    "no SASL": (saying(AMQP * 4), "expected its SASL protocol header"),
    "a frame too large": (
        saying(SASL + b"\x7f\xff\xff\xff\x02\x01\x00\x00"),
        "SASL frame of 2147483647 bytes",
    ),
    "a client's frame": (saying(SASL + plain("root", "x")), "a SASL frame of a client"),
    "an outcome before all": (
        saying(SASL + frame(OUTCOME, ubyte(0), kind=1) + AMQP + open_frame()),
        "it vouched for nobody",
    ),
    "challenges without end": (challenging, "too many challenges"),
    "challenges unasked": (flooding, "a challenge out of turn"),
    "gone before its outcome": (resetting, "reset by peer|closed"),
    "another frame than an Open": (after_outcome(AMQP, begin()), "another frame in the place of its Open"),
    "a Close in the place of an Open": (after_outcome(AMQP, frame(CLOSE, error("amqp:not-allowed"))), "not-allowed no"),
    "an Open and a Close that says why": (
        after_outcome(AMQP, open_frame() + frame(CLOSE, error("amqp:resource-limit-exceeded"))),
        "it closed the connection: amqp:resource-limit-exceeded no",
    ),
    "no AMQP": (after_outcome(b"HTTP/1.1 200 OK\r\n\r\n"), "expected its AMQP protocol header"),
    "a huge Open": (
        opened_with({symbol("authenticated-identity"): {symbol("sub"): "x" * 200_000}}),
        "frame of 2[0-9]+ bytes|more than 131072 bytes",
    ),
    "very many values": (opened_with({symbol("groups"): [""] * 20_000}), "more values than are accepted"),
    "too many groups": (opened_with({symbol("groups"): Array(str, ("g",) * 2000)}), "2000 groups, at most 1024"),
    "groups that are none": (opened_with({symbol("groups"): [1, 2]}), "no array of strings"),
    "a name of two lines": (
        opened_with({symbol("authenticated-identity"): {symbol("sub"): "alice\nroot"}}),
        "a name that is not printable",
    ),
    "rights that are no map": (opened_with({symbol("address-authz"): "everything"}), "address-authz is no map"),
    "nobody, with no rights either": (opened_with({symbol("groups"): Array(str, ("staff",))}), "named no user"),
    "garbage": (after_outcome(AMQP, b"\x00\x00\x00\x10\x02\x00\x00\x00" + b"\xff" * 8), "malformed frame"),
}


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[Behaviour], "Daemon"]]:
    """One router, whose service is replaced by another for each test."""
    current: list[Behaviour] = [silent]
    with serving(lambda call: current[0](call)) as service:
        folder = tmp_path_factory.mktemp("hostile")
        audit = folder / "audit"
        audit.mkdir()
        router = start(folder, f"router {{\n auditDir: {audit}\n}}\n" + configuration(at(service)))
        router.wait_for_log("Operational")

        def use(behaviour: Behaviour) -> Daemon:
            current[0] = behaviour
            return router

        yield use
        router.end()
        unexpected = router.log(r"Unexpected|Traceback|ERROR \(")
        assert unexpected == []
        assert {event["reason"] for event in denials(audit)} == {"verifier_unavailable"}


@pytest.mark.parametrize("fault", HOSTILE)
def test_a_service_that_misbehaves_lets_nobody_in_and_harms_nobody(
    hostile: Callable[[Behaviour], Daemon], fault: str
) -> None:
    """Policy 59, 64. Attack: a service that was taken over, or something else at its port."""
    behaviour, why = HOSTILE[fault]
    router = hostile(behaviour)
    since = router.mark()
    with Peer(router) as peer:
        offered = peer.offered()
        if offered:
            peer.call.send(plain("alice", "right"))
            with contextlib.suppress(Hangup):
                while (found := peer.call.read_frame())[0] == CHALLENGE:
                    peer.call.send(frame(RESPONSE, b"\0alice\0right", kind=1))
                assert (found[0], int(found[1][0])) == (OUTCOME, 1)
        else:
            assert peer.outcome() == 1
        assert peer.is_closed()
    assert router.wait_for_log(rf"AUTHSERVICE \(warning\) Downstream disconnected: .*({why})", since)
    router.client().close()


def test_a_service_that_never_answers_is_not_waited_for(daemon: Callable[..., Daemon]) -> None:
    """The next one is asked, and the first not again for a while; the client sees nothing of it."""
    with serving(silent) as first, serving(good(sub("alice"))) as second:
        router = daemon(configuration(at(first), at(second)))
        assert is_let_in(router)
        assert is_let_in(router)
        assert (len(first.calls), len(second.calls)) == (1, 2)


def test_failover_and_back(daemon: Callable[..., Daemon]) -> None:
    """Policy 64."""
    with serving(good(sub("of the second"))) as second:
        nobody = free_port()
        router = daemon(configuration(f"127.0.0.1:{nobody}", at(second)))
        assert is_let_in(router)
        second.close()
        with Peer(router) as peer:
            assert peer.offered() == []
            assert peer.outcome() == 1
            assert peer.is_closed()
        text = (
            rf"Downstream disconnected: proton:io Connection refused - disconnected 127.0.0.1:({nobody}|{second.port})"
        )
        assert router.wait_for_log(rf"AUTHSERVICE \(warning\) {text}")
        assert router.wait_for_log(r"failed: amqp:unauthorized-access Failed to authenticate client \[mech=none\]")
        with socket.create_server(("127.0.0.1", nobody)) as back:
            back.settimeout(10)
            with Peer(router) as peer:
                peer.call.send(SASL)
                accepted, _ = back.accept()  # all are tried when none could be reached
                accepted.close()


def test_only_what_both_want_is_offered(daemon: Callable[..., Daemon]) -> None:
    """Policy 58. EXTERNAL would make each client the user of the router's own certificate."""
    names = ("SCRAM-SHA-256-PLUS", "SCRAM-SHA-256", "GSSAPI", "EXTERNAL", "ANONYMOUS", "PLAIN", "LOGIN")

    def behave(call: Call) -> None:
        call.read(8)
        call.send(SASL + frame(MECHANISMS, Array(symbol, tuple(map(symbol, names))), kind=1))
        call.stay()

    with serving(behave) as service:
        more = "listener {\n name: filtered\n host: 127.0.0.1\n port: 0\n saslPlugin: remote\n"
        router = daemon(configuration(at(service)) + more + " saslMechanisms: PLAIN ANONYMOUS\n}\n")
        with Peer(router) as peer:
            assert peer.offered() == ["SCRAM-SHA-256", "PLAIN", "LOGIN"]
            for chosen in ("EXTERNAL", "ANONYMOUS", "SCRAM-SHA-256-PLUS"):
                with Peer(router) as other:
                    other.offered()
                    other.call.send(sasl_init(chosen, b""))
                    assert other.outcome() == 1
        with Peer(router, "filtered") as peer:
            assert peer.offered() == ["ANONYMOUS", "PLAIN"]


def test_challenges_and_responses_pass_unchanged(daemon: Callable[..., Daemon]) -> None:
    """Policy 58."""
    heard: list[bytes] = []

    def behave(call: Call) -> None:
        call.read(8)
        call.send(SASL + frame(MECHANISMS, Array(symbol, (symbol("X-ODD"),)), kind=1))
        heard.append(call.expect(INIT)[1])
        for challenge in (b"", bytes(range(256)), b"x" * 40_000):
            call.send(frame(CHALLENGE, challenge, kind=1))
            heard.append(call.expect(RESPONSE)[0])
        call.send(frame(OUTCOME, ubyte(0), kind=1))
        call.open(properties=sub("odd"))
        call.stay()

    with serving(behave) as service:
        router = daemon(configuration(at(service)))
        said = [b"\xff\x00", b"", b"y" * 30_000, b"z"]
        with Peer(router) as peer:
            assert peer.offered() == ["X-ODD"]
            peer.call.send(sasl_init("X-ODD", said[0]))
            for response, challenge in zip(said[1:], (b"", bytes(range(256)), b"x" * 40_000), strict=True):
                assert peer.call.expect(CHALLENGE)[0] == challenge
                peer.call.send(frame(RESPONSE, response, kind=1))
            assert peer.outcome() == 0
        assert heard == said
        assert router.wait_for_log(r"AUTHSERVICE \(info\) authenticated as odd$")


def test_no_empty_password_reaches_a_service(daemon: Callable[..., Daemon]) -> None:
    """It would be an anonymous bind to a directory, which lets in."""
    with serving(good(sub("root"))) as service:
        router = daemon(configuration(at(service)))
        for response in (b"\0root\0", b"\0root", b"\0\0x", b"\0ro\not\0x"):
            with Peer(router) as peer:
                peer.offered()
                peer.call.send(sasl_init("PLAIN", response))
                assert peer.outcome() == 1
        assert [call.init for call in service.calls] == [None] * 4


# What a service may have a client do


EVERYBODY = """
policy {
    enableVhostPolicy: true
}
vhost {
    hostname: $default
    allowUnknownUser: true
    groups: {
        "$default": {
            "remoteHosts": "*",
            "denyTargets": "secret"
        }
    }
}
"""


@pytest.mark.parametrize("policy", ["", EVERYBODY], ids=["without policy", "with policy"])
def test_address_authz_are_the_sources_and_targets(daemon: Callable[..., Daemon], tmp_path: Path, policy: str) -> None:
    """Policy 62, 63, and the services of §9.7."""
    audit = tmp_path / "audit"
    audit.mkdir()
    rights = {
        "admin": granted(**{"*": ("send", "recv")}),
        "guest": {
            "authenticated-identity": "guest",
            **granted(foo=("send", "recv"), **{"in.${user}*, shared": ("recv",)}),
        },
        "nobody": {"address-authz": {}},
    }

    def behave(call: Call) -> None:
        call.sasl(("PLAIN",))
        assert call.init is not None
        call.open(properties=rights[call.init[1].split(b"\0")[1].decode()])
        call.stay()

    with serving(behave) as service:
        router = daemon(f"router {{\n auditDir: {audit}\n}}\n" + configuration(at(service), policy=policy))
        with Peer(router) as peer:
            peer.enter("guest")
            assert peer.may("send", "foo", 0)
            assert peer.may("receive", "foo", 1)
            assert not peer.may("send", "bar", 2)
            assert not peer.may("receive", "bar", 3)
            assert not peer.may("send", "shared", 4)
            assert peer.may("receive", "shared", 5)
            assert peer.may("receive", None, 6, is_dynamic=True)
        with Peer(router) as peer:
            peer.enter("admin")
            assert peer.may("send", "bar", 0)
            assert peer.may("receive", "bar", 1)
            assert peer.may("send", None, 2)
            assert peer.may("send", "secret", 3) is not bool(policy), "what the group denies stays denied"
        with Peer(router) as peer:
            peer.enter("nobody")
            assert not peer.may("send", "foo", 0)
            assert not peer.may("receive", "foo", 1)
        router.end()
    bars = [event for event in denials(audit) if event["address"] == "bar"]
    assert [(event["direction"], event["rule"]["item"]) for event in bars] == [
        ("send", "address-authz send"),
        ("receive", "address-authz recv"),
    ]
    assert '"foo"' in bars[0]["granted"]


# TLS to the service


def tls_server(certificates: Certificates, name: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificates.pair(name))
    return context


def test_the_service_shows_a_certificate_that_is_verified(
    daemon: Callable[..., Daemon], certificates: Certificates
) -> None:
    """Wrong authority and wrong name are refused; deprecated names of attributes serve (policy 65)."""
    with (
        serving(good(sub("alice")), tls=tls_server(certificates, "server")) as right,
        serving(good(sub("mallory")), tls=tls_server(certificates, "stranger")) as wrong,
    ):
        plugins = [("right", right.port), ("wrong", wrong.port)]
        text = f"sslProfile {{\n name: to-service\n caCertFile: {certificates.ca}\n}}\n" + LISTENER
        for name, port in plugins:
            text += (
                f"authServicePlugin {{\n name: {name}\n authService: localhost:{port}\n authSslProfile: to-service\n"
            )
            text += f" saslInitHostname: OLD\n}}\nlistener {{\n name: by-{name}\n host: 127.0.0.1\n port: 0\n"
            text += f" authenticatePeer: yes\n saslPlugin: {name}\n}}\n"
        text += f"authServicePlugin {{\n name: named\n host: 127.0.0.2:{right.port}\n sslProfile: to-service\n}}\n"
        router = daemon(text)
        assert is_let_in(router, listener="by-right")
        assert right.calls[0].init is not None
        assert right.calls[0].init[2] == "OLD"
        assert right.calls[0].peer_open is not None
        assert right.calls[0].peer_open[1] is None
        assert not is_let_in(router, listener="by-wrong")
        assert router.wait_for_log(r"Downstream disconnected: SSL Failure: .*certificate verify failed")
        for old in ("authService", "authSslProfile", "saslInitHostname"):
            assert router.log(rf"Attribute '?{old}'? of entity '?authServicePlugin'? has been deprecated"), old


# Configuration


def test_what_a_plugin_may_be(daemon: Callable[..., Daemon]) -> None:
    router = daemon(LISTENER)
    kind, listener = "org.apache.qpid.dispatch.authServicePlugin", "org.apache.qpid.dispatch.listener"
    with router.client() as client:
        with pytest.raises(ManagementError, match="Cannot find sasl plugin"):
            client.create({"port": "0", "saslPlugin": "p"}, type=listener, name="x")
        with pytest.raises(BadRequestStatus, match="expected the host of the service"):
            client.create({}, type=kind, name="p")
        with pytest.raises(BadRequestStatus, match="no sslProfile named 'none'"):
            client.create({"host": "127.0.0.1", "sslProfile": "none"}, type=kind, name="p")
        client.create({"authService": "127.0.0.1:5671"}, type=kind, name="p")
        client.create({"port": "0", "saslPlugin": "p"}, type=listener, name="x")
        with pytest.raises(BadRequestStatus, match="authServicePlugin 'p' is used by listener x"):
            client.delete(type=kind, name="p")
        client.delete(type=listener, name="x")
        client.delete(type=kind, name="p")


def test_clients_that_skip_sasl_do_not_reach_the_service(daemon: Callable[..., Daemon]) -> None:
    with serving(good(sub("alice"))) as service:
        router = daemon(configuration(at(service)))
        with Peer(router) as peer:
            peer.call.send(AMQP + open_frame())
            assert peer.is_closed()
        assert router.wait_for_log("Client skipped authentication - forbidden")
        assert service.calls == []


# Clients


def test_guesses_through_a_service_lead_to_a_ban_also_those_that_are_left(daemon: Callable[..., Daemon]) -> None:
    """Attack: passwords tried by clients that go before they have an answer."""

    with serving(good({})) as service:
        policy = "policy {\n banAfterFailures: 3\n banSeconds: 600\n banAllowList: 192.0.2.1\n}\n"
        router = daemon(configuration(at(service), policy=policy))
        for _ in range(2):
            assert not is_let_in(router, "wrong")
        service.behaviour = left = HeldBack()
        with Peer(router) as peer:
            assert peer.offered() == ["PLAIN"]
            peer.call.send(plain("alice", "guess"))
            assert left.has_init.wait(10)
        assert eventually(lambda: is_refused_at_accept(router))


def is_refused_at_accept(router: Daemon) -> bool:
    with Peer(router, "plain") as peer:
        peer.call.send(AMQP + open_frame())
        return peer.is_closed()


class HeldBack:
    """Takes what the client says, and does not answer."""

    def __init__(self) -> None:
        self.has_init = threading.Event()

    def __call__(self, call: Call) -> None:
        call.read(8)
        call.send(SASL + frame(MECHANISMS, Array(symbol, (symbol("PLAIN"),)), kind=1))
        call.expect(INIT)
        self.has_init.set()
        call.stay()


def test_logins_that_hang_hold_up_nobody_and_leave_nothing(daemon: Callable[..., Daemon]) -> None:
    """Attack: 200 clients of a dead service."""
    with serving(silent) as service:
        router = daemon(configuration(at(service)))
        router.client().close()  # all its ports are open by then
        before = len(os.listdir(f"/proc/{router.process.pid}/fd"))
        with contextlib.ExitStack() as stack:
            for _ in range(200):
                stack.enter_context(Peer(router)).call.send(SASL)
            service.wait_for_calls(32)
            router.client().close()
            assert len(service.calls) == 32
        folder = f"/proc/{router.process.pid}/fd"
        eventually(lambda: len(os.listdir(folder)) <= before + 2)
        assert len(os.listdir(folder)) <= before + 2, [os.readlink(f"{folder}/{each}") for each in os.listdir(folder)]


class ProtonService(MessagingHandler):
    """A service on Qpid Proton, which offers ANONYMOUS, built with Cyrus SASL or not."""

    def __init__(self, port: int) -> None:
        super().__init__()
        self.place = f"127.0.0.1:{port}"
        self.desired: list[Any] = []
        self.container = Container(self)

    def on_start(self, event: Any) -> None:
        self.acceptor = event.container.listen(self.place)

    def on_connection_bound(self, event: Any) -> None:
        event.transport.sasl().allowed_mechs("ANONYMOUS")

    def on_connection_opening(self, event: Any) -> None:
        self.desired.append(event.connection.remote_desired_capabilities)
        permissions = proton.Array(proton.UNDESCRIBED, proton.Data.STRING, "send", "recv")  # type: ignore[arg-type]
        event.connection.properties = {
            proton.symbol("authenticated-identity"): {"sub": "by proton"},
            proton.symbol("address-authz"): {"foo": permissions},
        }


def test_proton_is_understood(daemon: Callable[..., Daemon]) -> None:
    """Policy 60, 61, 62."""
    port = free_port()
    service = ProtonService(port)
    thread = threading.Thread(target=service.container.run, daemon=True)
    thread.start()
    try:
        router = daemon(configuration(f"127.0.0.1:{port}").replace("authenticatePeer: yes", "authenticatePeer: no"))
        with Peer(router) as peer:
            assert peer.offered() == ["ANONYMOUS"]
            peer.call.send(sasl_init("ANONYMOUS", b""))
            assert peer.outcome() == 0
            peer.call.send(AMQP + open_frame() + begin())
            assert peer.call.read(8) == AMQP
            assert peer.may("send", "foo", 0)
            assert not peer.may("send", "bar", 1)
        assert router.wait_for_log(r"AUTHSERVICE \(info\) authenticated as by proton")
        assert [list(map(str, each)) for each in service.desired] == [["ADDRESS-AUTHZ"]]
    finally:
        service.container.stop()
        thread.join(10)
