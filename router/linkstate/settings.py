"""The operator's settings of the routing protocol. Source: docs/spec/network.md §7.1."""

from dataclasses import dataclass

from router.linkstate.limits import MAX_ROUTER_ID_CHARACTERS


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of the `router` entity, in seconds.

    router_id  at most 127 characters
    instance   the boot number, which differs at each start
    """

    router_id: str
    instance: int
    hello_interval_s: int = 1
    hello_max_age_s: int = 3
    ra_interval_s: int = 30
    ra_interval_flux_s: int = 4
    remote_ls_max_age_s: int = 60

    def __post_init__(self) -> None:
        if not 0 < len(self.router_id) <= MAX_ROUTER_ID_CHARACTERS:
            raise ValueError(f"a router id has 1 to {MAX_ROUTER_ID_CHARACTERS} characters")
