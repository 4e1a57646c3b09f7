"""The names of files in the target of a request, and their types. Pure.

Attack: `..`, plain, percent-encoded or encoded twice, to read files above the folder; NUL and backslash, which other
layers read as an end or as a separator.
"""

import re
from typing import Final

_TYPES: Final = {
    "html": "text/html; charset=utf-8",
    "htm": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "mjs": "text/javascript; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "json": "application/json",
    "map": "application/json",
    "webmanifest": "application/manifest+json",
    "txt": "text/plain; charset=utf-8",
    "md": "text/plain; charset=utf-8",
    "svg": "image/svg+xml",
    "png": "image/png",
    "jpg": "image/jpeg",
    "jpeg": "image/jpeg",
    "gif": "image/gif",
    "webp": "image/webp",
    "ico": "image/x-icon",
    "woff": "font/woff",
    "woff2": "font/woff2",
    "ttf": "font/ttf",
    "otf": "font/otf",
    "xml": "application/xml",
    "pdf": "application/pdf",
    "wasm": "application/wasm",
    "gz": "application/gzip",
    "zip": "application/zip",
}
UNKNOWN_TYPE: Final = "application/octet-stream"
INDEX: Final = "index.html"
_MOST_NAMES: Final = 32
_ENCODED: Final = re.compile(rb"%([0-9A-Fa-f]{2})")


def names_of(target: str) -> tuple[str, ...] | None:
    """Returns the names of the folders and the file that a path means, below the root; None: it means no file.

    A path that ends with a slash means the index of the folder. Names that begin with a dot are never served: they are
    files of tools (`.git`, `.env`).
    """
    try:
        path = _ENCODED.sub(lambda found: bytes((int(found[1], 16),)), target.encode()).decode("utf-8")
    except UnicodeDecodeError:
        return None
    if not path.startswith("/") or not path.isprintable() or "\\" in path or "%" in path:
        return None
    names = path[1:].split("/")
    if not names[-1]:
        names[-1] = INDEX
    if len(names) > _MOST_NAMES or any(not name or name.startswith(".") for name in names):
        return None
    return tuple(names)


def type_of(name: str) -> str:
    """Returns the content type of a file, by the extension of its name."""
    return _TYPES.get(name.rpartition(".")[2].lower(), UNKNOWN_TYPE)


def accepts(accepted: tuple[str, ...], coding: str) -> bool:
    """Returns True if a list of Accept-Encoding names `coding` without a weight of zero."""
    for each in accepted:
        name, _, parameters = each.partition(";")
        if name.strip().lower() == coding:
            return parameters.replace(" ", "").lower() not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
    return False
