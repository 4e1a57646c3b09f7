"""Attack: another user's user-id at a place where the router does not look and a client does.

It is in any encoding of the properties, after the body, or twice. Or it is in a map with a wrong size or count: clients
that use the size and clients that use the count then continue at different places. The messages also come so large that
the router forwards them while they arrive.
"""

from collections.abc import Iterator

import pytest
import raw_peer
from harness import RunningRouter
from raw_peer import ATTACH, RawPeer, frame

from router.values import Described, ubyte, uint, ulong

DISPOSITION = 0x15
ADDRESS = "guests.mail"
BODY = b"\x00\x53\x75\xa0\x03abc"
LARGE = b"\x00\x53\x75\xb0" + (600_000).to_bytes(4, "big") + bytes(600_000)
# More than the router reads at once before it begins to forward.
DESCRIPTORS = {
    "smallulong": b"\x00\x53\x73",
    "ulong": b"\x00\x80" + (0x73).to_bytes(8, "big"),
    "symbol": b"\x00\xa3\x14amqp:properties:list",
    "long symbol": b"\x00\xb3" + (20).to_bytes(4, "big") + b"amqp:properties:list",
}


def as_list(fields: bytes, count: int, *, is_long: bool) -> bytes:
    if is_long:
        return b"\xd0" + (len(fields) + 4).to_bytes(4, "big") + count.to_bytes(4, "big") + fields
    return b"\xc0" + bytes([len(fields) + 1, count]) + fields


USER_IDS = {"bin8": b"\xa0\x05alice", "bin32": b"\xb0\x00\x00\x00\x05alice"}
# alice, as somebody who is not alice writes it: 16 encodings.
PROPERTIES = {
    f"{descriptor} {'list32' if is_long else 'list8'} {kind}": DESCRIPTORS[descriptor]
    + as_list(b"\x40" + user, 2, is_long=is_long)
    for descriptor in DESCRIPTORS
    for is_long in (False, True)
    for kind, user in USER_IDS.items()
}
FOREIGN = PROPERTIES["smallulong list8 bin8"]
MINE = b"\x00\x53\x73" + as_list(b"\x40\xa0\x09anonymous", 2, is_long=False)


def padded_map(code: int, hidden: bytes) -> bytes:
    """A map without elements, whose size covers what is hidden in it."""
    return bytes([0, 0x53, code, 0xC1, len(hidden) + 1, 0]) + hidden


