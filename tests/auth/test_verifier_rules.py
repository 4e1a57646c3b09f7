"""What files of users, and answers that are remembered, decide: the edges, the proofs and the words."""

import os
import tempfile
from pathlib import Path
from typing import Any

import pytest
from cryptography.exceptions import UnsupportedAlgorithm

from auth.credentials import (
    MAX_PASSWORD_BYTES,
    MAX_USER_BYTES,
    WRONG_PASSWORD,
    CheckPassword,
    CheckTicket,
    CheckToken,
    FetchGroups,
    FetchScramKeys,
    Recheck,
    ScramKeys,
    VerifyResult,
    unavailable,
)
from auth.identity import Proof
from auth.secrets import Secret
from auth.verifiers import cache as cache_module
from auth.verifiers import files as files_module
from auth.verifiers.cache import CachedVerifier
from auth.verifiers.files import (
    UserFile,
    UserFileError,
    UserFileVerifier,
    check_user,
    parse_users,
    remove_user,
    set_user,
)
from auth.verifiers.hashes import (
    MAX_MEMORY_KIB,
    MAX_PASSES,
    Argon2idCost,
    Cost,
    HashError,
    ScryptCost,
    check_hash,
    hash_password,
    verify_hash,
)
from auth.verifiers.sasl_config import SaslConfigError, load_sasl_config
from auth.verifiers.scram_keys import make_scram_keys
from auth.verifiers.verifier import mechanism_of

