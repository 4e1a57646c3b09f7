"""The six control messages as values: how they are built, and which bodies of a peer are accepted.

Keys and texts are strings or symbols, numbers any AMQP integer, and lists lists. Unknown keys are ignored. Any other
body is `Malformed`. A message of a later protocol version is a `NewerVersion`, whatever else its body contains.

Source: docs/spec/network.md §5, §6.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from router.linkstate.limits import MAX_COST, MAX_ROUTER_ID_CHARACTERS, MAX_ROUTERS, MAX_SEQUENCE
from router.values import char, int_, long, symbol, timestamp

PROTOCOL_VERSION: Final = 1
AREA: Final = "0"
HELLO_ADDRESS: Final = "amqp:/_local/qdhello"
ALL_ROUTERS_ADDRESS: Final = "amqp:/_topo/0/all/qdrouter"
# Without a scheme, as 1.20 writes it.
ALL_MOBILE_ADDRESS: Final = "_topo/0/all/qdrouter.ma"


def router_address(router: str) -> str:
    """Returns the address of LSR and LSU to one router."""
    return f"amqp:/_topo/0/{router}/qdrouter"


def mobile_address(router: str) -> str:
    """Returns the address of MAR and an absolute MAU to one router."""
    return f"amqp:/_topo/0/{router}/qdrouter.ma"


class Malformed(ValueError):
    """A body that does not fit its opcode. The text says what is wrong and contains nothing from the peer."""


@dataclass(frozen=True, slots=True)
class NewerVersion:
    """A message of a later protocol version than this router supports."""

    opcode: str
    id: str
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Hello:
    OPCODE: ClassVar[str] = "HELLO"
    id: str
    version: int = PROTOCOL_VERSION
    instance: int
    seen: tuple[str, ...]

    def body(self) -> dict[str, Any]:
        return {**_opening(self.id, self.version), "instance": self.instance, "seen": list(self.seen)}

    def __str__(self) -> str:
        return f"HELLO({_shown(self)} inst={self.instance} seen={list(self.seen)})"


@dataclass(frozen=True, slots=True, kw_only=True)
class RouterAdvertisement:
    OPCODE: ClassVar[str] = "RA"
    id: str
    version: int = PROTOCOL_VERSION
    instance: int
    ls_seq: int
    mobile_seq: int

    def body(self) -> dict[str, Any]:
        numbers = {"instance": self.instance, "ls_seq": self.ls_seq, "mobile_seq": self.mobile_seq}
        return {**_opening(self.id, self.version), **numbers}

    def __str__(self) -> str:
        return f"RA({_shown(self)} inst={self.instance} ls_seq={self.ls_seq} mobile_seq={self.mobile_seq})"


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkStateRequest:
    OPCODE: ClassVar[str] = "LSR"
    id: str
    version: int = PROTOCOL_VERSION

    def body(self) -> dict[str, Any]:
        return _opening(self.id, self.version)

    def __str__(self) -> str:
        return f"LSR({_shown(self)})"


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkState:
    """A router's neighbours and the costs of its links to them."""

    id: str
    ls_seq: int
    peers: Mapping[str, int]

    def body(self) -> dict[str, Any]:
        return {"id": self.id, "area": AREA, "ls_seq": self.ls_seq, "peers": dict(self.peers)}

    def __str__(self) -> str:
        return f"LS(id={self.id} area={AREA} ls_seq={self.ls_seq} peers={dict(self.peers)})"


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkStateUpdate:
    OPCODE: ClassVar[str] = "LSU"
    id: str
    version: int = PROTOCOL_VERSION
    instance: int
    state: LinkState

    def body(self) -> dict[str, Any]:
        numbers = {"instance": self.instance, "ls_seq": self.state.ls_seq}
        return {**_opening(self.id, self.version), **numbers, "ls": self.state.body()}

    def __str__(self) -> str:
        return f"LSU({_shown(self)} inst={self.instance} ls_seq={self.state.ls_seq} ls={self.state})"


@dataclass(frozen=True, slots=True, kw_only=True)
class MobileAddressRequest:
    OPCODE: ClassVar[str] = "MAR"
    id: str
    version: int = PROTOCOL_VERSION
    have_seq: int

    def body(self) -> dict[str, Any]:
        return {**_mobile_opening(self.id, self.version), symbol("have_seq"): long(self.have_seq)}


