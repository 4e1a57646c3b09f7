"""The bodies of control messages: what is sent, to the type, and what of a peer's is accepted."""

import uuid
from typing import Any

import pytest

from router.amqp.codec import decode, encode
from router.linkstate.messages import (
    Hello,
    LinkState,
    LinkStateRequest,
    LinkStateUpdate,
    Malformed,
    MalformedUpdate,
    MobileAddressRequest,
    MobileAddressUpdate,
    NewerVersion,
    RouterAdvertisement,
    decode_mobile_message,
    decode_router_message,
    mobile_address,
    router_address,
)
from router.values import Array, byte, char, float_, int_, long, symbol, timestamp, ubyte, ulong

# The bodies of the two messages that network §6.1 and §6.6 give in octets.
HELLO_BODY = (
    "d1000000430000000aa1026964a1055144522e42a10270765401a10461726561a10130a108696e7374616e6365716b003f"
    "3ea1047365656ed00000000b00000001a1055144522e41"
)
MAU_BODY = (
    "d1000000630000000ea3026964a1055144522e41a30270765501a30461726561a10130a30a6d6f62696c655f7365715502a305"
    "68696e7473d000000006000000015403a303616464d00000000d00000001a1074d306164647231a30364656cd0000000"
    "0400000000"
)
STATE = LinkState(id="QDR.B", ls_seq=1, peers={"QDR.A": 3})
MESSAGES: list[Any] = [
    Hello(id="QDR.B", instance=1795178302, seen=("QDR.A",)),
    RouterAdvertisement(id="QDR.A", instance=1795178302, ls_seq=1, mobile_seq=2**40),
    LinkStateRequest(id="QDR.A"),
    LinkStateUpdate(id="QDR.B", instance=1795178302, state=STATE),
]
MOBILE_MESSAGES: list[Any] = [
    MobileAddressRequest(id="QDR.B", have_seq=0),
    MobileAddressUpdate(id="QDR.A", mobile_seq=3, is_absolute=False, present=(("M0a", 2),), absent=("M0addr1",)),
    MobileAddressUpdate(id="QDR.A", mobile_seq=1, is_absolute=True, present=(("HEA1", 3),)),
]


def typed(value: Any) -> Any:
    """A value that equals only what has the same types; a plain integer is what the wire makes of it."""
    if isinstance(value, dict):
        return [(typed(key), typed(element)) for key, element in value.items()]
    if isinstance(value, list):
        return [typed(element) for element in value]
    if type(value) is int:
        return (int_ if -(2**31) <= value < 2**31 else long, value)
    return (type(value), value)


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: message.OPCODE)
def test_what_is_sent_is_understood(message: Any) -> None:
    assert decode_router_message(message.OPCODE, decode(encode(message.body()))[0]) == message


@pytest.mark.parametrize("message", MOBILE_MESSAGES, ids=["MAR", "differential", "absolute"])
def test_what_is_sent_of_addresses_is_understood(message: Any) -> None:
    assert decode_mobile_message(message.OPCODE, decode(encode(message.body()))[0]) == message


def test_a_hello_has_the_octets_of_the_specification() -> None:
    """network 18"""
    body = MESSAGES[0].body()
    assert list(body) == ["id", "pv", "area", "instance", "seen"]
    assert typed(body) == typed(decode(bytes.fromhex(HELLO_BODY))[0])


def test_an_update_of_addresses_has_the_octets_of_the_specification() -> None:
    update = MobileAddressUpdate(id="QDR.A", mobile_seq=2, is_absolute=False, present=(("M0addr1", 3),))
    assert typed(update.body()) == typed(decode(bytes.fromhex(MAU_BODY))[0])


