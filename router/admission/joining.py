"""Network admission: decides under which router id a peer joins the network. Pure.

This is asked once, at the peer's Open, before anything of it reaches the routing protocol or the edge protocol. Source:
docs/spec/network.md §18.1.
"""

from typing import Final

from auth.identity import Identity
from policy.decision import Decision
from policy.router_ids import MAX_ROUTER_ID_CHARACTERS, RouterIds, decide_router
from router.admission.denials import Denied, line
from router.admission.gate import Admission
from router.admission.refusals import Refusal, rule_text

ROUTER_REFUSED: Final = Refusal(
    condition="amqp:unauthorized-access", description="this identity may not join the network under this router id"
)


def proved_name(identity: Identity) -> str | None:
    """Returns the user of an accepted peer if a login has proved it, else None. Any peer can be `anonymous`."""
    is_proved = identity.is_authenticated and (identity.mechanism or "").upper() != "ANONYMOUS"
    return identity.user if is_proved else None


def admit_router(gate: Admission, router_ids: RouterIds | None, router_id: str, name: str | None) -> Refusal | None:
    """Decides about the router id in a peer's Open. None: it may join, only under `gate.router_id` from now on.

    router_ids  of the listener or connector; None: any peer may join, and use any id
    name        that the peer has proved: `proved_name` of an accepted peer, else the name in the server's certificate
    """
    if router_ids is None:
        return None
    decision = decide_router(router_ids, name, router_id)
    if decision.is_allowed:
        gate.router_id = router_id
        return None
    gate.count_failure()
    denied = _router_denied(gate, decision, router_id, name)
    return gate.gate.recorder.record(denied, {**gate.facts(), "ruleset_digest": gate.gate.ruleset.digest})


def _router_denied(gate: Admission, decision: Decision, router_id: str, name: str | None) -> Denied:
    # Attack: an id of many kilobytes fills the log.
    is_long = len(router_id) > MAX_ROUTER_ID_CHARACTERS
    shown = f"{router_id[:MAX_ROUTER_ID_CHARACTERS]}..." if is_long else router_id
    whom = f"'{name}'" if name else "a peer without a name"
    detail = f"{whom} may not join the network as router '{shown}'"
    text = f"DENY AMQP Open rhost '{gate.remote_host}': {detail}{rule_text(decision)}"
    return Denied(
        stage="open",
        decision=decision,
        refusal=ROUTER_REFUSED,
        lines=(line("info", f"[C{gate.connection_id}] {text}"),),
        request={"detail": detail},
    )
