"""Passwords that cannot be printed by accident, and the forms in which a configuration gives one.

Pure: the caller passes in functions that read the environment and the files.
Sources: docs/spec/policy-and-auth.md §6.1, docs/spec/management.md §1.6.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from hmac import compare_digest
from typing import NoReturn

# The peer reads one line of at most 199 bytes from a password file. Also stops a `file:` that names a device or a
# huge file from filling memory.
MAX_PASSWORD_FILE_BYTES = 199

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}", re.ASCII)

UNSAFE_TEXT = "It is unsafe to provide plain text passwords in the config file"


class Secret:
    """A text that only `reveal()` returns. Printing it shows `…`.

    Compares in constant time, has no hash and refuses to be pickled, so that it cannot leak in a dump or a queue.
    """

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """Returns the text. Call it only where the text is hashed or sent."""
        return self._text

    def __repr__(self) -> str:
        return "…"

    def __bool__(self) -> bool:
        return bool(self._text)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        return compare_digest(_bytes(self._text), _bytes(other._text))

    def __reduce__(self) -> NoReturn:
        raise TypeError("a secret cannot be copied out of its process")


class PasswordError(ValueError):
    """The configured form yields no password. The text is the one that the peer logs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedPassword:
    """A password and the log lines that belong to it.

    password   the one to use
    warnings   texts for CONN_MGR (warning)
    errors     texts for CONN_MGR (error); the password is then unusable but creation continues (§6.1)
    """

    password: Secret
    warnings: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()


def resolve_password(
    configured: str,
    *,
    is_literal_prefix: bool,
    environment: Callable[[str], str | None],
    read_start: Callable[[str, int], bytes],
) -> ResolvedPassword:
    """Returns the password that `env:`, `file:`, `pass:`, `literal:` or plain text denotes.

    is_literal_prefix  true for sslProfile.password; saslPassword keeps `literal:` as part of the password
    environment        name -> value, None when not set
    read_start         (path, n) -> the first n bytes of that file; may raise OSError
    Errors             PasswordError if the environment variable is not set. The peer would use the text `env:NAME` as
                       saslPassword, and so send it to any server that answers.
    """
    prefix, colon, rest = configured.partition(":")
    kind = prefix if colon else ""
    if kind == "env":
        name = rest.lstrip(" ")
        value = environment(name)
        if value is None:
            raise PasswordError(f"Not found: Failed to find a password in the environment variable{_shown(name)}")
        return ResolvedPassword(password=Secret(value))
    if kind == "file":
        return _from_file(configured, path=rest, read_start=read_start)
    if kind == "pass":
        return ResolvedPassword(password=Secret(rest), warnings=(UNSAFE_TEXT,))
    if kind == "literal" and is_literal_prefix:
        return ResolvedPassword(password=Secret(rest), warnings=(UNSAFE_TEXT,))
    return ResolvedPassword(password=Secret(configured), warnings=(UNSAFE_TEXT,))


def _from_file(configured: str, *, path: str, read_start: Callable[[str, int], bytes]) -> ResolvedPassword:
    try:
        line = read_start(path, MAX_PASSWORD_FILE_BYTES).split(b"\n", 1)[0]
        return ResolvedPassword(password=Secret(line.decode("utf-8")))
    except OSError as fault:
        reason = fault.strerror or "unreadable"
    except UnicodeDecodeError:
        reason = "not UTF-8 text"
    return ResolvedPassword(
        password=Secret(configured), errors=(f"Unable to open password file {path}, error: {reason}",)
    )


def _shown(name: str) -> str:
    """Returns a variable as errors name it. A text that is not a name is not shown: it may be the password itself."""
    return f" '{name}'" if _VARIABLE.fullmatch(name) else ": expected env:NAME, and this is no name of one"


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
