"""What the routing core's configurable types accept, and how they look in replies. Pure.

Sources: docs/spec/management.md §6.5, §8.6, §8.7. Error texts and the order of checks are those of §8.
"""

from collections.abc import Callable, Iterable, Mapping

from policy.addressing.patterns import configured_tokens
from router.management.redaction import shown
from router.management.schema import EntityType, ValidationError

MAX_PHASE = 9
MAX_PRIORITY = 9
SEPARATORS = "./"
NO_PRIORITY = -1

Warn = Callable[[str, str], None]
Others = Iterable[Mapping[str, object]]
Row = Mapping[str, object]


class Existing:
    """The entities of one core type, found by what must not occur twice: ten thousand are added in linear time."""

    def __init__(self, rows: Others = ()) -> None:
        """rows  columns of §6.5."""
        self.rows: list[Row] = []
        self._names: set[object] = set()
        self._forms: set[tuple[str, ...]] = set()
        for row in rows:
            self.add(row)

    def add(self, row: Row) -> None:
        self.rows.append(row)
        if row.get("name") is not None:
            self._names.add(row["name"])
        if row.get("prefix") or row.get("pattern"):
            self._forms.add(_form(row)[1])

    def remove(self, row: Row) -> None:
        self.rows.remove(row)
        self._names.discard(row.get("name"))
        if row.get("prefix") or row.get("pattern"):
            self._forms.discard(_form(row)[1])

    def has_name(self, name: str) -> bool:
        return name in self._names

    def has_form(self, tokens: tuple[str, ...]) -> bool:
        """Of addresses; link routes may well match the same."""
        return tokens in self._forms


def normalize(
    entity_type: EntityType, name: str | None, body: object, existing: Existing, exchanges: Others, warn: Warn
) -> dict[str, object]:
    """The attributes of a new core entity, by canonical name: checked, converted, defaults filled in.

    name       the requested name, or None
    existing   the entities of the type there are
    exchanges  the exchanges there are
    Errors     ValidationError; its text is the statusDescription
    """
    kind = entity_type.short_name
    # An exchange has its own text for this, further down its list of checks.
    if kind in ("address", "linkRoute", "autoLink") and name is not None:
        _refuse_if(existing.has_name(name), "Name conflicts with an existing entity")
    if not isinstance(body, Mapping):
        raise ValidationError("Body of request must be a map")
    given = _canonical(entity_type, body, warn)
    match kind:
        case "address":
            return _address(given, existing)
        case "linkRoute":
            return _link_route(given)
        case "autoLink":
            return _auto_link(given)
        case "exchange":
            return _exchange(given, name, existing.rows)
        case "binding":
            return _binding(given, name, existing.rows, exchanges)
    raise ValidationError(f"{entity_type.long_name} cannot be created")


def core_columns(
    entity_type: EntityType, attributes: Mapping[str, object], name: str | None, identity: str
) -> dict[str, object]:
    """All columns of a core entity with these normalized attributes; those that do not apply are None."""
    row: dict[str, object] = dict.fromkeys(entity_type.columns)
    row.update((column, attributes[column]) for column in row if column in attributes)
    row |= {"name": name, "identity": identity, "type": entity_type.long_name}
    match entity_type.short_name:
        case "address":
            row["enableFallback"] = attributes["fallback"]
            if attributes["distribution"] == "unavailable":
                row["distribution"] = None
        case "linkRoute":
            row["dir"] = attributes["direction"]
            row["operStatus"] = "inactive"
        case "autoLink":
            row |= {"addr": attributes["address"], "dir": attributes["direction"], "operStatus": "inactive"}
            row["externalAddr"] = attributes.get("externalAddress")
        case "exchange" | "binding":
            row.update((column, 0) for column in row if column.endswith("Count"))
    return row


def _refuse_if(is_wrong: object, text: str) -> None:
    if is_wrong:
        raise ValidationError(text)


