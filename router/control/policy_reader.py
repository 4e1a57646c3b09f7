"""A folder of policy files read and compiled by a process of its own, and taken over vhost by vhost.

In a thread it would hold up routing for as long as it takes: Python runs one thread at a time, and one that computes
lets go of its turn only every 5 ms. The process reads, validates and compiles everything, and looks up host names; the
router takes what has changed, in slices, between which messages are routed.
Source: docs/policy.md, When the rules change.
"""

import asyncio
import hashlib
import json
import os
import pickle
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import BinaryIO, Final, NamedTuple

from policy.hosts import Resolve
from policy.ruleset import PolicyError, Vhost
from policy.vhosts import compile_vhost
from router.effects import Log
from router.faults import fault_text
from router.io.host_names import look_up, names_of
from router.io.turns import turn
from router.management.config import ConfigError, ConfiguredEntity, load_policy_dir
from router.management.schema import load_schema

# Reading takes a second for a thousand vhosts, and name servers have LOOK_UP_LIMIT_S. Stops a disk that does not answer
# from keeping every later change out.
READING_S: Final = 120.0
# How long the end of a process that was killed is waited for.
DYING_S: Final = 1.0
# A pattern is a tree of up to 255 words, and several calls deep for each when it is written.
_DEPTH: Final = 10_000

_KEY_BYTES, _SIZE_BYTES = 32, 8
_LAST: Final = bytes(_KEY_BYTES)  # the key of the frame that says how it ended


class ReloadError(Exception):
    """A folder of policy files cannot be used.

    file, line  None where that is not known
    may_pass    it could not be read, whatever is in it: trying again may help
    """

    def __init__(self, text: str, *, file: str | None = None, line: int | None = None, may_pass: bool = False) -> None:
        super().__init__(text)
        self.may_pass = may_pass
        self.file = file
        self.line = line


class ReadVhost(NamedTuple):
    """One vhost of a folder, compiled.

    key  equal for what means the same and stands in the same place
    """

    key: bytes
    entity: ConfiguredEntity
    vhost: Vhost
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadFolder:
    """vhosts  in the order of the files"""

    vhosts: tuple[ReadVhost, ...]
    logs: tuple[Log, ...]


def key_of(entity: ConfiguredEntity, vhost: Vhost) -> bytes:
    source = entity.source
    lines = [[*path, line] for path, (line, _) in source.places.items()]
    written = json.dumps([dict(entity.attributes), source.file, source.line, lines])
    return hashlib.sha256(written.encode() + vhost.digest).digest()


async def read_folder(folder: str, attribute: str, known: Mapping[bytes, ReadVhost]) -> ReadFolder:
    """Read the folder anew.

    attribute  the one of `policy` that names it
    known      what has been read before, by its key: taken as it is where it has not changed
    Errors     ReloadError
    """
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    # Without -P the folder the router was started in would come first: a user that may write there would run code here.
    command = (sys.executable, "-P", "-s", "-m", __name__, folder, attribute)
    try:
        async with asyncio.timeout(READING_S):
            return await _taken(await _started(command, environment), known)
    except TimeoutError:
        raise ReloadError(f"it could not be read within {READING_S:g} s", may_pass=True) from None


async def _started(command: Iterable[str], environment: Mapping[str, str]) -> asyncio.subprocess.Process:
    try:
        return await asyncio.create_subprocess_exec(
            *command,
            env=environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
    except OSError as error:
        raise ReloadError(f"no process could be started to read it: {error.strerror}", may_pass=True) from None


async def _taken(process: asyncio.subprocess.Process, known: Mapping[bytes, ReadVhost]) -> ReadFolder:
    """The folder that the process has read. The process is gone afterwards, or as soon as it can be."""
    found: list[ReadVhost] = []
    stream = process.stdout
    assert stream is not None
    try:
        has_time = turn()
        while True:
            key = await stream.readexactly(_KEY_BYTES)
            content = await stream.readexactly(int.from_bytes(await stream.readexactly(_SIZE_BYTES), "big"))
            if key == _LAST:
                return _concluded(found, content)
            if (vhost := known.get(key)) is None:
                vhost = ReadVhost(key, *pickle.loads(content))  # noqa: S301 - our own process wrote it, to nobody else
            found.append(vhost)
            if not has_time():
                await asyncio.sleep(0)
                has_time = turn()
    except asyncio.IncompleteReadError:
        text = f"the process that reads it ended early, with status {await process.wait()}"
        raise ReloadError(text, may_pass=True) from None
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        # One that waits for a disk cannot be killed before that answers; the loop takes it away then.
        with suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), DYING_S)


def _concluded(found: list[ReadVhost], content: bytes) -> ReadFolder:
    logs, problem = pickle.loads(content)  # noqa: S301 - as above
    if problem is not None:
        text, file, line = problem
        raise ReloadError(text, file=file, line=line)
    return ReadFolder(vhosts=tuple(found), logs=logs)


# The process


def main(output: BinaryIO = sys.stdout.buffer) -> None:
    """Write every vhost of the folder in argv as a frame, then how it ended: (log lines, None or text, file, line)."""
    folder, attribute = sys.argv[1:]
    sys.setrecursionlimit(_DEPTH)
    logs: tuple[Log, ...] = ()
    problem: tuple[str, str | None, int | None] | None = None
    try:
        read = load_policy_dir(folder, load_schema(), attribute=attribute)
        logs = read.early_logs
        for frame in _frames(read.entities, look_up(names_of(entity.attributes for entity in read.entities))):
            output.write(frame)
    except ConfigError as error:
        problem = error.reason, error.file, error.line
    except PolicyError as error:
        problem = str(error), error.file, error.line
    except Exception as error:  # a fault of ours: without its text, which may hold what the file does
        problem = fault_text(error), None, None
    output.write(_frame(_LAST, (logs, problem)))
    output.flush()


def _frames(entities: Iterable[ConfiguredEntity], resolve: Resolve) -> Iterator[bytes]:
    for entity in entities:
        vhost, warnings = compile_vhost(entity.attributes, entity.source, resolve=resolve)
        yield _frame(key_of(entity, vhost), (entity, vhost, warnings))


def _frame(key: bytes, content: object) -> bytes:
    data = pickle.dumps(content, pickle.HIGHEST_PROTOCOL)
    return key + len(data).to_bytes(_SIZE_BYTES, "big") + data


if __name__ == "__main__":
    main()
