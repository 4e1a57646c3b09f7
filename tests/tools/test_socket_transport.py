"""The tools' connection over real sockets on 127.0.0.1: TLS, SASL, timeouts, refusals (management 85, 86)."""

import itertools
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from free_ports import free_port
from loopback_router import LoopbackRouter, reply_to

from auth.secrets import Secret
from router.amqp.codec import Message
from router.management.client import ConnectionException, LinkDetached, Timeout
from router.tools.connection_options import ConnectionOptions
from router.tools.transport import connect

Issuer = tuple[x509.Name, ec.EllipticCurvePrivateKey]
MakeContext = Callable[..., ssl.SSLContext]

USERS = {"anna": "right"}


def options(port: int, **changes: Any) -> ConnectionOptions:
    return ConnectionOptions(**{"host": "127.0.0.1", "port": port, "timeout_s": 5.0, **changes})


# Of TLS and SASL: a third-party library each.
WITHOUT_LOGIN = """
import sys
from router.tools.connection_options import ConnectionOptions
from router.tools.transport import connect
import router.tools.qdmanage, router.tools.qdstat
connect(ConnectionOptions(host="127.0.0.1", port=int(sys.argv[1]), timeout_s=5.0)).close()
print(sorted({"auth.tls", "auth.negotiation", "cryptography", "scramp"} & set(sys.modules)))
"""


def ask(router: LoopbackRouter, **changes: Any) -> Any:
    with connect(options(router.port, **changes)) as client:
        return client.call("PING", properties={"a": 1})


