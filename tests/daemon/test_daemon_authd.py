"""`qdauthd`, the authentication service: asked by a router of ours, and by peers that only say they are one.

docs/spec/policy-and-auth.md §9.8.
"""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from certificates import Certificates
from daemon_process import AUTHD, LISTENER, Daemon, denials, run_python, start, write_users
from raw_peer import AMQP, CLOSE, OPEN, SASL, begin, frame, open_frame, plain, sasl_init
from server_peer import MECHANISMS, OUTCOME, Hangup
from test_daemon_auth_service import Peer, is_let_in

from auth.secrets import Secret
from auth.verifiers.files import set_user
from auth.verifiers.hashes import Argon2idCost
from router.values import Array, symbol, uint, ushort

pytestmark = pytest.mark.interop

POLICY = """
policy {
    enableVhostPolicy: true
    defaultVhost: $default
}
vhost {
    hostname: $default
    groups: {
        "clerks": {"users": "alice", "remoteHosts": "127.0.0.1", "sources": "orders, in.${user}", "targets": "orders"},
        "chiefs": {"users": "bob", "remoteHosts": "*", "sources": "*", "targets": "*"},
        "patterns": {"users": "carol", "remoteHosts": "*", "sourcePattern": "a/#"},
        "elsewhere": {"users": "dave", "remoteHosts": "192.0.2.1", "sources": "*"}
    }
}
"""
PASSWORDS = {"alice": "right", "bob": "right", "carol": "right", "dave": "right", "eve": "right"}


def service_configuration(folder: Path, listener: str = "", policy: str = POLICY) -> str:
    folder.mkdir()
    write_users(folder, PASSWORDS)
    cost = Argon2idCost(memory_kib=8, iterations=1, lanes=1)
    set_user(str(folder / "users"), "alice", Secret("right"), cost=cost, scram=("SHA-256",))
    audit = folder / "audit"
    audit.mkdir()
    return (
        f"router {{\n id: authd\n auditDir: {audit}\n}}\n"
        f"fileAuthenticator {{\n name: staff\n path: {folder}/users\n}}\n"
        "listener {\n name: routers\n host: 127.0.0.1\n port: 0\n authenticatePeer: yes\n authenticators: staff\n"
        f"{listener}\n}}\n{policy}"
    )


def router_configuration(port: int, plugin: str = "", more: str = "", policy: str = "") -> str:
    return (
        f"authServicePlugin {{\n name: remote\n host: localhost\n port: {port}\n{plugin}\n}}\n{more}"
        "listener {\n name: login\n host: 127.0.0.1\n port: 0\n authenticatePeer: yes\n saslPlugin: remote\n}\n"
        f"{policy}{LISTENER}"
    )


@pytest.fixture
def authd(tmp_path: Path) -> Iterator[Callable[..., Daemon]]:
    """`authd(configuration)`: a qdauthd that serves, ended with the test."""
    started: list[Daemon] = []

    def begin(configuration: str) -> Daemon:
        made = start(tmp_path, configuration, command=AUTHD)
        started.append(made)
        made.wait_for_log(r"SERVER \(notice\) Operational")
        return made

    yield begin
    for each in started:
        each.end()
        assert each.log(r"Unexpected|Traceback|ERROR \(") == []


class Asking(Peer):
    """A peer of qdauthd that does as a router does."""

    def __init__(self, service: Daemon) -> None:
        super().__init__(service, "routers")

    def opened(self) -> list[Any]:
        """The service's Open."""
        assert self.call.read(8) == AMQP
        return self.call.expect(OPEN)

    def ask(
        self, user: str, password: str = "right", desired: object = Array(symbol, (symbol("ADDRESS-AUTHZ"),))
    ) -> Any:
        """The properties of the service's Open; None: it sends none."""
        self.offered()
        self.call.send(plain(user, password))
        assert self.outcome() == 0
        sizes = uint(32768), ushort(32767)
        self.call.send(AMQP + frame(OPEN, "", "auth", *sizes, None, None, None, None, desired, {}))
        try:
            fields = self.opened()
        except Hangup:
            return None
        self.call.expect(CLOSE)
        assert self.is_closed()
        return {str(key): value for key, value in fields[9].items()}


def test_a_router_of_ours_has_its_clients_authenticated_there(
    authd: Callable[..., Daemon], daemon: Callable[..., Daemon], tmp_path: Path
) -> None:
    """Policy 58 to 63, both sides ours."""
    service = authd(service_configuration(tmp_path / "service"))
    router = daemon(router_configuration(service.port("routers")))
    with Peer(router) as peer:
        assert peer.offered() == ["SCRAM-SHA-256", "PLAIN"]
    with Peer(router) as peer:
        peer.enter("alice")
        assert peer.may("send", "orders", 0)
        assert not peer.may("send", "in.alice", 1)
        assert peer.may("receive", "in.alice", 2)
        assert not peer.may("receive", "in.bob", 3)
    with Peer(router) as peer:
        peer.enter("bob")
        assert peer.may("send", "anything", 0)
    assert not is_let_in(router, "wrong")
    for refused in ("carol", "dave", "eve"):
        assert not is_let_in(router, user=refused), refused
    assert service.wait_for_log(r"AUTHSERVICE \(info\) \[C\d+\] vouched for 'alice'")
    assert service.log("AUTHSERVICE .*group 'patterns' of vhost .* has patterns or denials")
    service.end()
    reasons = {(event["user"], event["reason"]) for event in denials(tmp_path / "service" / "audit")}
    assert {("dave", "host_not_allowed"), ("eve", "unknown_user"), ("alice", "sasl_failed")} <= reasons


