"""Lets a worker process check texts, one request at a time.

A check that is no longer needed, or takes too long, is ended together with its process. The next request starts
another.
"""

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import policy
from policy.editor.worker import MAX_MESSAGE_BYTES

# A check of 1,000 vhosts takes seconds, on a busy machine tens of seconds. A result after this time no longer helps the
# user.
DEADLINE_S: Final = 60.0

Answer = dict[str, Any]


class Analyst:
    """The worker process, if it is running. `answer` must not be called before its last call has ended."""

    def __init__(self, deadline_s: float = DEADLINE_S) -> None:
        self._deadline_s = deadline_s
        self._process: asyncio.subprocess.Process | None = None

    async def answer(self, request: Mapping[str, Any]) -> Answer | None:
        """Returns the worker's answer.

        None if it was ended, or has died. After the deadline, returns a failure that says so.
        """
        try:
            return await asyncio.wait_for(self._exchange(request), self._deadline_s)
        except TimeoutError:
            await self.close()
            return {"failure": f"not checked: it took longer than {self._deadline_s:g} s"}
        except (asyncio.IncompleteReadError, ConnectionError):
            await self.close()
            return None

    def end(self) -> None:
        """Ends the process, and so the current check."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()

    async def close(self) -> None:
        """Ends the process and waits until it is gone."""
        self.end()
        process, self._process = self._process, None
        if process is not None:
            # The answer is no longer needed, but the process ends only after its output has been read.
            await process.communicate()

    async def _exchange(self, request: Mapping[str, Any]) -> Answer:
        if self._process is None or self._process.returncode is not None:
            self._process = await _started()
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        content = json.dumps(request).encode()
        process.stdin.write(len(content).to_bytes(4, "big") + content)
        await process.stdin.drain()
        size = int.from_bytes(await process.stdout.readexactly(4), "big")
        answer: Answer = json.loads(await process.stdout.readexactly(min(size, MAX_MESSAGE_BYTES)))
        return answer


async def _started() -> asyncio.subprocess.Process:
    # The editor's current folder is a user's project: -P keeps Python from importing modules from it.
    command = (sys.executable, "-P", "-m", "policy.editor.worker")
    (package,) = policy.__path__
    path = os.pathsep.join(filter(None, (str(Path(package).parent), os.environ.get("PYTHONPATH"))))
    return await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": path},
    )
