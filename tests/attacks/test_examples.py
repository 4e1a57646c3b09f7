"""Attack: an example that does not separate the users it claims to separate, and that an operator then uses.

The test starts every example as documented, uses it as intended, and attacks it as a neighbour.
"""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import raw_peer
from daemon_process import ROOT, Daemon, start, write_users
from daemons import logged_in, peer_of
from raw_peer import ATTACH, FLOW, TRANSFER, RawPeer, frame

from router.values import Described, uint, ulong

EXAMPLES = ROOT / "policies"
TRIED = {"quickstart", "tenants"}
REFUSED = "amqp:resource-limit-exceeded"  # what 1.20 says too to whom it does not let in
PASSWORDS = {name: f"{name}'s" for name in ("alice", "client", "operator", "mallory", "anna", "ben", "carla", "denis",
                                           "till-1", "till-2", "collector", "s7", "s8")}  # fmt: skip
ROUTER = """
router {{
    id: example
    saslConfigDir: {sasl}
    auditDir: {folder}/audit
}}
listener {{
    name: plain
    host: 127.0.0.1
    port: 0
    authenticatePeer: yes
    saslMechanisms: PLAIN
    {listener}
}}
"""
OPERATIONS = """
listener {
    name: operations
    host: 127.0.0.1
    port: 0
    authenticatePeer: yes
    saslMechanisms: PLAIN
    policyVhost: operations
}
"""
# Names of the management address, and of what is beside it.
MANAGEMENT = (
    "$management", "/$management", "$management/", "amqp:/$management", "amqp://router/$management",
    "_local/$management", "_topo/0/example/$management", "_topo/all/example/$management", "_edge/example/$management",
    "$_management_internal", "orders/x:/$management", "orders/x:/orders/y:/$management", "orders.x:/$management",
)  # fmt: skip


def on_loopback(policy: str) -> str:
    """The policy with this machine in the place of the networks that it is for."""
    return re.sub(r'("remoteHosts": )"[^"]*"', r'\1"127.0.0.1"', policy)


def started(folder: Path, example: str, policy_section: str, listener: str = "", more: str = "") -> Daemon:
    """A router with the example's policy."""
    sasl = write_users(folder, PASSWORDS, "PLAIN")
    (folder / "policy").mkdir()
    text = (EXAMPLES / example / "policy.json").read_text()
    (folder / "policy" / "policy.json").write_text(on_loopback(text))
    section = re.sub(r"policyDir: \S+", f"policyDir: {folder}/policy", policy_section)
    made = start(folder, ROUTER.format(folder=folder, sasl=sasl, listener=listener) + section + more)
    made.wait_for_log(r"SERVER \(notice\) Operational")
    return made


def section_in_comments(example: str) -> str:
    """The configuration that the example says it needs."""
    lines = (EXAMPLES / example / "policy.json").read_text().splitlines()
    wanted = [line.removeprefix("#") for line in lines if line.startswith("#   ")]
    return "\n".join(wanted) + "\n"


