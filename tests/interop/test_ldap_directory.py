"""The LDAP authenticator against a real slapd, and against servers that misbehave: policy §8.10."""

import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from certificates import Certificates
from directory import (
    GROUPS,
    MANY,
    PEOPLE,
    SERVICE,
    SERVICE_PASSWORD,
    Slapd,
    dn_of,
    running,
)

from auth.credentials import MAX_PASSWORD_BYTES, CheckPassword, FetchGroups, Recheck, VerifyResult
from auth.secrets import Secret
from auth.verifiers.ldap import LdapVerifier, make_ldap_verifier
from auth.verifiers.ldap_settings import read_settings

Make = Callable[..., LdapVerifier]


@pytest.fixture(scope="module")
def slapd(
    certificates: Certificates, require_tool: Callable[[str, str], Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Slapd]:
    """One server for the tests that do not change it."""
    with running(require_tool("slapd", "slapd"), tmp_path_factory.mktemp("slapd"), certificates) as made:
        yield made


@pytest.fixture
def own_slapd(
    certificates: Certificates, require_tool: Callable[[str, str], Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[..., Slapd]]:
    """Servers that a test may stop and change."""
    with ExitStack() as stack:
        yield lambda **options: stack.enter_context(
            running(require_tool("slapd", "slapd"), tmp_path_factory.mktemp("slapd"), certificates, **options)
        )


def attributes_of(certificates: Certificates, urls: str, **changes: Any) -> dict[str, Any]:
    given: dict[str, Any] = {
        "name": "staff",
        "urls": urls,
        "caCertFile": certificates.ca,
        "bindDn": SERVICE,
        "bindPassword": f"literal:{SERVICE_PASSWORD}",
        "userBase": PEOPLE,
        "groupBase": GROUPS,
        "timeoutSeconds": 5,
        "retrySeconds": 1,
    }
    return given | changes


@pytest.fixture
def make(certificates: Certificates) -> Iterator[Make]:
    """`make(urls, **attributes)`: a verifier without a cache."""
    made: list[LdapVerifier] = []

    def verifier(urls: str, **changes: Any) -> LdapVerifier:
        made.append(LdapVerifier(read_settings(attributes_of(certificates, urls, **changes))))
        return made[-1]

    yield verifier
    for each in made:
        each.close()


def login(verifier: Any, user: str, password: str) -> VerifyResult:
    answer = verifier.verify(CheckPassword(user=user, password=Secret(password)))
    assert isinstance(answer, VerifyResult)
    return answer


def recheck(verifier: Any, proven: VerifyResult) -> VerifyResult:
    assert proven.proof is not None
    answer = verifier.verify(Recheck(proof=proven.proof, groups=proven.groups))
    assert isinstance(answer, VerifyResult)
    return answer


# The wire


@pytest.mark.parametrize("kind", ["ldaps", "ldap"])
def test_over_verified_tls(slapd: Slapd, make: Make, kind: str) -> None:
    verifier = make(getattr(slapd, kind))
    assert login(verifier, "alice", "of alice").is_valid
    wrong = login(verifier, "alice", "of bob")
    assert (wrong.is_valid, wrong.is_compared) == (False, True)
    unknown = login(verifier, "nobody", "of alice")
    assert (unknown.is_valid, unknown.is_compared) == (False, True)


def test_starttls_is_what_plain_ldap_means(slapd: Slapd, make: Make) -> None:
    mark = len(slapd.log.lines)
    assert login(make(slapd.ldap), "alice", "of alice").is_valid
    slapd.log.wait_for_log("TLS established", mark)
    clear = make(slapd.ldap, startTls=False)
    mark = len(slapd.log.lines)
    assert login(clear, "alice", "of alice").is_valid
    slapd.log.wait_for_log(f'BIND dn="{dn_of("alice")}" mech=SIMPLE .*ssf=0', mark)


@pytest.mark.parametrize("kind", ["ldaps", "ldap"])
def test_another_authoritys_certificate_is_refused_before_any_password(
    slapd: Slapd, make: Make, certificates: Certificates, kind: str
) -> None:
    stranger, _ = certificates.pair("stranger")
    mark = len(slapd.log.lines)
    answer = login(make(getattr(slapd, kind), caCertFile=stranger), "alice", "of alice")
    assert (answer.is_valid, answer.is_compared) == (False, False)
    assert "TLS: certificate verify failed" in answer.detail
    assert not [line for line in slapd.log.lines[mark:] if " BIND " in line]


def test_a_certificate_for_another_host_is_refused(slapd: Slapd, make: Make) -> None:
    url = slapd.ldaps.replace("127.0.0.1", "127.0.0.2").replace(f":{slapd.tls_port}", "")
    with socket.create_server(("127.0.0.2", 0)) as listening:
        forward(listening, slapd.tls_port)
        url += f":{listening.getsockname()[1]}"
        answer = login(make(url), "alice", "of alice")
        assert not answer.is_compared
        assert "certificate verify failed" in answer.detail
        assert login(make(url, verifyHostname=False), "alice", "of alice").is_valid


def forward(listening: socket.socket, port: int) -> None:
    """Pass what comes to another port of 127.0.0.1, in threads that end with the connections."""

    def pump(source: socket.socket, target: socket.socket) -> None:
        while data := _read(source):
            target.sendall(data)
        target.close()

    def accept() -> None:
        while True:
            try:
                near, _ = listening.accept()
            except OSError:
                return
            far = socket.create_connection(("127.0.0.1", port))
            for pair in ((near, far), (far, near)):
                threading.Thread(target=pump, args=pair, daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()


def _read(source: socket.socket) -> bytes:
    try:
        return source.recv(65536)
    except OSError:
        return b""


# Users


def test_a_users_dn_may_be_known(slapd: Slapd, make: Make) -> None:
    """With the service, and with nobody but the user to read the entry."""
    template = {"userBase": None, "userDn": f"uid={{user}},{PEOPLE}"}
    alone = {**template, "bindDn": None, "bindPassword": None}
    for verifier in (make(slapd.ldaps, **template), make(slapd.ldaps, **alone)):
        found = login(verifier, "alice", "of alice")
        assert (found.is_valid, found.groups) == (True, ("staff",))
        assert not login(verifier, "alice", "of bob").is_valid
        assert not login(verifier, "ALICE", "of alice").is_valid
    assert make(slapd.ldaps, **template).mechanisms == ("EXTERNAL", "PLAIN")
    assert make(slapd.ldaps, **alone).mechanisms == ("PLAIN",)
    assert login(make(slapd.ldaps, **alone), "alice", "of alice").proof is None


NAMES = ("d*ve", "a(b)c", "back\\slash", "comma, plus+", "jürgen")


@pytest.mark.parametrize("name", NAMES)
def test_odd_names_are_names(slapd: Slapd, make: Make, name: str) -> None:
    searched = make(slapd.ldaps)
    known = make(slapd.ldaps, userBase=None, userDn=f"uid={{user}},{PEOPLE}")
    for verifier in (searched, known):
        assert login(verifier, name, f"of {name}").is_valid, verifier
        assert not login(verifier, name, "of alice").is_valid


ATTACKS = (
    "*", "a*", "*)(uid=*", "alice)(|(uid=*", "*))(|(uid=*", "alice)(userPassword=*", "alice\\", "alice\\2a", "\\61lice",
    "alice,ou=people", "alice+cn=x", "alice,ou=people,dc=example,dc=com", "#616c696365", "alice ", " alice", "ALICE",
    "Alice", "\uff41lice", "al\u0131ce", "alice\u200b", "a\u0300lice", "\u0430lice", "alice\x00", "\x00", "",
    "alice\ud800", "x" * 2000,
)  # fmt: skip


@pytest.mark.parametrize("attack", ATTACKS, ids=ascii)
def test_a_name_is_nothing_but_a_name(slapd: Slapd, make: Make, attack: str) -> None:
    """No wildcards, no structure and no other spellings of a name, whatever the password; and no server is to blame."""
    for changes in ({}, {"userBase": None, "userDn": f"uid={{user}},{PEOPLE}"}):
        verifier = make(slapd.ldaps, **changes)
        for password in ("of alice", "x"):
            answer = login(verifier, attack, password)
            assert (answer.is_valid, answer.is_compared) == (False, True), answer
        groups = verifier.verify(FetchGroups(user=attack))
        assert isinstance(groups, VerifyResult)
        assert (groups.is_valid, groups.is_compared) == (False, True)
        assert login(verifier, "alice", "of alice").is_valid


@pytest.mark.parametrize("password", ["", "x" * (MAX_PASSWORD_BYTES + 1), "x" * 1_000_000, "\ud800"], ids=len)
def test_passwords_that_never_reach_the_wire(make: Make, password: str) -> None:
    """Nobody listens on that port."""
    answer = login(make("ldaps://127.0.0.1:1"), "alice", password)
    assert (answer.is_valid, answer.is_compared) == (False, True)


def test_a_password_is_sent_as_it_is(own_slapd: Callable[..., Slapd], make: Make) -> None:
    """Without normalisation; also the longest."""
    server = own_slapd()
    verifier = make(server.ldaps)
    for password in ("\uff41\u00a0\u200b", "x" * MAX_PASSWORD_BYTES, "*)(uid=*", "\\2a"):
        server.change(dn_of("alice"), "userPassword", [password])
        assert login(verifier, "alice", password).is_valid
    assert not login(verifier, "alice", "*").is_valid


def test_several_entries_of_one_name_are_nobody(own_slapd: Callable[..., Slapd], make: Make) -> None:
    server = own_slapd()
    server.change(dn_of("bob"), "uid", ["bob", "alice"])
    assert not login(make(server.ldaps), "alice", "of alice").is_valid
    assert not login(make(server.ldaps), "alice", "of bob").is_valid


def test_a_users_entry_has_to_fit_the_filter(slapd: Slapd, make: Make) -> None:
    for changes in ({}, {"userBase": None, "userDn": f"uid={{user}},{PEOPLE}"}):
        verifier = make(slapd.ldaps, userFilter="(!(uid=alice))", **changes)
        assert login(verifier, "bob", "of bob").is_valid
        assert not login(verifier, "alice", "of alice").is_valid


def test_a_service_that_is_refused_is_an_outage(slapd: Slapd, make: Make) -> None:
    answer = login(make(slapd.ldaps, bindPassword="literal:wrong"), "alice", "of alice")
    assert (answer.is_valid, answer.is_compared) == (False, False)
    assert answer.detail.endswith("bindDn refused with LDAP result 49")


def test_the_services_password_is_read_again(own_slapd: Callable[..., Slapd], make: Make, tmp_path: Path) -> None:
    server = own_slapd()
    file = tmp_path / "password"
    file.write_text(f"{SERVICE_PASSWORD}\n")
    verifier = make(server.ldaps, bindPassword=f"file:{file}")
    assert login(verifier, "alice", "of alice").is_valid
    server.change(SERVICE, "userPassword", ["another"])
    file.write_text("another\n")
    server.stop()
    server.start()
    assert login(verifier, "alice", "of alice").is_valid


# Groups


def test_groups(slapd: Slapd, make: Make) -> None:
    assert login(make(slapd.ldaps), "alice", "of alice").groups == ("staff",)
    assert login(make(slapd.ldaps), "mallory", "of mallory").groups == ()
    assert login(make(slapd.ldaps, groupBase=None), "alice", "of alice").groups == ()
    assert login(make(slapd.ldaps, groupFilter="(cn=ring-*)"), "alice", "of alice").groups == ()
    assert login(make(slapd.ldaps, memberIs="name"), "alice", "of alice").groups == ("posix",)


def test_groups_of_groups(slapd: Slapd, make: Make) -> None:
    """Also where they are members of each other."""
    verifier = make(slapd.ldaps, nestedGroups=True)
    assert login(verifier, "alice", "of alice").groups == ("company", "everybody", "staff")
    assert login(verifier, "bob", "of bob").groups == ("ring-1", "ring-2", "ring-3")


@pytest.mark.parametrize("is_nested", [False, True])
def test_a_user_in_many_groups(slapd: Slapd, make: Make, is_nested: bool) -> None:
    found = login(make(slapd.ldaps, nestedGroups=is_nested), "bulk", "of bulk")
    assert found.is_valid
    assert found.groups == tuple(f"many-{number:03}" for number in range(MANY))


def test_a_part_of_the_groups_is_no_answer(own_slapd: Callable[..., Slapd], make: Make) -> None:
    """The server gives some and stops: the policy would decide on less than there is."""
    verifier = make(own_slapd(extra="sizelimit size.soft=100 size.hard=100").ldaps)
    answer = login(verifier, "bulk", "of bulk")
    assert (answer.is_valid, answer.is_compared) == (False, False)
    assert answer.detail.endswith("search refused with LDAP result 4")
    assert login(verifier, "alice", "of alice").is_valid  # the server is not to blame


def test_active_directorys_rule_is_used_where_the_server_has_it(
    own_slapd: Callable[..., Slapd], make: Make, tmp_path: Path
) -> None:
    """slapd can be told to say that it has the rule; its answer then is that no such rule is there."""
    (tmp_path / "root.ldif").write_text("dn:\nsupportedCapabilities: 1.2.840.113556.1.4.800\n")
    name = "attributetype ( 1.2.840.113556.1.4.9999 NAME 'supportedCapabilities'"
    capabilities = f"{name} SYNTAX 1.3.6.1.4.1.1466.115.121.1.38 )"
    server = own_slapd(extra=f"{capabilities}\nrootDSE {tmp_path}/root.ldif")
    verifier = make(server.ldaps, nestedGroups=True)
    assert login(verifier, "alice", "of alice").groups == ()
    server.log.wait_for_log(r'SRCH base="ou=groups.* filter=".*\?')


def test_groups_of_a_certificates_user(slapd: Slapd, make: Make) -> None:
    verifier = make(slapd.ldaps)
    found = verifier.verify(FetchGroups(user="alice"))
    assert isinstance(found, VerifyResult)
    assert (found.is_valid, found.groups) == (True, ("staff",))
    assert found.proof is not None
    unknown = verifier.verify(FetchGroups(user="nobody"))
    assert isinstance(unknown, VerifyResult)
    assert (unknown.is_valid, unknown.is_compared) == (False, True)


# Afterwards


def test_open_connections_are_rechecked(own_slapd: Callable[..., Slapd], make: Make) -> None:
    """The user's entry, state and groups; an outage says nothing about them."""
    server = own_slapd()
    verifier = make(server.ldaps)
    alice, bob = login(verifier, "alice", "of alice"), login(verifier, "bob", "of bob")
    assert recheck(verifier, alice).is_valid
    server.change(dn_of("staff", is_group=True), "member", [dn_of("mallory")])
    gone = recheck(verifier, alice)
    assert (gone.is_valid, gone.is_compared) == (False, True)
    assert recheck(verifier, bob).is_valid
    carol = login(verifier, "carol", "of carol")
    server.change(dn_of("carol"), "pwdAccountLockedTime", ["000001010000Z"])
    assert not recheck(verifier, carol).is_valid
    assert not login(verifier, "carol", "of carol").is_valid
    assert not verifier.verify(FetchGroups(user="carol")).is_valid  # type: ignore[union-attr]
    server.remove(dn_of("bob"))
    assert not recheck(verifier, bob).is_valid
    server.stop()
    outage = recheck(verifier, alice)
    assert (outage.is_valid, outage.is_compared) == (False, False)


def test_a_changed_password_is_remembered_for_a_while(
    own_slapd: Callable[..., Slapd], certificates: Certificates
) -> None:
    """The new one is good at once, the old one for cacheSeconds, or until the user is found to be gone."""
    server = own_slapd()
    verifier = make_ldap_verifier(attributes_of(certificates, server.ldaps, cacheSeconds=3600))
    try:
        first = login(verifier, "alice", "of alice")
        server.change(dn_of("alice"), "userPassword", ["new"])
        assert login(verifier, "alice", "new").is_valid
        assert login(verifier, "alice", "of alice").is_valid
        server.remove(dn_of("alice"))
        assert not recheck(verifier, first).is_valid
        assert not login(verifier, "alice", "of alice").is_valid
        assert not login(verifier, "alice", "new").is_valid
    finally:
        verifier.close()


# Servers that fail


def test_failover_and_back(own_slapd: Callable[..., Slapd], make: Make) -> None:
    first, second = own_slapd(), own_slapd()
    verifier = make(f"{first.ldaps} {second.ldaps}")
    assert login(verifier, "alice", "of alice").is_valid
    first.log.wait_for_log("BIND .*alice")
    assert not [line for line in second.log.lines if "BIND" in line]
    first.stop()
    assert login(verifier, "alice", "of alice").is_valid
    second.log.wait_for_log("BIND .*alice")
    first.start()
    mark = len(first.log.lines)
    deadline = time.monotonic() + 20
    while not [line for line in first.log.lines[mark:] if "BIND" in line]:
        assert login(verifier, "alice", "of alice").is_valid
        assert time.monotonic() < deadline


def test_a_server_that_is_started_again_is_not_missed(own_slapd: Callable[..., Slapd], make: Make) -> None:
    """The connections that were kept are of no use, which says nothing about the server."""
    server = own_slapd()
    verifier = make(server.ldaps)
    assert login(verifier, "alice", "of alice").is_valid
    server.stop()
    server.start()
    assert login(verifier, "alice", "of alice").is_valid


def test_killed_in_the_middle_of_a_search(own_slapd: Callable[..., Slapd], make: Make) -> None:
    first, second = own_slapd(), own_slapd()
    verifier = make(f"{first.ldaps} {second.ldaps}", timeoutSeconds=20)
    assert login(verifier, "alice", "of alice").is_valid
    first.signal(signal.SIGSTOP)
    answers: list[VerifyResult] = []
    asking = threading.Thread(target=lambda: answers.append(login(verifier, "bulk", "of bulk")))
    asking.start()
    wait_until_asked(first.tls_port)
    first.stop()
    asking.join(20)
    assert [(each.is_valid, len(each.groups)) for each in answers] == [(True, MANY)]


def wait_until_asked(port: int) -> None:
    """Until bytes wait in a socket of the server's, which does not read them."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
            words = line.split()
            if int(words[1].split(":")[1], 16) == port and words[3] == "01" and int(words[4].split(":")[1], 16):
                return
        time.sleep(0.01)
    raise AssertionError("nobody asks")


@pytest.fixture
def silent() -> Iterator[socket.socket]:
    """Accepts, by the system, and never says a word."""
    with socket.create_server(("127.0.0.1", 0), backlog=300) as listening:
        yield listening


@pytest.mark.parametrize("kind", ["ldaps", "ldap", "clear"])
def test_a_server_that_never_answers(silent: socket.socket, slapd: Slapd, make: Make, kind: str) -> None:
    """The next one is asked, and it is left alone for a while; if it is the only one, that is no answer."""
    url = f"{kind.replace('clear', 'ldap')}://127.0.0.1:{silent.getsockname()[1]}"
    alone = make(url, timeoutSeconds=1, retrySeconds=3600, startTls=kind != "clear")
    began = time.monotonic()
    answer = login(alone, "alice", "of alice")
    assert (answer.is_valid, answer.is_compared) == (False, False)
    assert 1 <= time.monotonic() - began < 3
    began = time.monotonic()
    for _ in range(200):
        answer = login(alone, "alice", "of alice")
        assert not answer.is_compared
        assert answer.detail.endswith("left alone for now")
    assert time.monotonic() - began < 1
    both = make(f"{url} {slapd.ldaps}", timeoutSeconds=1, retrySeconds=3600, startTls=kind != "clear")
    assert login(both, "alice", "of alice").is_valid
    began = time.monotonic()
    assert login(both, "alice", "of alice").is_valid
    assert time.monotonic() - began < 1


def test_closing_wakes_up_who_waits(silent: socket.socket, make: Make) -> None:
    verifier = make(f"ldaps://127.0.0.1:{silent.getsockname()[1]}", timeoutSeconds=60)
    answers: list[VerifyResult] = []
    asking = threading.Thread(target=lambda: answers.append(login(verifier, "alice", "of alice")))
    asking.start()
    near, _ = silent.accept()
    near.recv(1)
    verifier.close()
    asking.join(10)
    near.close()
    assert [(each.is_valid, each.is_compared) for each in answers] == [(False, False)]


# The answer to StartTLS is (message 1, extended response, success), and what follows is made up.
STARTED = bytes.fromhex("300c02010178070a010004000400")
LIES = {
    "garbage": b"HTTP/1.1 400 Bad Request\r\n\r\n",
    "endless": b"\x30\x84\x7f\xff\xff\xff" + b"x" * 100,
    "indefinite": b"\x30\x80\x02\x01\x01",
    "nested": b"\x30\x82\x27\x10" + b"\x30\x80" * 5000,
    "empty": b"\x30\x00",
    "another": bytes.fromhex("300c02010578070a010004000400"),
    "goodbye": bytes.fromhex("300c02010078070a013404000400"),
    "refused": bytes.fromhex("300c02010178070a010204000400"),
    "injected": STARTED + bytes.fromhex("300c02010261070a010004000400"),
    "bind": bytes.fromhex("300c02010161070a010004000400"),
    "closed": b"",
}


@pytest.mark.parametrize("lie", LIES)
def test_a_server_that_lies_lets_nobody_in(make: Make, lie: str) -> None:
    """Before TLS, as somebody in between could."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            near, _ = listening.accept()
            with near:
                near.recv(1000)
                near.sendall(LIES[lie])
                near.shutdown(socket.SHUT_WR)
                while _read(near):
                    pass

        threading.Thread(target=serve, daemon=True).start()
        answer = login(make(f"ldap://127.0.0.1:{listening.getsockname()[1]}", timeoutSeconds=2), "alice", "of alice")
    assert (answer.is_valid, answer.is_compared) == (False, False)
    assert "of alice" not in answer.detail


def test_an_answer_byte_by_byte_ends_in_time(make: Make) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            near, _ = listening.accept()
            with near:
                near.recv(1000)
                for byte in b"\x30\x82\xff\x00" + b"x" * 100:
                    try:
                        near.sendall(bytes([byte]))
                    except OSError:
                        return
                    time.sleep(0.1)

        threading.Thread(target=serve, daemon=True).start()
        began = time.monotonic()
        url = f"ldap://127.0.0.1:{listening.getsockname()[1]}"
        answer = login(make(url, timeoutSeconds=1, startTls=False), "alice", "of alice")
    assert not answer.is_compared
    assert time.monotonic() - began < 3