def test_what_it_says_of_a_user(authd: Callable[..., Daemon], tmp_path: Path) -> None:
    service = authd(service_configuration(tmp_path / "service"))
    with Asking(service) as router:
        properties = router.ask("alice")
        assert properties["authenticated-identity"] == {symbol("sub"): "alice"}
        rights = {address: set(words) for address, words in properties["address-authz"].items()}
        assert rights == {"orders": {"send", "recv"}, "in.${user}": {"recv"}}
    with Asking(service) as router:
        assert "address-authz" not in router.ask("alice", desired=None)
    for refused in ("carol", "dave", "eve"):
        with Asking(service) as router:
            assert router.ask(refused) is None, "a router of 1.20 takes any Open for a yes"


def test_without_policy_it_says_the_name(authd: Callable[..., Daemon], tmp_path: Path) -> None:
    service = authd(service_configuration(tmp_path / "service", policy=""))
    with Asking(service) as router:
        properties = router.ask("eve")
        assert properties["authenticated-identity"] == {symbol("sub"): "eve"}
        assert "address-authz" not in properties


def test_no_session_and_no_link_is_ever_served(authd: Callable[..., Daemon], tmp_path: Path) -> None:
    """Attack: a user of the service who sends to it as if it were a router."""
    service = authd(service_configuration(tmp_path / "service"))
    with Asking(service) as peer:
        peer.offered()
        peer.call.send(plain("bob", "right"))
        assert peer.outcome() == 0
        peer.call.send(AMQP + open_frame() + begin() + frame(0x12, "l", uint(0), False))
        codes = []
        with contextlib.suppress(Hangup):
            assert peer.call.read(8) == AMQP
            while True:
                codes.append(peer.call.read_frame()[0])
        assert codes == [OPEN, CLOSE]
    with Asking(service) as peer:
        peer.call.send(AMQP + open_frame())
        assert peer.is_closed()


def test_without_a_login_nobody_is_named(authd: Callable[..., Daemon], tmp_path: Path) -> None:
    """Also where it does not demand one."""
    service = authd(service_configuration(tmp_path / "service", policy="").replace("Peer: yes", "Peer: no"))
    with Asking(service) as peer:
        peer.call.send(AMQP + open_frame())
        with pytest.raises(Hangup):
            peer.opened()


def test_over_tls_the_client_is_never_the_router(
    authd: Callable[..., Daemon], daemon: Callable[..., Daemon], certificates: Certificates, tmp_path: Path
) -> None:
    """Attack: a client that chooses EXTERNAL, to be the user of the certificate that its router shows the service."""

    def profile(name: str) -> str:
        certificate, key = certificates.pair(name)
        files = f" caCertFile: {certificates.ca}\n certFile: {certificate}\n privateKeyFile: {key}\n"
        return f"sslProfile {{\n name: own\n{files}}}\n"

    tls = " sslProfile: own\n requireSsl: yes\n saslMechanisms: EXTERNAL PLAIN SCRAM-SHA-256\n"
    service = authd(profile("server") + service_configuration(tmp_path / "service", listener=tls))
    router = daemon(router_configuration(service.port("routers"), " sslProfile: own", profile("carol")))
    assert is_let_in(router)
    with Peer(router) as peer:
        assert peer.offered() == ["SCRAM-SHA-256", "PLAIN"]
        peer.call.send(sasl_init("EXTERNAL", b""))
        assert peer.outcome() == 1


def test_another_router_is_no_service_since_it_names_nobody(daemon: Callable[..., Daemon], tmp_path: Path) -> None:
    """Policy §9.7: its clients would all be the user without a name."""
    sasl = write_users(tmp_path, {"test@domain.com": "password"})
    service = daemon(
        f"router {{\n id: service\n saslConfigDir: {sasl}\n}}\n"
        "listener {\n name: login\n host: 127.0.0.1\n port: 0\n authenticatePeer: yes\n saslMechanisms: PLAIN\n}\n"
    )
    router = daemon(router_configuration(service.port("login")))
    assert not is_let_in(router, "wrong", "test@domain.com")
    assert not is_let_in(router, "password", "test@domain.com")
    assert router.wait_for_log("named no user")


def test_many_logins_through_one_router(
    authd: Callable[..., Daemon], daemon: Callable[..., Daemon], tmp_path: Path
) -> None:
    """Begun at once, more than may be under way: all of them come in."""
    service = authd(service_configuration(tmp_path / "service"))
    router = daemon(router_configuration(service.port("routers")))
    with contextlib.ExitStack() as stack:
        peers = [stack.enter_context(Peer(router)) for _ in range(100)]
        for peer in peers:
            peer.call.send(SASL + plain("bob", "right"))
        for peer in peers:
            assert peer.call.read(8) == SASL
            peer.call.expect(MECHANISMS)
            assert peer.call.expect(OUTCOME) == [0]


def test_it_makes_no_connections(tmp_path: Path) -> None:
    service = start(tmp_path, "connector {\n host: localhost\n}\n", command=AUTHD)
    assert service.wait() == 1
    assert service.log("an authentication service makes no connections .*qdrouterd.conf:1")


def test_help() -> None:
    found = run_python(*AUTHD[1:], "--help")
    assert found.status == 0
    assert "qdauthd.conf" in found.out
