"""A session window has no room for one frame.

Here such a window is one frame. qdrouterd 1.20 closes the connection at its first session. Make `maxSessionWindow` at
least as large as `maxFrameSize`, which is the listener's where the group has none, and never below 512.
"""

from collections.abc import Iterator

from policy.attributes import InvalidValue, read_integer
from policy.lint.findings import About, Confidence, Family, Finding, Level, PolicyText

ID = "PAL062"
TITLE = "session window smaller than a frame"
FAMILY = Family.COMPATIBILITY

_MIN_FRAME_BYTES = 512
_LISTENER_FRAME_BYTES = 16384  # where a listener does not say


def check(policy: PolicyText) -> Iterator[Finding]:
    for group in policy.groups:
        window, frame = (_number(group.settings.get(key)) for key in ("maxSessionWindow", "maxFrameSize"))
        size = max(frame, _MIN_FRAME_BYTES) if frame else _LISTENER_FRAME_BYTES
        if 0 < window < size and not group.is_connector:
            text = f"maxSessionWindow {window} is less than a frame of {size} bytes: one frame here, 1.20 closes"
            confidence = Confidence.CERTAIN if frame else Confidence.LIKELY
            about = About(instead=f'"maxSessionWindow": {size}', confidence=confidence)
            yield group.finding(ID, Level.NOTE, text, "maxSessionWindow", about)


def _number(value: object) -> int:
    try:
        return read_integer(value)
    except InvalidValue:
        return 0
