"""A setting of HTTP that this router does not serve on its listener.

Without `http: yes` or `httpRootDir` a listener speaks AMQP alone: `websockets`, `healthz`, `metrics`, `metricsAuth` and
`httpOrigins` have no effect there. Take the line out, or add `http: yes`.

The router does not start where `metricsAuth` is `basic` and a remote service (`saslPlugin`) authenticates: it has no
password to compare. Give the metrics a listener of their own.
"""

from collections.abc import Iterator

from policy.lint.findings import Family, Finding, Level, PolicyText, SectionText

ID = "PAL086"
TITLE = "not served by this router"
FAMILY = Family.CORRECTNESS

OF_WEB = ("websockets", "healthz", "metrics", "metricsAuth", "httpOrigins")
_OFF = ("", "no", "false", "off", "0")


def check(policy: PolicyText) -> Iterator[Finding]:
    for section in policy.sections("listener"):
        if not _speaks_http(section):
            for key in OF_WEB:
                if key in section.attributes:
                    yield section.finding(ID, Level.WARNING, f"'{key}' has no effect without 'http: yes'", key)
        elif section.text("metricsAuth") == "basic" and section.text("saslPlugin"):
            text = "this router does not start with it: a remote service (saslPlugin) compares no password of HTTP"
            yield section.finding(ID, Level.ERROR, text, "metricsAuth")


def _speaks_http(section: SectionText) -> bool:
    return section.text("http").lower() not in _OFF or bool(section.text("httpRootDir"))
