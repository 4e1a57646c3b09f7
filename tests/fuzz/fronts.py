"""Torn messages between routers: what our C makes out of their beginnings, and puts into them, beside Python's.

    python -m tests.fuzz.fronts --seconds 60 --seed 1

Each message lies at the end of memory of its own, so that a sanitizer (tests/asan) sees what is read behind it. A
difference between the two, or a fault, ends the process with another status than 0.
"""

import argparse
import random
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path[:0] = [str(ROOT), str(HERE), str(HERE.parent / "amqp")]

import sanitized_modules  # noqa: E402, F401

if TYPE_CHECKING:
    from router.amqp.layout.front import Known

ANNOTATIONS = b"\x00\x53\x72\xc1\x1c\x04\xa3\x0bx-opt-qd.to\xa1\x01a\xa3\x05x-own\x40\x40"
LONG_HEADER = b"\x00\x53\x70\xd0\x00\x00\x00\x07\x00\x00\x00\x02\x40\x50\x03"
PARTS = (
    (b"", b"\x00\x53\x70\x45", b"\x00\x53\x70\xc0\x04\x02\x41\x50\x07", LONG_HEADER),
    (b"", ANNOTATIONS, b"\x00\x53\x72\xd1\x00\x00\x00\x04\x00\x00\x00\x00", b"\x00\x53\x71\xc1\x01\x00"),
    (b"", b"\x00\x53\x73\x45", b"\x00\x53\x73\xc0\x05\x02\x40\xa0\x01u", b"\x00\x53\x74\xc1\x01\x00"),
    (b"\x00\x53\x75\xa0\x05hello", b"\x00\x53\x77\xa1\x01x", b"", b"opaque, and no message"),
)  # fmt: skip


def torn(chance: random.Random) -> bytes:
    """A message, whole or not."""
    parts = [chance.choice(kinds) for kinds in PARTS]
    if not chance.randrange(5):
        chance.shuffle(parts)
    message = bytearray(b"".join(parts))
    for _ in range(chance.choice((0, 0, 1, 2, 5))):
        if message:
            at = chance.randrange(len(message))
            message[at : at + chance.randrange(3)] = chance.randbytes(chance.randrange(3))
    return bytes(message[: chance.choice((len(message), chance.randrange(len(message) + 1)))])


def remembered(kind: "type[Known]", buffer: bytearray, sections: list[bytes]) -> "tuple[Known, list[bool]]":
    """One that knows all the sections, and whether it remembers each.

    By a secret seed two of them may have one place, from which the first has to go: then another seed is drawn.
    """
    while True:
        peeler = kind(buffer)
        places = {section: peeler.remember(section) for section in sections}
        taken = [place for place in places.values() if place >= 0]
        if len(set(taken)) == len(taken):
            return peeler, [places[section] >= 0 for section in sections]


def try_one(chance: random.Random) -> None:
    """Errors: AssertionError where Python and C differ."""
    from twins.front import PYTHON

    from router.amqp.layout.front import AT_SHIFT, FRONT, LOOK_CLOSER, SIZE_MASK, USUAL

    message, known = torn(chance), [torn(chance) for _ in range(3)] + [ANNOTATIONS]
    seen = []
    for kind in (PYTHON, FRONT):
        buffer = bytearray(message)
        front = kind.front_of(buffer)(len(message))
        peeler, places = remembered(kind.known, buffer, known)
        found = peeler.peel(len(message))
        rest = bytes(buffer[: found & SIZE_MASK]) if found != LOOK_CLOSER else bytes(buffer)
        seen.append((front, places, found != LOOK_CLOSER and bool(found & USUAL), rest))
        assert front == LOOK_CLOSER or front >> AT_SHIFT <= len(message)
    assert seen[0] == seen[1], (message, known, seen)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", default="1")
    options = parser.parse_args()
    end, count = time.monotonic() + options.seconds, 0
    while time.monotonic() < end:
        for _ in range(100):
            try_one(random.Random(f"{options.seed}:{count}"))
            count += 1
    print(f"{count} messages")
    return 0


if __name__ == "__main__":
    sys.exit(main())
