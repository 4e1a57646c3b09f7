"""The sections of a configuration by which routers reach each other."""

from collections.abc import Iterator
from typing import Final

from policy.attributes import InvalidValue
from policy.lint.findings import PolicyText, SectionText
from policy.router_ids import RouterIds

ROLES: Final = ("inter-router", "edge")


_BY_NUMBER: Final = {"0": "normal", "1": "inter-router", "2": "route-container", "3": "edge"}


def role_of(section: SectionText) -> str:
    """A role may be written as its number."""
    return _BY_NUMBER.get(section.text("role"), section.text("role"))


def network_sections(policy: PolicyText, type_: str) -> Iterator[SectionText]:
    """The listeners, or the connectors, of a role between routers."""
    return (section for section in policy.sections(type_) if role_of(section) in ROLES)


def limits_ids(section: SectionText) -> bool:
    """Is there a `routerIds` that keeps some peer from some id?"""
    try:
        return bool(section.text("routerIds")) and not RouterIds.parse(section.text("routerIds")).is_for_everybody
    except InvalidValue:
        return True  # the router does not start with it


def names_users(section: SectionText) -> bool:
    """Is there a `routerIds` each of whose items says whose it is?"""
    try:
        return bool(section.text("routerIds")) and RouterIds.parse(section.text("routerIds")).names_users
    except InvalidValue:
        return True


def demands_login(section: SectionText) -> bool:
    """Does a listener let in only peers that have proved a name?"""
    # Without saslMechanisms every mechanism is offered, ANONYMOUS among them.
    return section.is_on("authenticatePeer") and bool(section.mechanisms) and "ANONYMOUS" not in section.mechanisms
