"""User files, the hashes in them, and qdpasswd. Hashes are cheap here: the cost is an argument."""

import io
import os
import stat
import sys
from pathlib import Path
from typing import Any

import pytest

from auth.credentials import MAX_PASSWORD_BYTES, UNKNOWN_USER, WRONG_PASSWORD, CheckPassword, FetchScramKeys, ScramKeys
from auth.secrets import Secret
from auth.verifiers import disks, files, qdpasswd
from auth.verifiers.disks import never_waits
from auth.verifiers.files import UserFile, UserFileError, UserFileVerifier, parse_users, remove_user, set_user
from auth.verifiers.hashes import (
    Argon2idCost,
    Cost,
    HashError,
    ScryptCost,
    check_hash,
    decoy_hash,
    hash_password,
    verify_hash,
)

CHEAP = Argon2idCost(memory_kib=8, iterations=1, lanes=1)
COSTS: list[Cost] = [CHEAP, ScryptCost(log2_n=4, r=1, p=1)]


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A file with alice, whose password is `wonderland`."""
    path = str(tmp_path / "users")
    set_user(path, "alice", Secret("wonderland"), cost=CHEAP, must_exist=False)
    return path


# Hashes -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cost", COSTS)
@pytest.mark.parametrize("password", ["p", "ünï ☃", "x" * MAX_PASSWORD_BYTES])
def test_a_hash_fits_its_password_and_no_other(cost: Cost, password: str) -> None:
    phc = hash_password(Secret(password), cost)
    assert password not in phc or len(password) == 1
    assert check_hash(phc) == cost
    assert verify_hash(Secret(password), phc)
    assert not verify_hash(Secret(password + "x"), phc)
    assert hash_password(Secret(password), cost) != phc


def test_the_default_cost_is_what_owasp_recommends() -> None:
    assert Argon2idCost() == Argon2idCost(memory_kib=19 * 1024, iterations=2, lanes=1)


@pytest.mark.parametrize(
    "phc",
    [
        "$argon2id$v=19$m=64,t=1,p=2$85ajv7Gfw/TRgtjW+A556Q$p7Qg62P4E5UWCyOJPksa2iLXN6qmeNrNrrjr0Bt2Qfo",
        "$scrypt$ln=4,r=8,p=1$c2FsdHNhbHRzYWx0MTIzNA$f+YS/+XqLDiWNbAewDvvj9PGQq73qDlYT6dcl53BXo4",
    ],
    ids=["argon2-cffi", "hashlib"],
)
def test_hashes_of_other_programs_are_verified(phc: str) -> None:
    assert verify_hash(Secret("wonderland"), phc)
    assert not verify_hash(Secret("Wonderland"), phc)


@pytest.mark.parametrize("cost", COSTS)
def test_a_decoy_costs_the_same_and_fits_nothing(cost: Cost) -> None:
    decoy = decoy_hash(cost)
    assert check_hash(decoy) == cost
    assert not verify_hash(Secret(""), decoy)


@pytest.mark.parametrize(
    "phc",
    [
        "",
        "plain text password",
        "$1$abc$def",
        "$argon2i$v=19$m=8,t=1,p=1$c2FsdHNhbHRzYWx0$c2FsdHNhbHRzYWx0",
        "$argon2id$v=16$m=8,t=1,p=1$c2FsdHNhbHRzYWx0$c2FsdHNhbHRzYWx0",
        "$argon2id$v=19$m=4194304,t=1,p=1$c2FsdHNhbHRzYWx0$c2FsdHNhbHRzYWx0",
        "$argon2id$v=19$m=8,t=999,p=1$c2FsdHNhbHRzYWx0$c2FsdHNhbHRzYWx0",
        "$argon2id$v=19$m=8,t=0,p=1$c2FsdHNhbHRzYWx0$c2FsdHNhbHRzYWx0",
        "$argon2id$v=19$m=8,t=1,p=2$c2FsdHNhbHRzYWx0$c2FsdHNhbHRzYWx0",
        "$argon2id$v=19$m=8,t=1,p=1$c2FsdHNhbHRzYWx0",
        "$argon2id$v=19$m=8,t=1,p=1$$",
        "$scrypt$ln=30,r=8,p=1$c2FsdHNhbHRzYWx0$c2FsdHNhbHRzYWx0",
        "$scrypt$ln=16,r=1,p=1$c2FsdHNhbHRzYWx0$c2FsdHNhbHRzYWx0",
        "$scrypt$ln=0,r=8,p=1$c2FsdHNhbHRzYWx0$c2FsdHNhbHRzYWx0",
        "$scrypt$ln=4,r=0,p=1$c2FsdHNhbHRzYWx0$c2FsdHNhbHRzYWx0",
        "$scrypt$ln=4,r=1,p=1$c2FsdHNhbHRzYWx0a$c2FsdHNhbHRzYWx0",
        "$scrypt$ln=99,r=999,p=1$c2FsdHNhbHRzYWx0$c2FsdHNhbHRzYWx0",
    ],
)
def test_a_hash_that_is_none_or_would_cost_the_machine_is_refused(phc: str) -> None:
    """Attack: one line with gigabytes of memory cost, and any client can exhaust the machine."""
    with pytest.raises(HashError):
        check_hash(phc)
    with pytest.raises(HashError):
        verify_hash(Secret("x"), phc)


# Verifying --------------------------------------------------------------------------------------------------------


def test_the_right_password_is_valid_and_nothing_else_is(path: str) -> None:
    users = UserFile.load(path)
    assert users.verify("alice", Secret("wonderland")).is_valid
    for user, password, detail in [
        ("alice", "Wonderland", WRONG_PASSWORD),
        ("alice", "", WRONG_PASSWORD),
        ("Alice", "wonderland", UNKNOWN_USER),
        ("bob", "wonderland", UNKNOWN_USER),
        ("", "wonderland", UNKNOWN_USER),
    ]:
        result = users.verify(user, Secret(password))
        assert (result.is_valid, result.detail) == (False, detail)


def test_an_unknown_user_costs_one_hash_like_a_known_one(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Attack: tell by the time of the answer which users exist."""
    computed: list[Cost] = []

    def count(password: Secret, phc: str) -> bool:
        computed.append(check_hash(phc))
        return False

    monkeypatch.setattr(files, "verify_hash", count)
    users = UserFile.load(path)
    users.verify("alice", Secret("x"))
    users.verify("nobody", Secret("x"))
    assert computed == [CHEAP, CHEAP]


