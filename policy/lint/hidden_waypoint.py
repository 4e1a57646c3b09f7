"""A link route has the addresses of a waypoint.

A link for such an address goes to the container of the link route, and the waypoint's auto links get nothing of it: its
messages pass the broker once at most. Give the link route a narrower prefix, or take one of the two out.
"""

from collections.abc import Iterator

from policy.addressing.patterns import PatternTree, configured_tokens, split_tokens
from policy.lint.findings import Family, Finding, Level, PolicyText, SectionText

ID = "PAL157"
TITLE = "waypoint after a link route"
FAMILY = Family.REACHABILITY


def check(policy: PolicyText) -> Iterator[Finding]:
    routes = {"/".join(tokens): route for route in policy.sections("linkRoute") if (tokens := _tokens(route))}
    if not routes:
        return
    tree = PatternTree((split_tokens(pattern), pattern) for pattern in routes)
    for address in policy.sections("address"):
        if not address.is_on("waypoint") or not (tokens := _tokens(address)):
            continue
        sample = "/".join("x" if token in ("*", "#") else token for token in tokens)
        if (pattern := tree.find(split_tokens(sample))) is not None:
            route = routes[pattern]
            key = "prefix" if address.text("prefix") else "pattern"
            other = route.text("prefix") or route.text("pattern")
            text = f"links for '{address.text(key)}' take the link route '{other}' (line {route.source.line})"
            yield address.finding(ID, Level.WARNING, text, key)


def _tokens(section: SectionText) -> tuple[str, ...]:
    prefix, pattern = section.text("prefix") or None, section.text("pattern") or None
    try:
        return configured_tokens(prefix, pattern) if (prefix is None) != (pattern is None) else ()
    except ValueError:
        return ()
