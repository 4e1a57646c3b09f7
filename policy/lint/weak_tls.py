"""An sslProfile allows SSLv3, TLS 1.0 or TLS 1.1.

All three are broken and withdrawn (RFC 7568, RFC 8996). Allow TLSv1.2 and TLSv1.3, or leave `protocols` out. For
TLS 1.0 and 1.1 the router lowers the security level of OpenSSL, for the connections of that profile alone; SSLv3 it
does not speak.
"""

import re
from collections.abc import Iterator

from policy.lint.findings import About, Family, Finding, Fix, Level, PolicyText

ID = "PAL033"
TITLE = "outdated TLS"
FAMILY = Family.SECURITY


_OUTDATED = ("SSLV2", "SSLV3", "TLSV1", "TLSV1.0", "TLSV1.1")


def check(policy: PolicyText) -> Iterator[Finding]:
    for section in policy.sections("sslProfile"):
        written = section.text("protocols")
        names = re.split(r"[ ,;]+", written)
        outdated = [name for name in names if name.upper() in _OUTDATED]
        if outdated:
            kept = " ".join(name for name in names if name and name not in outdated) or "TLSv1.2 TLSv1.3"
            fix = Fix(old=written, new=kept, is_safe=False)
            text = f"{', '.join(outdated)}: withdrawn because broken"
            yield section.finding(ID, Level.ERROR, text, "protocols", About(item=written, instead=kept, fix=fix))