def _canonical(entity_type: EntityType, body: Mapping[object, object], warn: Warn) -> dict[str, object]:
    """Known keys of the body by canonical name, nulls left out; the core ignores unknown ones."""
    given: dict[str, object] = {}
    for key, value in body.items():
        canonical = entity_type.canonical_names.get(key) if isinstance(key, str) else None
        if canonical is None or value is None:
            continue
        _refuse_if(canonical in given, f"Both '{key}' and another name of '{canonical}' cannot be specified")
        given[canonical] = value
        if key in entity_type.attributes[canonical].aliases:
            warn(
                "AGENT",
                f"The '{key}' attribute of {entity_type.short_name} has been deprecated. Use '{canonical}' instead",
            )
    return given


def _address(given: Mapping[str, object], existing: Existing) -> dict[str, object]:
    is_waypoint = _boolean(given.get("waypoint"))
    is_fallback = _boolean(given.get("enableFallback"))
    problem = _presence_problem(given)
    phases = [_number(given[name]) if name in given else None for name in ("ingressPhase", "egressPhase")]
    if is_fallback and (is_waypoint or any(phases)):
        problem = "Fallback cannot be specified with waypoint or non-zero ingress and egress phases"
    if problem is not None:
        raise ValidationError(problem)
    form, tokens = _form(given)
    is_phased = "ingressPhase" in given or "egressPhase" in given
    if is_phased and not all(phase is not None and 0 <= phase <= MAX_PHASE for phase in phases):
        raise ValidationError("Phase values must be between 0 and 9")
    ingress, egress = phases if is_phased else [0, int(is_waypoint)]
    priority = _number(given["priority"]) if "priority" in given else NO_PRIORITY
    if priority is None or not NO_PRIORITY <= priority <= MAX_PRIORITY:
        raise ValidationError("Priority value, if present, must be between 0 and QDR_MAX_PRIORITY")
    _refuse_if(existing.has_form(tokens), "Already exists")
    distribution = given.get("distribution")
    return {
        **form,
        "distribution": str(distribution)
        if distribution in ("multicast", "closest", "balanced", "unavailable")
        else "balanced",
        "waypoint": (ingress, egress) == (0, 1),
        "ingressPhase": ingress,
        "egressPhase": egress,
        "priority": priority,
        "fallback": is_fallback,
    }


def _link_route(given: Mapping[str, object]) -> dict[str, object]:
    _refuse_both(given)
    _refuse_if("direction" not in given, "No 'direction' attribute provided - it is mandatory")
    problem = _presence_problem(given)
    if problem is not None:
        raise ValidationError(problem)
    form, _ = _form(given)
    direction = _direction(given)
    _refuse_if(given.get("distribution", "linkBalanced") != "linkBalanced", "Invalid value for 'distribution'")
    texts = _texts(given, "addExternalPrefix", "delExternalPrefix", "containerId", "connection")
    return {**form, **texts, "distribution": "linkBalanced", "direction": direction}


def _auto_link(given: Mapping[str, object]) -> dict[str, object]:
    _refuse_both(given)
    _refuse_if("address" not in given or "direction" not in given, "address and direction fields are mandatory")
    direction = _direction(given)
    is_fallback = _boolean(given.get("fallback"))
    default = 1 if direction == "in" and not is_fallback else 0
    phase = _number(given["phase"]) if "phase" in given else default
    if phase is None or not 0 <= phase <= MAX_PHASE:
        raise ValidationError("autoLink phase must be between 0 and 9")
    texts = _texts(given, "address", "containerId", "connection", "externalAddress")
    return {**texts, "direction": direction, "phase": phase, "fallback": is_fallback}


def _exchange(given: Mapping[str, object], name: str | None, existing: list[Mapping[str, object]]) -> dict[str, object]:
    _refuse_if(not name, "exchange requires a unique name")
    _refuse_if(not given.get("address"), "exchange address is mandatory")
    _refuse_if(any(each.get("address") == given["address"] for each in existing), "duplicate exchange address")
    _refuse_if(any(each.get("name") == name for each in existing), "duplicate exchange name")
    method = given.get("matchMethod", "amqp")
    _refuse_if(method not in ("amqp", "mqtt"), "Exchange matchMethod must be either 'amqp' or 'mqtt'")
    alternate = _phase(given, "alternatePhase") if "alternateAddress" in given else None
    return {
        **_texts(given, "address", "alternateAddress"),
        "phase": _phase(given, "phase"),
        "alternatePhase": alternate,
        "matchMethod": str(method),
    }


