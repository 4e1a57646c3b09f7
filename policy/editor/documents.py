"""The open files, and the results of their checks. Reads no files."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from policy.editor.completion import Names
from policy.editor.positions import Positions, with_plain_line_ends

_SUFFIXES: Final = (".json", ".conf")


@dataclass(kw_only=True)
class Document:
    """One version of an open file.

    file         its absolute path; for a document that is not on disk, a name that is not a path
    text         lines end with \\n
    readable     the last text that could be read; this text until the first check
    diagnostics  of this version, as from `policy.editor.checking`; None: not checked yet
    policy       attributes of the router's `policy` section, {} if they are not known
    """

    uri: str
    file: str
    text: str
    version: int
    encoding: str
    readable: str
    diagnostics: list[dict[str, Any]] | None = None
    policy: Mapping[str, object] = field(default_factory=dict)
    names: Names = field(default_factory=Names)

    @property
    def is_conf(self) -> bool:
        return self.file.endswith(".conf")

    @cached_property
    def positions(self) -> Positions:
        return Positions(self.text, self.encoding)


def opened(uri: str, text: str, version: int, encoding: str, language: str) -> Document | None:
    """Returns a document for a file that was opened.

    None if its name and language show that it is not a policy file.
    """
    file = _file_of(uri)
    if not file.endswith(_SUFFIXES):
        if not language.startswith(("json", "qdrouterd")):
            return None
        file += ".conf" if language == "qdrouterd-conf" else ".json"
    plain = _plain(text)
    return Document(uri=uri, file=file, text=plain, version=version, encoding=encoding, readable=plain)


def changed(document: Document, text: str, version: int) -> Document:
    """Returns the next version of an open file."""
    return Document(
        uri=document.uri,
        file=document.file,
        text=_plain(text),
        version=version,
        encoding=document.encoding,
        readable=document.readable,
        policy=document.policy,
        names=document.names,
    )


def _plain(text: str) -> str:
    """Returns the text as a file could hold it: half of a surrogate pair becomes `?`."""
    return with_plain_line_ends(text.encode("utf-8", "replace").decode())


def _file_of(uri: str) -> str:
    """Returns the path of a file URI. For any other URI, returns a name that is not a path."""
    try:
        parts = urlsplit(uri)
    except ValueError:
        return "unnamed"
    if parts.scheme == "file" and parts.netloc in ("", "localhost") and parts.path.startswith("/"):
        path = unquote(parts.path, errors="replace")
        return path if "\0" not in path else "unnamed"
    return f"{parts.scheme}:{parts.path}".replace("/", "_")
