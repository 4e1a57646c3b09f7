"""The files of an HTTP listener, read in pieces in a thread, so that the loop does not wait for the disk."""

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Final

from router.io.aside import Aside
from router.web.answers import Answer, Respond, text_answer
from router.web.limits import MAX_OPEN_FILES, PIECE_BYTES
from router.web.requests import Request
from router.web.static_files import OpenFile, open_below

_NOT_FOUND: Final = text_answer(404, "not found")
_BUSY: Final = text_answer(503, "too many files are being read", ("retry-after", "1"))
_SLOW: Final = text_answer(503, "the file could not be read in time", ("retry-after", "1"))


class WebFiles:
    """Answers requests with files.

    root  the httpRootDir
    """

    def __init__(self, root: str) -> None:
        self._root = root
        self.aside = Aside()
        self.open_count = 0
        self._tasks: set[asyncio.Task[None]] = set()

    def answer(self, names: tuple[str, ...], request: Request, respond: Respond) -> None:
        if self.open_count >= MAX_OPEN_FILES:
            respond(_BUSY)
            return
        self.open_count += 1
        self.start(self._answer(names, request, respond))

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, names: tuple[str, ...], request: Request, respond: Respond) -> None:
        accepted = request.listed("accept-encoding")
        answer = _SLOW
        try:
            found = await self.aside.run(partial(open_below, self._root, names, accepted))
            answer = self._found(found, request) if found is not None else _NOT_FOUND
        except TimeoutError:
            pass
        finally:
            if answer.source is None:
                self.open_count -= 1
        respond(answer)

    def _found(self, found: OpenFile, request: Request) -> Answer:
        coding = (("content-encoding", found.coding),) if found.coding is not None else ()
        headers = (
            ("content-type", found.content_type),
            ("etag", found.etag),
            ("cache-control", "no-cache"),
            ("vary", "accept-encoding"),
            *coding,
        )
        known = [each.removeprefix("W/") for each in request.listed("if-none-match")]
        status = 304 if found.etag in known or known == ["*"] else 200
        return Answer(status=status, headers=headers, source=_Reading(self, found), size=found.size)


class _Reading:
    """One file that is being sent."""

    def __init__(self, files: WebFiles, file: OpenFile) -> None:
        self._files = files
        self._file = file
        self._at = 0
        self._is_reading = self._is_over = False

    def read(self, done: Callable[[bytes], None]) -> None:
        self._is_reading = True
        self._files.start(self._read(done))

    async def _read(self, done: Callable[[bytes], None]) -> None:
        piece = b""
        try:
            size = min(PIECE_BYTES, self._file.size - self._at)
            piece = await self._files.aside.run(partial(self._file.read, self._at, size))
        except TimeoutError:
            self._is_over = True
            self._files.open_count -= 1
            done(b"")
            return  # the thread may still read; the file closes itself afterwards
        finally:
            self._is_reading = False
        self._at += len(piece)
        if self._is_over:
            self._let_go()
        else:
            done(piece)

    def close(self) -> None:
        if not self._is_over:
            self._is_over = True
            if not self._is_reading:
                self._let_go()

    def _let_go(self) -> None:
        self._file.close()
        self._files.open_count -= 1
