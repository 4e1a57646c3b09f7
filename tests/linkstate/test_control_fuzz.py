"""Mutated control messages: no exception, and no state of another router is changed by a malformed one. Seeded.

PALISADE_CONTROL_MESSAGES says how many (default 5,000, a second; the figure to show is 1,000,000).
"""

import os
import random
from typing import Any

from one_router import OneRouter

from router.amqp.codec import CodecError, decode, encode
from router.linkstate.machine import ReceivedControl
from router.linkstate.messages import Malformed, MalformedUpdate, decode_mobile_message, decode_router_message
from router.values import Array, Described, long, symbol, ulong

MESSAGES = int(os.environ.get("PALISADE_CONTROL_MESSAGES", "5000"))
KEYS = ("Lqdhello", "Lqdrouter", "Tqdrouter", "Lqdrouter.ma", "Tqdrouter.ma")
OPCODES = ("HELLO", "RA", "LSR", "LSU", "MAR", "MAU")
IDS = ("R1", "R2", "R3", "R6", "R6", "R6", "X1", "X2")


def right(chance: random.Random, opcode: str) -> dict[str, Any]:
    """A well-formed body."""
    number = chance.choice((0, 1, 2, 3, 7, 2**31, 2**63 - 1))
    body: dict[str, Any] = {"id": chance.choice(IDS), "pv": chance.choice((0, 1, 1, 1, 1, 2)), "area": "0"}
    match opcode:
        case "HELLO":
            body |= {"instance": chance.randrange(3), "seen": chance.sample(IDS, 3)}
        case "RA":
            body |= {"instance": chance.choice((0, 100, 101)), "ls_seq": number, "mobile_seq": chance.randrange(4)}
        case "LSU":
            peers = {peer: chance.randint(1, 9) for peer in chance.sample(IDS, 2)}
            body |= {"ls_seq": number, "ls": {"id": body["id"], "area": "0", "ls_seq": number, "peers": peers}}
        case "MAR":
            body |= {"have_seq": number}
        case "MAU":
            keys = [f"M0a{chance.randrange(9)}" for _ in range(3)]
            lists = {"exist": keys} if chance.random() < 0.5 else {"add": keys, "del": keys[:1]}
            body |= {"mobile_seq": number, "hints": [3, 3, chance.randrange(8)], **lists}
    return body


def odd(chance: random.Random) -> Any:
    return chance.choice(
        (
            *(
                None,
                True,
                -1,
                0,
                1,
                ulong(2**63),
                1.5,
                "",
                "R6",
                "x/y",
                "\n",
                b"R6",
                [],
                {},
                [1],
                [["R6"]],
                {"R6": 1},
                {1: 2},
            ),
            *(symbol("R6"), long(-1), ulong(2**64 - 1), "x" * 300, ["M0a"] * 20, {f"P{n}": n for n in range(200)}),
            *(Array(str, ("R6",)), Described(ulong(1), "R6"), float("nan"), [None], ["", "M", "Lqdhello"]),
        )
    )


def bend(chance: random.Random, body: Any) -> Any:
    """The body with something wrong in it, somewhere."""
    if isinstance(body, dict) and body and chance.random() < 0.95:
        key = chance.choice(list(body))
        match chance.randrange(5):
            case 0:
                return {name: value for name, value in body.items() if name != key}
            case 1:
                return {**body, chance.choice(("exist", "add", "del", "hints", "new", "pv")): odd(chance)}
            case 2:
                return {
                    symbol(name) if isinstance(name, str) and name.isascii() else name: v for name, v in body.items()
                }
            case 3:
                return {**body, key: odd(chance)}
            case _:
                return {**body, key: bend(chance, body[key])}
    if isinstance(body, list) and body and chance.random() < 0.8:
        index = chance.randrange(len(body))
        return [*body[:index], odd(chance), *body[index + 1 :]]
    return odd(chance)


