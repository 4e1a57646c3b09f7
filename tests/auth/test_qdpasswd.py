"""`qdpasswd`: its exit status, what it says, and what it writes; more in test_user_file.py."""

import errno
import io
import sys
from pathlib import Path
from typing import Any

import pytest

from auth.secrets import PasswordError, Secret
from auth.verifiers import qdpasswd
from auth.verifiers.files import UserFile, set_user
from auth.verifiers.hashes import Argon2idCost, ScryptCost, check_hash
from auth.verifiers.password_sources import resolve_configured

CHEAP = Argon2idCost(memory_kib=8, iterations=1, lanes=1)


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A file with alice."""
    path = str(tmp_path / "users")
    set_user(path, "alice", Secret("wonderland"), cost=CHEAP, must_exist=False)
    return path


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str]) -> Any:
    """The lines on standard output and on standard error since the last call."""

    def read() -> tuple[str, str]:
        found = capsys.readouterr()
        return found.out, found.err

    return read


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str, stdin: str = "builder\n", **options: Any) -> int:
    monkeypatch.setattr(sys, "stdin", io.StringIO(stdin))
    return qdpasswd.main(arguments, **{"cost": CHEAP, **options})


def is_bob(path: str, password: str) -> bool:
    return UserFile.load(path).verify("bob", Secret(password)).is_valid


def test_what_was_done_is_said(path: str, monkeypatch: pytest.MonkeyPatch, said: Any) -> None:
    assert run(monkeypatch, "--file", path, "--stdin", "bob") == 0
    assert said() == (f"{path}: password of user 'bob' set\n", "")
    assert is_bob(path, "builder")
    assert run(monkeypatch, "--file", path, "--delete", "bob") == 0
    assert said() == (f"{path}: user 'bob' removed\n", "")
    assert UserFile.load(path).users == ("alice",)


def test_what_was_refused_is_said_and_changes_nothing(path: str, monkeypatch: pytest.MonkeyPatch, said: Any) -> None:
    before = Path(path).read_bytes()
    for arguments, stdin, why in (
        (("--stdin", "bob"), "\n", "a password must have 1 to 4096 bytes"),
        (("--stdin", "a:b"), "x\n", "a user name must be printable"),
        (("--stdin", "--scram", "SHA-256", "bob"), "a\u0007b\n", "a character that SCRAM does not permit"),
        (("--delete", "bob"), "", "no user 'bob'"),
        (("bob",), "", " no terminal to ask for the password; give it on standard input with --stdin\n"),
    ):
        assert run(monkeypatch, "-f", path, *arguments, stdin=stdin) == 1
        out, err = said()
        assert out == ""
        assert err.startswith("qdpasswd: ")
        assert why in err
        assert Path(path).read_bytes() == before


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: Any) -> None:
    missing = f"{tmp_path}/none/users"
    assert run(monkeypatch, "-f", missing, "--create", "--stdin", "bob") == 1
    why = "its folder cannot be opened: No such file or directory"
    assert said() == ("", f"qdpasswd: {missing}: {why}\n")

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(qdpasswd, "set_user", full)
    assert run(monkeypatch, "-f", f"{tmp_path}/users", "--create", "--stdin", "bob") == 1
    assert said() == ("", f"qdpasswd: {tmp_path}/users: No space left on device\n")


def test_a_file_is_begun_only_where_that_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "users"
    assert run(monkeypatch, "-f", str(path), "--stdin", "bob") == 1
    assert not path.exists()
    assert run(monkeypatch, "-f", str(path), "--create", "--stdin", "bob") == 0
    assert path.stat().st_mode & 0o777 == 0o600


def test_the_hash_is_argon2id_or_scrypt(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def cost() -> object:
        (line,) = (line for line in Path(path).read_text().splitlines() if line.startswith("bob:"))
        return check_hash(line.partition(":")[2])

    assert run(monkeypatch, "-f", path, "--stdin", "bob", cost=None) == 0
    assert cost() == Argon2idCost()
    assert run(monkeypatch, "-f", path, "--scrypt", "--stdin", "bob", cost=None) == 0
    assert cost() == ScryptCost()


def test_keys_of_scram_are_stored_for_each_hash_that_is_named(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(monkeypatch, "-f", path, "--stdin", "bob") == 0
    assert UserFile.load(path).scram_hashes == ()
    assert run(monkeypatch, "-f", path, "--scram", "SHA-256", "--scram", "SHA-1", "--stdin", "bob") == 0
    assert set(UserFile.load(path).scram_hashes) == {"SHA-256", "SHA-1"}


@pytest.mark.parametrize(
    "arguments",
    [
        ("--stdin", "--delete", "bob"),
        ("--scram", "MD5", "--stdin", "bob"),
        ("--stdin",),
        ("--stdin", "bob", "builder"),
        ("--password", "builder", "bob"),
    ],
)
def test_wrong_usage_is_told_and_changes_nothing(
    path: str, monkeypatch: pytest.MonkeyPatch, said: Any, arguments: tuple[str, ...]
) -> None:
    before = Path(path).read_bytes()
    with pytest.raises(SystemExit) as caught:
        run(monkeypatch, "-f", path, *arguments)
    assert caught.value.code == 2
    assert said()[1].startswith("usage: qdpasswd ")
    assert Path(path).read_bytes() == before
    with pytest.raises(SystemExit) as caught:
        run(monkeypatch, "--stdin", "bob")
    assert caught.value.code == 2


def test_its_help_names_every_option(monkeypatch: pytest.MonkeyPatch, said: Any) -> None:
    with pytest.raises(SystemExit) as caught:
        run(monkeypatch, "--help")
    assert caught.value.code == 0
    text = " ".join(said()[0].split())
    for part in (
        " Add, change or delete a user of a user file. The password is asked for, or read from standard input; it is "
        "never an argument, where every process of the machine could read it. positional arguments:",
        "-f FILE, --file FILE the user file (userfile_path)",
        "-c, --create create FILE (mode 600) if there is none",
        "--scrypt hash with scrypt instead of argon2id",
        "--scram HASH store keys for SCRAM-HASH too, so that the password need not be sent: SHA-256, SHA-512 or SHA-1; "
        "may be given again",
        "--stdin take the first line of standard input as password",
        "--delete delete USER",
        "USER the name clients log in with, such as alice or alice@example.com",
    ):
        assert part in text, text


@pytest.mark.parametrize(
    ("stdin", "password"),
    [
        ("builder", "builder"),
        ("builder\nmore\n", "builder"),
        (" builder \n", " builder "),
        ("b\r\n", "b\r"),
        ("é\n", "é"),
    ],
)
def test_the_password_is_the_first_line_as_it_is(
    path: str, monkeypatch: pytest.MonkeyPatch, stdin: str, password: str
) -> None:
    assert run(monkeypatch, "-f", path, "--stdin", "bob", stdin=stdin) == 0
    assert is_bob(path, password)
    assert not is_bob(path, password + "\n")


def test_no_more_is_read_than_a_password_may_have(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A slip: `qdpasswd --stdin < /dev/zero`."""
    sizes: list[int] = []

    class Endless:
        def readline(self, size: int) -> str:
            sizes.append(size)
            return "x" * size

    monkeypatch.setattr(sys, "stdin", Endless())
    assert qdpasswd.main(["-f", path, "--stdin", "bob"], cost=CHEAP) == 1
    assert sizes == [8192]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_at_a_terminal_the_password_is_asked_for_twice(path: str, monkeypatch: pytest.MonkeyPatch, said: Any) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal())
    prompts: list[str] = []
    answers = iter(["one", "one", "two", "three"])

    def getpass(prompt: str) -> str:
        prompts.append(prompt)
        return next(answers)

    monkeypatch.setattr("auth.verifiers.qdpasswd.getpass.getpass", getpass)
    assert qdpasswd.main(["-f", path, "bob"], cost=CHEAP) == 0
    assert is_bob(path, "one")
    assert prompts == ["Password of 'bob': ", "Again: "]
    said()
    assert qdpasswd.main(["-f", path, "bob"], cost=CHEAP) == 1
    assert said() == ("", "qdpasswd: the two passwords differ; nothing changed\n")
    assert is_bob(path, "one")


