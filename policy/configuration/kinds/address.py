"""`address`: the treatment of addresses. Sources: docs/spec/management.md §6.5, §8.6."""

from typing import Final

from policy.configuration.kinds.core_kind import (
    MAX_PHASE,
    AllExisting,
    CoreKind,
    boolean,
    form,
    ignored_form,
    number,
    presence_problem,
    refuse_if,
)
from policy.configuration.kinds.kind import Attributes
from policy.configuration.schema import EntityType, ValidationError

MAX_PRIORITY: Final = 9
NO_PRIORITY: Final = -1
_DISTRIBUTIONS: Final = ("multicast", "closest", "balanced", "unavailable")


class AddressKind(CoreKind):
    def ignored(self, attributes: Attributes) -> str | None:
        return ignored_form(attributes, "configured address", "configured address")

    def attributes(self, given: Attributes, name: str | None, existing: AllExisting) -> dict[str, object]:
        is_waypoint = boolean(given.get("waypoint"))
        is_fallback = boolean(given.get("enableFallback"))
        problem = presence_problem(given)
        phases = [number(given[name]) if name in given else None for name in ("ingressPhase", "egressPhase")]
        if is_fallback and (is_waypoint or any(phases)):
            problem = "Fallback cannot be specified with waypoint or non-zero ingress and egress phases"
        if problem is not None:
            raise ValidationError(problem)
        written, tokens = form(given)
        is_phased = "ingressPhase" in given or "egressPhase" in given
        if is_phased and not all(phase is not None and 0 <= phase <= MAX_PHASE for phase in phases):
            raise ValidationError("Phase values must be between 0 and 9")
        ingress, egress = phases if is_phased else [0, int(is_waypoint)]
        priority = number(given["priority"]) if "priority" in given else NO_PRIORITY
        if priority is None or not NO_PRIORITY <= priority <= MAX_PRIORITY:
            raise ValidationError("Priority value, if present, must be between 0 and QDR_MAX_PRIORITY")
        refuse_if(existing[self.name].has_form(tokens), "Already exists")
        distribution = given.get("distribution")
        return {
            **written,
            "distribution": str(distribution) if distribution in _DISTRIBUTIONS else "balanced",
            "waypoint": (ingress, egress) == (0, 1),
            "ingressPhase": ingress,
            "egressPhase": egress,
            "priority": priority,
            "fallback": is_fallback,
        }

    def derived(self, entity_type: EntityType, attributes: Attributes) -> dict[str, object]:
        is_unavailable = attributes["distribution"] == "unavailable"
        distribution = None if is_unavailable else attributes["distribution"]
        return {"enableFallback": attributes["fallback"], "distribution": distribution}
