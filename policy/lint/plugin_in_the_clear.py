"""An authentication service gets the clients' passwords without TLS.

Whatever a client sends to log in goes on to the `authServicePlugin` as it is. Without `sslProfile` whoever is between
the router and the service reads it, and may answer in the service's place that anybody is anyone. Services on this
machine are left out.
"""

from collections.abc import Iterator

from policy.hosts import is_loopback
from policy.lint.findings import About, Family, Finding, Level, PolicyText

ID = "PAL120"
TITLE = "authentication service asked in the clear"
FAMILY = Family.SECURITY


def check(policy: PolicyText) -> Iterator[Finding]:
    for section in policy.sections("authServicePlugin"):
        key = "host" if section.text("host").strip() else "authService"
        places = section.text(key).replace(",", " ").split()
        far = next((place for place in places if not _is_this_machine(place)), None)
        if far is not None and not section.text("sslProfile"):
            text = "clients' passwords are sent to the service without TLS, and its answers are anybody's"
            yield section.finding(ID, Level.WARNING, text, key, About(item=far, instead="sslProfile: NAME"))


def _is_this_machine(place: str) -> bool:
    """place  host, host:port or [address]:port"""
    host = place.partition("]")[0].removeprefix("[")
    if host.count(":") == 1:
        host = host.partition(":")[0]
    return is_loopback(host)
