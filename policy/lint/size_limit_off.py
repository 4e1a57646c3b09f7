"""`maxMessageSize` of the `policy` section holds only with `enableVhostPolicy`.

Connections that no vhost governs are never checked for the size of messages. Switch vhost policy on, or remove
the limit: it is taken for protection that is not there.
"""

from collections.abc import Iterator

from policy.lint.findings import About, Family, Finding, Level, PolicyText

ID = "PAL029"
TITLE = "size limit without vhost policy"
FAMILY = Family.CORRECTNESS


def check(policy: PolicyText) -> Iterator[Finding]:
    for section in policy.sections("policy"):
        if section.text("maxMessageSize").strip() not in ("", "0") and not section.is_on("enableVhostPolicy"):
            text = "'maxMessageSize' has no effect: enableVhostPolicy is off"
            about = About(instead="enableVhostPolicy: yes")
            yield section.finding(ID, Level.WARNING, text, "maxMessageSize", about)