HIDDEN = {
    "behind a sequence": b"\x00\x53\x76\x45" + FOREIGN,
    "behind a value": b"\x00\x53\x77\xa1\x02hi" + FOREIGN,
    "between two bodies": BODY + FOREIGN + BODY,
    "behind the footer": BODY + b"\x00\x53\x78\xc1\x01\x00" + FOREIGN,
    "behind application-properties": b"\x00\x53\x74\xc1\x01\x00" + FOREIGN + BODY,
    "twice": MINE + FOREIGN + BODY,
    "mine first, theirs last": MINE + BODY + FOREIGN,
    "behind an empty list": b"\x00\x53\x73\x45" + FOREIGN + BODY,
    "in a footer that is longer than it says": BODY + padded_map(0x78, FOREIGN),
    "in application-properties that are longer than they say": padded_map(0x74, FOREIGN) + BODY,
    "in annotations that are longer than they say": padded_map(0x72, FOREIGN) + BODY,
    "in a value that is longer than it says": bytes([0, 0x53, 0x77, 0xC0, len(FOREIGN) + 1, 0]) + FOREIGN,
    "behind a message-id that is a list": b"\x00\x53\x73"
    + as_list(b"\xc0\x08\x00\xa0\x05alice\xa0\x09anonymous", 2, is_long=False) + BODY,
    "by another kind of number": BODY + b"\x00\x52" + FOREIGN[2:],
}  # fmt: skip
STREAMED = {
    "behind a large body": LARGE + FOREIGN,
    "behind mine and a large body": MINE + LARGE + FOREIGN,
    "between large bodies": LARGE + FOREIGN + LARGE,
    "before a large body": FOREIGN + LARGE,
    "behind large application-properties": b"\x00\x53\x74\xd1"
    + (600_014).to_bytes(4, "big") + b"\x00\x00\x00\x02\xa1\x03key\xb1" + (600_000).to_bytes(4, "big")
    + bytes(600_000) + FOREIGN + BODY,
    "in a large value that is longer than it says": b"\x00\x53\x77\xd0"
    + (600_004 + len(FOREIGN)).to_bytes(4, "big") + bytes(4) + bytes(600_000) + FOREIGN,
    "in a body that is reached from a map that is longer than it says":
        padded_map(0x74, b"\x00\x53\x75\xb0" + (300_000).to_bytes(4, "big"))
        + b"\x00\x53\x75\xb0" + (600_000 + len(FOREIGN)).to_bytes(4, "big") + bytes(299_992) + FOREIGN + bytes(300_008),
}  # fmt: skip
HONEST = {
    "mine": MINE + BODY,
    "none": BODY,
    "with a map that holds what looks like properties": MINE
    + b"\x00\x53\x77\xc1" + bytes([len(FOREIGN) + 6, 2]) + b"\xa1\x01k\xa0" + bytes([len(FOREIGN)]) + FOREIGN,
    "large, with a list that holds what looks like properties": MINE
    + b"\x00\x53\x77\xd0" + (600_011 + len(FOREIGN)).to_bytes(4, "big") + (2).to_bytes(4, "big")
    + b"\xa0" + bytes([len(FOREIGN)]) + FOREIGN + b"\xb0" + (600_000).to_bytes(4, "big") + bytes(600_000),
    "with data that looks like properties": MINE + b"\x00\x53\x75\xa0" + bytes([len(FOREIGN)]) + FOREIGN,
    "large": MINE + LARGE,
    "large, with a message in it": MINE + b"\x00\x53\x75\xb0" + (600_000 + len(FOREIGN)).to_bytes(4, "big")
    + bytes(300_000) + FOREIGN + bytes(300_000),
}  # fmt: skip


class Mail:
    """A sender on handle 0 and a receiver on handle 1, of one session."""

    def __init__(self, peer: RawPeer) -> None:
        self.peer = peer
        self.number = 0
        source, target = Described(ulong(0x28), [ADDRESS]), Described(ulong(0x29), [ADDRESS])
        peer.send(raw_peer.IN_SESSION)
        peer.send(frame(ATTACH, "r", uint(1), True, ubyte(1), None, source, Described(ulong(0x29), [])))
        peer.send(frame(raw_peer.FLOW, uint(0), uint(2048), uint(0), uint(2048), uint(1), uint(0), uint(100)))
        peer.send(frame(ATTACH, "s", uint(0), False, ubyte(0), None, Described(ulong(0x28), []), target, None, None,
                        uint(0)))  # fmt: skip
        peer.read_until(raw_peer.FLOW)

    def send(self, payload: bytes) -> list[object]:
        """Send a message; returns the fields of the router's disposition."""
        self.peer.received = b""
        tag = self.number.to_bytes(4, "big")
        pieces = [payload[at : at + 16_000] for at in range(0, len(payload), 16_000)]
        for place, piece in enumerate(pieces):
            is_more = place + 1 < len(pieces)
            self.peer.send(frame(raw_peer.TRANSFER, uint(0), uint(self.number), tag, uint(0), False, is_more,
                                 payload=piece))  # fmt: skip
        self.number += 1
        return self.peer.read_until(DISPOSITION)


@pytest.fixture
def mail(router: RunningRouter) -> Iterator[Mail]:
    with raw_peer.raw_peer(router, "clear") as peer:
        yield Mail(peer)


def outcome_of(fields: list[object]) -> tuple[int, str]:
    """The code of a disposition's state, and the condition of its error."""
    state = fields[4]
    assert isinstance(state, Described)
    error = state.value[0] if state.value else None
    return int(state.descriptor), str(error.value[0]) if isinstance(error, Described) else ""


def assert_refused(router: RunningRouter, mail: Mail, payload: bytes) -> None:
    name = mail.peer.name
    outcome = outcome_of(mail.send(payload))
    assert outcome in ((0x25, "amqp:unauthorized-access"), (0x25, "amqp:decode-error"))
    reason = {"amqp:unauthorized-access": "user_id_proxy", "amqp:decode-error": "malformed_message"}[outcome[1]]
    event = router.wait_for_audit(connection_name=name)
    assert (event["reason"], event["stage"], event["address"]) == (reason, "transfer", ADDRESS)
    assert ("user_id" in event) is (reason == "user_id_proxy")


