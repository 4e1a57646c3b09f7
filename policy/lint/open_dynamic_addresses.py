"""Addresses that the router makes up are listed, so that replies reach them.

`amqp:/_topo/0/ROUTER/*`, `_$temp.*` and the like stand for the dynamic addresses of every client of the router. As
`targets` they let a member write into whatever request or answer anybody waits for. Write `allowReplies: true` instead:
members may then send to the reply-to of a message that they have received, for a time, and nowhere else. As `sources`
they give nothing: only the connection that made a dynamic address receives from it, and it needs no entry. See
docs/policy.md, Request and reply.
"""

from collections.abc import Iterator
from typing import Final

from policy.addressing.lists import AddressRules, compile_literals, compile_patterns, reached_item
from policy.addressing.patterns import ANY_NUMBER, ONE, split_tokens
from policy.lint.findings import SOME_USER, About, Confidence, Family, Finding, Level, PolicyText

ID = "PAL068"
TITLE = "everybody's dynamic addresses"
FAMILY = Family.SECURITY

_NAME: Final = "temp.abcdefghijklmno"
_WORDS: Final = {
    "targets": "lets members write to the dynamic addresses of all clients: use allowReplies",
    "sources": "gives nothing: only the connection that made a dynamic address receives from it, without an entry",
}


def check(policy: PolicyText) -> Iterator[Finding]:
    for group in policy.groups:
        for key in ("sources", "targets", "sourcePattern", "targetPattern"):
            for item in group.items(key):
                if _is_short_for_replies(key, item):
                    text = f"'{item}' matches no dynamic address, which has more words: use allowReplies"
                    yield group.finding(ID, Level.WARNING, text, key, About(item=item, confidence=Confidence.LIKELY))
                elif _is_meant_for_replies(key, item):
                    text = f"'{item}' {_WORDS['targets' if key.startswith('target') else 'sources']}"
                    about = About(item=item, confidence=Confidence.LIKELY)
                    yield group.finding(ID, Level.WARNING, text, key, about)


def _is_meant_for_replies(key: str, item: str) -> bool:
    """Does the item name dynamic addresses, and was it written for them? Neither `*` was, nor `_local/*`."""
    if item[0] not in "_/" and ":/" not in item:
        return False  # as most are, at a glance
    plain = reached_item(key, item)
    if not plain.startswith(("_topo", "_edge", "_local/t", "_local.t", "_$")):
        return False
    rules: AddressRules = compile_patterns((plain,)) if key.endswith("Pattern") else compile_literals((plain,))
    matcher = rules.bind(SOME_USER)
    return any(matcher.match(address) is not None for address in _samples(plain))


def _is_short_for_replies(key: str, item: str) -> bool:
    """Is it a pattern such as `amqp:/_topo/*`, written for dynamic addresses, of which it matches none?"""
    if not key.endswith("Pattern") or "_" not in item:
        return False
    first, *words = split_tokens(reached_item(key, item)) or [""]
    is_open = words[-1:] in ([ONE], [ANY_NUMBER]) and all(word in (ONE, ANY_NUMBER, "temp") for word in words[2:])
    return first in ("_topo", "_edge") and is_open and not _is_meant_for_replies(key, item)


def _samples(plain: str) -> Iterator[str]:
    """A dynamic address in each of its spellings, on a router that the item may have in mind."""
    parts = plain.replace(".", "/").split("/")
    area, router = (part.rstrip("*#") for part in (*parts[1:3], "", "")[:2])
    for name in (_NAME, next((f"temp.{part}" for part in parts if len(part) == len("abcdefghijklmno")), _NAME)):
        yield f"_topo/{area or '0'}/{router or 'router'}/{name}"
        yield f"_edge/{area or 'router'}/{name}"
        yield f"_local/{name}"
        yield f"_${name}"
