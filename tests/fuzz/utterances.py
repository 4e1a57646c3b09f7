"""What a hostile neighbour says to a router: control messages and annotated messages, many of them wrong.

The hostile neighbour is called TEST, and its victim A; another router C and an edge E1 are behind that.
"""

import random
from typing import Any, Final

import wire
from memory_net import encoded

from router.amqp.codec import encode
from router.network.envelope import encode_control
from router.values import int_, long, ulong
from router.values import symbol as sym

NAME: Final = "TEST"
OPCODES: Final = ("HELLO", "RA", "LSR", "LSU", "MAR", "MAU", "NEWS")
ADDRESSES: Final = (
    "m", "c", "b", "nobody", "$management", "_topo/0/C/temp.x", "_topo/0/A/$management", "_topo/0/C/$management",
    "_topo/0/all/qdrouter", "_local/qdhello", "_edge/E1/x", "_edge/TEST/x", "_edge/TEST/downlink", "q.1",
    "_topo/0/TEST/qdrouter.ma", "_topo/1/A/x", "", "/", "_edge//", "_$qd.edge_addr_tracking", "_$qd.addr_lookup",
    "_$qd.edge_heartbeat", NAME, "L_edge", "_topo/0/TEST/x",
)  # fmt: skip
DESTINATIONS: Final = (
    "_local/qdhello", "_topo/0/all/qdrouter", "_topo/0/A/qdrouter", "_topo/0/C/qdrouter", "_topo/0/all/qdrouter.ma",
    "_topo/0/A/qdrouter.ma", "_topo/0/C/qdrouter.ma", "b", "$management", "",
)  # fmt: skip
PROPER: Final = {
    "HELLO": "_local/qdhello", "RA": "_topo/0/all/qdrouter", "LSU": "_topo/0/A/qdrouter", "LSR": "_topo/0/A/qdrouter",
    "MAU": "_topo/0/all/qdrouter.ma", "MAR": "_topo/0/A/qdrouter.ma",
}  # fmt: skip
ROUTERS: Final = (NAME, "C", "A", "Z1", "Z2")
IDS: Final = (*ROUTERS, "x" * 127, "x" * 200, "a/b", 5, None, "all", "")
KEYS: Final = (
    "M0m", "M0b", "M0c", "M0nobody", "M1q", "MFb", "Hx", "HE1", "Cq", "Dq", "E*.x", "F#", "M0$management", "Ltemp",
    "R1", "", "M", "M0" + "y" * 5000, "Tqdrouter", "M0_$qd.addr_lookup",
)  # fmt: skip
CLAIMS: Final = ("to", "ingress", "trace", "phase", "stream", "class")
LARGE: Final = (1, 10, 3000, 40_000, 100_000, 300_000)
SMALL: Final = (1, 10, 140, 160, 700, 2000, 20_000)  # where messages stream from 150 bytes on, in frames of 512
PROPERTIES: Final = b"\x00\x53\x73"


def annotations(chance: random.Random) -> dict[Any, Any]:
    """Those of a router, or what has their names."""
    odd: list[Any] = [
        None, 1, -1, "", "0/A", "0/C", "0/TEST", "x" * chance.choice((1, 300, 5000)), [], {}, sym("0/A"), True, 2.5,
        ["0/A"], ["0/C", "0/TEST"], ["0/A"] * chance.choice((3, 130)), [1], b"x", ulong(2**63),
    ]  # fmt: skip
    usual: dict[str, Any] = {
        "to": chance.choice(ADDRESSES), "ingress": chance.choice(("0/A", "0/C", "0/TEST", "0/Z")),
        "trace": chance.choice((["0/TEST"], [], ["0/A", "0/TEST"], ["0/C"])), "phase": chance.choice((1, 22, 0)),
        "stream": 1, "class": "x",
    }  # fmt: skip
    claimed = [key for key in CLAIMS if chance.random() < 0.5]
    return {sym("x-opt-qd." + key): usual[key] if chance.random() < 0.6 else chance.choice(odd) for key in claimed}


