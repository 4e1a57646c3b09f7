"""The base of all kinds of entities. Pure."""

from collections.abc import Callable, Iterator, Mapping
from typing import ClassVar, Final

from policy.configuration.references import (
    PROFILE,
    Named,
    authenticator_name_problem,
    profile_problem,
    service_places,
    session_problem,
)
from policy.configuration.schema import EntityType, ValidationError
from policy.configuration.unique_names import RuleError

Attributes = Mapping[str, object]
Row = Mapping[str, object]  # of a table that management shows


class Kind:
    """The rules of one entity type beyond its schema: identities, checks, and its rows in the views of requests.

    A type that the schema describes completely is a plain Kind. Everything is pure; an Owner has the effects.
    """

    # An entity of the file does not take effect by its creation: it is read earlier, or with others as a whole.
    is_passive_in_file: ClassVar[bool] = False
    # The warning for an entity in the file; None: no warning.
    deprecation: ClassVar[str | None] = None
    # Requests cannot see the entities.
    is_hidden: ClassVar[bool] = False
    # Both views show the same entity, under two identities.
    is_in_both_views: ClassVar[bool] = False
    # Operations to which the core answers 403.
    forbidden: ClassVar[frozenset[str]] = frozenset()
    # The body of a refused QUERY.
    refused_query: ClassVar[Mapping[str, object]] = {}

    def __init__(self, name: str) -> None:
        """Creates the kind of a type.

        name  the short name of the type
        """
        self.name: Final = name

    # Configured entities

    def ignored(self, attributes: Attributes) -> str | None:
        """Returns the warning with which an entity of the file is left out (§1.4). None if it is not left out."""
        return None

    def implied(self, given: Attributes) -> dict[str, object]:
        """Returns the attributes that the file gives, and those that follow from them."""
        return dict(given)

    def idle(self, given: Attributes) -> Iterator[str]:
        """Yields log texts on attributes of the file that have no effect."""
        return iter(())

    def completed(self, attributes: dict[str, object]) -> dict[str, object]:
        """Returns the validated attributes with the defaults that depend on other attributes."""
        return attributes

    def identity(self, entity_type: EntityType, attributes: Attributes, number: int) -> str:
        """Returns the agent-side identity of an entity with validated attributes.

        number  how many entities of the type came before it
        Errors  ValidationError if a part of the identity is missing
        """
        return f"{self.name}/{number}"

    def check(self, entity_type: EntityType, attributes: Attributes) -> None:
        """Checks what the schema cannot. Errors: RuleError."""

    def reference_faults(self, attributes: Attributes, named: Named) -> Iterator[RuleError]:
        """Yields errors on names of other entities, and of ports, in a validated entity of the file."""
        return iter(())

    def role_problem(self, title: str, attributes: Attributes, mode: str) -> str | None:
        """Returns why a router of this mode cannot have an entity of this role. None if it can.

        title  the name of the entity in the text
        """
        return None

    def host_groups(self, attributes: Attributes) -> Iterator[str]:
        """Yields the names of the groups in the entity that have the right `host`."""
        return iter(())

    # Views

    def may_have(self, attribute: str, value: str) -> bool:
        """Returns whether a live entity may have this `name` or `identity`. If not, no rows are made."""
        return value.startswith(f"{self.name}/")

    def agent_row(self, attributes: dict[str, object], live: Row) -> dict[str, object]:
        """Returns a configured entity in the agent's view.

        attributes  already updated with the live values of the same names
        """
        return attributes

    def core_row(self, entity_type: EntityType, configured: Row, live: Row) -> Row:
        """Returns the entity in the core's view, for a type whose entity is in both views."""
        return {**configured, **live}

    # Requests to the core

    def selector(self, properties: Row) -> tuple[str, object]:
        """Returns the column and the value by which a request selects an entity. Errors: ValidationError."""
        for column in ("identity", "name"):
            if (value := properties.get(column)) is not None:
                return column, value
        raise ValidationError("No name or identity provided")

    def wanted(
        self, entity_type: EntityType, find: Callable[[], Row], body: object
    ) -> tuple[Row, dict[str, object]] | None:
        """Returns the live entity of an UPDATE and the requested changes. None if the type has no such UPDATE.

        find    returns the selected entity. Errors: ManagementError, ValidationError
        Errors  the same. The rights of the requester are checked elsewhere, before and after
        """
        return None


class NamedKind(Kind):
    """Entities that others refer to by their name."""

    def identity(self, entity_type: EntityType, attributes: Attributes, number: int) -> str:
        if not attributes.get("name"):
            raise ValidationError(
                f"{entity_type.long_name}: Missing required attribute 'name': others refer to it by name"
            )
        return f"{self.name}/{attributes['name']}"


class PluginKind(NamedKind):
    def reference_faults(self, attributes: Attributes, named: Named) -> Iterator[RuleError]:
        name = str(attributes["name"])
        yield from profile_faults(f"{self.name} {name}", attributes, named)
        # `authService` is the old name of host and port together.
        text_of_hosts = str(attributes.get("host") or "").strip() or str(attributes.get("authService") or "")
        try:
            service_places(name, text_of_hosts, str(attributes["port"]), named.is_service)
        except RuleError as error:
            yield error
        if (text := session_problem(attributes.get("maxSessionSeconds"))) is not None:
            yield misconfigured(f"{self.name} '{attributes['name']}': {text}", "maxSessionSeconds")


class AuthenticatorKind(NamedKind):
    def reference_faults(self, attributes: Attributes, named: Named) -> Iterator[RuleError]:
        name = str(attributes["name"])
        if (text := authenticator_name_problem(name)) is not None:
            yield misconfigured(text, "name")
        if (text := session_problem(attributes.get("maxSessionSeconds"))) is not None:
            yield misconfigured(f"authenticator '{name}': {text}", "maxSessionSeconds")


class MissingProfileError(RuleError):
    """An sslProfile that no section defines."""

    def __init__(self, text: str, attribute: str, profile: str) -> None:
        super().__init__(text, attribute, kind="Configuration")
        self.profile = profile


def profile_faults(user: str, attributes: Attributes, named: Named) -> Iterator[RuleError]:
    name = str(attributes.get("sslProfile") or "")
    if name and (text := profile_problem(user, name, named.names[PROFILE])) is not None:
        yield MissingProfileError(text, "sslProfile", name)


def misconfigured(text: str, attribute: str | None) -> RuleError:
    """Returns an error that startup reports as an error of the configuration."""
    return RuleError(text, attribute, kind="Configuration")
