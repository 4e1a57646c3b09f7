"""The process that checks: it reads requests from its standard input and writes answers to its standard output.

It is a separate process, because only ending its process can stop a running check. A message is its length in four
bytes, then JSON. Only the language server starts it, and it ends together with the server.
"""

import gc
import json
import os
import signal
import sys
from typing import Any, BinaryIO, Final

from policy.editor.checking import Checker

# If the server is gone or hangs, a check that takes longer ends with its process.
LAST_DEADLINE_S: Final = 90
MAX_MESSAGE_BYTES: Final = 1 << 30


def main() -> None:
    answers = os.fdopen(os.dup(1), "wb")
    # Other output must not mix with the answers.
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
        # A bug in our code, met while a user types. The editor keeps working.
        print(f"qdpolicy lsp: {request['file']}: {type(error).__name__}: {error}", file=sys.stderr)
        return {"failure": f"cannot be checked ({type(error).__name__}); this is a fault of qdpolicy"}


def _read(stream: BinaryIO) -> dict[str, Any] | None:
    """Returns the next request, None if there are no more."""
    size = int.from_bytes(stream.read(4), "big")
    if not 0 < size <= MAX_MESSAGE_BYTES:
        return None
    content = stream.read(size)
    request: dict[str, Any] | None = json.loads(content) if len(content) == size else None
    return request


if __name__ == "__main__":
    main()