def message(chance: random.Random, sizes: tuple[int, ...]) -> bytes:
    """A user's message as a router hands it on, or not quite."""
    body = bytes(chance.choice(sizes))
    payload = encoded(body, address=chance.choice(ADDRESSES)) if chance.random() < 0.8 else encoded(body)
    cut = max(payload[:40].find(PROPERTIES), 0)
    if cut and chance.random() < 0.8:
        payload = payload[:cut] + b"\x00\x53\x72" + encode(annotations(chance)) + payload[cut:]
    if chance.random() < 0.05:
        payload = payload[: chance.randrange(len(payload))]
    return chance.randbytes(40) if chance.random() < 0.03 else payload


def performative(chance: random.Random) -> bytes:
    """One that may be in order, on some channel."""
    handle, number = chance.randrange(12), chance.choice((0, 1, 5, 0xFFFFFFFF))
    is_receiver, address = chance.random() < 0.5, chance.choice((None, "m", "b"))
    kinds = (
        lambda: wire.end(), lambda: wire.detach(handle, is_closed=is_receiver),
        lambda: wire.attach(f"other {handle}", handle, is_receiver=is_receiver, address=address),
        lambda: wire.begin(chance.choice((None, 0, 3)), incoming=chance.choice((0, 1, 100))),
        lambda: wire.flow(chance.choice((None, handle)), credit=number, window=chance.choice((0, 1, 2048))),
        lambda: wire.transfer(handle, number, bytes(chance.choice((1, 200))), is_last=is_receiver),
        lambda: wire.disposition(is_receiver=is_receiver, first=0, last=number, state=wire.RELEASED),
    )  # fmt: skip
    return chance.choice(kinds)()


def hello() -> bytes:
    """By it A takes TEST for a neighbour."""
    return encode_control(f"0/{NAME}", "_local/qdhello", "HELLO",
                          {"id": NAME, "pv": 1, "instance": int_(100), "seen": ["A"]})  # fmt: skip


def has(*keys: str, sequence: int) -> bytes:
    """By it A takes TEST to have consumers, or to serve link routes."""
    hints = [4 if key[0] in "CD" else 3 for key in keys]
    body = {"id": NAME, "pv": 1, "mobile_seq": long(sequence), "exist": list(keys), "hints": hints}
    return encode_control(f"0/{NAME}", "_topo/0/all/qdrouter.ma", "MAU", body)


def control(chance: random.Random) -> bytes:
    """A control message of any kind, with fields of any value."""
    opcode = chance.choice(OPCODES)

    def number() -> Any:
        return chance.choice((0, 1, 2, 5, 2**31, 2**63 - 1, -1, ulong(2**64 - 1), "1", None, long(3), int_(7)))

    def some_keys() -> list[str]:
        return [chance.choice(KEYS) for _ in range(chance.randrange(6))]

    peers = chance.choice(({"A": 1}, {"C": 1, "A": 1}, {}, {"Z1": 1}, {"A": 0}, {1: 1}))
    body: dict[str, Any] = {
        "id": chance.choice(ROUTERS if chance.random() < 0.8 else IDS), "pv": chance.choice((1, 1, 1, 0, 2)),
        "area": "0", "instance": number() if chance.random() < 0.3 else int_(100),
        "seen": chance.choice((["A"], [], ["A", "C"], None, [1])), "ls_seq": number(), "mobile_seq": number(),
        "have_seq": number(), "ls": {"id": chance.choice(ROUTERS), "ls_seq": number(), "peers": peers},
    }  # fmt: skip
    if opcode == "MAU":
        body |= {"exist": some_keys()} if chance.random() < 0.5 else {"add": some_keys(), "del": some_keys()}
        body["hints"] = chance.choice((None, [3] * 5, [0, 1, 2, 3, 4], [9]))
    to = chance.choice(DESTINATIONS)
    return encode_control(f"0/{NAME}", PROPER.get(opcode, to) if chance.random() < 0.7 else to, opcode, body)
