"""Messages to an editor in the terms of the Language Server Protocol 3.17: diagnostics, hovers, completions, fixes.

Pure, except for the clock: hovers show who may connect now.
"""

import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from lsprotocol import types

from policy.editor.completion import Kind, Offer, offers_at
from policy.editor.cursor import cursor_at
from policy.editor.documents import Document
from policy.editor.hover import asks_for_rights, description_at, rights_at, rule_page
from policy.editor.mends import Edit, edits_in, safe_edits
from policy.editor.positions import Span

# To find out whether all fixes together are safe takes as long as a check.
_MAX_FIXED_CHARACTERS: Final = 300_000

_SEVERITIES: Final = {
    "ERROR": types.DiagnosticSeverity.Error,
    "WARNING": types.DiagnosticSeverity.Warning,
    "NOTE": types.DiagnosticSeverity.Information,
}
_KINDS: Final = {
    Kind.SECTION: types.CompletionItemKind.Class,
    Kind.ATTRIBUTE: types.CompletionItemKind.Property,
    Kind.VALUE: types.CompletionItemKind.EnumMember,
    Kind.NAME: types.CompletionItemKind.Reference,
}
FIX_ALL: Final = "source.fixAll.qdpolicy"


def diagnostic_of(found: Mapping[str, Any]) -> types.Diagnostic:
    advice = f". Instead: {found['instead']}" if found["instead"] else ""
    return types.Diagnostic(
        range=_range(found["span"]),
        message=f"{found['text']}{advice}",
        severity=_SEVERITIES[found["level"]],
        code=found["rule"] or None,
        source="qdpolicy",
    )


def _range(span: Span) -> types.Range:
    (line, character), (end_line, end_character) = span
    return types.Range(
        start=types.Position(line=line, character=character),
        end=types.Position(line=end_line, character=end_character),
    )


def _is_touching(span: Span, range_: types.Range) -> bool:
    (start, end), first, last = span, range_.start, range_.end
    return tuple(start) <= (last.line, last.character) and (first.line, first.character) <= tuple(end)


def hover_at(document: Document, position: types.Position) -> types.Hover | None:
    place = (position.line, position.character)
    offset = document.positions.offset(place)
    cursor = cursor_at(document.text, offset, is_conf=document.is_conf)
    parts = []
    if asks_for_rights(cursor):
        line_start = document.text.rfind("\n", 0, offset) + 1
        at = (position.line + 1, offset - line_start + 1)
        # The current text if it can be read; else the last readable one.
        for text in dict.fromkeys((document.text, document.readable)):
            if rights := rights_at(cursor, offset, at, text, document.file, document.policy, time.time()):
                parts.append(rights)
                break
    here = types.Range(start=position, end=position)
    rules = [each["rule"] for each in document.diagnostics or () if _is_touching(each["span"], here)]
    parts += filter(None, (rule_page(rule) for rule in dict.fromkeys(rules)))
    if description := description_at(cursor):
        parts.append(description)
    if not parts:
        return None
    value = "\n\n---\n\n".join(parts)
    span = (document.positions.of(cursor.start), document.positions.of(cursor.end))
    contents = types.MarkupContent(kind=types.MarkupKind.Markdown, value=value)
    return types.Hover(contents=contents, range=_range(span) if cursor.word else None)


def completions_at(document: Document, position: types.Position) -> types.CompletionList:
    offset = document.positions.offset((position.line, position.character))
    cursor = cursor_at(document.text, offset, is_conf=document.is_conf)
    offers = offers_at(cursor, document.text, offset, document.names, is_conf=document.is_conf)
    items = [_item(offer, document, number) for number, offer in enumerate(offers)]
    return types.CompletionList(is_incomplete=False, items=items)


def _item(offer: Offer, document: Document, number: int) -> types.CompletionItem:
    span = (document.positions.of(offer.start), document.positions.of(offer.end))
    documentation = types.MarkupContent(kind=types.MarkupKind.Markdown, value=offer.documentation)
    return types.CompletionItem(
        label=offer.label,
        kind=_KINDS[offer.kind],
        detail=offer.detail or None,
        documentation=documentation if offer.documentation else None,
        sort_text=f"{number:04}",
        filter_text=offer.label,
        text_edit=types.TextEdit(range=_range(span), new_text=offer.text),
    )


def actions_for(document: Document, params: types.CodeActionParams) -> list[types.CodeAction]:
    only = params.context.only
    diagnostics = document.diagnostics or []
    actions = []
    if only is None or _is_asked(only, types.CodeActionKind.QuickFix.value):
        touched = [each for each in diagnostics if _is_touching(each["span"], params.range)]
        for edit in edits_in(touched, document.positions):
            reasons = [diagnostic_of(each) for each in touched if each["rule"] == edit.rule and each["fix"] is not None]
            action = _action(edit.title, types.CodeActionKind.QuickFix, document, (edit,))
            action.is_preferred = edit.is_safe
            action.diagnostics = reasons
            actions.append(action)
    is_asked = only is not None and _is_asked(only, FIX_ALL)
    if is_asked or (only is None and len(document.text) <= _MAX_FIXED_CHARACTERS):
        edits = safe_edits(edits_in(diagnostics, document.positions), document.positions, document.file)
        if edits:
            title = f"Make all safe fixes in this file ({len(edits)})"
            actions.append(_action(title, FIX_ALL, document, edits))
    return actions


def _is_asked(only: Sequence[types.CodeActionKind | str], kind: str) -> bool:
    """Returns whether the client asked for a kind.

    Kinds are a hierarchy: `source` includes `source.fixAll.qdpolicy`.
    """
    names = [str(getattr(each, "value", each)) for each in only]
    return any(name in ("", kind) or kind.startswith(f"{name}.") for name in names)


def _action(
    title: str, kind: types.CodeActionKind | str, document: Document, edits: Sequence[Edit]
) -> types.CodeAction:
    changes = [types.TextEdit(range=_range(edit.span), new_text=edit.new) for edit in edits]
    return types.CodeAction(title=title, kind=kind, edit=types.WorkspaceEdit(changes={document.uri: list(changes)}))
