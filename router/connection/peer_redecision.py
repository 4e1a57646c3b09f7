"""Judges the sessions and links of an open connection again, by the rules in force or by a candidate policy.

The caller may pause at every step: what comes in between has already been judged by the new rules. Source:
docs/spec/policy-and-auth.md §2.8.
"""

from collections.abc import Iterator

from router.admission.candidate import ConnectionShadow
from router.connection.hosting import Hosting
from router.connection.inspection import condition_of
from router.connection.link_routes import LinkRoutes
from router.connection.peer_links import PeerLinks, direction_of, may_be_dynamic, request_again
from router.connection.route_patterns import may_route
from router.core.in_links import InLink


def redecide(links: PeerLinks) -> Iterator[None]:
    """Judges each session and link by the rules in force and ends what they deny.

    If there are too many, the newest end.
    """
    engine, gate = links.engine, links.gate
    kept = 0
    for session in list(engine.sessions.values()):
        if session.is_counted and not session.is_ended and not engine.is_deaf:
            refusal = gate.begin_again(kept)
            kept += refusal is None
            if refusal is not None:
                links.end_session(session, refusal)
            yield
    older = {"send": 0, "receive": 0}
    for wire in list(engine.links.values()):
        is_pending = links.routed.is_pending(wire)
        if (wire.core is not None or is_pending) and wire.is_counted and not engine.is_deaf:
            direction = direction_of(wire)
            request = request_again(wire, may_be_dynamic=may_be_dynamic(gate))
            refusal = gate.attach_again(request, older[direction])
            if refusal is not None and is_pending:
                links.routed.refuse_pending(wire, condition_of(refusal))
            elif refusal is not None:
                links.end_link(wire, condition_of(refusal))
            else:
                older[direction] += 1
                if isinstance(wire.core, InLink):
                    links.messages.choose_inspection(wire.core)
            yield


def redecide_hosting(links: PeerLinks, hosting: Hosting, link_routes: LinkRoutes) -> Iterator[None]:
    """Removes link routes that the peer made for its connection and that policy no longer permits."""
    for own in list(hosting.own.values()):
        if not may_route(links.gate, links.resolve, own.pattern, own.route.direction):
            hosting.drop_own(own.identity)  # the peer may have deleted it in the meantime
            link_routes.remove_own(own.route, hosting)
        yield


def ask_candidate(links: PeerLinks, candidate: ConnectionShadow) -> Iterator[None]:
    """Asks a new candidate policy about each session and link. All of them stay."""
    engine = links.engine
    counted = (session for session in list(engine.sessions.values()) if session.is_counted)
    for number, session in enumerate(counted):
        if not session.is_ended:
            candidate.session_again(number)
            yield
    older = {"send": 0, "receive": 0}
    for wire in list(engine.links.values()):
        if wire.core is not None and wire.is_counted:
            direction = direction_of(wire)
            request = request_again(wire, may_be_dynamic=may_be_dynamic(candidate))
            links.gate.ask_candidate(request, older[direction])
            older[direction] += 1
            if isinstance(wire.core, InLink):
                links.messages.choose_inspection(wire.core)
            yield
