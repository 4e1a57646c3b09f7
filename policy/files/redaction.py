"""Recognises names of secrets, and removes the secrets from a line of a configuration.

Pure. A message about a user's file may end in a pipeline's log. So in doubt a value is left out.
"""

import re
from functools import cache
from typing import Final

import schemas

# Replaces a whole line that may be a secret.
ELLIPSIS: Final = "…"

_STEMS: Final = ("pass", "pwd", "secret", "token", "credential")
# Without vowels and doubled letters many typing errors look alike: `paswrd` and `pasowrd` are `pswrd`.
_SKELETONS: Final = ("pswrd", "pswd", "psphrs", "scrt", "crdntl")
_LONG_STEMS: Final = ("password", "passphrase", "passwd", "secret", "credential")
_LOOKALIKES: Final = str.maketrans("01345$@", "oleassa")
_NOT_LETTERS: Final = re.compile(r"[^a-z]")
_VOWELS: Final = re.compile(r"[aeiouy]")
_DOUBLED: Final = re.compile(r"(.)\1+")
_SEPARATOR: Final = re.compile(r"[ _.-]([A-Za-z])")

_TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.)*"?|[^\s":,{}\[\]#=]+')
_STRING: Final = re.compile(r'"(?:[^"\\]|\\.)*"?')
_IS: Final = re.compile(r"\s*[:=]\s*")
_BARE_VALUE: Final = re.compile(r"[^,{}\[\]\"]*")


def is_secret_name(name: object) -> bool:
    """Returns whether the value of such an attribute is a secret.

    True also for similar names: `pasword`, `sasl_passwrd`.
    """
    return isinstance(name, str) and name not in _plain_names() and _resembles_secret(name)


def _resembles_secret(name: str) -> bool:
    letters = _NOT_LETTERS.sub("", name.lower().translate(_LOOKALIKES))
    skeleton = _DOUBLED.sub(r"\1", _VOWELS.sub("", letters))
    return (
        any(stem in letters for stem in _STEMS)
        or any(each in skeleton for each in _SKELETONS)
        or _one_mistake().search(letters) is not None
    )


@cache
def _one_mistake() -> re.Pattern[str]:
    """Returns a pattern of the long stems with one letter missing, wrong, added, or swapped with its neighbour."""
    forms: set[str] = set()
    for stem in _LONG_STEMS:
        for at in range(len(stem)):
            before, letter, behind = stem[:at], stem[at], stem[at + 1 :]
            forms |= {before + behind, f"{before}.{behind}", f"{before}.{letter}{behind}"}
            forms |= {before + behind[:1] + letter + behind[1:]}
    return re.compile("|".join(sorted(forms)))


def without_secrets(line: str) -> str:
    """Returns the line without values of secrets and of attributes not in any schema, which may be misspelt secrets.

    The value is removed together with the rest of the line. The name stays.
    """
    return _shown(line)[0]


def lines_without_secrets(text: str) -> list[str]:
    """Returns the lines of a text as `without_secrets` does, and without values on the lines after a name."""
    shown: list[str] = []
    depth, is_awaited = 0, False
    for line in text.splitlines():
        is_blank = not line.strip()
        if (depth or is_awaited) and not is_blank:
            shown.append(ELLIPSIS)
            depth, is_awaited = max(0, depth + _opened(line)), False
            continue
        part, hidden = _shown(line)
        shown.append(part)
        if hidden is not None:
            is_awaited = not hidden.strip()
            depth = max(0, _opened(hidden)) if hidden.startswith(("[", "{")) else 0
    return shown


def _opened(text: str) -> int:
    """Returns the number of brackets that open in it, less those that close, except in strings."""
    outside = _STRING.sub("", text)
    return sum(map(outside.count, "[{")) - sum(map(outside.count, "]}"))


def _shown(line: str) -> tuple[str, str | None]:
    """Returns the visible line, and the part left out: "" for a value on a later line, None for nothing."""
    at = 0
    is_comment = False
    while (token := _TOKEN.search(line, at)) is not None:
        is_comment = is_comment or "#" in line[at : token.start()]
        at = token.end()
        stands = _IS.match(line, at)
        if stands is None:
            continue
        at = stands.end()
        name = token[0].strip('"')
        is_map = line.startswith("{", at)
        # In a comment, only a name similar to a secret's counts as one.
        if is_secret_name(name) or not (is_comment or is_map or _is_plain_name(name)):
            return (f"{line[:at]}…" if at < len(line) else line), line[at:]
        value = _BARE_VALUE.match(line, at)
        assert value is not None
        at = value.end()
    return line, None


def _is_plain_name(name: str) -> bool:
    return name in _plain_names() or _SEPARATOR.sub(lambda found: found[1].upper(), name) in _plain_names()


@cache
def _plain_names() -> frozenset[str]:
    """Returns all names of attributes of configurations and policies, including aliases, that are not secrets."""
    names: set[str] = set()
    secrets: set[str] = set()
    for entity_type in schemas.load("management")["entityTypes"].values():
        for name, attribute in entity_type["attributes"].items():
            of = secrets if attribute.get("secret") else names
            of |= {name, *attribute.get("aliases", ()), *attribute.get("synonyms", ())}
    definitions = schemas.load("policy")["$defs"]
    for kind in ("vhost", "group"):
        names |= definitions[kind]["properties"].keys()
    return frozenset(names - secrets)