CHEAP = Argon2idCost(memory_kib=8, iterations=1, lanes=1)


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A file with alice, whose password is `wonderland`, and who has keys for SCRAM-SHA-256."""
    path = str(tmp_path / "users")
    set_user(path, "alice", Secret("wonderland"), cost=CHEAP, scram=("SHA-256",), must_exist=False)
    return path


def login(verifier: UserFileVerifier, password: str = "wonderland", user: str = "alice") -> VerifyResult:
    return verifier.verify(CheckPassword(user=user, password=Secret(password)))


def keys_of(verifier: UserFileVerifier, user: str, hash_name: str = "SHA-256") -> ScramKeys:
    keys = verifier.verify(FetchScramKeys(user=user, hash_name=hash_name))
    assert isinstance(keys, ScramKeys)
    return keys


def rewrite(path: str, text: str) -> None:
    """Another file in its place."""
    other = Path(f"{path}.new")
    other.write_text(text)
    other.chmod(0o600)
    os.replace(other, path)


# Files of users


def test_who_logs_in_has_a_proof_that_holds_as_long_as_the_entry(path: str) -> None:
    verifier = UserFileVerifier(path, "staff")
    result = login(verifier)
    assert result.is_valid is True
    proof = result.proof
    assert proof is not None
    assert (proof.verifier, proof.user) == ("staff", "alice")
    assert keys_of(verifier, "alice").proof == proof
    assert verifier.verify(Recheck(proof=proof)) == VerifyResult(is_valid=True)
    set_user(path, "bob", Secret("builder"), cost=CHEAP)
    assert verifier.verify(Recheck(proof=proof)) == VerifyResult(is_valid=True)
    set_user(path, "alice", Secret("wonderland"), cost=CHEAP)
    assert verifier.verify(Recheck(proof=proof)) == VerifyResult(is_valid=False), "another hash, another proof"
    second = login(verifier).proof
    assert second is not None
    assert second != proof
    remove_user(path, "alice")
    assert verifier.verify(Recheck(proof=second)) == VerifyResult(is_valid=False)


def test_who_is_refused_has_no_proof(path: str) -> None:
    verifier = UserFileVerifier(path)
    assert login(verifier, "wrong") == VerifyResult(is_valid=False, detail=WRONG_PASSWORD)
    assert login(verifier, user="mallory").proof is None
    assert keys_of(verifier, "mallory").proof is None


def test_a_verifier_of_files_answers_only_what_it_can(path: str) -> None:
    answer = UserFileVerifier(path).verify(CheckToken(token=Secret("t")))
    assert answer == unavailable("a file of users holds passwords only")


def test_decoys_stay_the_same_when_the_file_changes(path: str) -> None:
    """Attack: to ask for a name before and after a change, and know by other keys that it is made up."""
    verifier = UserFileVerifier(path)
    before = keys_of(verifier, "mallory")
    text = Path(path).read_text()
    set_user(path, "bob", Secret("builder"), cost=CHEAP)
    rewrite(path, "\n".join([*reversed(Path(path).read_text().splitlines())]) + "\n")
    assert not Path(path).read_text().startswith(text)
    assert keys_of(verifier, "mallory") == before
    assert not before.is_known


def test_decoys_are_of_the_file_and_of_nothing_else(path: str, tmp_path: Path) -> None:
    """The same after a restart; others for another file, though it be empty."""
    first = keys_of(UserFileVerifier(path), "mallory")
    assert keys_of(UserFileVerifier(path), "mallory") == first
    other = str(tmp_path / "other")
    set_user(other, "alice", Secret("wonderland"), cost=CHEAP, scram=("SHA-256",), must_exist=False)
    assert keys_of(UserFileVerifier(other), "mallory").salt != first.salt
    seeded = UserFile(parse_users(Path(path).read_text(), path), seed=b"s" * 32)
    assert seeded.seed == b"s" * 32
    assert UserFile.load(path, b"s" * 32).seed == b"s" * 32


def test_keys_of_a_hash_that_nobody_has_are_made_up(path: str) -> None:
    keys = keys_of(UserFileVerifier(path), "alice", "SHA-512")
    assert not keys.is_known
    assert UserFile({}).scram_keys("alice", "SHA-256").is_known is False


@pytest.mark.parametrize(("password", "is_valid"), [("x" * MAX_PASSWORD_BYTES, True), ("y", True), ("", False)])
def test_the_shortest_and_the_longest_password(path: str, password: str, is_valid: bool) -> None:
    if is_valid:
        set_user(path, "alice", Secret(password), cost=CHEAP)
    assert login(UserFileVerifier(path), password).is_valid is is_valid


@pytest.mark.parametrize("password", ["", "x" * (MAX_PASSWORD_BYTES + 1)])
def test_a_password_of_no_length_is_hashed_by_nobody(path: str, password: str, monkeypatch: pytest.MonkeyPatch) -> None:
    users = UserFile.load(path)
    monkeypatch.setattr(files_module, "verify_hash", lambda *_: pytest.fail("hashed"))
    assert users.verify("alice", Secret(password)) == VerifyResult(is_valid=False, detail=WRONG_PASSWORD)
    with pytest.raises(UserFileError, match=f"users: a password must have 1 to {MAX_PASSWORD_BYTES} bytes"):
        set_user(path, "alice", Secret(password), cost=CHEAP)


def test_a_hash_that_cannot_be_computed_lets_nobody_in(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    users = UserFile.load(path)

    def fail(_password: Secret, _phc: str) -> bool:
        raise HashError("no memory for it")

    monkeypatch.setattr(files_module, "verify_hash", fail)
    refused = VerifyResult(is_valid=False, detail="SASL(-1): generic failure: no memory for it")
    assert users.verify("alice", Secret("wonderland")) == refused


def test_a_user_name_may_have_so_many_bytes() -> None:
    check_user("é" * (MAX_USER_BYTES // 2), "users:1")
    with pytest.raises(UserFileError, match=f"users:1: a user name of more than {MAX_USER_BYTES} bytes"):
        check_user("é" * (MAX_USER_BYTES // 2) + "x", "users:1")


def test_what_is_wrong_in_a_file_is_named_with_its_place(path: str) -> None:
    entry = Path(path).read_text().strip()
    for keys in (entry.split()[1], make_scram_keys(Secret("another"), "SHA-256")):
        with pytest.raises(UserFileError, match=r"^users:1: SCRAM keys of one hash twice$"):
            parse_users(f"{entry} {keys}", "users")
    both = f"{entry} {make_scram_keys(Secret('wonderland'), 'SHA-512')}"
    assert UserFile(parse_users(both, "users")).scram_hashes == ("SHA-512", "SHA-256")
    with pytest.raises(UserFileError, match=r"^users:2: user 'alice' appears twice$"):
        parse_users(f"{entry}\n{entry}", "users")
    rewrite(path, f"{entry}\nbob\n")
    with pytest.raises(UserFileError, match=f"^{path}:2: expected user:hash$"):
        UserFile.load(path)
    with pytest.raises(UserFileError) as caught:
        parse_users("alice:", "users")
    assert str(caught.value).startswith("users:1: ")
    assert "XX" not in str(caught.value)


def test_too_many_costs_name_the_remedy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(files_module, "MAX_COSTS", 1)
    path = str(tmp_path / "users")
    set_user(path, "alice", Secret("a"), cost=CHEAP, must_exist=False)
    set_user(path, "bob", Secret("b"), cost=Argon2idCost(memory_kib=16, iterations=1, lanes=1))
    with pytest.raises(UserFileError) as caught:
        UserFile.load(path)
    assert str(caught.value) == (
        f"{path}:2: a hash of one more cost, and a file has 1 different ones at most, since every "
        "login computes one of each: take this line out and set the user's password anew with qdpasswd"
    )


def test_a_file_has_to_be_there_unless_it_is_begun(tmp_path: Path) -> None:
    path = str(tmp_path / "users")
    with pytest.raises(UserFileError, match=f"{path}: cannot be read"):
        set_user(path, "alice", Secret("a"), cost=CHEAP)
    with pytest.raises(UserFileError, match=f"^{path}: a user name must be printable"):
        set_user(path, "a:b", Secret("a"), cost=CHEAP, must_exist=False)


def test_what_is_no_text_is_named_with_its_line(path: str) -> None:
    for text in (b"# one\n# two\n\xff\n# four\n", b"\n\n\xff\n\n\n"):
        Path(path).write_bytes(text)
        with pytest.raises(UserFileError, match=f"^{path}:3: "):
            UserFile.load(path)


def test_a_file_that_is_gone_refuses_everybody_and_says_why(path: str) -> None:
    verifier = UserFileVerifier(path)
    os.unlink(path)
    assert login(verifier) == unavailable(f"{path}: cannot be read: No such file or directory")


def test_a_broken_file_is_not_changed(path: str) -> None:
    rewrite(path, "bob\n")
    with pytest.raises(UserFileError, match=f"^{path}:1: expected user:hash$"):
        set_user(path, "alice", Secret("a"), cost=CHEAP)
    with pytest.raises(UserFileError, match=f"^{path}:1: expected user:hash$"):
        remove_user(path, "bob")
    assert Path(path).read_text() == "bob\n"


@pytest.mark.parametrize(("owner", "process", "is_safe"), [(0, 1, True), (1, 1, True), (1, 0, False), (2, 1, False)])
def test_the_file_is_roots_or_the_process_own(
    path: str, monkeypatch: pytest.MonkeyPatch, owner: int, process: int, is_safe: bool
) -> None:
    found = list(os.stat(path))
    found[4] = owner
    monkeypatch.setattr(os, "geteuid", lambda: process)
    if is_safe:
        files_module._check_status(path, os.stat_result(found))
    else:
        with pytest.raises(UserFileError, match=path):
            files_module._check_status(path, os.stat_result(found))


@pytest.mark.parametrize(
    ("memory", "passes", "lanes", "is_sound"),
    [
        (8, 1, 1, True),
        (7, 1, 1, False),
        (128, 1, 16, True),
        (127, 1, 16, False),
        (MAX_MEMORY_KIB, 1, 17, False),
        (8, 1, 0, False),
        (8, 0, 1, False),
        (MAX_MEMORY_KIB, MAX_PASSES, 1, True),
        (MAX_MEMORY_KIB + 1, 1, 1, False),
        (8, MAX_PASSES + 1, 1, False),
    ],
)
def test_what_a_hash_may_cost(memory: int, passes: int, lanes: int, is_sound: bool) -> None:
    digest = "85ajv7Gfw/TRgtjW+A556Q$p7Qg62P4E5UWCyOJPksa2iLXN6qmeNrNrrjr0Bt2Qfo"
    phc = f"$argon2id$v=19$m={memory},t={passes},p={lanes}${digest}"
    if is_sound:
        assert check_hash(phc) == Argon2idCost(memory_kib=memory, iterations=passes, lanes=lanes)
        return
    with pytest.raises(HashError) as caught:
        check_hash(phc)
    assert str(caught.value) == (f"a hash that costs too much: at most {MAX_MEMORY_KIB} KiB and {MAX_PASSES} passes")


@pytest.mark.parametrize(
    ("log2_n", "r", "p", "is_sound"),
    [
        (1, 1, 1, True),
        (0, 1, 1, False),
        (15, 1, 1, True),
        (16, 1, 1, False),
        (18, 8, MAX_PASSES, True),
        (18, 9, 1, False),
        (1, 1, 0, False),
        (1, 1, MAX_PASSES + 1, False),
    ],
)
def test_what_an_scrypt_hash_may_cost(log2_n: int, r: int, p: int, is_sound: bool) -> None:
    """128 r N bytes: with r 8 and 2 ** 18 they are MAX_MEMORY_KIB."""
    phc = f"$scrypt$ln={log2_n},r={r},p={p}$c2FsdHNhbHRzYWx0MTIzNA$f+YS/+XqLDiWNbAewDvvj9PGQq73qDlYT6dcl53BXo4"
    if is_sound:
        assert check_hash(phc) == ScryptCost(log2_n=log2_n, r=r, p=p)
    else:
        with pytest.raises(HashError, match="costs too much"):
            check_hash(phc)


@pytest.mark.parametrize("cost", [CHEAP, ScryptCost(log2_n=4, r=1, p=1)])
def test_what_is_no_text_is_the_password_of_nobody(cost: Cost) -> None:
    assert verify_hash(Secret("\ud800"), hash_password(Secret("wonderland"), cost)) is False


def test_a_hash_whose_parts_are_not_base64_is_named() -> None:
    phc = hash_password(Secret("wonderland"), CHEAP)
    with pytest.raises(HashError, match=r"^a hash whose salt or digest is not base64$"):
        check_hash(phc[:-2])


def test_without_argon2id_another_hash_is_proposed(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(**_parameters: Any) -> None:
        raise UnsupportedAlgorithm("none")

    monkeypatch.setattr("auth.verifiers.hashes.Argon2id", missing)
    with pytest.raises(HashError, match=r"^this build of the cryptography package has no Argon2id; use scrypt$"):
        hash_password(Secret("wonderland"), CHEAP)


def test_a_changed_file_keeps_its_owner_and_is_written_beside_it(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Attack: hashes in a folder that is everybody's; and a service that cannot read its users any more."""
    folders: list[Any] = []
    owners: list[tuple[int, ...]] = []
    make = tempfile.mkstemp

    def mkstemp(**where: Any) -> tuple[int, str]:
        folders.append((where["dir"], where["prefix"]))
        return make(**where)

    monkeypatch.setattr(tempfile, "mkstemp", mkstemp)
    monkeypatch.setattr(os, "fchown", lambda file, *owner: owners.append(owner) if os.fstat(file) else None)
    set_user(path, "alice", Secret("a"), cost=CHEAP)
    assert folders == [(Path(path).parent, ".users.")]
    assert owners == [], "it is the process' own"
    status = os.stat(path)
    monkeypatch.setattr(os, "geteuid", lambda: status.st_uid + 1)
    files_module._replace(path, ["# nobody"])
    assert owners == [(status.st_uid, status.st_gid)]
    assert os.listdir(Path(path).parent) == ["users"]


