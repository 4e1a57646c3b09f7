"""The ways from clients to containers (brokers): the sections `autoLink` and `linkRoute` of a configuration."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

from policy.addressing.lists import DEPRECATED_USER_TOKEN, ESCAPED_USER_TOKEN, USER_TOKEN
from policy.addressing.patterns import ANY_NUMBER, PatternTree, configured_tokens, split_tokens
from policy.lint.findings import PolicyText, SectionText
from policy.lint.network_roles import role_of

Key = Literal["sources", "targets"]

CONTAINER_ROLE: Final = "route-container"
COORDINATOR: Final = "$coordinator"
_TOKENS: Final = (ESCAPED_USER_TOKEN, USER_TOKEN, DEPRECATED_USER_TOKEN)
_PLACES: Final = ("connection", "containerId")


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """One auto link or link route.

    key       the list of a group that allows clients to use it
    place     (attribute, value) of the container
    key_of_address  the attribute with its address
    tokens    of the addresses that clients use; `address`: the only one, of an auto link
    add, remove, external  the name at the container: a prefix to add, a prefix to remove; the whole name, of an auto
    link
    """

    section: SectionText
    key: Key
    place: tuple[str, str]
    key_of_address: str
    tokens: tuple[str, ...]
    address: str = ""
    add: str = ""
    remove: str = ""
    external: str = ""

    @property
    def renames(self) -> bool:
        """Returns whether a queue may have another name at the container than for clients."""
        return bool(self.add or self.remove) or self.external != self.address

    def leads(self, address: str) -> bool:
        """Returns whether client links for the address use this way."""
        if self.address:
            return address == self.address
        tree = PatternTree([(self.tokens, "")])
        return tree.find(split_tokens(address)) is not None

    def external_of(self, address: str) -> str:
        """Returns the name at the container for an address of this way."""
        return self.external or self.add + address.removeprefix(self.remove)

    def address_of(self, external: str) -> str | None:
        """Returns an address by which clients reach that name at the container. None if this way has none."""
        if self.address:
            return self.address if external == self.external else None
        if not external.startswith(self.add):
            return None
        rest = external.removeprefix(self.add)
        return next((each for each in (self.remove + rest, rest) if each and self._gives(each, external)), None)

    def _gives(self, address: str, external: str) -> bool:
        return self.leads(address) and self.external_of(address) == external

    @property
    def sample(self) -> str | None:
        """Returns an example of its addresses. None if the configuration has none."""
        if self.address:
            return self.address
        words = self.tokens[:-1] if self.tokens[-1] == ANY_NUMBER else self.tokens
        is_plain = words and not {"*", ANY_NUMBER} & set(words)
        return self.section.text(self.key_of_address).strip("./").removesuffix("#").strip("./") if is_plain else None


def ways(policy: PolicyText) -> Iterator[Way]:
    """Yields the ways that the router can make. Transactions are not ways."""
    for section in policy.sections("autoLink", "linkRoute"):
        place = next(((key, section.text(key)) for key in _PLACES if section.text(key)), None)
        direction = section.text("direction")
        if place is None or direction not in ("in", "out"):
            continue
        if section.type == "autoLink":
            if address := section.text("address"):
                yield Way(
                    section=section,
                    key="targets" if direction == "out" else "sources",
                    place=place,
                    key_of_address="address",
                    tokens=tuple(split_tokens(address)),
                    address=address,
                    external=section.text("externalAddress") or address,
                )
            continue
        prefix, pattern = section.text("prefix") or None, section.text("pattern") or None
        try:
            tokens = configured_tokens(prefix, pattern)
        except ValueError:
            continue
        if (prefix is None) == (pattern is None) or COORDINATOR in tokens:
            continue
        yield Way(
            section=section,
            key="targets" if direction == "in" else "sources",
            place=place,
            key_of_address="pattern" if prefix is None else "prefix",
            tokens=tokens,
            add=section.text("addExternalPrefix"),
            remove=section.text("delExternalPrefix"),
        )


def for_every_user(item: str) -> str:
    """Returns a literal item that allows everything that the item allows, whatever the user's name."""
    heads = [item.partition(token)[0] for token in _TOKENS if token in item]
    return f"{min(heads, key=len)}*" if heads else item


def pattern_for_every_user(item: str) -> str:
    """Returns a pattern that allows everything that the pattern allows, for any user. A name may be several words."""
    for token in _TOKENS:
        item = item.replace(token, ANY_NUMBER)
    return item


def container_listeners(policy: PolicyText) -> Iterator[tuple[SectionText, SectionText]]:
    """Yields each listener to whose peers an auto link or a link route may lead, with the first section that does."""
    sections = policy.sections("autoLink", "linkRoute")
    for listener in policy.sections("listener"):
        if role_of(listener) != CONTAINER_ROLE:
            continue
        name = listener.text("name")
        for section in sections:
            if section.text("containerId") or (name and section.text("connection") == name):
                yield listener, section
                break
