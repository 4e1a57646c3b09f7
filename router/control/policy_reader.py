"""Reads and compiles a folder of policy files in a separate process, and takes over the result vhost by vhost.

A thread would delay routing for the whole time: Python runs one thread at a time, and a computing thread gives up its
turn only every 5 ms. The process reads, validates and compiles everything, and looks up host names. The router takes
what has changed, in slices between which it routes messages. Whatever is in the folder, the process has limits. It is
ended when it takes too long, or when the folder has changed again. Sources: docs/policy.md, When the rules change;
docs/security.md, Mistakes of those who write policy.
"""

import asyncio
import hashlib
import json
import os
import pickle
import re
import resource
import signal
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import BinaryIO, Final, NamedTuple

from policy.configuration.schema import load_schema
from policy.hosts import Resolve
from policy.ruleset import PolicyError, Vhost
from policy.vhosts import compile_vhost
from router.effects import Log
from router.faults import fault_text
from router.io.host_names import look_up, names_of
from router.io.turns import turn
from router.management.config import ConfigError, ConfiguredEntity, load_policy_dir

# Reading takes a second for a thousand vhosts, and name servers have LOOK_UP_LIMIT_S. Stops a disk that does not answer
# from blocking every later change.
READING_S: Final = 120.0
# Seconds that a read may continue although its folder has changed. Each ended read gives the next read twice the time,
# up to READING_S: a file that changes all the time does not block all other changes.
PATIENCE_S: Final = 5.0
# Maximum wait for the end of a killed process.
DYING_S: Final = 1.0
# Limits of the process. Stops a deliberately hard policy from taking the host's memory and a processor, and a fault in
# the reader from writing files. 26,000 tenants take 220 MiB and 20 s.
READER_BYTES: Final = 1 << 30
READER_CPU_S: Final = 60
_LIMITS: Final = {
    resource.RLIMIT_AS: (READER_BYTES, READER_BYTES),
    resource.RLIMIT_CPU: (READER_CPU_S, READER_CPU_S + 5),  # the first is a signal that says why
    resource.RLIMIT_NOFILE: (128, 128),  # up to 32 sockets ask name servers at once
    resource.RLIMIT_FSIZE: (0, 0),
    resource.RLIMIT_CORE: (0, 0),
}
# When memory is short, the kernel ends this process before all others, in particular before the router.
_OOM_SCORE_FILE, _FIRST_TO_GO = "/proc/self/oom_score_adj", "1000"
# A pattern is a tree of up to 255 words, and writing it takes several nested calls for each word.
_DEPTH: Final = 10_000

# The part of the router's environment that the process gets: variables of Python, the linker, the language and the
# resolver. Attack: passwords of the configuration (`env:NAME`) are read from the environment of a process that does not
# need them.
_KEPT: Final = re.compile(
    r"(PYTHON|LC_|LD_|PALISADE_|ASAN_|UBSAN_|COVERAGE_).*|PATH|LANG|LANGUAGE|TZ|HOME|TMPDIR|HOSTALIASES|LOCALDOMAIN|RES_OPTIONS"
)

_KEY_BYTES, _SIZE_BYTES = 32, 8
_LAST: Final = bytes(_KEY_BYTES)  # the key of the last frame, which says how the process ended


class ReloadError(Exception):
    """A folder of policy files cannot be used.

    file, line  None if not known
    may_pass    it could not be read, whatever it contains: another attempt may help
    """

    def __init__(self, text: str, *, file: str | None = None, line: int | None = None, may_pass: bool = False) -> None:
        super().__init__(text)
        self.may_pass = may_pass
        self.file = file
        self.line = line


class OvertakenError(ReloadError):
    """A read was ended because a newer read is about to begin."""


class ReadVhost(NamedTuple):
    """One vhost of a folder, compiled.

    key  equal for vhosts with the same meaning at the same place
    """

    key: bytes
    entity: ConfiguredEntity
    vhost: Vhost
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadFolder:
    """The result of reading a folder.

    vhosts  in the order of the files
    """

    vhosts: tuple[ReadVhost, ...]
    logs: tuple[Log, ...]


def key_of(entity: ConfiguredEntity, vhost: Vhost) -> bytes:
    source = entity.source
    lines = [[*path, line] for path, (line, _) in source.places.items()]
    written = json.dumps([dict(entity.attributes), source.file, source.line, lines])
    return hashlib.sha256(written.encode() + vhost.digest).digest()


