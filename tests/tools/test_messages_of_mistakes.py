"""Mistakes on the command line whose messages sent their reader to the wrong place."""

from pathlib import Path
from typing import NoReturn

import pytest

from auth.verifiers.qdpasswd import main as qdpasswd
from router.tools.connection_options import ConnectionOptions
from router.tools.qdmanage import main as qdmanage
from router.tools.qdstat import main as qdstat


def refuse(options: ConnectionOptions, address: str) -> NoReturn:
    raise AssertionError("nothing is to be asked")


@pytest.mark.parametrize("option", ["--sasl-password-file", "--ssl-password-file", "--sasl-token-file"])
def test_a_missing_file_is_named_with_its_option(
    option: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It was `[Errno 2] No such file or directory`."""
    assert qdstat([option, f"{tmp_path}/none"], refuse) == 1
    assert capsys.readouterr().out == f"FileNotFoundError: {option} {tmp_path}/none: No such file or directory\n"


def test_a_misspelt_type_gets_a_proposal(capsys: pytest.CaptureFixture[str]) -> None:
    """Attributes got one."""
    assert qdmanage(["create", "--type", "lisetner", "port=1"], refuse) == 1
    assert "lisetner'; did you mean 'listener'?" in capsys.readouterr().out


def test_a_usage_error_is_two_lines(capsys: pytest.CaptureFixture[str]) -> None:
    """Eighteen lines of options stood before the one that matters."""
    with pytest.raises(SystemExit):
        qdstat(["--nosuch"], refuse)
    assert capsys.readouterr().err.splitlines() == [
        "usage: qdstat [options...]; --help lists them",
        "qdstat: error: unrecognized arguments: --nosuch",
    ]


def test_a_file_of_users_that_is_not_there_is_told_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It was after the password had been typed twice, and did not say that -c makes one."""
    assert qdpasswd(["-f", f"{tmp_path}/none", "bob"]) == 1
    assert capsys.readouterr().err == f"qdpasswd: {tmp_path}/none: there is no such file; -c creates it\n"
