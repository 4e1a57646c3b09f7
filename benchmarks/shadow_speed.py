"""The cost of a candidate policy beside the one in force: for an Open, a link, a message on an anonymous link.

    python -m benchmarks.shadow_speed

Medians of several rounds, in processor time. Each policy compares links with 1,000 sources. Log lines and audit events
are discarded.
"""

import sys
from collections.abc import Callable

from auth.identity import Identity
from benchmarks.policy_speed import seconds_per_call
from policy.addressing.address import Address, resolve
from policy.ruleset import Ruleset, compile_ruleset
from policy.usage import UsageLedger
from router.admission.candidate import Shadow
from router.admission.connection_gate import ConnectionGate, Gate, LinkRequest

CALLS = 5_000
TEXT = "orders.500.new"


def ruleset(**more: object) -> Ruleset:
    items = [f"orders.{item}.new" for item in range(1000)]
    group = {"users": "*", "remoteHosts": "*", "sources": items, "targets": items, "allowAnonymousSender": True, **more}
    vhost = {"hostname": "h", "groups": {"g": group}}
    return compile_ruleset({"enableVhostPolicy": True}, [(vhost, None)], resolve=lambda _: ())


def connected(candidate: Ruleset | None) -> tuple[ConnectionGate, Callable[[], None]]:
    """Returns a connection, and a function that opens and closes another one."""
    shadow = None
    if candidate is not None:
        shadow = Shadow(lambda _effect: None)
        shadow.use(candidate)
    gate = Gate(ruleset(), UsageLedger(), lambda _effect: None, shadow)

    def connection() -> ConnectionGate:
        made = ConnectionGate(
            gate, connection_id=1, connection_name="10.0.0.1:1", remote_host="10.0.0.1", listener="l", is_governed=True
        )
        gate.accept(connection_id=1, remote_host="10.0.0.1", connection_name="10.0.0.1:1", listener="l")
        made.admit(Identity(user="u"), hostname="h", policy_vhost=None, is_encrypted=True, now=0.0)
        return made

    return connection(), lambda: connection().close()


def attach(connection: ConnectionGate) -> None:
    request = LinkRequest(direction="receive", address=resolve(TEXT, router_id="R"), link_name="l")
    refusal = connection.attach(request)
    assert refusal is None
    connection.detach("receive")


def send(connection: ConnectionGate) -> None:
    if connection.known_target(TEXT) is None:
        assert isinstance(connection.judge_target(resolve(TEXT, router_id="R"), 1), Address)


def main() -> int:
    print(f"{'':28}{'open, close':>14}{'link':>14}{'message':>14}   µs")
    for what, candidate in (
        ("no candidate", None),
        ("one that agrees", ruleset()),
        ("one that denies them", ruleset(sources="a", targets="a")),
    ):
        connection, reconnect = connected(candidate)
        calls = (reconnect, lambda: attach(connection), lambda: send(connection))  # noqa: B023
        costs = [seconds_per_call(call, CALLS) * 1e6 for call in calls]
        print(f"{what:28}" + "".join(f"{cost:14.2f}" for cost in costs))
    return 0


if __name__ == "__main__":
    sys.exit(main())
