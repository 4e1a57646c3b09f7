"""Attack: a directory counts wrong passwords and locks the account.

One host locked 60 of 60 accounts within 5 s, because the router delayed its answers but still asked the directory.
"""

import socket
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest
import raw_peer
from certificates import Certificates
from daemon_process import Daemon, Started
from directory import PEOPLE, SERVICE, SERVICE_PASSWORD, SUFFIX, Slapd, running
from memory_net import Client, Net
from process_log import PATIENCE_S
from raw_peer import RawPeer
from server_peer import OUTCOME

from auth.credentials import Answer, CheckPassword, VerifyRequest, VerifyResult
from auth.sasl_frames import Init, encode
from policy.hosts import HostRanges
from router.admission.guessing import FREE_OF_HOST, MAX_HELD_OF_HOST, Guesses

SASL = b"AMQP\x03\x01\x00\x00"
ATTACKER, OFFICE = "192.0.2.66", "192.0.2.1"
USERS, TRIES, THREADS = 60, 5, 2


class Directory:
    """Has two threads for a host, and locks an account after five wrong passwords."""

    def __init__(self) -> None:
        self.net = Net(mechanisms=lambda _channel: ("PLAIN",), handshake_timeout_s=30)
        self.net.gate.guesses = Guesses(5, HostRanges(), b"key", lambda _count: 0)
        self.net.verify = self._verify
        self.failures: Counter[str] = Counter()
        self._waiting: list[tuple[VerifyRequest, Callable[[], bool], Callable[[Answer], None]]] = []

    @property
    def locked(self) -> list[str]:
        return [user for user, count in self.failures.items() if count >= TRIES]

    def _verify(
        self, request: VerifyRequest, _host: str, begins: Callable[[], bool], done: Callable[[Answer], None]
    ) -> Callable[[], None]:
        self._waiting.append((request, begins, done))
        return lambda: None

    def login(self, host: str, user: str, password: str = "wrong") -> Client:
        self.net.remote_host = host
        client = self.net.client(opens=False)
        client.push_to_router = lambda: False  # type: ignore[method-assign]
        client.say(SASL + encode(Init(mechanism="PLAIN", initial_response=f"\0{user}\0{password}".encode())))
        return client

    def work(self) -> None:
        """Ask about all that wait, as many at a time as there are threads."""
        while self._waiting:
            asked = []
            for request, begins, done in [self._waiting.pop(0) for _ in range(min(THREADS, len(self._waiting)))]:
                if begins():
                    assert isinstance(request, CheckPassword)
                    is_right = request.password.reveal() == "right"
                    self.failures[request.user] += not is_right
                    asked.append((done, VerifyResult(is_valid=is_right)))
            for done, answer in asked:
                done(answer)
        self.net.work.finish()
        self.net.pump()


@pytest.mark.parametrize("leaves", [False, True], ids=["waits for the answer", "leaves at once"])
def test_attack_one_host_tries_every_account(leaves: bool) -> None:
    directory = Directory()
    for _ in range(20):  # 5 s of the clock
        clients = [directory.login(ATTACKER, f"user{number}") for number in range(USERS)]
        directory.work()
        if leaves:
            for client in clients:
                client.kill()
        directory.net.advance(0.25)
    assert len(directory.locked) <= 1, "one account of sixty, in 5 s"
    # The free ones, those under way meanwhile, and what the places for waiting answers let through.
    assert directory.failures.total() <= FREE_OF_HOST + THREADS + 4 * MAX_HELD_OF_HOST


def test_who_is_not_asked_about_is_told_to_come_again_and_does_not_count() -> None:
    directory = Directory()
    for _ in range(3):
        for number in range(USERS):
            directory.login(ATTACKER, f"user{number}")
        directory.work()
    directory.net.advance(0.5)
    reasons = Counter(event["reason"] for event in directory.net.audits)
    assert reasons["too_many_guesses"] > 100


