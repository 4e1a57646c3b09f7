"""Policy for a router in memory."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from policy.ruleset import Ruleset, compile_ruleset


@dataclass
class Vhosts:
    """Policy for a Net: vhost name -> attributes as in management."""

    vhosts: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    policy: Mapping[str, Any] = field(default_factory=lambda: {"enableVhostPolicy": True})


def ruleset_of(vhosts: Vhosts | None) -> Ruleset:
    if vhosts is None:
        return compile_ruleset({}, (), resolve=_no_names)
    sources = [({"hostname": name, **attributes}, None) for name, attributes in vhosts.vhosts.items()]
    return compile_ruleset(vhosts.policy, sources, resolve=_no_names)


def _no_names(name: str) -> list[str]:
    raise OSError(f"no test resolves {name}")