@dataclass(frozen=True, slots=True, kw_only=True)
class MobileAddressUpdate:
    """The changes of a router's addresses (`is_absolute` False), or all its addresses (True).

    present  keys of its current addresses, with their hints: all of them if absolute
    absent   keys of removed addresses
    """

    OPCODE: ClassVar[str] = "MAU"
    id: str
    version: int = PROTOCOL_VERSION
    mobile_seq: int
    is_absolute: bool
    present: tuple[tuple[str, int | None], ...]
    absent: tuple[str, ...] = ()

    def body(self) -> dict[str, Any]:
        opening = {**_mobile_opening(self.id, self.version), symbol("mobile_seq"): long(self.mobile_seq)}
        keys = [key for key, _ in self.present]
        hints = [_HINTS[hint or 0] for _, hint in self.present]
        if self.is_absolute:
            return {**opening, symbol("exist"): keys, symbol("hints"): hints}
        return {**opening, symbol("hints"): hints, symbol("add"): keys, symbol("del"): list(self.absent)}


@dataclass(frozen=True, slots=True)
class MalformedUpdate:
    """A MAU that names its router, but has no valid addresses."""

    id: str


RouterMessage = Hello | RouterAdvertisement | LinkStateRequest | LinkStateUpdate
MobileMessage = MobileAddressRequest | MobileAddressUpdate


def decode_router_message(opcode: str, body: object) -> RouterMessage | NewerVersion | None:
    """Decodes a message to `qdrouter` or `qdhello`. None: the opcode is unknown. Raises Malformed."""
    reader = _READERS.get(opcode)
    if reader is None:
        return None
    fields = _map(body, "the body")
    identifier, version = _router_id(_needed(fields, "id")), _integer(fields.get("pv", 0), "pv")
    if version > PROTOCOL_VERSION:
        return NewerVersion(opcode, identifier, version)
    return reader(fields, identifier, version)


def decode_mobile_message(opcode: str, body: object) -> MobileMessage | NewerVersion | MalformedUpdate | None:
    """Decodes a message to `qdrouter.ma`. None: it is another message, or does not name its router, and is ignored."""
    if opcode not in ("MAR", "MAU"):
        return None
    sequence = "have_seq" if opcode == "MAR" else "mobile_seq"
    try:
        fields = _map(body, "the body")
        identifier, version = _router_id(_needed(fields, "id")), _integer(fields.get("pv", 0), "pv")
        if version > PROTOCOL_VERSION:
            return NewerVersion(opcode, identifier, version)
        number = _sequence(_needed(fields, sequence), sequence)
    except Malformed:
        return None
    if opcode == "MAR":
        return MobileAddressRequest(id=identifier, version=version, have_seq=number)
    try:
        return _mobile_update(fields, identifier, version, number)
    except Malformed:
        return MalformedUpdate(identifier)


def _hello(fields: Mapping[Any, Any], identifier: str, version: int) -> Hello:
    seen = _list(_needed(fields, "seen"), "seen")
    if len(seen) > MAX_ROUTERS:
        raise Malformed(f"seen names more than {MAX_ROUTERS} routers")
    names = tuple(map(_router_id, seen))
    return Hello(id=identifier, version=version, instance=_instance(fields), seen=names)


def _advertisement(fields: Mapping[Any, Any], identifier: str, version: int) -> RouterAdvertisement:
    return RouterAdvertisement(
        id=identifier,
        version=version,
        instance=_instance(fields),
        ls_seq=_sequence(_needed(fields, "ls_seq"), "ls_seq"),
        mobile_seq=_sequence(_needed(fields, "mobile_seq"), "mobile_seq"),
    )


def _request(fields: Mapping[Any, Any], identifier: str, version: int) -> LinkStateRequest:
    return LinkStateRequest(id=identifier, version=version)


def _update(fields: Mapping[Any, Any], identifier: str, version: int) -> LinkStateUpdate:
    _sequence(_needed(fields, "ls_seq"), "ls_seq")
    state = _map(_needed(fields, "ls"), "ls")
    if _router_id(_needed(state, "id")) != identifier:
        raise Malformed("ls is another router's")
    peers = _map(_needed(state, "peers"), "peers")
    if len(peers) >= MAX_ROUTERS:
        raise Malformed(f"peers names more than {MAX_ROUTERS - 1} routers")
    costs = {_router_id(peer): _cost(cost) for peer, cost in peers.items()}
    sequence = _sequence(_needed(state, "ls_seq"), "ls_seq")
    return LinkStateUpdate(
        id=identifier,
        version=version,
        instance=_instance(fields),
        state=LinkState(id=identifier, ls_seq=sequence, peers=costs),
    )