def test_another_host_logs_in_meanwhile() -> None:
    directory = Directory()
    for _ in range(3):
        for number in range(USERS):
            directory.login(ATTACKER, f"user{number}")
        directory.work()
    client = directory.login(OFFICE, "carol", "right")
    directory.work()
    directory.net.pump()
    assert directory.failures["carol"] == 0
    assert b"\x53\x44" in bytes(client.recorded), "the outcome has come"


# A real directory: OpenLDAP's, with the overlay of password policies

ACCOUNTS, MAX_FAILURE = 20, 3
# More than are needed: the overlay loses a failure where two of an account come at the same moment.
TRIES_OF_ACCOUNT = 2 * MAX_FAILURE
GUESSER = "127.0.3.1"
LOCKING = f"cn=locking,{SUFFIX}"
CONFIGURATION = """
policy {{
    maxLoginDelaySeconds: 2
    banAllowList: 127.0.0.1
}}
ldapAuthenticator {{
    name: staff
    urls: {urls}
    caCertFile: {ca}
    bindDn: {service}
    bindPassword: file:{folder}/password
    userBase: {people}
    negativeCacheSeconds: 0
}}
listener {{
    name: login
    host: 127.0.0.1
    port: 0
    authenticatePeer: yes
    saslMechanisms: PLAIN
    authenticators: staff
}}
"""


def add_accounts(slapd: Slapd) -> None:
    """Add accounts that the directory locks after MAX_FAILURE wrong passwords."""
    policy = {"pwdAttribute": "userPassword", "pwdLockout": "TRUE", "pwdMaxFailure": MAX_FAILURE}
    with slapd.administrator() as administrator:
        assert administrator.add(LOCKING, ["organizationalRole", "pwdPolicy"], {"cn": "locking", **policy})
        for number in range(ACCOUNTS):
            person = {"cn": "x", "sn": "x", "userPassword": "right", "pwdPolicySubentry": LOCKING}
            assert administrator.add(f"uid=user{number},{PEOPLE}", "inetOrgPerson", person), administrator.result


def locked_accounts(slapd: Slapd) -> list[str]:
    with slapd.administrator() as administrator:
        administrator.search(PEOPLE, "(pwdAccountLockedTime=*)")
        return [entry.entry_dn for entry in administrator.entries]


def guess_at_once(router: Daemon) -> None:
    """Try all accounts, one after the other, from one host, and wait for every answer."""
    address = ("127.0.0.1", router.port("login"))
    with ExitStack() as stack:
        peers = []
        for number in range(ACCOUNTS * TRIES_OF_ACCOUNT):
            connected = socket.create_connection(address, PATIENCE_S, source_address=(GUESSER, 0))
            peers.append(RawPeer(stack.enter_context(connected), 0))
            peers[-1].send(raw_peer.SASL + raw_peer.plain(f"user{number // TRIES_OF_ACCOUNT}", f"wrong {number}"))
        for peer in peers:
            assert int(peer.read_until(OUTCOME)[0])


@pytest.mark.interop
def test_attack_one_host_locks_the_accounts_of_a_directory(
    daemon: Started, certificates: Certificates, require_tool: Callable[[str, str], Path], tmp_path: Path
) -> None:
    """There are no bans. Asked about are the free ones, those under way meanwhile, and those whose answers wait: 12
    logins, which locked two accounts. When nobody waited for a place, it was all of them.
    """
    (tmp_path / "password").write_text(SERVICE_PASSWORD)
    (tmp_path / "slapd").mkdir()
    with running(require_tool("slapd", "slapd"), tmp_path / "slapd", certificates) as slapd:
        add_accounts(slapd)
        text = CONFIGURATION.format(
            urls=slapd.ldaps, ca=certificates.ca, service=SERVICE, people=PEOPLE, folder=tmp_path
        )
        guess_at_once(daemon(text))
        binds = [line for line in slapd.log.lines if ' BIND dn="uid=user' in line and "mech=" not in line]
        assert len(locked_accounts(slapd)) <= 5, "of 20"
    assert 0 < len(binds) <= 40, "asked about, of 120"