class FolderReader:
    """Reads a folder, one process at a time."""

    def __init__(self, folder: str, attribute: str) -> None:
        """attribute  the attribute of `policy` that names the folder"""
        self._folder = folder
        self._attribute = attribute
        self._limit: asyncio.Timeout | None = None  # of the running read
        self._began = 0.0
        self._patience_s = PATIENCE_S
        self._is_hurried = False
        self._stuck: asyncio.subprocess.Process | None = None  # killed, and not ended yet

    def hurry(self) -> None:
        """Ends a running read, after its minimum time, because there is something newer to read."""
        limit = self._limit
        if limit is not None and not limit.expired() and not self._is_hurried and self._patience_s < READING_S:
            self._is_hurried = True
            limit.reschedule(self._began + self._patience_s)

    async def read(self, known: Mapping[bytes, ReadVhost]) -> ReadFolder:
        """Reads the folder. Must not be called again before it returns.

        known   what has been read before, by its key: used again if it has not changed
        Errors  ReloadError
        """
        if self._stuck is not None and self._stuck.returncode is None:
            # Stops a disk that does not answer from collecting processes that cannot be ended.
            raise ReloadError("the process that read it last has not ended: it waits for a disk", may_pass=True)
        kept = {name: value for name, value in os.environ.items() if _KEPT.fullmatch(name)}
        environment = {**kept, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "MALLOC_ARENA_MAX": "1"}
        # Without -P the router's working directory would come first in Python's path. A user who may write there could
        # run code in this process.
        command = (sys.executable, "-P", "-s", "-m", __name__, self._folder, self._attribute)
        self._began, self._is_hurried = asyncio.get_running_loop().time(), False
        try:
            async with asyncio.timeout(READING_S) as self._limit:
                self._stuck = process = await _started(command, environment)
                found = await _taken(process, known)
        except TimeoutError:
            if self._is_hurried:
                took_s, self._patience_s = self._patience_s, min(2 * self._patience_s, READING_S)
                raise OvertakenError(f"it is being read anew, the read under way took more than {took_s:g} s") from None
            raise ReloadError(f"it could not be read within {READING_S:g} s", may_pass=True) from None
        finally:
            self._limit = None
        self._patience_s = PATIENCE_S
        return found


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
    """Returns the folder that the process has read. Afterwards the process is gone, or will go as soon as possible."""
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
        status = await process.wait()
        if status == -signal.SIGXCPU:
            raise ReloadError(f"it takes more than {READER_CPU_S} s of processor time to read") from None
        text = f"the process that reads it ended early, with status {status}"
        raise ReloadError(text, may_pass=True) from None
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        # A process that waits for a disk cannot be killed before the disk answers; the loop collects it then.
        with suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), DYING_S)


def _concluded(found: list[ReadVhost], content: bytes) -> ReadFolder:
    logs, problem = pickle.loads(content)  # noqa: S301 - as above
    if problem is not None:
        text, file, line = problem
        raise ReloadError(text, file=file, line=line)
    return ReadFolder(vhosts=tuple(found), logs=logs)


# The code of the separate process


def main(output: BinaryIO = sys.stdout.buffer) -> None:
    """Writes every vhost of the folder in argv as a frame, then the end: (log lines, None or (text, file, line))."""
    folder, attribute = sys.argv[1:]
    _limit_this_process()
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
    except MemoryError:
        most, _ = resource.getrlimit(resource.RLIMIT_AS)
        problem = f"it takes more than {most >> 20} MiB of memory to read", None, None
    except Exception as error:  # our own fault: without its text, which may contain text of the file
        problem = fault_text(error), None, None
    output.write(_frame(_LAST, (logs, problem)))
    output.flush()


def _limit_this_process() -> None:
    for what, (soft, hard) in _LIMITS.items():
        _, given = resource.getrlimit(what)
        most = hard if given == resource.RLIM_INFINITY else min(hard, given)
        resource.setrlimit(what, (min(soft, most), most))
    with suppress(OSError), open(_OOM_SCORE_FILE, "w") as file:
        file.write(_FIRST_TO_GO)


def _frames(entities: Iterable[ConfiguredEntity], resolve: Resolve) -> Iterator[bytes]:
    for entity in entities:
        vhost, warnings = compile_vhost(entity.attributes, entity.source, resolve=resolve)
        yield _frame(key_of(entity, vhost), (entity, vhost, warnings))


def _frame(key: bytes, content: object) -> bytes:
    data = pickle.dumps(content, pickle.HIGHEST_PROTOCOL)
    return key + len(data).to_bytes(_SIZE_BYTES, "big") + data


if __name__ == "__main__":
    main()
