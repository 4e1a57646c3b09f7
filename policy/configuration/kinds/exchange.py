"""`exchange` and `binding`. Sources: docs/spec/management.md §6.5, §8.7."""

from policy.addressing.address import Unclear, resolve
from policy.configuration.kinds.core_kind import SEPARATORS, AllExisting, CountingKind, phase_of, refuse_if, texts
from policy.configuration.kinds.kind import Attributes, Row
from policy.configuration.schema import ValidationError

EXCHANGE, BINDING = "exchange", "binding"


class ExchangeKind(CountingKind):
    parts = (BINDING, "exchangeName")

    def attributes(self, given: Attributes, name: str | None, existing: AllExisting) -> dict[str, object]:
        others = existing[EXCHANGE].rows
        refuse_if(not name, "exchange requires a unique name")
        refuse_if(not given.get("address"), "exchange address is mandatory")
        refuse_if(any(each.get("address") == given["address"] for each in others), "duplicate exchange address")
        refuse_if(any(each.get("name") == name for each in others), "duplicate exchange name")
        method = given.get("matchMethod", "amqp")
        refuse_if(method not in ("amqp", "mqtt"), "Exchange matchMethod must be either 'amqp' or 'mqtt'")
        alternate = phase_of(given, "alternatePhase") if "alternateAddress" in given else None
        key = _key("exchange address", given["address"], phase_of(given, "phase"))
        if given.get("alternateAddress"):
            _refuse_itself("alternateAddress", given["alternateAddress"], alternate, key)
        return {
            **texts(given, "address", "alternateAddress"),
            "phase": phase_of(given, "phase"),
            "alternatePhase": alternate,
            "matchMethod": str(method),
        }


class BindingKind(CountingKind):
    def selector(self, properties: Row) -> tuple[str, object]:
        try:
            return super().selector(properties)
        except ValidationError:
            raise ValidationError("No binding name or identity provided") from None

    def attributes(self, given: Attributes, name: str | None, existing: AllExisting) -> dict[str, object]:
        others = existing[BINDING].rows
        refuse_if(not given.get("exchangeName"), "Binding configuration requires an exchange")
        exchange = next((each for each in existing[EXCHANGE].rows if each.get("name") == given["exchangeName"]), None)
        if exchange is None:
            raise ValidationError("Named exchange does not exist")
        refuse_if(not given.get("nextHopAddress"), "No next hop specified")
        key = given.get("bindingKey", "#")
        refuse_if(not isinstance(key, str) or not key.strip(SEPARATORS), "The binding key pattern is invalid")
        phase = phase_of(given, "nextHopPhase")
        is_taken = name is not None and any(each.get("name") == name for each in others)
        refuse_if(is_taken, "Duplicate next hop name")
        made = {**texts(given, "exchangeName", "nextHopAddress"), "bindingKey": str(key), "nextHopPhase": phase}
        is_double = any(all(each.get(column) == value for column, value in made.items()) for each in others)
        refuse_if(is_double, "Next hop for key already exists")
        own = _key("exchange address", exchange["address"], exchange.get("phase"))
        _refuse_itself("nextHopAddress", given["nextHopAddress"], phase, own)
        return made


def _key(what: str, text: object, phase: object) -> str:
    """Returns the key of an address that clients use. Errors: ValidationError for any other address."""
    address = resolve(str(text), router_id="")
    if isinstance(address, Unclear):
        raise ValidationError(f"{what} '{text}': {address.why}", what)
    if not address.is_mobile or address.is_dynamic or address.is_management:
        raise ValidationError(f"{what} '{text}': expected an address that clients use", what)
    return address.key_in(int(str(phase or 0)))


def _refuse_itself(what: str, text: object, phase: object, own: str) -> None:
    """Refuses the exchange's own address. Errors: ValidationError if the key is `own`, or not a client address."""
    if _key(what, text, phase) == own:
        raise ValidationError(f"{what} '{text}' is the exchange's own address, whose receivers get every message", what)
