"""The sections of a configuration that connect routers with each other."""

from collections.abc import Iterator
from typing import Final

from policy.attributes import InvalidValue
from policy.lint.findings import PolicyText, SectionText
from policy.router_ids import RouterIds

ROLES: Final = ("inter-router", "edge")


_BY_NUMBER: Final = {"0": "normal", "1": "inter-router", "2": "route-container", "3": "edge"}


def role_of(section: SectionText) -> str:
    """Returns the role of a section, which may be written as its number."""
    return _BY_NUMBER.get(section.text("role"), section.text("role"))


def network_sections(policy: PolicyText, type_: str) -> Iterator[SectionText]:
    """Yields the listeners, or the connectors, with a role between routers."""
    return (section for section in policy.sections(type_) if role_of(section) in ROLES)


def limits_ids(section: SectionText) -> bool:
    """Returns whether a `routerIds` denies some router id to some peer."""
    try:
        return bool(section.text("routerIds")) and not RouterIds.parse(section.text("routerIds")).is_for_everybody
    except InvalidValue:
        return True  # the router does not start with it


def names_users(section: SectionText) -> bool:
    """Returns whether a `routerIds` has a user in each of its items."""
    try:
        return bool(section.text("routerIds")) and RouterIds.parse(section.text("routerIds")).names_users
    except InvalidValue:
        return True


def demands_login(section: SectionText) -> bool:
    """Returns whether a listener admits only peers that have proved a name."""
    # Without saslMechanisms every mechanism is offered, including ANONYMOUS.
    return section.is_on("authenticatePeer") and bool(section.mechanisms) and "ANONYMOUS" not in section.mechanisms
