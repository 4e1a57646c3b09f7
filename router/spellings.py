"""What policy says of an address by every name the router understands it by. Pure.

Policy compares what the client wrote (docs/spec/policy-and-auth.md §2.5), but `public/x:/secret` is routed to `secret`,
and `public/` to `public`: whoever may use `public/*` must be judged on the address that is reached, and what is denied
is denied by every name. An alias that the operator listed as it stands is meant, and so is what lies below a listed
`amqp:/_topo/0/QDR/*`.

`routed` is everywhere the address as the router will understand it, without scheme, authority and outer separators.
"""

from dataclasses import replace
from typing import Literal

from policy.address_text import normalise, without_authority
from policy.decide import Settings, decide_link, decide_message
from policy.decision import Decision
from policy.facts import LinkFacts, MessageFacts


def judge_link(settings: Settings, facts: LinkFacts, routed: str | None) -> tuple[Decision, LinkFacts]:
    """May the client attach this link? Returns the decision with the facts that decided."""
    decision = decide_link(settings, facts)
    if decision.is_allowed and _needs_second_look(settings, facts.direction, facts.address, routed):
        facts = replace(facts, address=routed)
        decision = decide_link(settings, facts)
    return decision, facts


def judge_target(settings: Settings, facts: MessageFacts, routed: str) -> tuple[Decision, str]:
    """May a message on an anonymous link go to its target? Returns the decision with the address that decided."""
    target = facts.target or ""
    decision = decide_message(settings, facts)
    if decision.is_allowed and _needs_second_look(settings, "send", target, routed):
        target = routed
        decision = decide_message(settings, replace(facts, target=target))
    return decision, target


def is_target(settings: Settings, address: str) -> bool:
    """Is `address` among the targets, by any spelling of it? For what is done in the client's name."""
    targets, routed = settings.targets, normalise(address)
    if targets.match(address) is None:
        return False
    return not _needs_second_look(settings, "send", address, routed) or targets.match(routed) is not None


def _needs_second_look(
    settings: Settings, direction: Literal["send", "receive"], address: str | None, routed: str | None
) -> bool:
    """Is `address`, which is allowed, understood by the router as one that might not be?"""
    if not address or routed is None or address == routed:
        return False
    if settings.is_denied(direction, routed):
        return True
    item = (settings.targets if direction == "send" else settings.sources).match(address)
    if item is None or item == address:
        return False
    is_plain_wildcard = item.endswith("*") and "${" not in item
    return not (is_plain_wildcard and routed.startswith(without_authority(item[:-1])))
