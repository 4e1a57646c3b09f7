"""Passwords: what prints, and the forms of docs/spec/policy-and-auth.md §6.1."""

import pickle
import traceback
from pathlib import Path

import pytest

from auth.credentials import CheckPassword
from auth.secrets import UNSAFE_TEXT, PasswordError, ResolvedPassword, Secret, resolve_password
from auth.verifiers.password_sources import resolve_configured

FILES = {"/pw": b"first\nsecond\n", "/bare": b"bare", "/binary": b"\xff\n"}


def read_nothing(path: str, size: int) -> bytes:
    raise FileNotFoundError(2, "No such file or directory")


def resolve(configured: str, *, is_literal_prefix: bool = True) -> ResolvedPassword:
    return resolve_password(
        configured,
        is_literal_prefix=is_literal_prefix,
        environment={"PW": "from env", "EMPTY": ""}.get,
        read_start=lambda path, size: FILES[path][:size],
    )


def test_a_secret_prints_as_an_ellipsis() -> None:
    secret = Secret("hunter2")
    request = CheckPassword(user="alice", password=secret)
    for text in (repr(secret), str(secret), f"{secret}", f"{secret!r}", "%s" % secret, repr([secret]), repr(request)):  # noqa: UP031
        assert "hunter2" not in text
        assert "…" in text
    assert secret.reveal() == "hunter2"


def test_a_secret_cannot_be_pickled_and_is_not_in_a_traceback() -> None:
    secret = Secret("hunter2")
    with pytest.raises(TypeError) as caught:
        pickle.dumps(secret)
    assert "hunter2" not in "".join(traceback.format_exception(caught.value))


def test_secrets_compare_by_content_and_have_no_hash() -> None:
    assert Secret("a") == Secret("a")
    assert Secret("a") != Secret("b")
    assert Secret("a") != "a"
    with pytest.raises(TypeError):
        hash(Secret("a"))
    assert not Secret("")


@pytest.mark.parametrize(
    ("configured", "password", "warns"),
    [
        ("env:PW", "from env", False),
        ("env:  PW", "from env", False),
        ("env:EMPTY", "", False),
        ("file:/pw", "first", False),
        ("file:/bare", "bare", False),
        ("pass:text", "text", True),
        ("pass:", "", True),
        ("literal:env:PW", "env:PW", True),
        ("plain", "plain", True),
        ("env", "env", True),
        ("other:text", "other:text", True),
        ("PASS:text", "PASS:text", True),
    ],
)
def test_each_form_stands_for_its_password(configured: str, password: str, warns: bool) -> None:
    """policy 51, management 14"""
    resolved = resolve(configured)
    assert resolved.password.reveal() == password
    assert resolved.warnings == ((UNSAFE_TEXT,) if warns else ())
    assert resolved.errors == ()


def test_literal_is_no_prefix_of_a_sasl_password() -> None:
    """policy 51"""
    assert resolve("literal:x", is_literal_prefix=False).password.reveal() == "literal:x"


def test_a_missing_environment_variable_is_refused() -> None:
    """policy 51"""
    text = r"^Not found: Failed to find a password in the environment variable 'NOWHERE'$"
    for configured in ("env:NOWHERE", "env:  NOWHERE"):
        with pytest.raises(PasswordError, match=text):
            resolve(configured)


@pytest.mark.parametrize("configured", ["env:", "env:hunter-2!", "env:Tr0ub4dor&3", "env:\x1b[2J", f"env:{'A' * 65}"])
def test_what_is_no_name_of_a_variable_may_be_the_password_and_is_not_shown(configured: str) -> None:
    with pytest.raises(PasswordError) as raised:
        resolve(configured)
    name = configured.removeprefix("env:")
    assert not name or name not in str(raised.value)
    assert str(raised.value).endswith("environment variable: expected env:NAME, and this is no name of one")


def test_an_unreadable_file_is_logged_and_the_text_kept() -> None:
    """policy 51, 57"""
    resolved = resolve_password(
        "file:/nowhere", is_literal_prefix=False, environment=lambda _: None, read_start=read_nothing
    )
    assert resolved.password.reveal() == "file:/nowhere"
    assert resolved.errors == ("Unable to open password file /nowhere, error: No such file or directory",)
    assert resolve("file:/binary").errors == ("Unable to open password file /binary, error: not UTF-8 text",)


def test_real_files_and_the_real_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "password"
    path.write_bytes(b"p" * 300 + b"\n")
    assert resolve_configured(f"file:{path}", is_literal_prefix=True).password.reveal() == "p" * 199
    monkeypatch.setenv("PALISADE_TEST_PASSWORD", "from outside")
    assert resolve_configured("env:PALISADE_TEST_PASSWORD", is_literal_prefix=True).password.reveal() == "from outside"
    missing = resolve_configured("file:/nowhere/at/all", is_literal_prefix=True)
    assert missing.errors == ("Unable to open password file /nowhere/at/all, error: No such file or directory",)


def test_a_secret_is_printed_and_copied_by_nothing() -> None:
    assert (repr(Secret("sesame")), str(Secret("sesame")), f"{Secret('sesame')}") == ("…", "…", "…")
    with pytest.raises(TypeError, match=r"^a secret cannot be copied out of its process$"):
        pickle.dumps(Secret("sesame"))


def test_an_empty_secret_is_none_and_any_other_is_one() -> None:
    assert not Secret("")
    assert Secret(" ")


def test_secrets_are_equal_by_their_texts_also_where_these_are_none() -> None:
    assert Secret("\ud800") == Secret("\ud800")
    assert Secret("\ud800") != Secret("\ud801")
    assert Secret("x") != "x"


def resolved(configured: str, files: dict[str, bytes] | None = None, *, literal: bool = True) -> ResolvedPassword:
    def read_start(path: str, size: int) -> bytes:
        if files is None or path not in files:
            raise OSError("no number, no text")
        return files[path][:size]

    return resolve_password(
        configured, is_literal_prefix=literal, environment={"A": "a", "\tA": "tab", "X": "x"}.get, read_start=read_start
    )


@pytest.mark.parametrize(
    ("content", "password"),
    [
        (b"two words\nmore\nand more\n", "two words"),
        (b" blanks \n", " blanks "),
        (b"\nsecond", ""),
        (b"tab\tand return\r\n", "tab\tand return\r"),
        (b"x" * 300, "x" * 199),
    ],
)
def test_a_password_file_has_the_password_in_its_first_line(content: bytes, password: str) -> None:
    assert resolved("file:/p", {"/p": content}).password.reveal() == password


def test_a_password_file_that_cannot_be_read_is_named_without_a_reason_where_there_is_none() -> None:
    assert resolved("file:/p").errors == ("Unable to open password file /p, error: unreadable",)


def test_only_blanks_before_a_variables_name_are_left_out() -> None:
    assert resolved("env:  A").password.reveal() == "a"
    assert resolved("env:\tA").password.reveal() == "tab"
    assert resolved("env:X").password.reveal() == "x"