def _mobile_update(fields: Mapping[Any, Any], identifier: str, version: int, number: int) -> MobileAddressUpdate:
    is_absolute = "exist" in fields
    if is_absolute == ("add" in fields) or ("add" in fields) != ("del" in fields):
        raise Malformed("neither exist alone nor add and del")
    name = "exist" if is_absolute else "add"
    keys = _texts(fields[name], name)
    hints = _hints(fields.get("hints"), len(keys))
    absent = () if is_absolute else _texts(fields["del"], "del")
    return MobileAddressUpdate(
        id=identifier,
        version=version,
        mobile_seq=number,
        is_absolute=is_absolute,
        present=tuple(zip(keys, hints, strict=True)),
        absent=absent,
    )


_READERS: Final[dict[str, Callable[[Mapping[Any, Any], str, int], RouterMessage]]] = {
    "HELLO": _hello,
    "RA": _advertisement,
    "LSR": _request,
    "LSU": _update,
}
_DISTRIBUTIONS: Final = range(6)  # the valid hints
_HINTS: Final = tuple(map(int_, _DISTRIBUTIONS))


def _hints(value: object, count: int) -> list[int | None]:
    """Returns a hint for each key. If the numbers differ, there are no hints (network §9.2)."""
    if not isinstance(value, list) or len(value) != count:
        return [None] * count
    if set(map(type, value)) == {int_} and min(value) >= 0 and max(value) < len(_DISTRIBUTIONS):
        # Hints as routers send them, perhaps ten thousand.
        return list(value)
    return [int(hint) if _is_integer(hint) and hint in _DISTRIBUTIONS else None for hint in value]


def _texts(value: object, name: str) -> tuple[str, ...]:
    if isinstance(value, list) and set(map(type, value)) == {str}:
        return tuple(value)
    return tuple(_text(element, name) for element in _list(value, name))


def _needed(fields: Mapping[Any, Any], name: str) -> object:
    if name not in fields:
        raise Malformed(f"{name} is missing")
    return fields[name]


def _map(value: object, name: str) -> Mapping[Any, Any]:
    if not isinstance(value, dict):
        raise Malformed(f"{name} is no map")
    return value


def _list(value: object, name: str) -> list[Any]:
    if not isinstance(value, list):
        raise Malformed(f"{name} is no list")
    return value


def _text(value: object, name: str) -> str:
    if not isinstance(value, str) or isinstance(value, char):
        raise Malformed(f"{name} is no string")
    return str(value)


def _router_id(value: object) -> str:
    """Returns a valid router id.

    Attacks: a line feed that begins a log line; a slash, so that an answer goes to another address of a router; the
    name of all routers, so that it goes to all of them.
    """
    text = _text(value, "a router id")
    if not 0 < len(text) <= MAX_ROUTER_ID_CHARACTERS or "/" in text or not text.isprintable() or text == "all":
        raise Malformed(
            f"a router id has 1 to {MAX_ROUTER_ID_CHARACTERS} printable characters, no slash, and is not all"
        )
    return text


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool | timestamp)


def _integer(value: object, name: str) -> int:
    if not isinstance(value, int) or not _is_integer(value):
        raise Malformed(f"{name} is no integer")
    return int(value)


def _instance(fields: Mapping[Any, Any]) -> int:
    """Returns a valid instance.

    Attack: a number that management cannot encode, so that no client in the network can see its routers any more.
    """
    number = _integer(fields.get("instance", 0), "instance")
    if number > MAX_SEQUENCE:
        raise Malformed("instance is beyond 2^63")
    return number


def _sequence(value: object, name: str) -> int:
    number = _integer(value, name)
    if not 0 <= number <= MAX_SEQUENCE:
        raise Malformed(f"{name} is no sequence number")
    return number


def _cost(value: object) -> int:
    number = _integer(value, "a cost")
    if not 1 <= number <= MAX_COST:
        raise Malformed(f"a cost is between 1 and {MAX_COST}")
    return number


def _opening(identifier: str, version: int) -> dict[str, Any]:
    return {"id": identifier, "pv": version, "area": AREA}


def _mobile_opening(identifier: str, version: int) -> dict[str, Any]:
    return {symbol("id"): identifier, symbol("pv"): long(version), symbol("area"): AREA}


def _shown(message: RouterMessage) -> str:
    return f"id={message.id} pv={message.version} area={AREA}"