@pytest.mark.parametrize("gives_up", [KeyboardInterrupt, EOFError])
def test_who_gives_up_changes_nothing(
    path: str, monkeypatch: pytest.MonkeyPatch, said: Any, gives_up: type[BaseException]
) -> None:
    def getpass(_prompt: str) -> str:
        raise gives_up

    monkeypatch.setattr(sys, "stdin", Terminal())
    monkeypatch.setattr("auth.verifiers.qdpasswd.getpass.getpass", getpass)
    assert qdpasswd.main(["-f", path, "bob"], cost=CHEAP) == 1
    assert said() == ("", "\nqdpasswd: nothing changed\n")
    assert UserFile.load(path).users == ("alice",)


def test_the_arguments_are_the_programs(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["qdpasswd", "-f", path, "--delete", "alice"])
    assert qdpasswd.main() == 0
    assert UserFile.load(path).users == ()


# Configured passwords


def test_a_configured_password_is_read_where_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_PASSWORD", "of the environment")
    (tmp_path / "password").write_text("of a file\n")
    for configured, expected in (
        ("env:A_PASSWORD", "of the environment"),
        (f"file:{tmp_path}/password", "of a file"),
        ("literal:pass:x", "pass:x"),
    ):
        found = resolve_configured(configured, is_literal_prefix=True).password
        assert found is not None
        assert found.reveal() == expected
    plain = resolve_configured("literal:x", is_literal_prefix=False).password
    assert plain is not None
    assert plain.reveal() == "literal:x"
    with pytest.raises(PasswordError):
        resolve_configured("env:NO_SUCH_VARIABLE", is_literal_prefix=True)