def twist(chance: random.Random, body: Any) -> Any:
    """The body after its octets were changed on the way, where it still is a value."""
    octets = bytearray(encode(body))
    for _ in range(chance.randint(1, 3)):
        octets[chance.randrange(len(octets))] = chance.randrange(256)
    try:
        return decode(bytes(octets))[0]
    except CodecError:
        return None


def is_malformed(opcode: Any, key: str, body: Any) -> bool:
    """By the readers' own word: what they let through is what another router might have said."""
    if not isinstance(opcode, str):
        return True
    try:
        if key.endswith(".ma"):
            found = decode_mobile_message(opcode, body)
            return found is None or isinstance(found, MalformedUpdate)
        return decode_router_message(opcode, body) is None
    except Malformed:
        return True


def network() -> OneRouter:
    """R2 with R3 behind it, and the liar R6."""
    router = OneRouter(hello_max_age_s=10**9)
    router.neighbour("R2", 1)
    router.neighbour("R6", 2)
    router.lsu("R2", 2, {"R1": 1, "R3": 1})
    router.lsu("R3", 1, {"R2": 1})
    router.mau("R2", 1, exist=["M0a1"], hints=[3])
    router.tick()
    return router


def test_mutated_messages_change_nothing_and_raise_nothing() -> None:
    chance = random.Random(14)
    router = network()
    malformed = 0
    for number in range(MESSAGES):
        opcode: Any = chance.choice(OPCODES)
        body: Any = right(chance, opcode)
        for _ in range(chance.choice((0, 1, 1, 2))):
            body = twist(chance, body) if chance.random() < 0.3 else bend(chance, body)
        is_own = opcode in ("MAR", "MAU")
        key = chance.choice(KEYS) if chance.random() < 0.1 else "Tqdrouter.ma" if is_own else "Tqdrouter"
        if chance.random() < 0.02:
            opcode = odd(chance)
        router.forget()
        properties = odd(chance) if chance.random() < 0.01 else {"opcode": opcode}
        is_bad = not isinstance(properties, dict) or is_malformed(properties.get("opcode"), key, body)
        trace = ("R6",) if chance.random() < 0.9 else ()
        received = ReceivedControl(link=2, key=key, properties=properties, body=body, trace=trace)
        router.take(router.machine.receive(received, router.now))
        if is_bad:
            malformed += 1
            assert all(hasattr(effect, "text") for effect in router.effects), (opcode, body, router.effects)
        if number % 50 == 49:
            router.tick()
        if number % 5000 == 4999:
            router = network()
    assert 0.2 < malformed / MESSAGES < 0.8


def test_the_truth_prevails_afterwards() -> None:
    """When the liar is gone, what the others say of themselves holds again."""
    chance = random.Random(3)
    for _ in range(20):
        router = network()
        for _ in range(100):
            opcode = chance.choice(OPCODES)
            body = right(chance, opcode)
            body = bend(chance, body) if chance.random() < 0.3 else body
            router.hear(opcode, body, 2, "Tqdrouter.ma" if opcode in ("MAR", "MAU") else "Tqdrouter", ("R6",))
        router.lose(2)
        for second in range(90):
            if second % 4 == 0:
                router.ra("R2", 2, 1)
                router.ra("R3", 1, 0)
            router.hello("R2", 1)
            router.forget()
            router.tick()
            for sent in router.sent:
                if sent.opcode == "LSR" and "/R2/" in sent.to:
                    router.lsu("R2", 2, {"R1": 1, "R3": 1})
                elif sent.opcode == "LSR" and "/R3/" in sent.to:
                    router.lsu("R3", 1, {"R2": 1})
                elif sent.opcode == "MAR" and "/R2/" in sent.to:
                    router.mau("R2", 1, exist=["M0a1"], hints=[3])
        assert router.reached() == {"R2": 1, "R3": 1}
        assert router.rows["R3"].link_state == ("R2",)
        assert router.rows["R3"].next_hop == "R2"