@pytest.mark.parametrize(
    ("message", "keys"),
    [
        (MESSAGES[1], ["id", "pv", "area", "instance", "ls_seq", "mobile_seq"]),
        (MESSAGES[2], ["id", "pv", "area"]),
        (MESSAGES[3], ["id", "pv", "area", "instance", "ls_seq", "ls"]),
        (MOBILE_MESSAGES[0], ["id", "pv", "area", "have_seq"]),
        (MOBILE_MESSAGES[1], ["id", "pv", "area", "mobile_seq", "hints", "add", "del"]),
        (MOBILE_MESSAGES[2], ["id", "pv", "area", "mobile_seq", "exist", "hints"]),
    ],
)
def test_keys_are_in_order_and_of_their_family_type(message: Any, keys: list[str]) -> None:
    """Strings and ints between routers; symbols and longs where addresses are concerned."""
    body = message.body()
    assert list(body) == keys
    is_mobile = message.OPCODE in ("MAR", "MAU")
    assert {type(key) for key in body} == {symbol if is_mobile else str}
    assert type(body[symbol("pv")]) is (long if is_mobile else int)
    assert body[symbol("area")] == "0"


def test_the_texts_of_the_log() -> None:
    assert str(MESSAGES[0]) == "HELLO(id=QDR.B pv=1 area=0 inst=1795178302 seen=['QDR.A'])"
    assert str(MESSAGES[1]) == f"RA(id=QDR.A pv=1 area=0 inst=1795178302 ls_seq=1 mobile_seq={2**40})"
    assert str(MESSAGES[2]) == "LSR(id=QDR.A pv=1 area=0)"
    assert str(MESSAGES[3]) == (
        "LSU(id=QDR.B pv=1 area=0 inst=1795178302 ls_seq=1 ls=LS(id=QDR.B area=0 ls_seq=1 peers={'QDR.A': 3}))"
    )


def test_where_messages_go() -> None:
    assert router_address("QDR.B") == "amqp:/_topo/0/QDR.B/qdrouter"
    assert mobile_address("QDR.B") == "amqp:/_topo/0/QDR.B/qdrouter.ma"


def test_versions_instances_and_hints_may_be_missing() -> None:
    """network 106"""
    assert decode_router_message("HELLO", {"id": "A", "seen": []}) == Hello(id="A", version=0, instance=0, seen=())
    assert decode_router_message("RA", {"id": "A", "ls_seq": 1, "mobile_seq": 2}) == RouterAdvertisement(
        id="A", version=0, instance=0, ls_seq=1, mobile_seq=2
    )
    update = decode_mobile_message("MAU", {"id": "A", "mobile_seq": 1, "exist": ["M0a"]})
    assert update == MobileAddressUpdate(id="A", version=0, mobile_seq=1, is_absolute=True, present=(("M0a", None),))


def test_unknown_opcodes_and_keys_are_ignored() -> None:
    """network 107"""
    assert decode_router_message("NEWS", {"id": "A"}) is None
    assert decode_router_message("MAR", {"id": "A", "have_seq": 0}) is None
    assert decode_mobile_message("RA", {"id": "A", "ls_seq": 1, "mobile_seq": 2}) is None
    body = {"id": "A", "new": [1], 7: "x", "area": {}}
    assert decode_router_message("LSR", body) == LinkStateRequest(id="A", version=0)


@pytest.mark.parametrize("number", [ubyte(7), ulong(7), byte(7), int_(7), long(7), 7])
def test_every_integer_is_one(number: int) -> None:
    body = {symbol("id"): symbol("A"), "ls_seq": number, "mobile_seq": number, "instance": number, "pv": number - 6}
    found = decode_router_message("RA", body)
    assert found == RouterAdvertisement(id="A", version=1, instance=7, ls_seq=7, mobile_seq=7)
    assert isinstance(found, RouterAdvertisement)
    assert type(found.id) is str
    assert type(found.ls_seq) is int


RA: dict[str, Any] = {"id": "A", "ls_seq": 1, "mobile_seq": 1}
LS = {"id": "A", "ls_seq": 1, "peers": {"B": 1}}
LSU = {"id": "A", "ls_seq": 1, "ls": LS}
HUGE = 2**63
ODD_STATES: list[Any] = [None, [], "ls", {"id": "A", "ls_seq": 1}, {"id": "A"}]
ODD_PEERS: list[Any] = [[], {"B": 0}, {"B": -1}, {"B": HUGE}, {7: 1}]


