"""The host of a listener or a connector is none: a URL, a network, several of them.

It is one name or one address; the port stands in `port`. A listener on such a host stops the start, and a connector
never connects. Networks that clients may come from are in `remoteHosts` of a policy.
"""

import re
from collections.abc import Iterator

from policy.lint.findings import About, Family, Finding, Level, PolicyText

ID = "PAL168"
TITLE = "host that is no host"
FAMILY = Family.CORRECTNESS

_NONE = re.compile(r".*[/,;\s@].*")
_URL = re.compile(r"[a-z]+://(?:[^@/]*@)?(\[[^\]/]*\]|[^:/]*)(?::\w+)?/?")


def check(policy: PolicyText) -> Iterator[Finding]:
    for section in policy.sections("listener", "connector"):
        host = section.text("host")
        if not _NONE.fullmatch(host):
            continue
        url = _URL.fullmatch(host)
        what = "a URL" if url is not None else "no name and no address"
        instead = f"host: {url[1]}" if url is not None and url[1] else ""
        # Not the value itself: a URL may hold a password.
        yield section.finding(ID, Level.WARNING, f"'host' is {what}: it takes one host, without port", "host",
                              About(instead=instead))  # fmt: skip
