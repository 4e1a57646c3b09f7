"""A fuzzing campaign over everything that parses bytes or text: truncation, mutation, noise, by seed.

    python tests/fuzz/campaign.py --inputs 1000000 --seed 1

Each target takes one input and may raise only what it documents; anything else is printed with the input in hexadecimal
and ends the campaign with status 1. The figures of recorded runs are in tests/fuzz/results.md.
"""

import argparse
import contextlib
import random
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent.parent), str(HERE.parent / "core")]

from memory_net import Net  # noqa: E402
from proton import Message, symbol  # noqa: E402
from test_connection_fuzz import SESSIONS, Bystanders, check, silent  # noqa: E402

from auth import sasl_frames  # noqa: E402
from auth.mechanisms import Channel  # noqa: E402
from auth.negotiation import ClientNegotiation, ServerNegotiation  # noqa: E402
from auth.secrets import Secret  # noqa: E402
from policy.files.loader import PolicyFileError  # noqa: E402
from policy.files.validation import load_sections  # noqa: E402
from router.amqp import codec, headers, sections  # noqa: E402
from router.amqp.message_text import COMPONENTS, message_text  # noqa: E402
from router.management.grammar import ConfigError, parse_config  # noqa: E402

Target = Callable[[bytes], None]


@dataclass(frozen=True)
class Campaign:
    """One target: what it is given to mutate, and its share of the inputs."""

    name: str
    run: Target
    seeds: Sequence[bytes]
    share: int


def decode_values(data: bytes) -> None:
    for parse in (codec.decode, codec.skip):
        try:
            parse(data)
        except codec.CodecError:
            continue


def decode_messages(data: bytes) -> None:
    with contextlib.suppress(codec.CodecError):
        codec.decode_message(data)
    message_text(data, tuple(COMPONENTS))


def look_at_sections(data: bytes) -> None:
    buffer = bytearray(data) + bytes(16)
    sections.is_plain(buffer, len(data))
    try:
        at = sections.find_properties(buffer, len(data))
        if at != sections.LOOK_CLOSER:
            sections.user_id(buffer, len(data), at)
            sections.to(buffer, len(data), at)
        lenient = sections.find(buffer, len(data), may_be_opaque=True)
        sections.put_together(buffer, lenient, sections.take_apart(buffer, lenient))
        envelope = sections.find(buffer, len(data))
        sections.user_id(buffer, len(data), envelope.properties_at)
        sections.to(buffer, len(data), envelope.properties_at)
    except sections.MessageFault:
        return


def read_sasl_frames(data: bytes) -> None:
    reader = sasl_frames.FrameReader()
    reader.feed(data)
    try:
        while reader.next_frame() is not None:
            pass
    except sasl_frames.SaslFrameError:
        return


def negotiate_as_server(data: bytes) -> None:
    negotiation = ServerNegotiation(offered=("PLAIN", "EXTERNAL", "ANONYMOUS"), channel=Channel(external_user="u"))
    negotiation.start()
    negotiation.receive(data)


def negotiate_as_client(data: bytes) -> None:
    negotiation = ClientNegotiation(
        allowed=None, username="u", password=Secret("p"), has_certificate=False, is_encrypted=False
    )
    negotiation.receive(data)


def read_configuration(data: bytes) -> None:
    try:
        parse_config(data.decode("utf-8", "replace"), path="fuzz.conf")
    except ConfigError:
        return


def read_policy(data: bytes) -> None:
    try:
        load_sections(data.decode("utf-8", "replace"), "fuzz.json")
    except PolicyFileError:
        return


def sniff(data: bytes) -> None:
    headers.sniff(data)


def serve(data: bytes) -> None:
    """A whole connection: bystanders must not notice, nothing may be left."""
    net = Net()
    bystanders, client = Bystanders(net), silent(net)
    client.say(data)
    check(net, client, bystanders)


