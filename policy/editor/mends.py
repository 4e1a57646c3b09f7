"""The fixes of lint as edits of an open text.

Pure. An edit is made only if the text still contains what the fix replaces.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from policy.editor.positions import Positions, Span
from policy.lint.mending import harm


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """Replaces the text at `span` by `new`. is_safe: the policy permits the same as before"""

    rule: str
    span: Span
    old: str
    new: str
    is_safe: bool

    @property
    def title(self) -> str:
        doing = f"replace '{_short(self.old)}' by '{_short(self.new)}'" if self.new else f"remove '{_short(self.old)}'"
        return f"{self.rule}: {doing}" + ("" if self.is_safe else " (changes what the policy permits)")


def edits_in(diagnostics: Iterable[Mapping[str, Any]], positions: Positions) -> tuple[Edit, ...]:
    """Returns the fixes that can still be made, from diagnostics of `policy.editor.checking`."""
    found = []
    for diagnostic in diagnostics:
        if (fix := diagnostic["fix"]) is None:
            continue
        start, end = fix["span"]
        edit = Edit(
            rule=diagnostic["rule"],
            span=((start[0], start[1]), (end[0], end[1])),
            old=fix["old"],
            new=fix["new"],
            is_safe=fix["isSafe"],
        )
        if positions.text.startswith(edit.old, positions.offset(edit.span[0])):
            found.append(edit)
    return tuple(dict.fromkeys(found))


def safe_edits(edits: Iterable[Edit], positions: Positions, file: str) -> tuple[Edit, ...]:
    """Returns all safe edits that can be made together; none if they would change the meaning of the policy."""
    text, end = positions.text, len(positions.text)
    chosen = []
    for edit in sorted((edit for edit in edits if edit.is_safe), key=lambda edit: edit.span, reverse=True):
        at = positions.offset(edit.span[0])
        if at + len(edit.old) <= end:
            text = f"{text[:at]}{edit.new}{text[at + len(edit.old) :]}"
            end = at
            chosen.append(edit)
    if not chosen or harm(file, positions.text, text, is_unsafe=False) is not None:
        return ()
    return tuple(reversed(chosen))


def _short(text: str) -> str:
    return text if len(text) <= 40 else f"{text[:39]}…"
