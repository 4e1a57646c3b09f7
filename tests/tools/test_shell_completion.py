"""Shell completion of the commands. Issue 4."""

import importlib.util
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

FOLDER = Path(__file__).resolve().parent.parent.parent / "deploy" / "completion"


@pytest.fixture(scope="module")
def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate_completion", FOLDER / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    import sys

    sys.modules["generate_completion"] = made  # dataclasses look their module up
    spec.loader.exec_module(made)
    return made


def test_the_files_are_what_the_command_lines_make(generator: ModuleType) -> None:
    """Run `python deploy/completion/generate.py` after changing an option."""
    for name, text in generator.outputs().items():
        assert (FOLDER / name).read_text() == text, f"{name} is out of date"


def complete(line: str, cwd: Path) -> set[str]:
    """What bash offers at the end of `line`; its last word is the one being typed. `=` stands alone, as bash has it."""
    words = " ".join(f"'{word}'" for word in line.split(" "))
    script = (
        f"source {FOLDER}/palisade.bash; COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); "
        '_palisade; printf "%s\\n" "${COMPREPLY[@]}"'
    )
    ran = subprocess.run(["bash", "-c", script], cwd=cwd, capture_output=True, text=True, check=True)
    assert ran.stderr == ""
    return set(ran.stdout.split())


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("qdstat --ssl-t", {"--ssl-trustfile"}),
        ("qdstat --all", {"--all-entities", "--all-routers"}),
        ("/usr/bin/qdstat --vhostg", {"--vhostgroups"}),
        ("qdmanage get-m", {"get-mgmt-nodes"}),
        ("qdmanage query --type ssl", {"sslProfile"}),
        ("qdmanage query --type = router.c", {"router.connection.linkRoute"}),
        ("qdmanage query --type =", set()),
        ("qdstat --limit ", set()),
        ("qdrouterd --d", {"--daemon"}),
        ("qdrouterd -c here", {"here.conf"}),
        ("qdstat --ssl-trustfile here", {"here.conf"}),
        ("qdpolicy l", {"lint", "lsp"}),
        ("qdpolicy explain --rec", {"--receive", "--receive-dynamic"}),
        ("qdpolicy lint here", {"here.conf"}),
        ("qdaudit denials --format j", {"json"}),
        ("qdpasswd --cr", {"--create"}),
        ("qdauthd --ch", {"--check"}),
        ("qdsend --su", {"--subject"}),
        ("qdreceive --w", {"--wait"}),
        ("qdcerts -f tls ro", {"router"}),
        ("qdcerts -f here", {"here.conf"}),
        ("qdcerts -f tls router --ho", {"--host"}),
    ],
)
def test_bash_offers_what_fits(tmp_path: Path, line: str, offered: set[str]) -> None:
    (tmp_path / "here.conf").touch()
    found = complete(line, tmp_path)
    if line.endswith("--type ="):
        assert {"listener", "connector", "vhost"} <= found
    else:
        assert found == offered


def test_zsh_can_read_its_file(require_tool: Callable[[str, str], Path]) -> None:
    zsh = require_tool("zsh", "zsh")
    ran = subprocess.run([zsh, "-n", str(FOLDER / "_palisade")], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")
