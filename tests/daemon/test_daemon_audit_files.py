"""The audit log is limited to so many files and bytes, and what is deleted is on record. Spec: docs/audit.md (ours)."""

import json
from pathlib import Path

import pytest
from daemon_process import LISTENER, Started, eventually

pytestmark = pytest.mark.interop


@pytest.mark.parametrize(
    ("limit", "setting"),
    [("auditMaxFiles", "auditMaxFiles: 2"), ("auditMaxBytes", "auditMaxBytes: 131072")],
)
def test_the_oldest_files_go_and_the_log_says_so(limit: str, setting: str, daemon: Started, tmp_path: Path) -> None:
    folder = tmp_path / "audit"
    text = f"router {{\n auditDir: {folder}\n auditMaxFileBytes: 65536\n {setting}\n}}\n{LISTENER}"
    router = daemon(text)
    with router.client() as client:
        for n in range(300):  # changes are never summed up
            client.update({"enable": "info+" if n % 2 else "notice+"}, type="log", name="log/AGENT")
    eventually(lambda: len(router.log("audit log: deleted")) >= 3)
    router.end()
    events = [json.loads(line) for path in sorted(folder.iterdir()) for line in path.read_text().splitlines()]
    deleted = [event["deleted"] for event in events if event["reason"] == "file_deleted"]
    assert len(list(folder.iterdir())) == 2
    assert sum(path.stat().st_size for path in folder.iterdir()) < 2 * 65536 + 4096
    assert {each["limit"] for each in deleted} == {limit}
    assert not any((folder / each["file"]).exists() for each in deleted)
    # The last file that went ends where those that are there begin.
    assert deleted[-1]["start"] == events[0]["start"]
    assert deleted[-1]["last"] + 1 == events[0]["sequence"]
