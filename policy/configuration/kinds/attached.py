"""`linkRoute` and `autoLink`: links to containers and connections. Sources: docs/spec/management.md §6.5, §8.6."""

from policy.configuration.kinds.core_kind import (
    MAX_PHASE,
    AllExisting,
    CoreKind,
    boolean,
    direction_of,
    form,
    ignored_form,
    number,
    presence_problem,
    refuse_both,
    refuse_if,
    texts,
)
from policy.configuration.kinds.kind import Attributes
from policy.configuration.schema import EntityType, ValidationError


class LinkRouteKind(CoreKind):
    logged_as = "linkRoute"

    def ignored(self, attributes: Attributes) -> str | None:
        return ignored_form(attributes, "link route address", "link route")

    def attributes(self, given: Attributes, name: str | None, existing: AllExisting) -> dict[str, object]:
        refuse_both(given)
        refuse_if("direction" not in given, "No 'direction' attribute provided - it is mandatory")
        problem = presence_problem(given)
        if problem is not None:
            raise ValidationError(problem)
        written, _ = form(given)
        direction = direction_of(given)
        refuse_if(given.get("distribution", "linkBalanced") != "linkBalanced", "Invalid value for 'distribution'")
        named = texts(given, "addExternalPrefix", "delExternalPrefix", "containerId", "connection")
        return {**written, **named, "distribution": "linkBalanced", "direction": direction}

    def derived(self, entity_type: EntityType, attributes: Attributes) -> dict[str, object]:
        return {"dir": attributes["direction"], "operStatus": "inactive"}


class AutoLinkKind(CoreKind):
    logged_as = "linkRoute"  # as in 1.20

    def attributes(self, given: Attributes, name: str | None, existing: AllExisting) -> dict[str, object]:
        refuse_both(given)
        refuse_if("address" not in given or "direction" not in given, "address and direction fields are mandatory")
        direction = direction_of(given)
        is_fallback = boolean(given.get("fallback"))
        default = 1 if direction == "in" and not is_fallback else 0
        phase = number(given["phase"]) if "phase" in given else default
        if phase is None or not 0 <= phase <= MAX_PHASE:
            raise ValidationError("autoLink phase must be between 0 and 9")
        named = texts(given, "address", "containerId", "connection", "externalAddress")
        return {**named, "direction": direction, "phase": phase, "fallback": is_fallback}

    def derived(self, entity_type: EntityType, attributes: Attributes) -> dict[str, object]:
        return {
            "addr": attributes["address"],
            "dir": attributes["direction"],
            "operStatus": "inactive",
            "externalAddr": attributes.get("externalAddress"),
        }
