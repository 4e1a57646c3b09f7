"""Resolves address texts by the tables of docs/spec/routing.md §3. Shares nothing with policy.addressing."""

import re
from itertools import product

ROUTER = "QDR"
LETTERS = ("/", ".", ":", "a", "$", "_", "#", "*")
WORDS = (
    *("_topo", "_local", "_edge", "0", "all", ROUTER, "OTHER", "$management", "$_management_internal"),
    *("a", "t", "x:/", "//h/", "/", "."),
)
MANAGEMENT = ("$management", "$_management_internal")


def texts(alphabet: tuple[str, ...], length: int) -> list[str]:
    """Returns every text of up to `length` pieces."""
    return ["".join(pieces) for count in range(1, length + 1) for pieces in product(alphabet, repeat=count)]


def read(text: str) -> str:
    """Reads an address once, by §3.1."""
    if ":/" in text and text[0] != "/":
        text = "/" + text.split(":/", 1)[1]
    text = re.sub(r"\A(//[^/]*(/|\Z)|/)", "", text)
    return re.sub(r"[./]\Z", "", text)


def meaning(text: str, tenant: str | None = None, router: str = ROUTER) -> tuple[str, ...] | None:
    """Returns the meaning by §3.2, §3.4: ("M", name), ("L", rest), ("R", router, rest) ...

    None if the text is refused.
    """
    plain = read(text)
    if plain == "" or read(plain) != plain:
        return None
    if (found := re.fullmatch(r"(?s)_local/(.+)", plain)) is not None:
        return "L", found[1]
    if plain.startswith("_topo/"):
        if (found := re.fullmatch(r"(?s)_topo/([^/]+)/([^/]+)/(.+)", plain)) is None:
            return None
        area, at, rest = found.groups()
        if area not in ("0", "all"):
            return "A", area, plain
        if at == router:
            return "L", rest
        return ("T", rest) if at == "all" else ("R", at, rest)
    if plain.startswith("_edge/"):
        if (found := re.fullmatch(r"(?s)_edge/([^/]+)/(.+)", plain)) is None:
            return None
        return ("L", found[2]) if found[1] == router else ("H", found[1], found[2])
    if tenant is None:
        return "M", plain
    if "/" in tenant:
        return None
    name = f"{tenant}/{plain}"
    return ("M", name) if meaning(name, None, router) == ("M", name) else None


def key_of(found: tuple[str, ...], phase: int = 0) -> str:
    """Returns the key of the table. For an address that is carried elsewhere this is only its destination."""
    return f"M{phase}{found[1]}" if found[0] == "M" else found[0] + found[1]


def names_of(found: tuple[str, ...], plain: str, router: str = ROUTER) -> list[str]:
    """Returns every plain text that reaches it.

    plain  the one that was read, without a tenant
    """
    kind, rest = found[0], found[-1]
    rests = MANAGEMENT if is_management(found) else (rest,)
    heads = ("_local/", f"_topo/0/{router}/", f"_topo/all/{router}/", f"_edge/{router}/")
    own = [f"{head}{each}" for each in rests for head in heads]
    management = ["$management", *(f"_local/{each}" for each in MANAGEMENT)] if is_management(found) else []
    if kind == "M":
        return [plain, rest, *(own if is_management(found) else ()), *management]
    if kind == "L":
        return own + management
    if kind in "RT":
        at = found[1] if kind == "R" else "all"
        return [f"_topo/0/{at}/{rest}", f"_topo/all/{at}/{rest}", *management]
    return [plain, *management]


def is_management(found: tuple[str, ...]) -> bool:
    """Returns whether it reaches the management agent of this router, or of another."""
    rest = found[-1].split("/", 3)[-1] if found[0] == "A" else found[-1]
    return rest in MANAGEMENT
