"""What the log keeps for GET-LOG is as short as what it writes, whatever a peer has an entry say."""

import pytest

from router.control.logs import Logs
from router.management.logrules import MAX_KEPT_ENTRIES, MAX_TEXT_BYTES, visible_text


def test_a_long_text_is_not_kept(capsys: pytest.CaptureFixture[str]) -> None:
    """Attack: the `to` of a message, 64 KB, is quoted in each of the thousand entries that are kept."""
    logs, texts = Logs(), [f"DENY '{letter * 65_536}'" for letter in "x\x1b\u00e9"]
    for text in texts:
        logs.write("POLICY", "info", text)
    assert [row[2] for row in logs.ring.entries()] == [visible_text(text) for text in texts]
    assert [len(entry.text) for entry in logs.ring._entries] == [MAX_TEXT_BYTES] * 3
    assert visible_text(texts[0]) in capsys.readouterr().err
    assert MAX_KEPT_ENTRIES * MAX_TEXT_BYTES * 4 <= 8 * 1024 * 1024