@pytest.fixture(scope="module")
def quickstart(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    section = "policy {\n enableVhostPolicy: yes\n policyDir: here\n}\n"
    made = started(tmp_path_factory.mktemp("quickstart"), "quickstart", section)
    yield made
    made.end()


@pytest.fixture(scope="module")
def tenants(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    section = section_in_comments("tenants")
    made = started(tmp_path_factory.mktemp("tenants"), "tenants", section, "multiTenant: yes", OPERATIONS)
    yield made
    made.end()


class User:
    """A connection with one session; links get handles in order."""

    def __init__(self, peer: RawPeer) -> None:
        self.peer = peer
        self.handle = -1

    def attach(self, address: str | None, *, is_receiver: bool, is_dynamic: bool = False) -> bool:
        """Attach; is it granted?"""
        self.handle += 1
        far = [address, None, None, None, is_dynamic] if is_dynamic else [address]
        source = Described(ulong(0x28), far if is_receiver else [])
        target = Described(ulong(0x29), [] if is_receiver else far)
        count = () if is_receiver else (None, None, uint(0))
        self.peer.received = b""
        self.peer.send(frame(ATTACH, f"l{self.handle}", uint(self.handle), is_receiver, None, None, source, target,
                             *count))  # fmt: skip
        fields = self.peer.read_until(ATTACH)
        return fields[5 if is_receiver else 6] is not None

    def send(self, payload: bytes) -> None:
        """By the last link."""
        self.peer.read_until(FLOW)
        self.peer.send(frame(TRANSFER, uint(self.handle), uint(0), b"tag", uint(0), True, payload=payload))

    def grant(self) -> None:
        """Credit for the last link."""
        self.peer.send(frame(FLOW, uint(0), uint(100), uint(0), uint(100), uint(self.handle), uint(0), uint(10)))


def using(router: Daemon, user: str, hostname: str, listener: str = "plain") -> "Using":
    return Using(router, user, hostname, listener)


class Using:
    """`with using(...) as user`."""

    def __init__(self, router: Daemon, user: str, hostname: str, listener: str) -> None:
        self._peer = peer_of(router, listener)
        self._login = (user, PASSWORDS[user], hostname)

    def __enter__(self) -> User:
        peer = logged_in(self._peer.__enter__(), *self._login)
        peer.send(raw_peer.begin())
        peer.read_until(raw_peer.BEGIN)
        return User(peer)

    def __exit__(self, *error: object) -> None:
        self._peer.__exit__(None, None, None)


def refusal(router: Daemon, user: str, hostname: str, listener: str = "plain") -> str:
    """The condition of the Close that answers the Open of one who may not connect."""
    with peer_of(router, listener) as peer:
        logged_in(peer, user, PASSWORDS[user], hostname)
        (error,) = peer.read_until(raw_peer.CLOSE)
        assert isinstance(error, Described)
        return str(error.value[0])


def body(text: bytes) -> bytes:
    return b"\x00\x53\x75\xa0" + bytes([len(text)]) + text


def test_every_example_is_tried_here() -> None:
    assert {path.parent.name for path in EXAMPLES.glob("*/policy.json")} == TRIED
    others = {path.relative_to(EXAMPLES).parts[0] for path in EXAMPLES.glob("**/*.json")}
    # tests/interop/test_example_network.py, tests/brokers/test_example_broker.py
    assert others == TRIED | {"network", "broker"}
    assert not list((ROOT / "deploy" / "examples").glob("*.py"))


@pytest.mark.parametrize("example", sorted(TRIED))
def test_no_example_has_a_finding(example: str) -> None:
    command = str(Path(sys.executable).parent / "qdpolicy")
    ran = subprocess.run([command, "lint", str(EXAMPLES / example / "policy.json")], capture_output=True, check=False)
    assert ran.returncode == 0


# quickstart


def test_the_quick_start_serves_whom_it_is_for(quickstart: Daemon) -> None:
    with using(quickstart, "alice", "") as alice, using(quickstart, "client", "") as client:
        assert client.attach("orders.new", is_receiver=True)
        client.grant()
        assert alice.attach("orders.new", is_receiver=False)
        alice.send(body(b"an order"))
        client.peer.read_until(TRANSFER)
        assert body(b"an order") in client.peer.received
        assert alice.attach("alice.notes", is_receiver=True)
    with using(quickstart, "operator", "") as operator:
        assert operator.attach("$management", is_receiver=False)
        assert operator.attach(None, is_receiver=True, is_dynamic=True)


def test_the_quick_start_keeps_users_apart(quickstart: Daemon) -> None:
    with using(quickstart, "alice", "") as alice:
        for address in ("client.notes", "orders", "secret", "alice", "orders.new:/client.notes", "amqp:/client.notes"):
            assert not alice.attach(address, is_receiver=True), address
            assert not alice.attach(address, is_receiver=False), address
        assert not alice.attach(None, is_receiver=True, is_dynamic=True)
        assert not alice.attach(None, is_receiver=False)
    assert refusal(quickstart, "mallory", "") == REFUSED


@pytest.mark.parametrize("address", MANAGEMENT)
def test_the_quick_start_s_management_is_closed(address: str, quickstart: Daemon) -> None:
    with using(quickstart, "alice", "") as alice:
        assert not alice.attach(address, is_receiver=False)


# tenants

BERLIN, PARIS = "berlin.shop.example.com", "paris.shop.example.com"


def test_tenants_are_served(tenants: Daemon) -> None:
    with using(tenants, "anna", BERLIN) as anna, using(tenants, "ben", f"north.{BERLIN}") as ben:
        assert ben.attach("orders/1", is_receiver=True)
        ben.grant()
        assert anna.attach("orders/1", is_receiver=False)
        anna.send(body(b"for Berlin"))
        ben.peer.read_until(TRANSFER)
        assert body(b"for Berlin") in ben.peer.received
    with using(tenants, "till-1", BERLIN) as till:
        assert till.attach("sales/till-1", is_receiver=False)
        assert not till.attach("sales/till-2", is_receiver=False)
    with using(tenants, "s7", "sensors.example.com") as sensor:
        assert sensor.attach("readings.s7", is_receiver=False)
        assert not sensor.attach("readings.s8", is_receiver=False)
        assert not sensor.attach("readings.s7", is_receiver=True)
    with using(tenants, "operator", "", "operations") as operator:
        assert operator.attach("$management", is_receiver=False)


def test_no_tenant_hears_another(tenants: Daemon) -> None:
    """The same address in two shops is two addresses."""
    with using(tenants, "carla", PARIS) as carla, using(tenants, "ben", BERLIN) as ben, \
            using(tenants, "anna", BERLIN) as anna:  # fmt: skip
        for user in (carla, ben):
            assert user.attach("orders/#".replace("#", "2"), is_receiver=True)
            user.grant()
        assert anna.attach("orders/2", is_receiver=False)
        anna.send(body(b"for Berlin"))
        ben.peer.read_until(TRANSFER)
        carla.peer.received = b""
        assert carla.attach("orders/3", is_receiver=True)  # whatever was sent to her before is here by now
        assert b"for Berlin" not in carla.peer.received


def test_no_tenant_reaches_another(tenants: Daemon) -> None:
    for user, hostname in (("anna", PARIS), ("carla", BERLIN), ("carla", f"north.{BERLIN}"), ("till-1", PARIS)):
        assert refusal(tenants, user, hostname) == REFUSED, (user, hostname)
    with using(tenants, "carla", PARIS) as carla:
        for address in (f"{BERLIN}/orders/1", f"/{BERLIN}/orders/1", f"amqp:/{BERLIN}/orders/1",
                        f"orders/x:/{BERLIN}/orders/1", f"orders/x:/orders/y:/{BERLIN}/orders/1", "anna/inbox",
                        "_topo/0/example/orders/1", "#", "*"):  # fmt: skip
            assert not carla.attach(address, is_receiver=True), address
            assert not carla.attach(address, is_receiver=False), address
        assert not carla.attach(None, is_receiver=False)


def test_nobody_connects_to_no_tenant(tenants: Daemon) -> None:
    for hostname in ("", "shop.example.com", "rome.shop.example.com", "*.shop.example.com", "$default"):
        assert refusal(tenants, "anna", hostname) == REFUSED, hostname


@pytest.mark.parametrize(("user", "hostname"), [("anna", BERLIN), ("till-1", BERLIN), ("s7", "sensors.example.com")])
def test_the_tenants_management_is_closed(user: str, hostname: str, tenants: Daemon) -> None:
    with using(tenants, user, hostname) as connected:
        if user == "anna":
            assert connected.attach(None, is_receiver=True, is_dynamic=True)
        for address in MANAGEMENT:
            assert not connected.attach(address, is_receiver=False), address


def test_only_operators_connect_for_operations(tenants: Daemon) -> None:
    for user in ("anna", "carla", "collector", "mallory"):
        assert refusal(tenants, user, "", "operations") == REFUSED