FULL = Message(id=1, user_id=b"u", address="a", subject="s", reply_to="r", correlation_id="c")
FULL.body = {"k": [1, 2.5, None]}
ANNOTATED = Message(durable=True, priority=7, annotations={symbol("x-opt-qd.to"): "b", symbol("x"): 1}, body=b"y" * 300)
PROPERTIES = Message(properties={"p": True, "q": symbol("s")}, content_type="t", group_id="g", group_sequence=3)
MESSAGES = [message.encode() for message in (Message(body="x"), FULL, ANNOTATED, PROPERTIES)]
SASL = [
    sasl_frames.encode(sasl_frames.Mechanisms(names=("PLAIN", "EXTERNAL"))),
    sasl_frames.encode(sasl_frames.Init(mechanism="PLAIN", initial_response=b"\0user\0password")),
    sasl_frames.encode(sasl_frames.Outcome(code=0)),
    sasl_frames.encode(sasl_frames.Challenge(challenge=b"c")),
]
CONFIGURATION = [
    b'router {\n id: a\n}\nlistener {\n port: 5672 # amqp\n openProperties: {\n "k": {"n": [1, 2]},\n }\n}\n',
    b"vhost {\n hostname: v.#\n groups: {\n $default: {\n users: *\n remoteHosts: 10.0.0.1-10.0.0.9\n }\n }\n}\n",
    b'[["vhost", {"hostname": "v", "groups": {"g": {"users": "a", "remoteHosts": "*"}}}]]',
]

CAMPAIGNS = (
    Campaign("AMQP values", decode_values, MESSAGES, 30),
    Campaign("AMQP messages", decode_messages, MESSAGES, 12),
    Campaign("message sections", look_at_sections, MESSAGES, 25),
    Campaign("protocol headers", sniff, [headers.AMQP, headers.SASL, headers.TLS], 4),
    Campaign("SASL frames", read_sasl_frames, SASL, 10),
    Campaign("SASL server", negotiate_as_server, SASL, 6),
    Campaign("SASL client", negotiate_as_client, SASL, 4),
    Campaign("configuration files", read_configuration, CONFIGURATION, 3),
    Campaign("policy files", read_policy, CONFIGURATION, 3),
    Campaign("whole connections", serve, list(SESSIONS.values()), 3),
)

INTERESTING = (0, 1, 0x40, 0x41, 0x43, 0x45, 0x50, 0x53, 0x7F, 0x80, 0xA0, 0xA1, 0xC0, 0xC1, 0xD0, 0xD1, 0xF0, 0xFF)


def mutated(seed: bytes, chance: random.Random) -> bytes:
    """Noise, a truncation, or up to four changes of `seed`."""
    kind = chance.randrange(10)
    if kind == 0:
        return chance.randbytes(chance.randrange(1, 200))
    data = bytearray(seed)
    if kind == 1:
        return bytes(data[: chance.randrange(len(data))])
    for _ in range(chance.randrange(1, 5)):
        at = chance.randrange(len(data) or 1)
        change = chance.randrange(4)
        if change == 0 and data:
            data[at] = chance.choice(INTERESTING)
        elif change == 1:
            data[at:at] = chance.randbytes(chance.randrange(1, 9))
        elif change == 2:
            del data[at : at + chance.randrange(1, 9)]
        else:
            data[at:at] = data[at : at + chance.randrange(1, 65)]
    return bytes(data)


def run(campaign: Campaign, inputs: int, seed: int) -> bool:
    """False after a failure, which is printed."""
    chance = random.Random(f"{campaign.name} {seed}")
    started = time.monotonic()
    for number in range(inputs):
        data = mutated(chance.choice(campaign.seeds), chance)
        try:
            campaign.run(data)
        except Exception as error:
            print(f"{campaign.name}: input {number}: {type(error).__name__}: {error}\n{data.hex()}")
            return False
    print(f"{campaign.name:20} {inputs:9,} inputs  {time.monotonic() - started:7.1f} s  no failure", flush=True)
    return True


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inputs", type=int, default=10_000, help="how many in all (default 10,000)")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    print(f"{options.inputs:,} inputs, seed {options.seed}")
    failed = [each for each in CAMPAIGNS if not run(each, options.inputs * each.share // 100, options.seed)]
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
