"""The sasldb as saslpasswd2 writes it, and its GDBM form: docs/spec/policy-and-auth.md §7, §8.1."""

import base64
import os
import socket
import stat
import statistics
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from sasldb_files import berkeley, key_of
from scramp import ScramClient

from auth.credentials import (
    UNKNOWN_USER,
    WRONG_PASSWORD,
    CheckPassword,
    CheckToken,
    FetchScramKeys,
    Recheck,
    ScramKeys,
    VerifyResult,
    unavailable,
)
from auth.mechanisms import Accepted, Ask, Challenge, Channel, Refused, Step
from auth.scram import Scram
from auth.secrets import Secret
from auth.verifiers import sasldb
from auth.verifiers.files import UserFileError
from auth.verifiers.sasldb import SasldbVerifier, host_realm
from auth.verifiers.sasldb_format import read_passwords

SetPassword = Callable[..., None]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "users.sasldb"


@pytest.fixture
def saslpasswd(require_tool: Callable[[str, str], Path], path: Path) -> SetPassword:
    """`saslpasswd("alice", "wonderland", "-u", "example.com")`: the real program."""
    program = require_tool("saslpasswd2", "sasl2-bin")

    def run(user: str, password: str, *options: str) -> None:
        command: list[str | Path] = [program, "-p", "-f", path, *options, user]
        subprocess.run(command, input=password, text=True, check=True, capture_output=True)

    return run


def write(path: Path, users: dict[str, str]) -> SasldbVerifier:
    path.touch(0o600)
    path.write_bytes(berkeley({key_of(user): password.encode() for user, password in users.items()}))
    return SasldbVerifier(str(path), realm="example.com")


def check(verifier: SasldbVerifier, user: str, password: str) -> VerifyResult:
    answer = verifier.verify(CheckPassword(user=user, password=Secret(password)))
    assert isinstance(answer, VerifyResult)
    return answer


def keys_of(verifier: SasldbVerifier, user: str, hash_name: str = "SHA-256") -> ScramKeys:
    answer = verifier.verify(FetchScramKeys(user=user, hash_name=hash_name))
    assert isinstance(answer, ScramKeys)
    return answer


def log_in(verifier: SasldbVerifier, user: str, password: str, mechanism: str = "SCRAM-SHA-256") -> Step:
    server, client = Scram(mechanism, Channel()), ScramClient([mechanism], user, password)
    step = server.respond(client.get_client_first().encode())
    assert isinstance(step, Ask)
    step = server.conclude(verifier.verify(step.request))
    assert isinstance(step, Challenge)
    client.set_server_first(step.data.decode())
    step = server.respond(client.get_client_final().encode())
    if isinstance(step, Challenge):
        client.set_server_final(step.data.decode())
        step = server.respond(b"")
    return step


def test_users_that_saslpasswd2_has_entered_log_in(saslpasswd: SetPassword, path: Path) -> None:
    """policy 56"""
    saslpasswd("test", "of the domain", "-c", "-u", "domain.com")
    saslpasswd("test", "of the host", "-c")
    saslpasswd("long", "L" * 2000, "-c", "-u", "domain.com")
    verifier = SasldbVerifier(str(path))
    assert check(verifier, "test@domain.com", "of the domain").is_valid
    assert check(verifier, "test", "of the host").is_valid
    assert check(verifier, f"test@{host_realm()[0]}", "of the host").is_valid
    assert check(verifier, "long@domain.com", "L" * 2000).is_valid
    assert check(verifier, "test@domain.com", "of the host").detail == WRONG_PASSWORD
    assert check(verifier, "test", "of the domain").detail == WRONG_PASSWORD
    for nobody in ("test@other.com", "long", "test@domain.com@domain.com", "@domain.com", "test@", "test\0domain.com"):
        assert check(verifier, nobody, "of the domain").detail == UNKNOWN_USER
    assert check(SasldbVerifier(str(path), realm="domain.com"), "test", "of the domain").is_valid
    for mechanism in verifier.mechanisms[:-1]:
        assert isinstance(log_in(verifier, "test@domain.com", "of the domain", mechanism), Accepted)


