"""Mistakes of operators, written from their habits and from the books alone: each is named, on the line where it is.

And configurations without a mistake, of which lint warns of nothing. Issue 37.
"""

import re
from pathlib import Path

import pytest

from policy.cli.main import main

# Behind the line that is wrong.
MARK = " #!"
WRONG = {
    "no colon": """\
listener {
    host: 0.0.0.0
    port 5672 #!
}
""",
    "no closing brace": """\
router {
    id: A

listener { #!
    port: 5672
}
""",
    "mechanism misspelt": """\
listener {
    host: 0.0.0.0
    port: 5672
    saslMechanisms: PLAN #!
}
""",
    "a word for yes": """\
listener {
    host: 0.0.0.0
    port: 5672
    authenticatePeer: required #!
}
""",
    "role in one word": """\
router {
    mode: interior
    id: A
}
listener {
    host: 0.0.0.0
    port: 5672
    role: interrouter #!
}
""",
    "mode": """\
router {
    mode: internal #!
    id: A
}
""",
    "profile misspelt": """\
sslProfile {
    name: server-tls
    certFile: a.pem
    privateKeyFile: a.key
}
listener {
    host: 0.0.0.0
    port: 5672
    sslProfile: servertls #!
}
""",
    "attribute of another product": """\
connector {
    name: broker
    hostname: broker.example.com #!
    port: 5672
}
""",
    "prefix with a wildcard": """\
address {
    prefix: orders/# #!
    distribution: multicast
}
""",
    "distribution": """\
address {
    prefix: orders
    distribution: round-robin #!
}
""",
    "direction": """\
connector {
    name: broker
    host: broker.example.com
    port: 5672
    role: route-container
}
autoLink {
    address: q
    connection: broker
    direction: inbound #!
}
""",
    "no direction": """\
connector {
    name: broker
    host: broker.example.com
    port: 5672
    role: route-container
}
linkRoute { #!
    prefix: q
    connection: broker
}
""",
    "two modules": """\
log {
    module: ROUTER, SERVER #!
    enable: info+
}
""",
    "log level": """\
log {
    module: DEFAULT
    enable: verbose #!
}
""",
    "name of a file": """\
sslProfile {
    name: tls
    certificate: a.pem #!
}
""",
    "tls without a profile": """\
listener {
    host: 0.0.0.0
    port: 5672
    requireSsl: yes #!
}
""",
    "two on a port": """\
listener {
    host: 0.0.0.0
    port: 5672
}
listener {
    host: 0.0.0.0
    port: 5672 #!
}
""",
    "two of a name": """\
connector {
    name: broker
    host: broker.example.com
    port: 5672
    role: route-container
}
connector {
    name: broker #!
    host: b2
    port: 5672
}
""",
    "binding to nothing": """\
binding { #!
    exchangeName: news
    nextHopAddress: a
}
""",
    "connection misspelt": """\
connector {
    name: broker
    host: broker.example.com
    port: 5672
    role: route-container
}
autoLink {
    address: q
    direction: in
    connection: brokers #!
}
""",
    "prefix and pattern": """\
address { #!
    prefix: a
    pattern: b/*
}
""",
    "seconds with a unit": """\
listener {
    host: 0.0.0.0
    port: 5672
    idleTimeoutSeconds: 8s #!
}
""",
    "size with a unit": """\
listener {
    host: 0.0.0.0
    port: 5672
    maxFrameSize: 64k #!
}
""",
    "url as host": """\
connector {
    name: broker
    host: amqp://broker.example.com #!
    port: 5672
}
""",
    "network as host": """\
listener {
    host: 10.0.0.0/8 #!
    port: 5672
}
""",
    "two ports": """\
listener {
    host: 0.0.0.0
    port: 5671,5672 #!
}
""",
    "placeholder": """\
connector {
    name: broker
    host: broker.example.com
    port: 5672
    saslUsername: a
    saslPassword: <password> #!
}
""",
    "threads in words": """\
router {
    id: A
    workerThreads: four #!
}
""",
    "cost of nothing": """\
router {
    mode: interior
    id: A
}
connector {
    name: b
    host: b
    port: 1
    role: inter-router
    cost: 0 #!
}
""",
    "negative limit": """\
policy {
    enableVhostPolicy: yes
}
vhost {
    hostname: v
    maxConnections: -1 #!
}
""",
    "root of http": """\
listener {
    host: 0.0.0.0
    port: 5672
    http: yes
    httpRoot: /www #!
}
""",
    "capital": """\
Listener { #!
    port: 5672
}
""",
    "default vhost that is not there": """\
policy {
    enableVhostPolicy: yes
    defaultVhost: main #!
}
vhost {
    hostname: mian
    groups: {
        "a": {"users": "a", "remoteHosts": "*", "sources": "x"},
    }
}
""",
    "external without tls": """\
listener {
    host: 0.0.0.0
    port: 5672
    saslMechanisms: EXTERNAL #!
    authenticatePeer: yes
}
""",
    "inter-router alone": """\
router {
    mode: standalone
    id: A
}
listener {
    host: 0.0.0.0
    port: 5672
    role: inter-router #!
}
""",
    "edge joins as interior": """\
router {
    mode: edge
    id: A
}
connector {
    name: up
    host: b
    port: 1
    role: inter-router #!
}
""",
    "colon behind the section": """\
router: { #!
    id: A
}
""",
    "password without a user": """\
connector {
    name: broker
    host: broker.example.com
    port: 5672
    saslPassword: file:/etc/p #!
}
""",
    "key without a certificate": """\
sslProfile {
    name: tls
    privateKeyFile: a.key #!
}
listener {
    host: 0.0.0.0
    port: 5672
    sslProfile: tls
}
""",
    "group of nobody": """\
policy {
    enableVhostPolicy: yes
}
vhost {
    hostname: $default
    groups: {
        "a": {"remoteHosts": "*", "sources": "x"}, #!
    }
}
""",
    "group from nowhere": """\
policy {
    enableVhostPolicy: yes
}
vhost {
    hostname: $default
    groups: {
        "a": {"users": "b", "sources": "x"}, #!
    }
}
""",
    "policy off": """\
policy { #!
    defaultVhost: v
}
vhost {
    hostname: v
    groups: {
        "a": {"users": "b", "remoteHosts": "*", "sources": "x"},
    }
}
""",
}

