"""The contents of the peer's frames, as the engine reports them: plain values, without proton objects."""

from dataclasses import dataclass, field
from typing import Any

from router.values import Condition as Condition


class Violation(Exception):
    """The peer has sent something that AMQP does not allow. `condition` is the error for closing the connection."""

    def __init__(self, name: str, description: str) -> None:
        super().__init__(description)
        self.condition = Condition(name=name, description=description)


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteOpen:
    """The peer's Open, as far as the router uses it (routing §1.4)."""

    container_id: str
    hostname: str | None
    offered_capabilities: tuple[str, ...] = ()
    desired_capabilities: tuple[str, ...] = ()
    properties: dict[Any, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Terminus:
    """A source or target as the peer wrote it. A null terminus is None, not an instance of this class.

    routed_as  for a dynamic terminus: the address for link route lookups (routing §5.4); None: it has none
    """

    address: str | None = None
    is_coordinator: bool = False
    is_dynamic: bool = False
    durability: int = 0  # 0 none, 1 configuration, 2 unsettled-state
    expiry_policy: str = "session-end"
    timeout_s: int = 0
    distribution_mode: str | None = None
    capabilities: tuple[str, ...] = ()
    routed_as: str | None = None


_DURABILITY = {1: " dur:config", 2: " dur:deliveries"}
_EXPIRY = {"link-detach": " expire:link", "session-end": " expire:sess", "connection-close": " expire:conn"}


def describe(terminus: Terminus | None) -> str:
    """Returns the form of a terminus in log lines (management §2.6, routing §5.8)."""
    if terminus is None:
        return "{<none>}"
    if terminus.is_coordinator:
        text = "<coordinator>"
    else:
        text = ("(dyn)" if terminus.is_dynamic else "") + (terminus.address or "<none>")
    text += _DURABILITY.get(terminus.durability, "") + _EXPIRY.get(terminus.expiry_policy, "")
    if terminus.distribution_mode:
        text += f" dist:{terminus.distribution_mode}"
    if terminus.timeout_s:
        text += f" timeout:{terminus.timeout_s}"
    if len(terminus.capabilities) == 1:
        text += f" caps::{terminus.capabilities[0]}"
    elif terminus.capabilities:
        text += " caps:@[" + ", ".join(f":{item}" for item in terminus.capabilities) + "]"
    return "{" + text + "}"