def test_we_and_sasldblistusers2_see_the_same(
    saslpasswd: SetPassword, path: Path, require_tool: Callable[[str, str], Path]
) -> None:
    """After pages were filled, split and emptied again."""
    lister = require_tool("sasldblistusers2", "sasl2-bin")
    names = [f"user{number}" for number in range(60)]
    for name in names:
        saslpasswd(name, f"password of {name} {'x' * 100}", "-c", "-u", "r.org")
    for name in names[:20]:
        saslpasswd(name, "", "-d", "-u", "r.org")
    verifier = SasldbVerifier(str(path))
    listed = subprocess.run([lister, "-f", path], capture_output=True, text=True, check=True).stdout
    seen = {name for name in names if check(verifier, f"{name}@r.org", f"password of {name} {'x' * 100}").is_valid}
    assert seen == {line.split("@")[0] for line in listed.splitlines()} == set(names[20:])


def test_a_file_of_gdbm_serves(path: Path, require_tool: Callable[[str, str], Path]) -> None:
    """Red Hat's saslpasswd2 writes one. GDBM's own program makes it here, with a table of several buckets."""
    loader = require_tool("gdbm_load", "gdbmtool")
    lines = ["# GDBM dump file created by a test", "#:version=1.1", "#:format=standard", "# End of header"]
    for number in range(500):
        for data in (key_of(f"user{number}"), f"password {number}".encode()):
            lines += [f"#:len={len(data)}", base64.b64encode(data).decode()]
    dump = path.with_suffix(".dump")
    dump.write_text("\n".join([*lines, "#:count=500", "# End of data", ""]))
    subprocess.run([loader, "--mode=600", dump, path], check=True, capture_output=True)
    verifier = SasldbVerifier(str(path))
    assert all(check(verifier, f"user{each}@example.com", f"password {each}").is_valid for each in range(500))


def test_a_change_counts_at_once_and_ends_who_was_let_in(saslpasswd: SetPassword, path: Path) -> None:
    for user in ("stays", "changes", "goes"):
        saslpasswd(user, "before", "-c", "-u", "r.org")
    verifier = SasldbVerifier(str(path), "staff")
    proofs = [check(verifier, f"{user}@r.org", "before").proof for user in ("stays", "changes", "goes")]
    assert proofs[0] == keys_of(verifier, "stays@r.org").proof
    saslpasswd("changes", "after", "-u", "r.org")
    saslpasswd("goes", "", "-d", "-u", "r.org")
    answers = [verifier.verify(Recheck(proof=proof)) for proof in proofs if proof is not None]
    assert answers == [VerifyResult(is_valid=True), VerifyResult(is_valid=False), VerifyResult(is_valid=False)]
    assert check(verifier, "changes@r.org", "after").is_valid
    assert check(verifier, "goes@r.org", "before").detail == UNKNOWN_USER


def test_a_file_that_cannot_be_used_any_more_is_no_answer(path: Path) -> None:
    verifier = write(path, {"alice": "x"})
    proof = check(verifier, "alice", "x").proof
    assert proof is not None
    path.write_bytes(b"garbage")
    for question in (CheckPassword(user="alice", password=Secret("x")), Recheck(proof=proof)):
        answer = verifier.verify(question)
        assert isinstance(answer, VerifyResult)
        assert (answer.is_valid, answer.is_compared) == (False, False)
    assert not check(verifier, "alice", "x").is_valid
    write(path, {"alice": "y"})
    assert check(verifier, "alice", "y").is_valid
    token = verifier.verify(CheckToken(token=Secret("t")))
    assert isinstance(token, VerifyResult)
    assert not token.is_compared