# The SASL configuration's place


@pytest.mark.parametrize("name", ["", "a/b", "/etc/passwd", "../sasl"])
def test_a_sasl_configuration_lies_in_its_folder(name: str, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "b.conf").write_text("mech_list: ANONYMOUS\n")
    with pytest.raises(SaslConfigError) as caught:
        load_sasl_config(str(tmp_path), name, environment={})
    assert str(caught.value) == (f"saslConfigName '{name}': expected a file name without folder and without .conf")


def test_a_folder_that_is_configured_is_one_and_that_of_the_environment_may_be_several(tmp_path: Path) -> None:
    """Attack: a colon in its name leads to the configuration of another folder."""
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "qdrouterd.conf").write_text("mech_list: ANONYMOUS\n")
    both = f"{tmp_path}/none:{tmp_path}/a"
    with pytest.raises(SaslConfigError, match="no SASL configuration"):
        load_sasl_config(both, environment={})
    found = load_sasl_config(None, environment={"PN_SASL_CONFIG_PATH": both})
    assert found == load_sasl_config(f"{tmp_path}/a", environment={})


def test_a_sasl_configuration_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "qdrouterd.conf").mkdir()
    with pytest.raises(SaslConfigError, match=f"^{tmp_path}/qdrouterd.conf: "):
        load_sasl_config(str(tmp_path), environment={})


