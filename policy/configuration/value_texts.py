"""Text of values for logs and error texts: limited, on one line, with secrets hidden.

Sources: docs/spec/management.md §2.6 (hidden values), §6.5.
"""

from collections.abc import Iterable, Mapping

from policy.files.redaction import is_secret_name

HIDDEN = "*******"
# A log line holds 2048 bytes. More text would cost time, and then be cut off: large requests would be expensive.
MAX_SHOWN_CHARACTERS = 1800
# Printing a request nested a thousand levels deep would exhaust the stack.
MAX_SHOWN_DEPTH = 8


def hide_secrets(attributes: Mapping[str, object], secrets: Iterable[str]) -> dict[str, object]:
    """Returns the same map with the values of `secrets` hidden. Absent and null values stay unchanged."""
    hidden = frozenset(secrets)
    return {name: HIDDEN if name in hidden and value is not None else value for name, value in attributes.items()}


def shown(value: object, limit: int = MAX_SHOWN_CHARACTERS) -> str:
    """Returns `value` as Python would write it, in at most `limit` characters and a mark if it was cut."""
    pieces: list[str] = []
    left = _show(value, limit, MAX_SHOWN_DEPTH, pieces)
    return "".join(pieces) + ("..." if left < 0 else "")


def _show(value: object, left: int, depth: int, pieces: list[str]) -> int:
    """Appends the text of `value`. Returns the characters left, which are negative after a cut."""
    if left < 0:
        return left
    if isinstance(value, Mapping | list | tuple):
        is_map = isinstance(value, Mapping)
        opening, closing = ("{", "}") if is_map else ("[", "]")
        if depth == 0:
            return _put(f"{opening}...{closing}", left, pieces)
        left = _put(opening, left, pieces)
        for index, item in enumerate(value):
            if index:
                left = _put(", ", left, pieces)
            if is_map:
                assert isinstance(value, Mapping)
                left = _put(f"{_scalar(item, left)}: ", left, pieces)
                # Also hides a secret under a misspelt name, since error texts quote such names. Names themselves are
                # never hidden.
                if is_secret_name(item) and value[item] is not None:
                    left = _put(HIDDEN, left, pieces)
                else:
                    left = _show(value[item], left, depth - 1, pieces)
            else:
                left = _show(item, left, depth - 1, pieces)
            if left < 0:
                return left
        return _put(closing, left, pieces)
    return _put(_scalar(value, left), left, pieces)


def _put(text: str, left: int, pieces: list[str]) -> int:
    if left < 0:
        return left
    pieces.append(text[:left])
    return left - len(text)


def _scalar(value: object, left: int) -> str:
    """Returns the repr of the plain type of a value: a wire `uint(3)` is 3."""
    left = max(left, 0)
    if isinstance(value, str):
        return repr(str(value[: left + 1]))
    if isinstance(value, bytes | bytearray):
        return repr(bytes(value[: left + 1]))
    if isinstance(value, bool) or value is None:
        return str(value)
    if isinstance(value, int):
        return str(int(value)) if value.bit_length() < 1024 else "(a huge number)"
    if isinstance(value, float):
        return repr(float(value))
    return f"({type(value).__name__})"
