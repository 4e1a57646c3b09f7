"""A real editor, as far as the protocol goes: the client of pygls, which starts `qdpolicy lsp` and speaks to it."""

import asyncio
import os
import sys
import threading
from collections.abc import Coroutine, Mapping
from pathlib import Path
from typing import Any, TypeVar

from lsprotocol import types
from pygls.lsp.client import LanguageClient

ROOT = Path(__file__).resolve().parent.parent.parent
WAIT_S = 30.0
T = TypeVar("T")


class Editor:
    """One session. Requests wait for their answer; `published` for the next diagnostics of a file."""

    def __init__(self, cwd: Path) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._client = LanguageClient("test", "1")
        self._published: dict[str, asyncio.Queue[types.PublishDiagnosticsParams]] = {}
        self.shown: list[str] = []
        self._client.feature(types.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)(lambda params: self._take(params))
        self._client.feature(types.WINDOW_SHOW_MESSAGE)(lambda params: self._show(params))
        self._versions: dict[str, int] = {}
        self._run(self._start(cwd))

    async def _start(self, cwd: Path) -> None:
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        command = (sys.executable, "-P", "-m", "policy.cli.main", "lsp", "--stdio")
        await self._client.start_io(*command, cwd=cwd, env=environment)
        folders = [types.WorkspaceFolder(uri=cwd.as_uri(), name="work")]
        params = types.InitializeParams(
            capabilities=types.ClientCapabilities(), process_id=os.getpid(), workspace_folders=folders
        )
        self.capabilities = (await self._client.initialize_async(params)).capabilities
        self._client.initialized(types.InitializedParams())

    def _run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(asyncio.wait_for(coroutine, WAIT_S), self._loop).result()

    def _take(self, params: types.PublishDiagnosticsParams) -> None:
        self._queue(params.uri).put_nowait(params)

    def _show(self, params: types.ShowMessageParams) -> None:
        self.shown.append(params.message)

    def _queue(self, uri: str) -> asyncio.Queue[types.PublishDiagnosticsParams]:
        return self._published.setdefault(uri, asyncio.Queue())

    def open(self, uri: str, text: str, language: str = "json") -> None:
        self._versions[uri] = 1
        item = types.TextDocumentItem(uri=uri, language_id=language, version=1, text=text)
        self._loop.call_soon_threadsafe(self._client.text_document_did_open, types.DidOpenTextDocumentParams(item))

    def change(self, uri: str, text: str) -> int:
        self._versions[uri] += 1
        identifier = types.VersionedTextDocumentIdentifier(uri=uri, version=self._versions[uri])
        event = types.TextDocumentContentChangeWholeDocument(text=text)
        params = types.DidChangeTextDocumentParams(text_document=identifier, content_changes=[event])
        self._loop.call_soon_threadsafe(self._client.text_document_did_change, params)
        return self._versions[uri]

    def close(self, uri: str) -> None:
        params = types.DidCloseTextDocumentParams(text_document=types.TextDocumentIdentifier(uri=uri))
        self._loop.call_soon_threadsafe(self._client.text_document_did_close, params)

    def published(self, uri: str) -> types.PublishDiagnosticsParams:
        """The next diagnostics of a file."""

        async def next_one() -> types.PublishDiagnosticsParams:
            return await self._queue(uri).get()

        return self._run(next_one())

    def has_more(self, uri: str) -> bool:
        return not self._queue(uri).empty()

    def rules(self, uri: str) -> list[str]:
        """The rules of the next diagnostics; "" for what is no finding of a rule."""
        return [str(each.code or "") for each in self.published(uri).diagnostics]

    def hover(self, uri: str, line: int, character: int) -> str:
        position = types.Position(line=line, character=character)
        params = types.HoverParams(text_document=types.TextDocumentIdentifier(uri=uri), position=position)
        found = self._run(self._client.text_document_hover_async(params))
        if found is None:
            return ""
        assert isinstance(found.contents, types.MarkupContent)
        return found.contents.value

    def completions(self, uri: str, line: int, character: int) -> Mapping[str, types.CompletionItem]:
        position = types.Position(line=line, character=character)
        params = types.CompletionParams(text_document=types.TextDocumentIdentifier(uri=uri), position=position)
        found = self._run(self._client.text_document_completion_async(params))
        assert isinstance(found, types.CompletionList)
        return {item.label: item for item in found.items}

    def actions(self, uri: str, span: types.Range, only: list[str] | None = None) -> list[types.CodeAction]:
        context = types.CodeActionContext(diagnostics=[], only=only)
        identifier = types.TextDocumentIdentifier(uri=uri)
        params = types.CodeActionParams(text_document=identifier, range=span, context=context)
        found = self._run(self._client.text_document_code_action_async(params))
        return [each for each in found or () if isinstance(each, types.CodeAction)]

    @property
    def pid(self) -> int:
        server = self._client._server
        assert server is not None
        return server.pid

    def end(self) -> int | None:
        """Shut the server down as editors do; its exit status."""
        self._run(self._client.shutdown_async(None))
        self._loop.call_soon_threadsafe(self._client.exit, None)
        server = self._client._server
        assert server is not None
        status = self._run(server.wait())
        self._run(self._client.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(WAIT_S)
        self._loop.close()
        return status
