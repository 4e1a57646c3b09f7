"""A comment asks lint to ignore something, and cannot be followed.

It is `# qdpolicy: ignore[PAL016] reason`, with the ids of rules and with a reason: a later reader must know whether it
still holds. It counts for the value that begins on the next line that is no comment, and all inside it.
"""

from collections.abc import Iterator

from policy.lint.findings import Family, Finding, Level, PolicyText
from policy.lint.ignoring import comments_in

ID = "PAL053"
TITLE = "ignore comment that is not understood"
FAMILY = Family.HYGIENE


def check(policy: PolicyText) -> Iterator[Finding]:
    for file, text in policy.texts.items():
        for comment in comments_in(text):
            unknown = [f"there is no rule {id_}" for id_ in comment.ids if policy.ids and id_ not in policy.ids]
            if problem := comment.problem or "".join(unknown[:1]):
                yield Finding(
                    rule=ID,
                    level=Level.WARNING,
                    file=file,
                    line=comment.line,
                    text=problem,
                    instead="# qdpolicy: ignore[PAL016] the reason",
                )
