"""TLS and SASL PLAIN towards real brokers: who is believed to be the broker, and what is said of others (policy 50)."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from broker_process import KINDS, PASSWORD, USER, Broker, MakeBroker
from certificates import Certificates
from daemon_process import Daemon, start
from harness import eventually
from proton import Message
from proton.utils import BlockingConnection
from router_text import LISTENER, waypoint

PROFILE = """
sslProfile {{
    name: brokers
    caCertFile: {ca}
}}
connector {{
    name: broker
    host: {host}
    port: {port}
    role: route-container
    sslProfile: brokers
    verifyHostname: {verifies}
    saslMechanisms: PLAIN
    saslUsername: {user}
    saslPassword: file:{password}
}}
"""
PATIENCE_S = 30.0


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates.make(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module", params=KINDS)
def secure(
    request: pytest.FixtureRequest,
    certificates: Certificates,
    make_broker: MakeBroker,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Broker]:
    folder = tmp_path_factory.mktemp("secure") / "broker"
    with make_broker(request.param, folder, certificates.pair("server")).running() as broker:
        yield broker


@contextmanager
def router_before(
    broker: Broker, folder: Path, ca: str, *, host: str = "localhost", verifies: str = "yes", password: str = PASSWORD
) -> Iterator[Daemon]:
    secret = folder / "password"
    secret.touch(mode=0o600)
    secret.write_text(password)
    profile = PROFILE.format(ca=ca, host=host, port=broker.port, verifies=verifies, user=USER, password=secret)
    daemon = start(folder, LISTENER + profile + waypoint("orders", "broker"))
    try:
        yield daemon
    finally:
        daemon.end()
    assert daemon.process.returncode == 0
    assert PASSWORD not in "\n".join(daemon.lines)


@pytest.mark.parametrize(("host", "verifies"), [("localhost", "yes"), ("127.1", "no")])
def test_a_queue_is_used_over_tls(
    secure: Broker, certificates: Certificates, tmp_path: Path, host: str, verifies: str
) -> None:
    """`127.1` leads to the broker as well, but is no name in its certificate."""
    with router_before(secure, tmp_path, certificates.ca, host=host, verifies=verifies) as daemon:
        daemon.wait_for_log("Auto Link Activated .* on connection broker")
        with daemon.client("clients") as client:
            row = client.read(type="connector", name="broker")
            assert row["connectionStatus"] == "SUCCESS"
            assert "encrypted=TLSv1.3 auth=PLAIN" in str(row["connectionMsg"])
        connection = BlockingConnection(f"amqp://127.0.0.1:{daemon.port('clients')}", timeout=PATIENCE_S)
        connection.create_sender("orders").send(Message(body="over TLS", durable=True))
        receiver = connection.create_receiver("orders")
        assert receiver.receive(PATIENCE_S).body == "over TLS"
        receiver.accept()
        connection.close()


def said(daemon: Daemon) -> str:
    """What management shows of the connector once it has failed."""

    def found() -> str:
        with daemon.client("clients") as client:
            row = client.read(type="connector", name="broker")
        message = str(row["connectionMsg"] or "")
        return message if "failed" in message else ""

    return str(eventually(found, PATIENCE_S))


def test_a_broker_of_another_authority_is_refused_and_told(
    secure: Broker, certificates: Certificates, tmp_path: Path
) -> None:
    others = tmp_path / "others"
    others.mkdir()
    with router_before(secure, tmp_path, Certificates.make(others).ca) as daemon:
        text = said(daemon)
        assert f"Connection to localhost:{secure.port} failed" in text
        assert "certificate verify failed" in text
        daemon.wait_for_log(r"SERVER \(info\) .*failed: .*certificate verify failed")
        assert not daemon.log("Auto Link Activated")


def test_a_broker_of_another_name_is_refused_and_told(
    secure: Broker, certificates: Certificates, tmp_path: Path
) -> None:
    with router_before(secure, tmp_path, certificates.ca, host="127.1") as daemon:
        assert "certificate verify failed: Hostname mismatch" in said(daemon)


def test_a_password_that_the_broker_refuses_is_told_and_not_shown(
    secure: Broker, certificates: Certificates, tmp_path: Path
) -> None:
    with router_before(secure, tmp_path, certificates.ca, password="not the broker's") as daemon:
        text = said(daemon)
        assert "amqp:unauthorized-access" in text
        assert "not the broker's" not in "\n".join([text, *daemon.lines])
