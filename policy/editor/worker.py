"""The process that checks: it reads requests from its standard input and writes answers to its standard output.

A process of its own, because a check can be ended in the middle only by ending its process. A message is its length in
four bytes and JSON. Nobody but the language server starts it; it ends with it.
"""

import gc
import json
import os
import signal
import sys
from typing import Any, BinaryIO, Final

from policy.editor.checking import Checker

# Should the server be gone, or hang: a check that takes longer ends with its process.
LAST_DEADLINE_S: Final = 90
MAX_MESSAGE_BYTES: Final = 1 << 30


def main() -> None:
    answers = os.fdopen(os.dup(1), "wb")
    # What anything prints is no answer.
    os.dup2(2, 1)
    checker = Checker()
    while (request := _read(sys.stdin.buffer)) is not None:
        signal.alarm(LAST_DEADLINE_S)
        gc.disable()
        answer = _answer(checker, request)
        gc.enable()
        signal.alarm(0)
        content = json.dumps(answer).encode()
        answers.write(len(content).to_bytes(4, "big") + content)
        answers.flush()


def _answer(checker: Checker, request: dict[str, Any]) -> dict[str, Any]:
    try:
        return checker.answer(request)
    except Exception as error:
        # A fault of ours in a text that somebody is still typing. The editor goes on.
        print(f"qdpolicy lsp: {request['file']}: {type(error).__name__}: {error}", file=sys.stderr)
        return {"failure": f"cannot be checked ({type(error).__name__}); this is a fault of qdpolicy"}


def _read(stream: BinaryIO) -> dict[str, Any] | None:
    """The next request; None: there are no more."""
    size = int.from_bytes(stream.read(4), "big")
    if not 0 < size <= MAX_MESSAGE_BYTES:
        return None
    content = stream.read(size)
    request: dict[str, Any] | None = json.loads(content) if len(content) == size else None
    return request


if __name__ == "__main__":
    main()