def test_a_sasl_configuration_may_hold_any_bytes(tmp_path: Path) -> None:
    (tmp_path / "qdrouterd.conf").write_bytes(b"# \xff\nmech_list: ANONYMOUS\n")
    assert load_sasl_config(str(tmp_path), environment={}).mechanisms == ("ANONYMOUS",)


# Answers that are remembered


class Directory:
    """A verifier that gives the answers it is told to, and counts its questions."""

    name, mechanisms, threads = "directory", ("PLAIN",), 1

    def __init__(self) -> None:
        self.answers: dict[type, Any] = {}
        self.asked: list[Any] = []
        self.say: Any = None

    def verify(self, request: Any) -> Any:
        self.asked.append(request)
        return self.answers[type(request)]

    def announce_by(self, say: Any) -> None:
        self.say = say

    def close(self) -> None:
        pass


VALID = VerifyResult(is_valid=True, groups=("staff",))
INVALID = VerifyResult(is_valid=False, detail=WRONG_PASSWORD)
PASSWORD = CheckPassword(user="alice", password=Secret("wonderland"))
GROUPS = FetchGroups(user="alice")
RECHECK = Recheck(proof=Proof(verifier="directory", user="alice", value="1"))


def remembering(directory: Directory, seconds: float = 10.0, **more: Any) -> CachedVerifier:
    return CachedVerifier(directory, **{"seconds": seconds, "refused_seconds": 1.0, "clock": lambda: 0.0, **more})