def test_the_realm_of_the_host(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As saslpasswd2 has it: with the domain, in lower case. A resolver that is away locks nobody out for good."""
    path.touch(0o600)
    path.write_bytes(berkeley({key_of("alice", "big.example.com"): b"x", key_of("bob", "big"): b"x"}))
    verifier = SasldbVerifier(str(path))
    monkeypatch.setattr(socket, "gethostname", lambda: "Big")

    def away(*_: object, **__: object) -> object:
        raise socket.gaierror(socket.EAI_AGAIN, "away")

    monkeypatch.setattr(socket, "getaddrinfo", away)
    assert check(verifier, "bob", "x").is_valid
    assert not check(verifier, "alice", "x").is_valid
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [(0, 0, 0, "Big.Example.COM", ("", 0))])
    assert check(verifier, "alice", "x").is_valid
    monkeypatch.setattr(socket, "getaddrinfo", away)
    assert check(verifier, "alice", "x").is_valid
    monkeypatch.setattr(socket, "gethostname", lambda: "Big.Example.COM")
    assert check(SasldbVerifier(str(path)), "alice", "x").is_valid


def test_a_file_that_is_being_written_is_read_until_it_stays_the_same(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = berkeley({key_of("alice"): b"x", key_of("bob"): b"x"})
    path.touch(0o600)
    path.write_bytes(whole[:1024])
    monkeypatch.setattr(sasldb, "_LOOK_AGAIN_S", 0.0001)
    verifier = SasldbVerifier(str(path), realm="example.com")
    states = iter([whole[:1024], whole, whole])
    monkeypatch.setattr(sasldb, "read_private", lambda _path: next(states))
    assert check(verifier, "bob", "x").is_valid


@pytest.mark.parametrize(("mode", "says"), [(0o644, "chmod 600"), (0o660, "chmod 600"), (0o602, "chmod 600")])
def test_a_file_that_others_get_at_is_refused(path: Path, mode: int, says: str) -> None:
    write(path, {"alice": "x"})
    path.chmod(mode)
    with pytest.raises(UserFileError, match=says):
        SasldbVerifier(str(path))


def test_a_file_of_somebody_else_is_refused(path: Path) -> None:
    write(path, {"alice": "x"})
    if os.geteuid() != 0:
        pytest.skip("only root can give a file away")
    os.chown(path, 12345, -1)
    with pytest.raises(UserFileError, match="belongs to uid 12345"):
        SasldbVerifier(str(path))


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo", 0o600)
    (tmp_path / "huge").touch(0o600)
    os.truncate(tmp_path / "huge", 1 << 30)
    for name in ("fifo", "huge", "none", "."):
        with pytest.raises(UserFileError, match="cannot be read"):
            SasldbVerifier(str(tmp_path / name))
    assert stat.S_ISFIFO((tmp_path / "fifo").stat().st_mode)


def test_scram_does_not_tell_which_users_there_are(path: Path) -> None:
    verifier = write(path, {"alice": "x", "prohibited": "a\u0007b"})
    for nobody in ("mallory", "prohibited"):
        made_up = keys_of(verifier, nobody)
        assert not made_up.is_known
        assert made_up.proof is None
        assert made_up == keys_of(verifier, nobody)
        assert (len(made_up.salt), made_up.iterations) == (16, keys_of(verifier, "alice").iterations)
    assert isinstance(log_in(verifier, "mallory", "x"), Refused)
    assert isinstance(log_in(verifier, "alice", "y"), Refused)
    assert check(verifier, "prohibited", "a\u0007b").is_valid


def test_unknown_users_take_as_long_as_known_ones(path: Path) -> None:
    verifier = write(path, {"alice": "x"})

    def milliseconds(user: str) -> float:
        started = time.thread_time()
        keys_of(verifier, user, "SHA-512")
        return (time.thread_time() - started) * 1000

    known = statistics.median(milliseconds("alice") for _ in range(15))
    unknown = statistics.median(milliseconds(f"mallory{number}") for number in range(15))
    assert 0.5 < unknown / known < 2


def test_the_password_and_nothing_else_lets_in(path: Path) -> None:
    verifier = write(path, {"alice": "x"})
    assert check(verifier, "alice", "y") == VerifyResult(is_valid=False, detail=WRONG_PASSWORD)
    assert check(verifier, "mallory", "x") == VerifyResult(is_valid=False, detail=UNKNOWN_USER)
    for nearly in ("", "X", "x ", "xx", "\ud800"):
        assert check(verifier, "alice", nearly).is_valid is False


def test_who_is_let_in_has_a_proof_of_this_authenticator(path: Path) -> None:
    write(path, {"alice": "x", "bob": "x"})
    verifier = SasldbVerifier(str(path), "staff", "example.com")
    assert verifier.name == "staff"
    alice, bob = check(verifier, "alice", "x").proof, check(verifier, "bob", "x").proof
    assert alice is not None
    assert bob is not None
    assert (alice.verifier, alice.user) == ("staff", "alice")
    assert alice.value != bob.value, "the same password says nothing of another user"
    assert keys_of(verifier, "alice").proof == alice
    assert check(SasldbVerifier(str(path), "staff", "example.com"), "alice", "x").proof != alice, "of another process"


def test_a_proof_holds_as_long_as_the_password(path: Path) -> None:
    verifier = write(path, {"alice": "x", "bob": "y"})
    proofs = [check(verifier, user, password).proof for user, password in (("alice", "x"), ("bob", "y"))]
    write(path, {"alice": "x", "bob": "z", "eve": "x"})
    answers = [verifier.verify(Recheck(proof=proof)) for proof in proofs if proof is not None]
    assert answers == [VerifyResult(is_valid=True), VerifyResult(is_valid=False)]


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-1", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_password_serves_scram_on_both_sides(path: Path, mechanism: str) -> None:
    """The client verifies the router's signature, too."""
    verifier = write(path, {"alice": "x"})
    assert isinstance(log_in(verifier, "alice", "x", mechanism), Accepted)
    assert isinstance(log_in(verifier, "alice", "y", mechanism), Refused)


def test_users_may_be_named_with_their_realm_or_without(path: Path) -> None:
    verifier = write(path, {"alice": "x"})
    assert check(verifier, "alice@example.com", "x").is_valid
    for other in ("alice@", "alice@other.com", "alice@example.com@example.com", "alice@EXAMPLE.COM"):
        assert check(verifier, other, "x").detail == UNKNOWN_USER


def test_what_is_no_text_is_nobodys_name(path: Path) -> None:
    verifier = write(path, {"alice": "x"})
    for name in ("\ud800", "alice@\ud800"):
        assert check(verifier, name, "x").detail == UNKNOWN_USER
        assert keys_of(verifier, name).is_known is False


def test_what_is_wrong_with_a_file_is_said_with_its_path(path: Path) -> None:
    verifier = write(path, {"alice": "x"})
    path.write_bytes(b"garbage")
    why = f"{path}: neither a hash of Berkeley DB nor of GDBM"
    assert check(verifier, "alice", "x") == unavailable(why)
    with pytest.raises(UserFileError) as caught:
        SasldbVerifier(str(path))
    assert str(caught.value) == why
    path.unlink()
    assert check(verifier, "alice", "x") == unavailable(f"{path}: cannot be read: No such file or directory")
    assert verifier.verify(CheckToken(token=Secret("t"))) == unavailable("a sasldb holds passwords only")


def test_each_name_has_its_own_salt(path: Path) -> None:
    """Attack: one table of guesses for all users; and to know who is made up by a salt that others have, too."""
    verifier = write(path, {"alice": "x", "bob": "x"})
    names = ("alice", "bob", "mallory", "eve")
    keys = {name: keys_of(verifier, name) for name in names}
    assert len({each.salt for each in keys.values()}) == len(names)
    assert len({each.stored_key for each in keys.values()}) == len(names)
    assert {(len(each.salt), each.iterations) for each in keys.values()} == {(16, 4096)}
    assert [each.is_known for each in keys.values()] == [True, True, False, False]
    assert verifier.verify(FetchScramKeys(user="alice", hash_name="SHA-256")) == keys["alice"], "twice the same"


def test_the_file_is_read_again_only_where_it_is_another(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    verifier = write(path, {"alice": "x"})
    assert check(verifier, "alice", "x").is_valid
    with monkeypatch.context() as patched:
        patched.setattr(sasldb, "read_private", lambda _path: pytest.fail("read again"))
        assert check(verifier, "alice", "x").is_valid
    path.chmod(0o400)
    assert check(verifier, "alice", "x").is_valid


def test_a_file_that_others_get_at_later_serves_nobody(path: Path) -> None:
    """Attack: hashes of everybody, read or replaced by somebody else since the start."""
    verifier = write(path, {"alice": "x"})
    assert check(verifier, "alice", "x").is_valid
    path.chmod(0o666)
    result = check(verifier, "alice", "x")
    assert (result.is_valid, result.is_compared) == (False, False)


class Looks:
    """The looks at a file: what it has each time, and how long ago it was written."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, contents: list[bytes], age_s: float) -> None:
        self.contents = iter(contents)
        self.looks = 0
        self.slept: list[float] = []
        monkeypatch.setattr(sasldb, "read_private", self._look)
        monkeypatch.setattr(sasldb, "fingerprint", lambda _path: (1, 2, 3, 10**18))
        monkeypatch.setattr("auth.verifiers.sasldb.time.time_ns", lambda: 10**18 + round(age_s * 1e9))

    def _look(self, _path: str) -> bytes:
        self.looks += 1
        return next(self.contents)

    def settled(self) -> bytes:
        return sasldb._settled("users", self.slept.append)


@pytest.mark.parametrize(
    ("contents", "age_s", "found", "looks"),
    [
        (["a", "b", "c", "c", "d"], 0.0, "c", 4),
        (["a", "a", "b"], 0.499, "a", 2),
        (["a", "b"], 0.5, "a", 1),
        (["a", "b"], 3600.0, "a", 1),
        (["a", "b"], -1.0, "a", 1),  # by a clock that was set back
        ([str(number) for number in range(20)], 0.1, "10", 11),  # somebody writes all the time: half a second
    ],
)
def test_what_was_just_written_is_looked_at_until_it_stays(
    monkeypatch: pytest.MonkeyPatch, contents: list[str], age_s: float, found: str, looks: int
) -> None:
    asked = Looks(monkeypatch, [text.encode() for text in contents], age_s)
    assert asked.settled() == found.encode()
    assert (asked.looks, asked.slept) == (looks, [0.05] * (looks - 1))


def test_the_hosts_realm_is_its_name_with_the_domain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "Big")
    asked: list[object] = []

    def resolve(name: str, port: object, *, flags: int) -> object:
        asked.append((name, port, flags))
        return [(0, 0, 0, canonical, ("", 0)), (0, 0, 0, "other.example", ("", 0))]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    canonical = "Big.Example.COM"
    assert host_realm() == ("big.example.com", True)
    canonical = ""
    assert host_realm() == ("big", True)
    assert asked == [("Big", None, socket.AI_CANONNAME)] * 2
    for fault in (OSError("away"), UnicodeError("label too long")):
        with monkeypatch.context() as patched:

            def fail(*_: object, fault: Exception = fault, **__: object) -> object:
                raise fault

            patched.setattr(socket, "getaddrinfo", fail)
            assert host_realm() == ("big", False)
    monkeypatch.setattr(socket, "gethostname", lambda: "Big.Example.ORG")
    assert host_realm() == ("big.example.org", True)
    assert len(asked) == 2, "a name with its domain is looked up by nobody"


def test_nothing_that_it_prints_has_a_password(path: Path) -> None:
    verifier = write(path, {"alice": "pa55word"})
    answers = (check(verifier, "alice", "pa55word"), keys_of(verifier, "alice"), verifier)
    assert "pa55word" not in repr(answers)
    assert "pa55word" not in repr(read_passwords(path.read_bytes()))
