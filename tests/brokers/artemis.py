"""Apache ActiveMQ Artemis as a server of a test."""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

from broker_process import PASSWORD, START_LIMIT_S, STORE_PASSWORD, TOPICS, USER, Broker, fetched, key_store, run_to_end

VERSION = "2.38.0"
# One queue for each address; what it cannot deliver goes to DLQ after the third time.
BROKER = """<?xml version="1.0"?>
<configuration xmlns="urn:activemq">
  <core xmlns="urn:activemq:core">
    <name>artemis</name>
    <persistence-enabled>true</persistence-enabled>
    <journal-type>NIO</journal-type>
    <journal-datasync>false</journal-datasync>
    <journal-pool-files>2</journal-pool-files>
    <disk-scan-period>-1</disk-scan-period>
    <critical-analyzer>false</critical-analyzer>
    <global-max-size>100M</global-max-size>
    <acceptors>
      <acceptor name="amqp">tcp://127.0.0.1:{port}?protocols=AMQP;amqpCredits=1000;amqpLowCredits=300{tls}</acceptor>
    </acceptors>
    <security-settings>
      <security-setting match="#">
        <permission type="createNonDurableQueue" roles="amq"/>
        <permission type="deleteNonDurableQueue" roles="amq"/>
        <permission type="createDurableQueue" roles="amq"/>
        <permission type="deleteDurableQueue" roles="amq"/>
        <permission type="createAddress" roles="amq"/>
        <permission type="deleteAddress" roles="amq"/>
        <permission type="consume" roles="amq"/>
        <permission type="browse" roles="amq"/>
        <permission type="send" roles="amq"/>
      </security-setting>
    </security-settings>
{connections}
    <address-settings>
      <address-setting match="#">
        <dead-letter-address>DLQ</dead-letter-address>
        <max-delivery-attempts>3</max-delivery-attempts>
        <redelivery-delay>0</redelivery-delay>
        <auto-create-queues>false</auto-create-queues>
        <auto-create-addresses>false</auto-create-addresses>
      </address-setting>
    </address-settings>
    <addresses>
      <address name="DLQ"><anycast><queue name="DLQ"/></anycast></address>
      <address name="news"><multicast/></address>
{queues}
    </addresses>
  </core>
</configuration>
"""
QUEUE = '      <address name="{0}"><anycast><queue name="{0}"/></anycast></address>'
TOPIC = '      <address name="{0}"><multicast/></address>'
TLS = f";sslEnabled=true;keyStoreType=PKCS12;keyStorePassword={STORE_PASSWORD};keyStorePath={{store}}"
# The broker connects to a router, and is a waypoint for an address.
PEER = """    <broker-connections>
      <amqp-connection uri="tcp://127.0.0.1:{port}" name="router" retry-interval="200" reconnect-attempts="-1">
        <peer address-match="{address}"/>
      </amqp-connection>
    </broker-connections>"""
# The broker has its messages copied to another, behind a router.
MIRROR = """    <broker-connections>
      <amqp-connection uri="tcp://127.0.0.1:{port}" name="router" retry-interval="200" reconnect-attempts="-1">
        <mirror/>
      </amqp-connection>
    </broker-connections>"""
MEMORY = "-Xms128M -Xmx512M -XX:+UseSerialGC"


def home(require_tool: Callable[[str, str], Path]) -> Path:
    """The folder of the distribution. Errors: BrokerError."""
    name = f"apache-artemis-{VERSION}"
    return fetched(require_tool, f"org.apache.activemq:apache-artemis:{VERSION}:tar.gz:bin", f"{name}-bin.tar.gz", name)


class Artemis(Broker):
    def __init__(
        self,
        folder: Path,
        distribution: Path,
        *queues: str,
        connections: str = "",
        certificate: tuple[str, str] | None = None,
        name: str = "broker",
        user: str = USER,
    ) -> None:
        """connections  those that the broker makes (PEER)
        certificate     files of a certificate and its key: it listens with TLS alone
        """
        super().__init__(folder, name)
        command = [str(distribution / "bin" / "artemis"), "create", str(folder), "--user", user, "--password", PASSWORD]
        command += ["--require-login", "--no-autotune", "--no-web", "--silent", "--force", "--host", "127.0.0.1"]
        run_to_end(command, START_LIMIT_S)
        made = "\n".join([*map(QUEUE.format, queues), *map(TOPIC.format, TOPICS)])
        tls = TLS.format(store=key_store(folder / "keys.p12", *certificate)) if certificate is not None else ""
        text = BROKER.format(port=self.port, queues=made, connections=connections, tls=tls)
        (folder / "etc" / "broker.xml").write_text(text)

    def command(self) -> list[str]:
        return [str(self.folder / "bin" / "artemis"), "run"]

    def environment(self) -> dict[str, str]:
        return {"JAVA_ARGS": f"{MEMORY} -Dlog4j2.disableJmx=true"}


@contextlib.contextmanager
def running(
    folder: Path,
    distribution: Path,
    *queues: str,
    connections: str = "",
    certificate: tuple[str, str] | None = None,
    name: str = "broker",
) -> Iterator[Artemis]:
    """As Artemis takes them."""
    broker = Artemis(folder, distribution, *queues, connections=connections, certificate=certificate, name=name)
    with broker.running():
        yield broker