CLEAN = {
    "listener": """\
router {
    mode: standalone
    id: A
}
sslProfile {
    name: tls
    caCertFile: /etc/tls/ca.crt
    certFile: /etc/tls/front.crt
    privateKeyFile: /etc/tls/front.key
    protocols: TLSv1.2 TLSv1.3
}
listener {
    host: 0.0.0.0
    port: amqps
    sslProfile: tls
    requireSsl: yes
    authenticatePeer: yes
    saslMechanisms: EXTERNAL
}
""",
    "loopback": """\
router {
    mode: standalone
    id: A
}
listener {
    host: 127.0.0.1
    port: amqp
    authenticatePeer: no
    saslMechanisms: ANONYMOUS
}
""",
    "policy": """\
router {
    mode: standalone
    id: A
}
sslProfile {
    name: tls
    caCertFile: /etc/tls/ca.crt
    certFile: /etc/tls/front.crt
    privateKeyFile: /etc/tls/front.key
    protocols: TLSv1.2 TLSv1.3
}
listener {
    host: 0.0.0.0
    port: amqps
    sslProfile: tls
    requireSsl: yes
    authenticatePeer: yes
    saslMechanisms: EXTERNAL
}
policy {
    enableVhostPolicy: yes
}
vhost {
    hostname: $default
    maxConnectionsPerUser: 10
    groups: {
        "clerks": {"users": "anna, ben", "remoteHosts": "10.0.0.0-10.0.9.255", "sources": "orders", "targets": "news"},
    }
}
""",
    "waypoint": """\
router {
    mode: standalone
    id: A
}
sslProfile {
    name: tls
    caCertFile: /etc/tls/ca.crt
    certFile: /etc/tls/front.crt
    privateKeyFile: /etc/tls/front.key
    protocols: TLSv1.2 TLSv1.3
}
listener {
    host: 0.0.0.0
    port: amqps
    sslProfile: tls
    requireSsl: yes
    authenticatePeer: yes
    saslMechanisms: EXTERNAL
}
connector {
    name: broker
    host: broker.example.com
    port: amqps
    role: route-container
    sslProfile: tls
    verifyHostname: yes
    saslMechanisms: EXTERNAL
}
address {
    prefix: orders
    waypoint: yes
}
autoLink {
    address: orders
    direction: in
    connection: broker
}
autoLink {
    address: orders
    direction: out
    connection: broker
}
""",
    "link route": """\
router {
    mode: standalone
    id: A
}
sslProfile {
    name: tls
    caCertFile: /etc/tls/ca.crt
    certFile: /etc/tls/front.crt
    privateKeyFile: /etc/tls/front.key
    protocols: TLSv1.2 TLSv1.3
}
listener {
    host: 0.0.0.0
    port: amqps
    sslProfile: tls
    requireSsl: yes
    authenticatePeer: yes
    saslMechanisms: EXTERNAL
}
connector {
    name: broker
    host: broker.example.com
    port: amqps
    role: route-container
    sslProfile: tls
    verifyHostname: yes
    saslMechanisms: EXTERNAL
}
linkRoute {
    prefix: queues
    direction: in
    connection: broker
}
linkRoute {
    prefix: queues
    direction: out
    connection: broker
}
""",
    "distributions": """\
router {
    mode: standalone
    id: A
}
sslProfile {
    name: tls
    caCertFile: /etc/tls/ca.crt
    certFile: /etc/tls/front.crt
    privateKeyFile: /etc/tls/front.key
    protocols: TLSv1.2 TLSv1.3
}
listener {
    host: 0.0.0.0
    port: amqps
    sslProfile: tls
    requireSsl: yes
    authenticatePeer: yes
    saslMechanisms: EXTERNAL
}
address {
    prefix: news
    distribution: multicast
}
address {
    pattern: jobs/*/new
    distribution: closest
    priority: 5
}
""",
    "interior": """\
router {
    mode: interior
    id: A
}
sslProfile {
    name: tls
    caCertFile: /etc/tls/ca.crt
    certFile: /etc/tls/front.crt
    privateKeyFile: /etc/tls/front.key
    protocols: TLSv1.2 TLSv1.3
}
listener {
    host: 0.0.0.0
    port: amqps
    sslProfile: tls
    requireSsl: yes
    authenticatePeer: yes
    saslMechanisms: EXTERNAL
}
sslProfile {
    name: of-routers
    caCertFile: /etc/tls/routers-ca.crt
    certFile: /etc/tls/A.crt
    privateKeyFile: /etc/tls/A.key
    protocols: TLSv1.2 TLSv1.3
}
listener {
    name: routers
    host: 0.0.0.0
    port: 55671
    role: inter-router
    routerIds: ${user}
    sslProfile: of-routers
    requireSsl: yes
    authenticatePeer: yes
    saslMechanisms: EXTERNAL
}
connector {
    name: B
    host: b.example.com
    port: 55671
    role: inter-router
    routerIds: ${user}
    sslProfile: of-routers
    saslMechanisms: EXTERNAL
}
""",
    "edge": """\
router {
    mode: edge
    id: E
}
sslProfile {
    name: tls
    caCertFile: /etc/tls/ca.crt
    certFile: /etc/tls/front.crt
    privateKeyFile: /etc/tls/front.key
    protocols: TLSv1.2 TLSv1.3
}
listener {
    host: 0.0.0.0
    port: amqps
    sslProfile: tls
    requireSsl: yes
    authenticatePeer: yes
    saslMechanisms: EXTERNAL
}
connector {
    name: up
    host: a.example.com
    port: 45671
    role: edge
    sslProfile: tls
    saslMechanisms: EXTERNAL
}
""",
    "logs": """\
router {
    mode: standalone
    id: A
}
sslProfile {
    name: tls
    caCertFile: /etc/tls/ca.crt
    certFile: /etc/tls/front.crt
    privateKeyFile: /etc/tls/front.key
    protocols: TLSv1.2 TLSv1.3
}
listener {
    host: 0.0.0.0
    port: amqps
    sslProfile: tls
    requireSsl: yes
    authenticatePeer: yes
    saslMechanisms: EXTERNAL
}
log {
    module: DEFAULT
    enable: info+
    outputFile: /var/log/router.log
}
log {
    module: POLICY
    enable: debug+
}
""",
    "exchange": """\
router {
    mode: standalone
    id: A
}
sslProfile {
    name: tls
    caCertFile: /etc/tls/ca.crt
    certFile: /etc/tls/front.crt
    privateKeyFile: /etc/tls/front.key
    protocols: TLSv1.2 TLSv1.3
}
listener {
    host: 0.0.0.0
    port: amqps
    sslProfile: tls
    requireSsl: yes
    authenticatePeer: yes
    saslMechanisms: EXTERNAL
}
exchange {
    name: news
    address: news
}
binding {
    exchangeName: news
    bindingKey: sport.#
    nextHopAddress: readers.sport
}
""",
    "http": """\
router {
    mode: standalone
    id: A
}
sslProfile {
    name: tls
    caCertFile: /etc/tls/ca.crt
    certFile: /etc/tls/front.crt
    privateKeyFile: /etc/tls/front.key
    protocols: TLSv1.2 TLSv1.3
}
listener {
    host: 0.0.0.0
    port: amqps
    sslProfile: tls
    requireSsl: yes
    authenticatePeer: yes
    saslMechanisms: EXTERNAL
}
listener {
    host: 127.0.0.1
    port: 8080
    http: yes
    healthz: yes
    authenticatePeer: no
    saslMechanisms: ANONYMOUS
}
""",
    "password of a broker": """\
router {
    mode: standalone
    id: A
}
sslProfile {
    name: tls
    caCertFile: /etc/tls/ca.crt
    certFile: /etc/tls/front.crt
    privateKeyFile: /etc/tls/front.key
    protocols: TLSv1.2 TLSv1.3
}
listener {
    host: 0.0.0.0
    port: amqps
    sslProfile: tls
    requireSsl: yes
    authenticatePeer: yes
    saslMechanisms: EXTERNAL
}
connector {
    name: broker
    host: broker.example.com
    port: amqps
    role: route-container
    sslProfile: tls
    verifyHostname: yes
    saslMechanisms: PLAIN
    saslUsername: router
    saslPassword: file:/etc/broker.password
}
""",
}


def found_in(text: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> list[int]:
    """The lines of warnings and errors."""
    path = folder / "qdrouterd.conf"
    path.write_text(text)
    main(["lint", str(path), "--format", "concise"])
    return [int(line) for line in re.findall(r":(\d+):\d+: (?:warning|error|invalid)", capsys.readouterr().out)]


@pytest.mark.parametrize("name", WRONG)
def test_a_mistake_is_named_on_its_line(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    marked = WRONG[name]
    (wrong,) = (number for number, line in enumerate(marked.splitlines(), start=1) if line.endswith(MARK))
    assert wrong in found_in(marked.replace(MARK, ""), tmp_path, capsys)


@pytest.mark.parametrize("name", CLEAN)
def test_a_clean_configuration_gets_no_warning(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert found_in(CLEAN[name], tmp_path, capsys) == []