@pytest.mark.parametrize(("answer", "is_forgotten"), [(INVALID, True), (VALID, False), (unavailable("down"), False)])
def test_only_who_is_known_to_hold_no_more_is_forgotten(answer: VerifyResult, is_forgotten: bool) -> None:
    """An outage says nothing of a password: nobody has to log in anew at the directory that is down."""
    directory = Directory()
    directory.answers = {CheckPassword: VALID, Recheck: answer}
    cached = remembering(directory)
    cached.verify(PASSWORD)
    assert cached.verify(RECHECK) == answer
    cached.verify(PASSWORD)
    assert directory.asked == [PASSWORD, RECHECK, *([PASSWORD] if is_forgotten else [])]


def test_other_questions_are_passed_on_as_they_are() -> None:
    directory = Directory()
    token = CheckToken(token=Secret("t"))
    directory.answers = {CheckToken: VALID}
    cached = remembering(directory)
    assert cached.verify(token) == VALID
    assert cached.verify(token) == VALID
    assert directory.asked == [token, token]


def test_what_a_verifier_has_to_say_is_said() -> None:
    directory = Directory()
    said: list[str] = []
    remembering(directory).announce_by(said.append)
    directory.say("down")
    assert said == ["down"]


@pytest.mark.parametrize(("seconds", "asks"), [(0, 2), (0.5, 1), (1, 1)])
def test_answers_last_as_long_as_was_said(seconds: float, asks: int) -> None:
    directory = Directory()
    directory.answers = {CheckPassword: VALID}
    cached = remembering(directory, seconds)
    for _ in range(2):
        assert cached.verify(PASSWORD) == VALID
    assert len(directory.asked) == asks
    assert len(cached._good._entries) == (seconds > 0)


def test_no_more_answers_are_remembered_than_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_module, "MAX_ENTRIES", 2)
    directory = Directory()
    directory.answers = {CheckPassword: VALID}
    cached = remembering(directory)
    requests = [CheckPassword(user=user, password=Secret("p")) for user in ("ann", "bob", "eve")]
    for request in requests:
        cached.verify(request)
    assert len(cached._good._entries) == 2
    for request in reversed(requests):
        cached.verify(request)
    assert directory.asked == [*requests, requests[0]], "the oldest made way"


def test_an_answer_that_is_given_anew_is_the_youngest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_module, "MAX_ENTRIES", 2)
    answers = cache_module._Answers(10.0)
    ann, bob, eve = ("ann", b""), ("bob", b""), ("eve", b"")
    for key in (ann, bob, ann, eve):
        answers.put(key, VALID, 0.0)
    assert [answers.get(key, 1.0) is not None for key in (ann, bob, eve)] == [True, False, True]
    answers = cache_module._Answers(10.0)
    for key in (ann, bob, bob):
        answers.put(key, VALID, 0.0)
    assert answers.get(ann, 1.0) is not None, "nobody has to make way for it"


def test_groups_are_no_password_and_no_password_is_a_groups_question() -> None:
    """Attack: a password by whose bytes the question for groups is known."""
    directory = Directory()
    directory.answers = {CheckPassword: INVALID, FetchGroups: VALID}
    cached = remembering(directory)
    assert cached.verify(GROUPS) == VALID
    for text in ("groups", "", "password:", "\ud800"):
        assert cached.verify(CheckPassword(user="alice", password=Secret(text))) == INVALID


def test_what_is_remembered_of_a_password_is_keyed_anew_in_each_process() -> None:
    """Attack: to guess at passwords with what is found in a memory image, by tables made beforehand."""
    first, second = remembering(Directory()), remembering(Directory())
    assert first._key(PASSWORD) == first._key(PASSWORD)
    assert first._key(PASSWORD) != second._key(PASSWORD)
    assert len(first._key(PASSWORD)[1]) == 32


# Who is asked


@pytest.mark.parametrize(
    ("request_", "mechanism"),
    [
        (PASSWORD, "PLAIN"),
        (FetchScramKeys(user="alice", hash_name="SHA-256"), "SCRAM-SHA-256"),
        (CheckToken(token=Secret("t")), "OAUTHBEARER"),
        (CheckTicket(token=b"t"), "GSSAPI"),
        (GROUPS, "EXTERNAL"),
    ],
)
def test_a_question_goes_to_who_serves_its_mechanism(request_: Any, mechanism: str) -> None:
    assert mechanism_of(request_) == mechanism
