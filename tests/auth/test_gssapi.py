"""GSSAPI's order of messages: RFC 4752 §3.1. With Kerberos itself: tests/daemon/test_daemon_kerberos.py."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from auth.credentials import MAX_TICKET_BYTES, Answer, CheckTicket, ScramKeys, TicketStep, VerifyResult, unavailable
from auth.gssapi import Gssapi
from auth.installed import create_server_mechanism
from auth.mechanisms import Accepted, Ask, Challenge, Channel, Refused

CONTEXT = object()
MORE = TicketStep(context=CONTEXT, reply=b"more", offer=None)
REPLIED = TicketStep(context=CONTEXT, reply=b"reply", offer=b"layers")
SILENT = TicketStep(context=CONTEXT, reply=b"", offer=b"layers")
ALICE = VerifyResult(is_valid=True, user="alice", ends_at_s=5.0)


def test_an_exchange() -> None:
    mechanism = create_server_mechanism("GSSAPI", Channel())
    assert isinstance(mechanism, Gssapi)
    assert mechanism.respond(None) == Challenge(data=b"")
    assert mechanism.respond(b"one") == Ask(request=CheckTicket(token=b"one"))
    assert mechanism.conclude(MORE) == Challenge(data=b"more")
    assert mechanism.respond(b"two") == Ask(request=CheckTicket(token=b"two", context=CONTEXT))
    assert mechanism.conclude(REPLIED) == Challenge(data=b"reply")
    assert mechanism.respond(b"") == Challenge(data=b"layers")
    assert mechanism.respond(b"none") == Ask(request=CheckTicket(token=b"none", context=CONTEXT, is_last=True))
    assert mechanism.conclude(ALICE) == Accepted(user="alice", ends_at_s=5.0)


def test_without_a_last_word_of_kerberos_the_layers_follow_at_once() -> None:
    mechanism = Gssapi()
    mechanism.respond(b"one")
    assert mechanism.conclude(SILENT) == Challenge(data=b"layers")
    step = mechanism.respond(b"none")
    assert isinstance(step, Ask)
    assert isinstance(step.request, CheckTicket)
    assert step.request.is_last


@pytest.mark.parametrize("answer", [ALICE, VerifyResult(is_valid=True), ScramKeys(
    salt=b"", iterations=1, stored_key=b"", server_key=b"", is_known=True)])  # fmt: skip
def test_nobody_is_let_in_before_the_layer_is_chosen(answer: Answer) -> None:
    mechanism = Gssapi()
    assert isinstance(mechanism.conclude(answer), Refused)
    mechanism.respond(b"one")
    assert isinstance(mechanism.conclude(answer), Refused)


def test_an_outage_is_no_failure_of_the_user() -> None:
    mechanism = Gssapi()
    mechanism.respond(b"one")
    refused = mechanism.conclude(unavailable("no keytab"))
    assert refused == Refused(detail="verifier unavailable: no keytab", is_compared=False)


@pytest.mark.parametrize("response", [None, b"", b"x" * (MAX_TICKET_BYTES + 1)])
def test_what_is_no_message_is_refused(response: bytes | None) -> None:
    mechanism = Gssapi()
    mechanism.respond(None)
    assert isinstance(mechanism.respond(response), Refused)


def test_a_message_is_in_no_repr() -> None:
    assert "pa55" not in repr((CheckTicket(token=b"pa55"), TicketStep(context=b"pa55", reply=b"pa55", offer=b"pa55")))


@given(st.lists(st.one_of(st.none(), st.binary(max_size=3), st.sampled_from([MORE, REPLIED, SILENT, ALICE]))))
def test_whoever_is_let_in_has_chosen_a_layer(moves: list[bytes | Answer | None]) -> None:
    mechanism, asked_last = Gssapi(), False
    for move in moves:
        if isinstance(move, TicketStep | VerifyResult | ScramKeys):
            if isinstance(mechanism.conclude(move), Accepted):
                assert asked_last
                return
            continue
        step = mechanism.respond(move)
        if isinstance(step, Refused):
            return
        asked_last |= isinstance(step, Ask) and isinstance(step.request, CheckTicket) and step.request.is_last
