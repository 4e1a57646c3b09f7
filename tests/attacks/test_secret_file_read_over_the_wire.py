"""Attack: a clerk who reaches $management makes the router send him a secret.

He creates a connector to his own server, with `file:` or `env:` before the name of a secret as its password.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from daemon_process import eventually
from governed_router import governed, login, recorded
from server_peer import Call, Server, serving

from router.management.client import ForbiddenStatus, ManagementClient

SECRET = "first line of a file for the router alone"


def listening(call: Call) -> None:
    call.sasl(("PLAIN",))
    call.stay()


def ask(client: ManagementClient, server: Server, password: str, name: str = "mine") -> None:
    given = {
        "host": "127.0.0.1", "port": str(server.port), "saslMechanisms": "PLAIN", "saslUsername": "clerk",
        "saslPassword": password,
    }  # fmt: skip
    client.create(given, type="connector", name=name)


def heard(server: Server) -> bytes:
    found: bytes = eventually(lambda: next((call.init[1] for call in server.calls if call.init), None))
    return found


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    file = tmp_path / "secret"
    file.write_text(f"{SECRET}\nand a second\n")
    file.chmod(0o600)
    return file


FORMS: dict[str, Callable[[ManagementClient, Server, Path], object]] = {
    "file": lambda clerk, server, secret: ask(clerk, server, f"file:{secret}"),
    "env": lambda clerk, server, secret: ask(clerk, server, "env:ROUTER_SECRET"),
    "profile": lambda clerk, server, secret: clerk.create({"password": f"file:{secret}"}, type="sslProfile", name="p"),
    "old name": lambda clerk, server, secret: clerk.create({"certDb": str(secret)}, type="sslProfile", name="p"),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("rights", [{}, {"management": "administrator"}])
def test_a_clerk_does_not_have_the_router_read_secrets(
    tmp_path: Path, secret: Path, form: str, rights: dict[str, Any]
) -> None:
    with (
        serving(listening) as server,
        governed(tmp_path, {"clerk": rights}, environment={"ROUTER_SECRET": SECRET}) as router,
        login(router, "clerk") as clerk,
    ):
        with pytest.raises(ForbiddenStatus, match="wants the right 'host'"):
            FORMS[form](clerk, server, secret)
        assert server.calls == []
        event = recorded(router, operation="CREATE", reason="host_value_not_allowed")
        assert event["decision"] == "deny"
        assert SECRET not in str(event)


def test_who_has_the_right_reads_below_the_directories_that_are_named(tmp_path: Path, secret: Path) -> None:
    """Neither with .. nor by a symbolic link beyond them, nor where the router keeps its rules."""
    shared = tmp_path / "shared"
    shared.mkdir()
    (shared / "password").write_text("meant for this\n")
    (shared / "link").symlink_to(secret)
    (shared / "folder").symlink_to(tmp_path)
    outside = [secret, f"{shared}/../secret", shared / "link", shared / "folder/secret", "secret", shared, ""]
    settings = f"managementDirs: {shared}, {tmp_path / 'policy'}"
    with (
        serving(listening) as server,
        governed(tmp_path, {"chief": {"management": ["administrator", "host"]}}, settings=settings) as router,
        login(router, "chief") as chief,
    ):
        for path in outside:
            with pytest.raises(ForbiddenStatus, match="not below a directory of router"):
                ask(chief, server, f"file:{path}")
        with pytest.raises(ForbiddenStatus, match="where the router keeps its rules"):
            ask(chief, server, f"file:{tmp_path / 'policy' / 'policy.json'}")
        assert server.calls == []
        ask(chief, server, f"file:{shared / 'password'}")
        assert heard(server) == b"\0clerk\0meant for this"


def test_a_password_as_it_is_names_nothing(tmp_path: Path) -> None:
    with (
        serving(listening) as server,
        governed(tmp_path, {"clerk": {"management": "administrator"}}) as router,
        login(router, "clerk") as clerk,
    ):
        ask(clerk, server, "pass:word")
        assert heard(server) == b"\0clerk\0word"
        event = recorded(router, operation="CREATE", decision="allow")
        assert "word" not in (event["management"]["after"] or "").replace("saslPassword", "")
