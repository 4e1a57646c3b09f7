"""The findings of `difference`: sets of requests that only one of two rulesets permits, each with an example. Pure."""

from dataclasses import dataclass
from typing import Final, Literal

from policy.decision import Rule

OTHERS: Final = "every other user"
NAMELESS: Final = "peers without a name"

Direction = Literal["send", "receive"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Witness:
    """One request that the two rulesets decide differently.

    vhost    the name that the client asks for
    user     None: a peer without a name
    groups   the user's groups, as the authenticator gives them
    address  None if the connection itself, a switch or a limit differs
    right    a management right, as a grant of it is written
    at       the instant, in RFC 3339 and UTC; None: any
    """

    vhost: str
    user: str | None
    host: str
    groups: tuple[str, ...] = ()
    direction: Direction | None = None
    address: str | None = None
    at: str | None = None
    right: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A set of requests that only one of two rulesets permits.

    is_widening  the new ruleset permits them
    subject      "connect", "send", "receive", or the attribute that differs, such as "maxSessions"; or "management",
                 whose `rights` are those gained or lost, as grants of them are written
    vhost        the vhost that governs: its name in the new ruleset, or in the old one if the new has none
    users        names, and OTHERS or NAMELESS
    hosts        as `remoteHosts` items
    addresses    items without their `exceptions`; empty unless subject is send or receive
    times        such as "until 2026-12-31T17:00:00Z"; empty: at all times, or at the requested instant
    before/after the two values of an attribute
    rules        the places of both rules: old, new
    """

    is_widening: bool
    subject: str
    vhost: str
    users: tuple[str, ...]
    hosts: tuple[str, ...]
    witness: Witness
    addresses: str | None = None
    exceptions: tuple[str, ...] = ()
    times: tuple[str, ...] = ()
    before: str | None = None
    after: str | None = None
    rights: tuple[str, ...] = ()
    rules: tuple[Rule | None, Rule | None] = (None, None)


class UnconfirmedError(Exception):
    """The decisions do not confirm a difference: a bug in the analysis, which must never be hidden."""