def certificate(folder: Path, name: str, issuer: Issuer | None = None) -> tuple[str, Issuer]:
    """A PEM file with a certificate for `localhost` and its key; signed by `issuer` or by itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    signer_name, signer_key = issuer or (subject, key)
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(signer_name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(signer_key, hashes.SHA256())
    )
    path = folder / f"{name}.pem"
    path.write_bytes(
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()) + made.public_bytes(Encoding.PEM)
    )
    return str(path), (subject, key)


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("pki")
    ca, issuer = certificate(folder, "ca")
    other, _ = certificate(folder, "other")
    return {
        "ca": ca,
        "other": other,
        "server": certificate(folder, "server", issuer)[0],
        "client": certificate(folder, "client", issuer)[0],
    }


@pytest.fixture
def server_context(pki: dict[str, str]) -> MakeContext:
    def make(demand_certificate: bool = False) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(pki["server"])
        if demand_certificate:
            context.load_verify_locations(pki["ca"])
            context.verify_mode = ssl.CERT_REQUIRED
        return context

    return make


def test_a_request_and_its_answer_without_tls_and_sasl() -> None:
    with LoopbackRouter() as router:
        assert ask(router) == "pong"
    request = router.requests[0]
    assert request.reply_to == "reply.1"
    assert request.correlation_id == "1"
    assert request.application_properties == {"operation": "PING", "a": 1}


def test_a_command_line_without_tls_and_sasl_loads_neither() -> None:
    """They are more than half of what a command line waits for until it has connected."""
    with LoopbackRouter() as router:
        command = [sys.executable, "-c", WITHOUT_LOGIN, str(router.port)]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert (ran.stdout.strip(), ran.stderr) == ("[]", "")


def test_several_requests_share_the_connection_and_have_their_own_correlation_ids() -> None:
    with LoopbackRouter() as router, connect(options(router.port)) as client:
        assert [client.call("PING"), client.at("other").call("PING")] == ["pong", "pong"]
    assert [request.correlation_id for request in router.requests] == ["1", "2"]


def test_answers_to_other_requests_are_passed_over() -> None:
    def answer(request: Message) -> list[bytes]:
        return [
            reply_to(request, "stale", correlation_id="0"),
            reply_to(request, "none", correlation_id=None),
            reply_to(request),
        ]

    with LoopbackRouter(answer=answer) as router:
        assert ask(router) == "pong"


def test_an_answer_that_comes_with_the_end_of_the_connection_counts() -> None:
    """Who bans his own address, or closes his own connection, has done so."""
    with LoopbackRouter(leaves=True) as router, connect(options(router.port)) as client:
        assert client.call("PING") == "pong"
        with pytest.raises(ConnectionException, match="go away"):
            client.call("PING")


def test_plain_with_the_right_password() -> None:
    with LoopbackRouter(users=USERS) as router:
        assert ask(router, username="anna", password=Secret("right")) == "pong"


def test_plain_with_a_wrong_password_says_so_and_does_not_repeat_it() -> None:
    with LoopbackRouter(users=USERS, offered=("PLAIN",)) as router, pytest.raises(ConnectionException) as caught:
        ask(router, username="anna", password=Secret("wrong-one"))
    assert "amqp:unauthorized-access Authentication failed [mech=PLAIN]" in str(caught.value)
    assert "wrong-one" not in str(caught.value)


def test_the_mechanisms_can_be_restricted() -> None:
    with LoopbackRouter(users=USERS) as router:
        assert ask(router, username="anna", password=Secret("wrong"), mechanisms=("ANONYMOUS",)) == "pong"
    with LoopbackRouter(users=USERS) as router, pytest.raises(ConnectionException, match="mech=none"):
        ask(router, mechanisms=("EXTERNAL",))


def test_a_router_that_demands_sasl_or_offers_none() -> None:
    with LoopbackRouter(users=USERS) as router, pytest.raises(ConnectionException, match="requires SASL"):
        ask(router)
    with LoopbackRouter() as router, pytest.raises(ConnectionException, match="does not offer SASL"):
        ask(router, mechanisms=("ANONYMOUS",))


def test_tls_with_the_right_authority(pki: dict[str, str], server_context: MakeContext) -> None:
    """management 85"""
    with LoopbackRouter(context=server_context(), users=USERS) as router:
        tls = {"host": "localhost", "is_tls": True, "trust_file": pki["ca"]}
        assert ask(router, **tls, username="anna", password=Secret("right")) == "pong"


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"trust_file": None}, "certificate verify failed"),
        ({"trust_file": "other"}, "certificate verify failed"),
        ({"trust_file": "ca", "host": "127.0.0.1"}, "mismatch.*--ssl-disable-peer-name-verify"),
    ],
)
def test_a_server_that_cannot_be_verified_is_refused(
    pki: dict[str, str], server_context: MakeContext, changes: Any, complaint: str
) -> None:
    """management 85"""
    changes = {"host": "localhost", **changes, "trust_file": pki.get(changes["trust_file"])}
    with LoopbackRouter(context=server_context(), users=USERS) as router:
        with pytest.raises(ConnectionException, match=f"SSL Failure: .*{complaint}"):
            ask(router, is_tls=True, **changes)
        assert router.requests == []


def test_the_host_name_check_can_be_turned_off_and_the_chain_check_cannot(
    pki: dict[str, str], server_context: MakeContext
) -> None:
    """management 85"""
    with LoopbackRouter(context=server_context(), users=USERS) as router:
        assert ask(router, is_tls=True, trust_file=pki["ca"], checks_peer_name=False) == "pong"
    with (
        LoopbackRouter(context=server_context(), users=USERS) as router,
        pytest.raises(ConnectionException, match="certificate verify failed"),
    ):
        ask(router, is_tls=True, trust_file=pki["other"], checks_peer_name=False)


def test_external_shows_the_certificate_and_a_missing_one_is_an_ssl_failure(
    pki: dict[str, str], server_context: MakeContext
) -> None:
    """management 85"""
    tls = {"host": "localhost", "is_tls": True, "trust_file": pki["ca"]}
    with LoopbackRouter(context=server_context(True), users={}, offered=("EXTERNAL",)) as router:
        assert ask(router, **tls, certificate_file=pki["client"]) == "pong"
    with (
        LoopbackRouter(context=server_context(True), users={}) as router,
        pytest.raises(ConnectionException, match="SSL Failure"),
    ):
        ask(router, **tls)


def test_a_missing_credential_file_is_named(pki: dict[str, str]) -> None:
    complaint = r"SSL CA configuration failed: /none\.pem: No such file or directory$"
    with LoopbackRouter() as router, pytest.raises(ConnectionException, match=complaint):
        ask(router, is_tls=True, trust_file="/none.pem")


def test_a_credential_file_of_another_kind_is_named(pki: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "text.pem").write_text("no certificate\n")
    complaint = r"SSL CA configuration failed: check \S+/text\.pem$"
    with LoopbackRouter() as router, pytest.raises(ConnectionException, match=complaint):
        ask(router, is_tls=True, trust_file=str(tmp_path / "text.pem"))


def test_tls_to_a_plain_port_and_plain_to_a_tls_port(pki: dict[str, str], server_context: MakeContext) -> None:
    with LoopbackRouter() as router, pytest.raises(ConnectionException, match="SSL Failure"):
        ask(router, is_tls=True, trust_file=pki["ca"])
    with LoopbackRouter(context=server_context()) as router, pytest.raises(ConnectionException):
        ask(router)


def test_a_refused_connection_names_host_and_port() -> None:
    port = free_port()
    with pytest.raises(ConnectionException, match=f"^Connection to 127.0.0.1:{port} failed: Connection refused$"):
        connect(options(port))


def test_an_unknown_host_is_a_connection_failure() -> None:
    with pytest.raises(ConnectionException, match=r"Connection to a\.\.b:5672 failed"):
        connect(options(5672, host="a..b"))


@pytest.mark.parametrize("changes", [{}, {"mechanisms": ("ANONYMOUS",)}, {"is_tls": True}])
def test_a_router_that_says_nothing_times_out_in_every_step(changes: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        began = time.monotonic()
        with pytest.raises(Timeout, match=r"timed out after 0\.1 s"):
            connect(options(listener.getsockname()[1], timeout_s=0.1, **changes))
        assert time.monotonic() - began < 3


def test_a_router_that_never_opens_and_one_that_never_answers_time_out() -> None:
    with LoopbackRouter(on_open="say nothing") as router, pytest.raises(Timeout, match="to open the connection"):
        ask(router, timeout_s=0.1)
    with LoopbackRouter(answer=lambda _: []) as router, pytest.raises(Timeout, match=r"\$management to answer PING"):
        ask(router, timeout_s=0.1)


def test_a_router_that_drips_bytes_does_not_extend_the_deadline() -> None:
    """Attack: one byte a moment keeps a naive client waiting for ever."""
    stale = (reply_to(REQUEST, correlation_id=str(number)) for number in itertools.count(100))
    drip = [next(stale) if index % 2 else 0.02 for index in range(60)]
    with LoopbackRouter(answer=lambda _: drip) as router:
        began = time.monotonic()
        with pytest.raises(Timeout):
            ask(router, timeout_s=0.2)
        assert time.monotonic() - began < 1.5


REQUEST = Message(reply_to="r", correlation_id="x")


def test_heartbeats_are_sent_while_waiting() -> None:
    with LoopbackRouter(answer=lambda request: [0.15, reply_to(request)], idle_ms=40) as router:
        assert ask(router) == "pong"
    assert router.empty_frames >= 2


def test_a_denied_connection_gives_the_routers_reason() -> None:
    complaint = "closed the connection: amqp:connection:policy: you are denied"
    with LoopbackRouter(on_open="close") as router, pytest.raises(ConnectionException, match=complaint):
        ask(router)


def test_a_denied_link_gives_the_routers_reason() -> None:
    complaint = "the reply receiver: amqp:unauthorized-access: link disallowed"
    with LoopbackRouter(on_open="refuse links") as router, pytest.raises(LinkDetached, match=complaint):
        ask(router)


def test_a_router_that_hangs_up_is_a_connection_failure() -> None:
    with LoopbackRouter(on_open="hang up") as router, pytest.raises(ConnectionException, match="hung up"):
        ask(router)


def test_an_answer_that_is_no_message_is_an_error() -> None:
    with LoopbackRouter(answer=lambda _: [b"\x40"]) as router, pytest.raises(ValueError, match="described sections"):
        ask(router)


def test_closing_says_goodbye() -> None:
    with LoopbackRouter() as router:
        ask(router)
        assert router.closed.wait(5)


def test_the_tools_start_without_loading_an_amqp_engine() -> None:
    """A tool that is called in a loop should not take half a second to start."""
    program = "import sys, router.tools.qdstat, router.tools.qdmanage; print(*sys.modules)"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert not {"proton", "cproton", "jsonschema", "asyncio"} & set(found.stdout.split())
