"""docs/certificates.md and docs/tenants.md do what they say: their commands and configurations, in order."""

import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from daemon_process import ROOT, Daemon, write_users
from process_log import PATIENCE_S

from auth.qdcerts import main as qdcerts
from router.io.daemon import main as qdrouterd

pytestmark = pytest.mark.interop


def blocks(page: str) -> list[str]:
    return re.findall(r"^```\n(.*?)^```$", (ROOT / "docs" / page).read_text(), re.MULTILINE | re.DOTALL)


def test_the_page_about_certificates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], daemon: Callable[..., Daemon]
) -> None:
    monkeypatch.chdir(tmp_path)
    for block in blocks("certificates.md"):
        for line in block.splitlines():
            if line.startswith("qdcerts "):
                assert qdcerts(shlex.split(line)[1:]) == 0, line
    (text,) = (block for block in blocks("certificates.md") if "sslProfile {" in block)
    Path("qdrouterd.conf").write_text(text)
    assert qdrouterd(["qdrouterd", "--check", "qdrouterd.conf"]) == 0, capsys.readouterr().err
    here = text.replace("tls/", f"{tmp_path}/tls/").replace("port: amqps", "port: 0\n    name: login")
    router = daemon(here.replace("0.0.0.0", "127.0.0.1"))
    files = ("--ssl-trustfile", "tls/ca.crt", "--ssl-certificate", "tls/anna.crt", "--ssl-key", "tls/anna.key")
    options = [str(tmp_path / each) if "/" in each else each for each in files]
    # The page's host is another one than that of the test.
    ran = router.tool("qdstat", *options, "--ssl-disable-peer-name-verify", "-c", name="login")
    assert (ran.status, "anna(x.509)" in ran.out) == (0, True), ran.out


def message_tool(router: Daemon, tool: str, host: str, user: str, *options: str) -> "subprocess.Popen[str]":
    password = router.folder / f"{user}.password"
    password.write_text(user)
    place = f"{host}:{router.port('tenants')}/orders"
    login = ["--sasl-username", user, "--sasl-password-file", str(password)]
    command = [sys.executable, "-m", f"router.tools.{tool}", "-b", place, *login, *options]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def test_the_page_about_tenants(tmp_path: Path, daemon: Callable[..., Daemon]) -> None:
    """Attack: a user of one tenant reads what another sends, or takes another's place by the host in its Open."""
    text = next(block for block in blocks("tenants.md") if "multiTenant" in block)
    (tmp_path / "sasl").mkdir()
    sasl = write_users(tmp_path / "sasl", {"anna": "anna", "ben": "ben"})
    # The tools write as host what they connect to.
    text = text.replace("red.example.com", "127.0.0.1").replace("blue.example.com", "localhost")
    router = daemon(text.replace("port: 5672", "port: 0").replace("id: shared", f"id: shared\n saslConfigDir: {sasl}"))
    stranger = message_tool(router, "qdreceive", "localhost", "ben", "--wait", "2")
    receiver = message_tool(router, "qdreceive", "127.0.0.1", "anna", "--wait", str(PATIENCE_S))
    sender = message_tool(router, "qdsend", "127.0.0.1", "anna", "--body", "secret", "-t", str(PATIENCE_S))
    assert sender.communicate(timeout=PATIENCE_S)[0] == "1 message to orders accepted\n"
    assert receiver.communicate(timeout=PATIENCE_S)[0] == "secret\n"
    assert "Timeout" in stranger.communicate(timeout=PATIENCE_S)[0]
    intruder = message_tool(router, "qdreceive", "127.0.0.1", "ben", "--wait", "2")
    assert "disallowed by local policy" in intruder.communicate(timeout=PATIENCE_S)[0]
