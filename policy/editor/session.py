"""The open files of one editor, and the task that has them checked.

The task waits until the user has stopped typing for a moment. It then has the project of one changed file checked and
sends the findings. Open files have the editor's text; the worker reads the other files of a project from the disk.
"""

import asyncio
import time
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any, Final

from lsprotocol import types
from pygls.lsp.server import LanguageServer

from policy.cli.sources import is_ours
from policy.editor.analyst import Analyst, Answer
from policy.editor.completion import Names
from policy.editor.documents import Document, changed, opened
from policy.editor.messages import diagnostic_of
from policy.files.regular import MAX_POLICY_BYTES

# Users do not want messages about a word while they type it.
DEBOUNCE_S: Final = 0.25
# If the text has changed, a running check may still take this long. Starting another worker takes about as long.
PATIENCE_S: Final = 0.5
_LOOK_S: Final = 0.05
_MAX_OTHER_FILES: Final = 50


class Session:
    """The open files of one editor, and the task that has them checked."""

    def __init__(self, server: LanguageServer) -> None:
        self._server = server
        self._analyst = Analyst()
        self._documents: dict[str, Document] = {}
        self._ours: set[str] = set()  # URIs whose text has once looked like policy
        self._dirty: dict[str, None] = {}
        self._elsewhere: dict[str, set[str]] = {}  # a checked document -> other files of its project with diagnostics
        self._due = 0.0
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def document(self, uri: str) -> Document | None:
        return self._documents.get(uri)

    def open(self, item: types.TextDocumentItem) -> None:
        agreed = self._server.workspace.position_encoding or types.PositionEncodingKind.Utf16
        encoding = types.PositionEncodingKind(agreed).value
        document = opened(item.uri, item.text, item.version, encoding, item.language_id)
        if document is not None:
            self._documents[item.uri] = document
            if item.language_id.startswith("qdrouterd"):
                self._ours.add(item.uri)
            self.mark(item.uri, wait_s=0)

    def change(self, uri: str, text: str, version: int) -> None:
        if (document := self._documents.get(uri)) is not None:
            self._documents[uri] = changed(document, text, version)
            self.mark(uri)

    def close(self, uri: str) -> None:
        if self._documents.pop(uri, None) is None:
            return
        self._ours.discard(uri)
        self._dirty.pop(uri, None)
        self._publish(uri, [])
        self._tell_elsewhere(uri, {})
        # The findings in its project may depend on the text that the editor closes.
        self.mark_all()

    def mark_all(self) -> None:
        """Checks everything again because files on the disk have changed."""
        for uri in self._documents:
            self.mark(uri)

    def mark(self, uri: str, wait_s: float = DEBOUNCE_S) -> None:
        """Schedules a check of the document."""
        self._dirty[uri] = None
        self._due = asyncio.get_running_loop().time() + wait_s
        self._wake.set()
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._run())

    def end(self) -> None:
        if self._task is not None:
            self._task.cancel()
        self._analyst.end()

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while True:
                self._wake.clear()
                if not self._dirty:
                    await self._wake.wait()
                while (left_s := self._due - loop.time()) > 0:
                    await asyncio.sleep(left_s)
                if self._dirty:
                    await self._check(next(iter(self._dirty)))
        finally:
            await self._analyst.close()

    async def _check(self, uri: str) -> None:
        """Has the project of a document checked, and sends the findings in all its open files."""
        del self._dirty[uri]
        document = self._documents[uri]
        if uri not in self._ours and not is_ours(document.text, document.file):
            return
        self._ours.add(uri)
        if len(document.text.encode()) > MAX_POLICY_BYTES:
            self._take({"failure": f"not checked: larger than {MAX_POLICY_BYTES >> 20} MiB"}, document, {uri: document})
            return
        asked = dict(self._documents)
        answer = await self._answer(document, asked)
        if answer is not None:
            self._take(answer, document, asked)

    async def _answer(self, document: Document, asked: Mapping[str, Document]) -> Answer | None:
        """Returns the worker's answer. None if the text changed during the check and the rest took too long."""
        request = {
            "file": document.file,
            "buffers": {each.file: each.text for each in asked.values()},
            "encoding": document.encoding,
            "roots": self._roots(),
            "now": time.time(),
        }
        loop = asyncio.get_running_loop()
        begun = loop.time()
        task = loop.create_task(self._analyst.answer(request))
        while not (await asyncio.wait({task}, timeout=_LOOK_S))[0]:
            if self._documents.get(document.uri) is not document and loop.time() - begun > PATIENCE_S:
                self._analyst.end()
        answer = task.result()
        if answer is None and self._documents.get(document.uri) is document:
            # The process died for another reason: try once more with a new one.
            answer = await self._analyst.answer(request)
            return {"failure": "not checked: the process that checks has died of it"} if answer is None else answer
        return answer

    def _take(self, answer: Answer, document: Document, asked: Mapping[str, Document]) -> None:
        """Sends the findings to the documents that have not changed since the check began."""
        failure = answer.get("failure") or answer.get("problem")
        files: Mapping[str, list[dict[str, Any]]] = answer.get("files", {document.file: []})
        for uri, sent in asked.items():
            found = files.get(sent.file)
            if found is None or self._documents.get(uri) is not sent:
                continue
            if sent is document and failure:
                found = [_notice(str(failure)), *found]
            self._dirty.pop(uri, None)
            self._learn(sent, found, answer)
            self._publish(uri, found, sent.version)
        open_files = {each.file for each in self._documents.values()}
        self._tell_elsewhere(document.uri, {file: found for file, found in files.items() if file not in open_files})

    def _learn(self, document: Document, found: list[dict[str, Any]], answer: Answer) -> None:
        document.diagnostics = found
        if "names" not in answer:
            return
        names = answer["names"]
        sections = {type_: tuple(each) for type_, each in names["sections"].items()}
        document.names = Names(groups=tuple(names["groups"]), users=tuple(names["users"]), sections=sections)
        document.policy = answer["policy"]
        if all(each["rule"] for each in found):
            document.readable = document.text

    def _tell_elsewhere(self, uri: str, files: Mapping[str, list[dict[str, Any]]]) -> None:
        """Shows the errors of files that are not open: because of them the router refuses the open ones too."""
        told: set[str] = set()
        for file, found in list(files.items()):
            errors = [each for each in found if each["level"] == "ERROR"]
            if errors and len(told) < _MAX_OTHER_FILES and file.startswith("/"):
                told.add(_uri_of(file))
                self._publish(_uri_of(file), errors)
        for gone in self._elsewhere.pop(uri, set()) - told:
            if gone not in self._documents and not any(gone in others for others in self._elsewhere.values()):
                self._publish(gone, [])
        if told:
            self._elsewhere[uri] = told

    def _publish(self, uri: str, found: Sequence[Mapping[str, Any]], version: int | None = None) -> None:
        self._server.text_document_publish_diagnostics(
            types.PublishDiagnosticsParams(uri=uri, diagnostics=list(map(diagnostic_of, found)), version=version)
        )

    def _roots(self) -> list[str]:
        workspace = self._server.workspace
        found = [opened(folder.uri, "", 0, "utf-8", "json") for folder in workspace.folders.values()]
        folders = [each.file.removesuffix(".json") for each in found if each is not None]
        return [*folders, *([workspace.root_path] if workspace.root_path else [])]


def _notice(text: str) -> dict[str, Any]:
    return {"rule": "", "level": "WARNING", "text": text, "instead": "", "span": [(0, 0), (0, 1)], "fix": None}


def _uri_of(file: str) -> str:
    return PurePosixPath(file).as_uri()