@pytest.mark.parametrize("which", PROPERTIES)
@pytest.mark.parametrize("place", ["before the body", "behind the body"])
def test_no_encoding_of_a_foreign_user_id_passes(place: str, which: str, router: RunningRouter, mail: Mail) -> None:
    properties = PROPERTIES[which]
    assert_refused(router, mail, properties + BODY if place == "before the body" else BODY + properties)


@pytest.mark.parametrize("which", HIDDEN)
def test_no_hiding_place_of_a_user_id_passes(which: str, router: RunningRouter, mail: Mail) -> None:
    assert_refused(router, mail, HIDDEN[which])


@pytest.mark.parametrize("which", STREAMED)
def test_no_hiding_place_in_a_large_message_passes(which: str, router: RunningRouter, mail: Mail) -> None:
    """What has been forwarded by then is aborted: no receiver has a whole message of it."""
    assert_refused(router, mail, STREAMED[which])


def test_no_user_id_passes_behind_annotations_that_are_all_of_the_first_piece(
    router: RunningRouter,
    mail: Mail,
) -> None:
    """Nine frames begin a message, which is forwarded from the ninth on. The properties come after that."""
    size = 9 * 16_000
    key = b"\xa3\x05x-opt\xb0"
    held = size - 12 - len(key) - 4
    annotations = b"\x00\x53\x72\xd1" + (size - 8).to_bytes(4, "big") + (2).to_bytes(4, "big")
    annotations += key + held.to_bytes(4, "big") + bytes(held)
    assert len(annotations) == size
    for at in range(0, size, 16_000):
        mail.peer.send(frame(raw_peer.TRANSFER, uint(0), uint(0), b"tag", uint(0), False, True,
                             payload=annotations[at : at + 16_000]))  # fmt: skip
    mail.peer.read_until(raw_peer.TRANSFER)
    mail.peer.send(frame(raw_peer.TRANSFER, uint(0), uint(0), b"tag", uint(0), False, False, payload=FOREIGN + BODY))
    assert outcome_of(mail.peer.read_until(DISPOSITION)) == (0x25, "amqp:decode-error")
    event = router.wait_for_audit(connection_name=mail.peer.name)
    assert (event["reason"], event["stage"], event["address"]) == ("malformed_message", "transfer", ADDRESS)


@pytest.mark.parametrize("which", HONEST)
def test_an_honest_message_passes(which: str, mail: Mail) -> None:
    """The receiver here does not take part: the router forwards, and nobody says that the message is refused."""
    mail.peer.received = b""
    tag = b"tag"
    payload = HONEST[which]
    pieces = [payload[at : at + 16_000] for at in range(0, len(payload), 16_000)]
    for place, piece in enumerate(pieces):
        mail.peer.send(frame(raw_peer.TRANSFER, uint(0), uint(0), tag, uint(0), True, place + 1 < len(pieces),
                             payload=piece))  # fmt: skip
    received = b""
    while len(received) < len(payload):
        received = b"".join(payload_of(frame) for frame in transfers(mail.peer))
        if len(received) < len(payload):
            mail.peer.socket.settimeout(10)
            data = mail.peer.socket.recv(1 << 20)
            assert data
            mail.peer.received += data
    assert received == payload


def transfers(peer: RawPeer) -> list[bytes]:
    """The bodies of the Transfer frames received so far."""
    at, found = 0, []
    while len(peer.received) - at >= 8:
        size = int.from_bytes(peer.received[at : at + 4], "big")
        if len(peer.received) - at < size:
            break
        if peer.received[at + 8 : at + 11] == b"\x00\x53\x14":
            found.append(peer.received[at + 8 : at + size])
        at += size
    return found


def payload_of(body: bytes) -> bytes:
    """What stands behind the performative."""
    width = {0xC0: 2, 0xD0: 5}[body[3]]
    size = body[4] if width == 2 else int.from_bytes(body[4:8], "big")
    return body[3 + width + size :]
