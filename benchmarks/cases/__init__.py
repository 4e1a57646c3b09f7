"""The cases. Each is a function from a Site and the number of runs to its rows; CASES has all of them, in order."""

from collections.abc import Callable, Mapping
from types import MappingProxyType

from benchmarks.cases import (
    account,
    chains,
    connections,
    messages,
    queries,
    routes,
    services,
    strangers,
    streams,
    websockets,
)
from benchmarks.report import Row
from benchmarks.subjects import Site

Case = Callable[[Site, int], list[Row]]

DEFAULT: Mapping[str, Case] = MappingProxyType(
    {
        "small": messages.small,
        "settled": messages.settled,
        "large": messages.large,
        "round-trip": messages.round_trip,
        "memory": connections.memory,
        "set-up": connections.set_up,
        "start-up": connections.start_up,
    }
)
MORE: Mapping[str, Case] = MappingProxyType(
    {
        "handshakes": connections.handshakes,
        "cached-ldap": connections.cached_ldap,
        "set-up-argon2": connections.set_up_argon2,
        "memory-10000": connections.memory_10000,
        "multicast": messages.multicast,
        "pairs": messages.pairs,
        "idle-1000": messages.idle_1000,
        "idle-10000": messages.idle_10000,
        "stream": streams.stream,
        "stalled-receiver": streams.stalled_receiver,
        "paging": queries.paging,
        "chain": chains.chain,
        "routes": routes.routes,
        "calls": services.calls,
        "telemetry": services.telemetry,
        "fan-out": services.fan_out,
        "strangers": strangers.strangers,
        "account": account.account,
        "websocket": websockets.websocket,
    }
)
CASES: Mapping[str, Case] = MappingProxyType({**DEFAULT, **MORE})