def _binding(
    given: Mapping[str, object], name: str | None, existing: list[Mapping[str, object]], exchanges: Others
) -> dict[str, object]:
    _refuse_if(not given.get("exchangeName"), "Binding configuration requires an exchange")
    is_known = any(each.get("name") == given["exchangeName"] for each in exchanges)
    _refuse_if(not is_known, "Named exchange does not exist")
    _refuse_if(not given.get("nextHopAddress"), "No next hop specified")
    key = given.get("bindingKey", "#")
    _refuse_if(not isinstance(key, str) or not _tokens(key), "The binding key pattern is invalid")
    phase = _phase(given, "nextHopPhase")
    _refuse_if(name is not None and any(each.get("name") == name for each in existing), "Duplicate next hop name")
    made = {**_texts(given, "exchangeName", "nextHopAddress"), "bindingKey": str(key), "nextHopPhase": phase}
    is_double = any(all(each.get(column) == value for column, value in made.items()) for each in existing)
    _refuse_if(is_double, "Next hop for key already exists")
    return made


def _presence_problem(given: Mapping[str, object]) -> str | None:
    if "prefix" in given and "pattern" in given:
        return "Cannot specify both a 'prefix' and a 'pattern' attribute"
    if "prefix" not in given and "pattern" not in given:
        return "Either a 'prefix' or 'pattern' attribute must be provided"
    return None


def _form(given: Mapping[str, object]) -> tuple[dict[str, object], tuple[str, ...]]:
    """The prefix or pattern, without separators around a prefix; and what it is compared by."""
    is_prefix = given.get("prefix") is not None
    name, word = ("prefix", "Prefix") if is_prefix else ("pattern", "Pattern")
    value = given.get(name)
    if not isinstance(value, str) or not value:
        raise ValidationError(f"{word} must be a non-empty string type")
    try:
        tokens = configured_tokens(value if is_prefix else None, value)
    except ValueError as error:
        raise ValidationError(f"{word} invalid - {error}") from None
    return {"prefix": value.strip(SEPARATORS)} if is_prefix else {"pattern": str(value)}, tokens


def _tokens(text: str) -> tuple[str, ...]:
    stripped = text.strip(SEPARATORS)
    return tuple(stripped.replace("/", ".").split(".")) if stripped else ()


def _refuse_both(given: Mapping[str, object]) -> None:
    _refuse_if(
        "connection" in given and "containerId" in given,
        "Both connection and containerId cannot be specified. Specify only one",
    )


def _direction(given: Mapping[str, object]) -> str:
    direction = given["direction"]
    _refuse_if(direction not in ("in", "out"), "Invalid value for 'direction'")
    return str(direction)


def _phase(given: Mapping[str, object], name: str) -> int:
    phase = _number(given.get(name, 0))
    if phase is None or not 0 <= phase <= MAX_PHASE:
        raise ValidationError("phase must be in the range 0-9")
    return phase


def _texts(given: Mapping[str, object], *names: str) -> dict[str, object]:
    values = {name: given[name] for name in names if name in given}
    return {name: str(value) if isinstance(value, str) else shown(value) for name, value in values.items()}


def _boolean(value: object) -> bool:
    return value.lower() in ("yes", "true", "on") if isinstance(value, str) else bool(value)


def _number(value: object) -> int | None:
    """None for what is no integer of at most nine digits."""
    if isinstance(value, int) and not isinstance(value, bool):
        return int(value)
    is_short = isinstance(value, str) and len(value) < 10 and value.isascii()
    if is_short and isinstance(value, str) and value.removeprefix("-").isdecimal():
        return int(value)
    return None
