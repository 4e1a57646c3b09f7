"""The language server: its requests and notifications in the Language Server Protocol 3.17."""

import asyncio
import contextlib
import os
import sys
from importlib import metadata

from lsprotocol import types
from pygls.lsp.server import LanguageServer

from policy.editor.messages import FIX_ALL, actions_for, completions_at, hover_at
from policy.editor.session import Session


def language_server() -> LanguageServer:
    """Returns the server with all its handlers, not started yet."""
    server = LanguageServer(
        "qdpolicy", _version(), text_document_sync_kind=types.TextDocumentSyncKind.Full, max_workers=2
    )
    session = Session(server)

    @server.feature(types.TEXT_DOCUMENT_DID_OPEN)
    def _opened(params: types.DidOpenTextDocumentParams) -> None:
        session.open(params.text_document)

    @server.feature(types.TEXT_DOCUMENT_DID_CHANGE)
    def _changed(params: types.DidChangeTextDocumentParams) -> None:
        if params.content_changes:
            text = params.content_changes[-1].text
            session.change(params.text_document.uri, text, params.text_document.version)

    @server.feature(types.TEXT_DOCUMENT_DID_CLOSE)
    def _closed(params: types.DidCloseTextDocumentParams) -> None:
        session.close(params.text_document.uri)

    @server.feature(types.TEXT_DOCUMENT_DID_SAVE)
    def _saved(params: types.DidSaveTextDocumentParams) -> None:
        if session.document(params.text_document.uri) is not None:
            session.mark(params.text_document.uri)

    @server.feature(types.WORKSPACE_DID_CHANGE_WATCHED_FILES)
    def _files_changed(_: types.DidChangeWatchedFilesParams) -> None:
        session.mark_all()

    @server.feature(types.TEXT_DOCUMENT_HOVER)
    async def _hovered(params: types.HoverParams) -> types.Hover | None:
        document = session.document(params.text_document.uri)
        return None if document is None else await asyncio.to_thread(hover_at, document, params.position)

    completion = types.CompletionOptions(trigger_characters=['"', ":", " ", ",", "["])

    @server.feature(types.TEXT_DOCUMENT_COMPLETION, completion)
    async def _completed(params: types.CompletionParams) -> types.CompletionList | None:
        document = session.document(params.text_document.uri)
        return None if document is None else await asyncio.to_thread(completions_at, document, params.position)

    action = types.CodeActionOptions(code_action_kinds=[types.CodeActionKind.QuickFix, FIX_ALL])

    @server.feature(types.TEXT_DOCUMENT_CODE_ACTION, action)
    async def _acted(params: types.CodeActionParams) -> list[types.CodeAction] | None:
        document = session.document(params.text_document.uri)
        return None if document is None else await asyncio.to_thread(actions_for, document, params)

    @server.feature(types.SHUTDOWN)
    def _ended(_: None) -> None:
        session.end()

    return server


def serve() -> None:
    """Serves an editor over standard input and output, until it ends the session."""
    answers = os.fdopen(os.dup(1), "wb")
    # Other output goes to the log of the editor, never into the protocol.
    sys.stdout.flush()
    os.dup2(2, 1)
    with contextlib.suppress(KeyboardInterrupt):
        language_server().start_io(sys.stdin.buffer, answers)


def _version() -> str:
    try:
        return metadata.version("palisade-router")
    except metadata.PackageNotFoundError:
        return "unknown"