@pytest.mark.parametrize(
    ("opcode", "body"),
    [
        ("HELLO", None),
        ("HELLO", [("id", "A")]),
        ("HELLO", {"seen": []}),
        ("HELLO", {"id": "A"}),
        *(("HELLO", {"id": "A", "seen": seen}) for seen in ("B", {"B": 1}, Array(str, ("B",)), [b"B"], [7], [None])),
        ("HELLO", {"id": "A", "seen": [f"R{index}" for index in range(129)]}),
        *(
            ("HELLO", {"id": each, "seen": []})
            for each in (b"A", 7, None, char("A"), "", "A/B", "A\nB", "all", "A" * 128)
        ),
        *(("HELLO", {"id": "A", "seen": [], "pv": version}) for version in ("1", True, 1.0, None)),
        *(("HELLO", {"id": "A", "seen": [], "instance": instance}) for instance in ("1", float_(1), uuid.UUID(int=1))),
        *(("RA", {**RA, "ls_seq": number}) for number in (-1, HUGE, "1", True, 1.5, None, timestamp(1), [1])),
        *(("RA", {**RA, "mobile_seq": number}) for number in (-1, ulong(HUGE), b"1", False)),
        ("RA", {"id": "A", "ls_seq": 1}),
        ("RA", {"id": "A", "mobile_seq": 1}),
        ("LSR", {}),
        ("LSU", {"id": "A", "ls": LS}),
        ("LSU", {"id": "A", "ls_seq": 1}),
        *(("LSU", {**LSU, "ls": state}) for state in ODD_STATES),
        ("LSU", {**LSU, "ls": {**LS, "id": "B"}}),
        *(("LSU", {**LSU, "ls": {**LS, "peers": peers}}) for peers in ODD_PEERS),
        *(("LSU", {**LSU, "ls": {**LS, "peers": {"B": cost}}}) for cost in ("1", True, None, 1.5)),
        ("LSU", {**LSU, "ls": {**LS, "peers": {f"R{index}": 1 for index in range(128)}}}),
    ],
)
def test_what_is_malformed_is_refused(opcode: str, body: Any) -> None:
    with pytest.raises(Malformed):
        decode_router_message(opcode, body)


@pytest.mark.parametrize(
    "body",
    [
        *(None, [], {}, {"id": "A"}, {"mobile_seq": 1}, {"id": 7, "mobile_seq": 1}),
        *({"id": "A", "mobile_seq": "1"}, {"id": "A", "mobile_seq": -1}, {"id": "A", "mobile_seq": 1, "pv": "1"}),
    ],
)
def test_an_update_that_does_not_say_whose_it_is_is_ignored(body: Any) -> None:
    assert decode_mobile_message("MAU", body) is None


@pytest.mark.parametrize(
    "lists",
    [
        {},
        {"add": ["M0a"]},
        {"del": ["M0a"]},
        {"exist": [], "add": [], "del": []},
        {"exist": [], "add": []},
        {"exist": [], "del": []},
        {"exist": "M0a"},
        {"exist": {"M0a": 1}},
        {"exist": None},
        {"exist": [b"M0a"]},
        {"add": [7], "del": []},
        {"add": [], "del": Array(str, ("M0a",))},
    ],
)
def test_an_update_of_no_known_shape_is_malformed(lists: dict[str, Any]) -> None:
    """network 53"""
    assert decode_mobile_message("MAU", {"id": "A", "mobile_seq": 1, **lists}) == MalformedUpdate("A")


@pytest.mark.parametrize(
    ("hints", "expected"),
    [
        ([1, 2], [1, 2]),
        ([ubyte(0), long(5)], [0, 5]),
        ([6, -1], [None, None]),
        (["3", True], [None, None]),
        ([3], [None, None]),
        ([3, 3, 3], [None, None]),
        ("33", [None, None]),
        (None, [None, None]),
    ],
)
def test_hints_that_say_nothing_are_none(hints: Any, expected: list[int | None]) -> None:
    found = decode_mobile_message("MAU", {"id": "A", "mobile_seq": 1, "exist": ["M0a", "M0b"], "hints": hints})
    assert isinstance(found, MobileAddressUpdate)
    assert [hint for _, hint in found.present] == expected


def test_a_later_version_is_noticed_whatever_it_holds() -> None:
    assert decode_router_message("HELLO", {"id": "A", "pv": 2}) == NewerVersion("HELLO", "A", 2)
    assert decode_mobile_message("MAR", {"id": "A", "pv": 2}) == NewerVersion("MAR", "A", 2)
