"""Resolves an address text once: the key it is bound under and every name by which it may be denied.

The policy check and the address table use the same value; the text is not parsed a second time.
Pure. Source: docs/spec/routing.md §3.1, §3.2, §3.4.
"""

from dataclasses import dataclass
from typing import Final

from policy.addressing.text import is_dynamic, normalise

AREA: Final = "0"  # the only area that exists
# Names of the management agent of every router. MANAGEMENT_TEXTS are the texts for this router's own agent.
MANAGEMENT_NAMES: Final = ("$management", "$_management_internal")
MANAGEMENT_TEXTS: Final = ("$management", "_local/$management", "_local/$_management_internal")
# The phase of the fallback destination of an address. Keys write it as F, since 22 is `F` minus `0` (network §10.1).
FALLBACK_PHASE: Final = 22
SEPARATOR: Final = "/"  # between a tenant and the names in its space
_LOCAL, _TOPOLOGICAL, _EDGE = "_local/", "_topo/", "_edge/"
_NOT_MOBILE: Final = (_LOCAL, _TOPOLOGICAL, _EDGE)


@dataclass(frozen=True, slots=True)
class Unclear:
    """A text that is not an address: no link may attach to it and no message may be sent there.

    why  for people: what is wrong with it, and the right form
    """

    written: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """One address as one peer wrote it.

    written  as it arrived; lists are compared with it at Attach
    plain    without scheme, authority and outer separators
    full     `written` in the tenant's space; sent to other routers, and lists are compared with it for messages
    name     `plain` in the tenant's space: treatments are found by it
    key      of the table, in phase 0
    names    every plain text that reaches the same address: a denial of one of them denies the address
    is_management  reaches the management agent of this router or another
    """

    written: str
    plain: str
    full: str
    name: str
    key: str
    names: tuple[str, ...]
    is_management: bool

    @property
    def is_dynamic(self) -> bool:
        """Returns whether it has the form that routers generate for dynamic termini. Such names are never reused."""
        return is_dynamic(self.plain)

    @property
    def is_mobile(self) -> bool:
        return self.key[0] == "M"

    def key_in(self, phase: int) -> str:
        """Returns the table key in a phase, 0 to 9 or FALLBACK_PHASE. Only mobile addresses have several."""
        return f"M{chr(48 + phase)}{self.name}" if phase and self.is_mobile else self.key


def phase_in(key: str) -> int:
    """Returns the phase of the table key of a mobile address."""
    return ord(key[1]) - 48


def resolve(text: str, *, router_id: str, tenant: str | None = None, area: str = AREA) -> Address | Unclear:
    """Resolves `text` at the router with that id.

    router_id  "" if unknown: then no topological address is the router's own
    tenant     owner of the address space of the peer's mobile addresses; None: no tenant
    """
    plain = normalise(text)
    if not plain:
        return Unclear(text, "it names nothing: an address has a name behind scheme, host and separators")
    # INVARIANT: a bound address means the same to the next router that reads it.
    if normalise(plain) != plain:
        return Unclear(text, f"it means '{plain}', which read again means another address: write the one that is meant")
    if plain.startswith(_LOCAL):
        return _own(text, plain, plain[len(_LOCAL) :], router_id, area)
    if plain.startswith(_TOPOLOGICAL):
        return _topological(text, plain, router_id, area)
    if plain.startswith(_EDGE):
        return _of_edge(text, plain, router_id, area)
    if tenant is None or is_dynamic(plain):  # dynamic addresses belong to no tenant
        if plain in MANAGEMENT_NAMES:
            return _own(text, plain, plain, router_id, area, key=f"M0{plain}")
        return Address(
            written=text, plain=plain, full=text, name=plain, key=f"M0{plain}", names=(plain,), is_management=False
        )
    if SEPARATOR in tenant:
        # Attack: the tenant `t` writes `inner/orders` and reaches the space of the tenant `t/inner`.
        return Unclear(text, f"the tenant's name '{tenant}' has a '{SEPARATOR}': its space is part of another's")
    name = f"{tenant}{SEPARATOR}{plain}"
    if normalise(name) != name or name.startswith(_NOT_MOBILE):
        return Unclear(text, f"in the address space of '{tenant}' it is '{name}', which is outside of that space")
    # Denials are written without the tenant for links and with it for messages: both forms name the address.
    return Address(
        written=text, plain=plain, full=name, name=name, key=f"M0{name}", names=(plain, name), is_management=False
    )


def resolve_named(
    text: str | None, *, router_id: str, tenant: str | None = None, area: str = AREA
) -> Address | Unclear | None:
    """Resolves `text` as resolve does. Returns None for None and "", which name no address (routing §3.1)."""
    return resolve(text, router_id=router_id, tenant=tenant, area=area) if text else None


def _own(text: str, plain: str, rest: str, router_id: str, area: str, *, key: str | None = None) -> Address:
    """Returns an address of only this router, or its management agent under its mobile name."""
    is_management = rest in MANAGEMENT_NAMES
    names = [plain]
    for each in MANAGEMENT_NAMES if is_management else (rest,):
        names.append(f"{_LOCAL}{each}")
        if router_id:
            names.append(f"{_TOPOLOGICAL}{area}/{router_id}/{each}")
            names.append(f"{_TOPOLOGICAL}all/{router_id}/{each}")
            names.append(f"{_EDGE}{router_id}/{each}")
    return _address(text, plain, f"L{rest}" if key is None else key, names, is_management=is_management)


def _topological(text: str, plain: str, router_id: str, area: str) -> Address | Unclear:
    parts = plain.split("/", 3)
    if len(parts) < 4 or not all(parts):
        return Unclear(text, f"'{plain}' is incomplete: such addresses are _topo/AREA/ROUTER/NAME")
    _, named_area, router, rest = parts
    is_management = rest in MANAGEMENT_NAMES
    if named_area not in (area, "all"):
        names = [plain]
        key = f"A{named_area}"
    elif router_id and router == router_id:
        return _own(text, plain, rest, router_id, area)
    else:
        names = [f"{_TOPOLOGICAL}{area}/{router}/{rest}", f"{_TOPOLOGICAL}all/{router}/{rest}"]
        key = f"T{rest}" if router == "all" else f"R{router}"
    return _address(text, plain, key, names, is_management=is_management)


def _of_edge(text: str, plain: str, router_id: str, area: str) -> Address | Unclear:
    router, _, rest = plain[len(_EDGE) :].partition("/")
    if not router or not rest:
        return Unclear(text, f"'{plain}' is incomplete: such addresses are _edge/ROUTER/NAME")
    if router_id and router == router_id:
        return _own(text, plain, rest, router_id, area)
    return _address(text, plain, f"H{router}", [plain], is_management=rest in MANAGEMENT_NAMES)


def _address(text: str, plain: str, key: str, names: list[str], *, is_management: bool) -> Address:
    if is_management:
        # A denial of management denies the management of every router.
        names = [*names, *MANAGEMENT_TEXTS]
    return Address(
        written=text,
        plain=plain,
        full=text,
        name=plain,
        key=key,
        names=tuple(dict.fromkeys(names)),
        is_management=is_management,
    )