def test_every_login_costs_one_hash_of_each_cost_in_the_file(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Attack: tell the users whose hash costs more, or less, than that of a name made up."""
    other, third = COSTS[1], Argon2idCost(memory_kib=16, iterations=1, lanes=1)
    set_user(path, "bob", Secret("builder"), cost=other)
    set_user(path, "carol", Secret("singer"), cost=other)
    set_user(path, "dave", Secret("painter"), cost=third)
    computed: list[Cost] = []

    def count(password: Secret, phc: str) -> bool:
        computed.append(check_hash(phc))
        return verify_hash(password, phc)

    monkeypatch.setattr(files, "verify_hash", count)
    users = UserFile.load(path)
    for user, password, is_valid in [
        ("alice", "wonderland", True), ("bob", "builder", True), ("dave", "painter", True), ("carol", "builder", False),
        ("alice", "x", False), ("nobody", "x", False),
    ]:  # fmt: skip
        computed.clear()
        assert users.verify(user, Secret(password)).is_valid == is_valid
        assert computed == [CHEAP, other, third]


def test_a_cost_that_this_machine_cannot_compute_locks_out_its_own_users_only(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_user(path, "bob", Secret("builder"), cost=COSTS[1])

    def without_argon2(password: Secret, phc: str) -> bool:
        if isinstance(check_hash(phc), Argon2idCost):
            raise HashError("this build has no Argon2id")
        return verify_hash(password, phc)

    monkeypatch.setattr(files, "verify_hash", without_argon2)
    users = UserFile.load(path)
    assert users.verify("bob", Secret("builder")).is_valid
    assert not users.verify("bob", Secret("wonderland")).is_valid
    assert "no Argon2id" in users.verify("alice", Secret("wonderland")).detail
    assert users.verify("nobody", Secret("x")).detail == UNKNOWN_USER


def test_a_file_of_many_costs_would_make_each_login_cost_as_many_hashes() -> None:
    lines = [f"u{n}:{decoy_hash(Argon2idCost(memory_kib=64, iterations=n + 1, lanes=1))}" for n in range(9)]
    assert len(UserFile(parse_users("\n".join(lines[:8]), "users")).costs) == 8
    with pytest.raises(UserFileError, match=r"users:9: a hash of one more cost, and a file has 8 different"):
        parse_users("\n".join(lines), "users")


def test_a_password_of_megabytes_is_never_hashed(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(password: Secret, phc: str) -> bool:
        raise AssertionError

    monkeypatch.setattr(files, "verify_hash", never)
    users = UserFile.load(path)
    assert not users.verify("alice", Secret("x" * (MAX_PASSWORD_BYTES + 1))).is_valid
    assert not users.verify("alice", Secret("é" * (MAX_PASSWORD_BYTES // 2 + 1))).is_valid


def test_a_changed_file_counts_at_once(path: str) -> None:
    verifier = UserFileVerifier(path)
    request = CheckPassword(user="bob", password=Secret("builder"))
    assert verifier.verify(request).detail == UNKNOWN_USER
    set_user(path, "bob", Secret("builder"), cost=CHEAP)
    assert verifier.verify(request).is_valid
    remove_user(path, "bob")
    assert verifier.verify(request).detail == UNKNOWN_USER


def test_a_file_that_becomes_unusable_refuses_everybody(path: str) -> None:
    verifier = UserFileVerifier(path)
    request = CheckPassword(user="alice", password=Secret("wonderland"))
    assert verifier.verify(request).is_valid
    Path(path).chmod(0o666)
    refused = verifier.verify(request)
    assert not refused.is_valid
    assert not refused.is_compared
    assert "chmod 600" in refused.detail
    Path(path).unlink()
    assert not verifier.verify(request).is_valid
    set_user(path, "alice", Secret("new"), cost=CHEAP, must_exist=False)
    assert not verifier.verify(request).is_valid
    assert verifier.verify(CheckPassword(user="alice", password=Secret("new"))).is_valid


# The file ---------------------------------------------------------------------------------------------------------

GOOD = decoy_hash(CHEAP)


def test_comments_and_blank_lines_are_skipped() -> None:
    text = f"# users\n\n  # more\nalice:{GOOD}\r\n\talice@example.com:{GOOD} \n"
    assert list(parse_users(text, "users")) == ["alice", "alice@example.com"]


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("alice", "expected user:hash"),
        ("alice hunter2", "expected user:hash"),
        (":HASH", "a user name must be printable"),
        ("a\u202eb:HASH", "a user name must be printable"),
        ("alice :HASH", "a user name must be printable"),
        ("u" * 1025 + ":HASH", "more than 1024 bytes"),
        ("alice:hunter2", "not a hash"),
        ("alice:", "not a hash"),
        ("bob:HASH", "'bob' appears twice"),
    ],
)
def test_a_wrong_line_is_named_but_not_quoted(line: str, says: str) -> None:
    with pytest.raises(UserFileError) as caught:
        parse_users(f"# users\nbob:HASH\n{line}\n".replace("HASH", GOOD), "/etc/users")
    assert str(caught.value).startswith("/etc/users:3: ")
    assert says in str(caught.value)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("mode", [0o604, 0o602, 0o620, 0o644, 0o660, 0o666, 0o777])
def test_a_file_that_others_can_read_or_write_is_refused(path: str, mode: int) -> None:
    Path(path).chmod(mode)
    with pytest.raises(UserFileError, match=f"mode {mode:03o} .*chmod 600 {path}"):
        UserFile.load(path)


@pytest.mark.parametrize("mode", [0o600, 0o400, 0o640, 0o440])
def test_a_private_file_or_one_for_a_group_to_read_is_accepted(path: str, mode: int) -> None:
    Path(path).chmod(mode)
    assert UserFile.load(path).users == ("alice",)


def test_a_file_of_another_user_is_refused(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def of_another(status: Any) -> os.stat_result:
        values = list(status)
        values[stat.ST_UID] = 12345
        return os.stat_result(values)

    status = of_another(os.stat(path))
    monkeypatch.setattr("auth.verifiers.files.os.geteuid", lambda: 54321)
    with pytest.raises(UserFileError, match=r"belongs to uid 12345.*chown 54321"):
        files._check_status(path, status)


def test_what_is_no_text_file_is_refused(path: str, tmp_path: Path) -> None:
    with pytest.raises(UserFileError, match="No such file"):
        UserFile.load(str(tmp_path / "nowhere"))
    with pytest.raises(UserFileError, match="not a regular file"):
        UserFile.load(str(tmp_path))
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo, 0o600)
    with pytest.raises(UserFileError, match="not a regular file"):
        UserFile.load(str(fifo))
    with Path(path).open("ab") as file:
        file.write(b"\xff\n")
    with pytest.raises(UserFileError, match=f"{path}:2: not UTF-8"):
        UserFile.load(path)


def test_a_huge_file_is_refused(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MAX_FILE_BYTES", 10)
    with pytest.raises(UserFileError, match="larger than 10 bytes"):
        UserFile.load(path)


# Changing the file ------------------------------------------------------------------------------------------------


def test_a_new_file_is_private(path: str) -> None:
    assert stat.S_IMODE(Path(path).stat().st_mode) == 0o600


def test_a_change_keeps_everything_else_of_the_file(path: str) -> None:
    before = Path(path).read_text()
    Path(path).write_text(f"# the cast\n{before}\n# the end\n")
    Path(path).chmod(0o640)
    set_user(path, "bob", Secret("builder"), cost=CHEAP)
    set_user(path, "alice", Secret("looking glass"), cost=CHEAP)
    lines = Path(path).read_text().splitlines()
    assert [line.partition(":")[0] for line in lines] == ["# the cast", "alice", "", "# the end", "bob"]
    assert stat.S_IMODE(Path(path).stat().st_mode) == 0o640
    users = UserFile.load(path)
    assert users.verify("alice", Secret("looking glass")).is_valid
    assert users.verify("bob", Secret("builder")).is_valid
    assert list(Path(path).parent.iterdir()) == [Path(path)]


def test_a_change_through_a_link_keeps_the_link(path: str, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(path)
    set_user(str(link), "bob", Secret("builder"), cost=CHEAP)
    assert link.is_symlink()
    assert UserFile.load(path).users == ("alice", "bob")


def test_a_failed_change_leaves_the_file_as_it_was(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before = Path(path).read_bytes()

    def fail(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("auth.verifiers.files.os.fsync", fail)
    with pytest.raises(OSError, match="No space"):
        set_user(path, "bob", Secret("builder"), cost=CHEAP)
    assert Path(path).read_bytes() == before
    assert list(Path(path).parent.iterdir()) == [Path(path)]


@pytest.mark.parametrize(("user", "password"), [("", "p"), ("a:b", "p"), ("#a", "p"), ("a\nb", "p"), ("a", "")])
def test_what_could_never_log_in_is_not_written(path: str, user: str, password: str) -> None:
    before = Path(path).read_bytes()
    with pytest.raises(UserFileError):
        set_user(path, user, Secret(password), cost=CHEAP)
    assert Path(path).read_bytes() == before


# qdpasswd ---------------------------------------------------------------------------------------------------------


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str, stdin: str = "") -> int:
    monkeypatch.setattr(sys, "stdin", io.StringIO(stdin))
    return qdpasswd.main(arguments, cost=CHEAP)


def test_qdpasswd_sets_changes_and_deletes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(tmp_path / "users")
    assert run(monkeypatch, "-f", path, "--stdin", "bob", stdin="builder\n") == 1
    assert "there is no such file" in capsys.readouterr().err
    assert run(monkeypatch, "-f", path, "-c", "--stdin", "bob", stdin="builder\nignored\n") == 0
    assert UserFile.load(path).verify("bob", Secret("builder")).is_valid
    assert run(monkeypatch, "-f", path, "--delete", "bob") == 0
    assert UserFile.load(path).users == ()
    assert run(monkeypatch, "-f", path, "--delete", "bob") == 1
    assert "no user 'bob'" in capsys.readouterr().err


def test_qdpasswd_asks_twice(path: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    answers = iter(["one", "one", "two", "three"])
    monkeypatch.setattr("auth.verifiers.qdpasswd.getpass.getpass", lambda prompt: next(answers))
    terminal = io.StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stdin", terminal)
    assert qdpasswd.main(["-f", path, "bob"], cost=CHEAP) == 0
    assert qdpasswd.main(["-f", path, "bob"], cost=CHEAP) == 1
    assert "differ" in capsys.readouterr().err
    assert UserFile.load(path).verify("bob", Secret("one")).is_valid


def test_qdpasswd_never_takes_the_password_from_its_arguments(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SystemExit) as caught:
        run(monkeypatch, "-f", path, "bob", "builder")
    assert caught.value.code == 2
    assert run(monkeypatch, "-f", path, "bob", stdin="builder\n") == 1


def test_qdpasswd_refuses_an_empty_password(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(monkeypatch, "-f", path, "--stdin", "bob", stdin="\n") == 1
    assert UserFile.load(path).users == ("alice",)


# Answers without a thread ----------------------------------------------------------------------------------------


@pytest.fixture
def scram(path: str, monkeypatch: pytest.MonkeyPatch) -> UserFileVerifier:
    """alice has SCRAM keys; the file is on a disk of this machine."""
    set_user(path, "alice", Secret("wonderland"), cost=CHEAP, scram=("SHA-256",))
    monkeypatch.setattr(files, "never_waits", lambda _path: True)
    return UserFileVerifier(path)


@pytest.mark.parametrize("user", ["alice", "nobody"])
def test_scram_keys_are_recalled_as_they_are_fetched_of_whomever(scram: UserFileVerifier, user: str) -> None:
    question = FetchScramKeys(user=user, hash_name="SHA-256")
    recalled = scram.recall(question)
    assert isinstance(recalled, ScramKeys)
    assert recalled == scram.verify(question)
    assert recalled.is_known is (user == "alice")
    assert (recalled.proof is not None) is (user == "alice")


def test_a_file_that_has_changed_is_not_recalled_before_it_is_read_again(path: str, scram: UserFileVerifier) -> None:
    """A user who was taken out is out at once."""
    question = FetchScramKeys(user="alice", hash_name="SHA-256")
    assert scram.recall(question) is not None
    set_user(path, "ben", Secret("looking glass"), cost=CHEAP, scram=("SHA-256",))
    remove_user(path, "alice")
    assert scram.recall(question) is None
    fetched = scram.verify(question)
    assert isinstance(fetched, ScramKeys)
    assert not fetched.is_known
    assert scram.recall(question) == fetched
    Path(path).unlink()
    assert scram.recall(question) is None


def test_passwords_are_never_recalled(scram: UserFileVerifier) -> None:
    """Their hashes take long, on purpose."""
    assert scram.recall(CheckPassword(user="alice", password=Secret("wonderland"))) is None


def test_many_shapes_of_keys_are_not_drawn_among_on_the_event_loop(
    scram: UserFileVerifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "MAX_QUICK_SHAPES", 1)  # as many as the file has
    assert scram.recall(FetchScramKeys(user="alice", hash_name="SHA-256")) is not None
    monkeypatch.setattr(files, "MAX_QUICK_SHAPES", 0)
    assert scram.recall(FetchScramKeys(user="alice", hash_name="SHA-256")) is None


def test_a_file_offers_what_its_users_can_do(scram: UserFileVerifier) -> None:
    assert scram.mechanisms == ("SCRAM-SHA-256", "PLAIN")


MOUNTS = """\
22 1 8:1 / / rw,relatime - ext4 /dev/root rw
30 22 0:40 / /net rw shared:1 master:2 - nfs4 server:/ rw
31 30 8:2 / /net/own rw - xfs /dev/sdb rw
32 22 0:41 / /with\\040blank rw - fuse.sshfs host: rw
33 22 0:42 / /later rw - tmpfs tmpfs rw
34 22 0:43 / /later rw - nfs server:/later rw
"""


@pytest.mark.parametrize(
    ("name", "is_so"),
    [
        ("/etc/users", True),
        ("/net/users", False),
        ("/net/own/users", False),  # on the way there the server is asked
        ("/netto/users", True),
        ("/with blank/users", False),
        ("/later/users", False),
    ],
)
def test_only_the_disks_of_this_machine_never_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, is_so: bool
) -> None:
    """Attack: a server of files that does not answer, and the event loop waits for it."""
    mounts = tmp_path / "mountinfo"
    mounts.write_text(MOUNTS)
    monkeypatch.setattr(disks, "_MOUNTS", str(mounts))
    assert never_waits(name) is is_so


@pytest.mark.parametrize("content", [None, "", "no mountinfo\n"])
def test_where_the_mounts_are_not_known_nothing_is_recalled(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str | None
) -> None:
    mounts = tmp_path / "mountinfo"
    if content is not None:
        mounts.write_text(content)
    monkeypatch.setattr(disks, "_MOUNTS", str(mounts))
    set_user(path, "alice", Secret("wonderland"), cost=CHEAP, scram=("SHA-256",))
    assert UserFileVerifier(path).recall(FetchScramKeys(user="alice", hash_name="SHA-256")) is None


def test_a_link_to_a_server_of_files_counts_as_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    there, mounts, link = tmp_path / "net", tmp_path / "mountinfo", tmp_path / "users"
    there.mkdir()
    link.symlink_to(there / "users")
    mounts.write_text(f"22 1 8:1 / / rw - ext4 /dev/root rw\n30 22 0:40 / {there} rw - cifs //server/s rw\n")
    monkeypatch.setattr(disks, "_MOUNTS", str(mounts))
    assert not never_waits(str(link))
    assert never_waits(str(tmp_path / "other"))
