"""Attack: a clerk who reaches $management makes the router write its log, with text that he sends, into any file."""

from pathlib import Path
from typing import Any

import pytest
from daemon_process import eventually
from governed_router import governed, login, recorded

from router.management.client import ForbiddenStatus


@pytest.mark.parametrize("rights", [{}, {"management": "operator"}, {"management": "administrator"}])
@pytest.mark.parametrize("attribute", ["outputFile", "output"])
def test_a_clerk_writes_no_files(tmp_path: Path, rights: dict[str, Any], attribute: str) -> None:
    target = tmp_path / "anywhere"
    with governed(tmp_path, {"clerk": rights}) as router, login(router, "clerk") as clerk:
        with pytest.raises(ForbiddenStatus, match=r"outputFile"):
            clerk.update({attribute: str(target)}, type="log", name="log/AGENT")
        assert not target.exists()
        event = recorded(router, operation="UPDATE", decision="deny")
        assert event["management"]["entity_name"] == "log/AGENT"


def test_who_has_the_right_writes_below_the_directories_that_are_named(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / "link").symlink_to(tmp_path / "anywhere")
    settings = f"managementDirs: {logs}"
    rights = {"management": ["operator", "update log", "host"]}
    with governed(tmp_path, {"chief": rights}, settings=settings) as router, login(router, "chief") as chief:
        for path in (tmp_path / "anywhere", f"{logs}/../anywhere", logs / "link", "anywhere"):
            with pytest.raises(ForbiddenStatus, match="not below a directory of router"):
                chief.update({"outputFile": str(path)}, type="log", name="log/AGENT")
        chief.update({"outputFile": str(logs / "agent.log")}, type="log", name="log/AGENT")
        assert eventually(lambda: (logs / "agent.log").exists())
        chief.update({"outputFile": "stderr"}, type="log", name="log/AGENT")
    assert not (tmp_path / "anywhere").exists()
