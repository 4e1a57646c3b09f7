"""Controls, the queries that answer them, and what a router's trail cannot show. Data only.

The texts of the controls are our own summaries; the wording of the standards is binding.
"""

from dataclasses import dataclass
from typing import Final, Literal

Standard = Literal["pci-dss-4.0", "nist-800-53", "soc-2", "iso-27001"]
STANDARDS: Final[tuple[Standard, ...]] = ("pci-dss-4.0", "nist-800-53", "soc-2", "iso-27001")

CHAIN: Final = "chain"  # answered by `qdaudit verify`, not from the table


@dataclass(frozen=True, slots=True, kw_only=True)
class Control:
    """One control of a standard.

    queries   of spark.compliance.queries, or CHAIN
    needs     the queries that must have rows; without rows there is a gap
    elsewhere  what the control also requires and no router's trail can show; "" for nothing
    """

    standard: Standard
    id: str
    asks: str
    queries: tuple[str, ...]
    needs: tuple[str, ...] = ()
    elsewhere: str = ""


WITHOUT_ROWS: Final = {
    "accesses": "no connection that was let in is on record: have the routers record allows (router.auditAllows)",
    "refusals": "no refusal is on record: either there was none, or the trail is not that of the routers",
    "administration": "no change by management is on record",
    "starts": "no start of a router is on record: events of version 1, or of the C router's log",
    "kinds": "there are no events",
    "content": "there are no events",
    "rules_changed": "no ruleset is on record",
}


def _pci(id_: str, asks: str, *queries: str, needs: tuple[str, ...] = (), elsewhere: str = "") -> Control:
    return Control(standard="pci-dss-4.0", id=id_, asks=asks, queries=queries, needs=needs, elsewhere=elsewhere)


def _nist(id_: str, asks: str, *queries: str, needs: tuple[str, ...] = (), elsewhere: str = "") -> Control:
    return Control(standard="nist-800-53", id=id_, asks=asks, queries=queries, needs=needs, elsewhere=elsewhere)


def _soc(id_: str, asks: str, *queries: str, needs: tuple[str, ...] = (), elsewhere: str = "") -> Control:
    return Control(standard="soc-2", id=id_, asks=asks, queries=queries, needs=needs, elsewhere=elsewhere)


def _iso(id_: str, asks: str, *queries: str, needs: tuple[str, ...] = (), elsewhere: str = "") -> Control:
    return Control(standard="iso-27001", id=id_, asks=asks, queries=queries, needs=needs, elsewhere=elsewhere)


_REVIEW: Final = "that people look at the findings, and when, is on record elsewhere"
_FILES: Final = "who read the audit files is for the host's own audit to record"
_LIMITS: Final = "the limits in force are settings of the routers (docs/policy.md, Guessing)"
_ANSWER: Final = "what was done about a finding is on record elsewhere"
_CLOCKS: Final = "that clocks agree is for the host's time service to show"

CONTROLS: Final[tuple[Control, ...]] = (
    _pci("10.2.1.1", "individual user access is logged", "accesses", needs=("accesses",)),
    _pci("10.2.1.2", "actions of administrators are logged", "administration", needs=("administration",)),
    _pci("10.2.1.3", "access to audit logs is logged", "log_itself", elsewhere=_FILES),
    _pci("10.2.1.4", "invalid logical access attempts are logged", "refusals", needs=("refusals",)),
    _pci(
        "10.2.1.5",
        "changes of credentials and privileges are logged",
        *("administration", "rules_changed"),
        needs=("rules_changed",),
        elsewhere="users are kept by the authenticator: its own log has their changes",
    ),
    _pci("10.2.1.6", "starts, stops and pauses of audit logs are logged", "starts", "log_itself", needs=("starts",)),
    _pci("10.2.1.7", "creation and deletion of system objects is logged", "administration", needs=("administration",)),
    _pci("10.2.2", "events say who, what, when, outcome, origin and resource", "content", needs=("content",)),
    _pci("10.4.1", "audit logs are reviewed daily", "findings", elsewhere=_REVIEW),
    _pci("10.4.1.1", "automated mechanisms review audit logs", "findings", "kinds", needs=("kinds",)),
    _pci(
        "10.4.3",
        "exceptions and anomalies are addressed",
        "findings",
        elsewhere="what was done about a finding is on record elsewhere",
    ),
    _nist("AC-7", "unsuccessful logons are limited", "failed_logins", "held_back", elsewhere=_LIMITS),
    _nist("AU-2", "the events to be logged are logged", "kinds", needs=("kinds", "accesses")),
    _nist("AU-3", "records say what, when, where, source, outcome and who", "content", needs=("content",)),
    _nist("AU-6", "records are reviewed and analysed", "findings", elsewhere=_REVIEW),
    _nist("AU-7", "records can be reduced and reported", "refusals", "kinds", needs=("kinds",)),
    _nist("AU-9", "audit information is protected", CHAIN, "log_itself", needs=(CHAIN,), elsewhere=_FILES),
    _nist(
        "AU-10", "actions cannot be denied by who took them", CHAIN, "administration", needs=(CHAIN, "administration")
    ),
    _soc(
        "CC6.1",
        "logical access is restricted to who is authorised",
        "accesses",
        "refusals",
        needs=("accesses", "refusals"),
    ),
    _soc("CC6.3", "access is changed by roles and duties", "administration", "rules_changed", needs=("rules_changed",)),
    _soc("CC6.6", "there are measures against threats from outside", "refusals", "held_back", needs=("refusals",)),
    _soc("CC7.2", "anomalies are monitored for", "findings", "kinds", needs=("kinds",)),
    _soc("CC7.3", "security events are evaluated", "findings", elsewhere=_REVIEW),
    _iso(
        "A.8.15",
        "logs are produced, kept, protected and analysed",
        *("kinds", "content", "log_itself", CHAIN),
        needs=("kinds", CHAIN),
        elsewhere=_CLOCKS,
    ),
    _iso("A.8.16", "networks and applications are monitored for anomalies", "findings", "kinds", needs=("kinds",)),
)
