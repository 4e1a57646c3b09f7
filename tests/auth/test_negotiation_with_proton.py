"""Our SASL against a SASL nobody here wrote: proton's own client and server, in memory."""

import pytest
from proton import SASL, Connection, Transport

from auth.credentials import WRONG_PASSWORD, VerifyResult
from auth.identity import Identity
from auth.mechanisms import Channel
from auth.negotiation import (
    Authenticated,
    ClientNegotiation,
    Rejected,
    Reply,
    SaslEffect,
    ServerNegotiation,
    Verify,
)

SASL_HEADER = b"AMQP\x03\x01\x00\x00"
AMQP_HEADER = b"AMQP\x00\x01\x00\x00"


def output_of(transport: Transport) -> bytes:
    pending = transport.pending()
    if pending <= 0:
        return b""
    data = transport.peek(pending)
    assert data is not None
    transport.pop(len(data))
    return data


def replies(effects: list[SaslEffect]) -> bytes:
    return b"".join(effect.data for effect in effects if isinstance(effect, Reply))


def accept(
    mechanism: str, *, offered: tuple[str, ...], is_valid: bool = True
) -> tuple[Transport, ServerNegotiation, list[SaslEffect]]:
    """A proton client against our server; what is left after the last byte was carried over."""
    transport, connection = Transport(Transport.CLIENT), Connection()
    connection.user, connection.password = "test@domain.com", "secret"
    transport.sasl().allow_insecure_mechs = True
    transport.sasl().allowed_mechs(mechanism)
    transport.bind(connection)
    connection.open()
    negotiation = ServerNegotiation(offered=offered, channel=Channel(external_user="test@domain.com"))
    assert output_of(transport) == SASL_HEADER
    endings: list[SaslEffect] = []
    transport.push(SASL_HEADER + replies(negotiation.start()))
    while data := output_of(transport):
        effects = negotiation.receive(data)
        if any(isinstance(effect, Verify) for effect in effects):
            effects = negotiation.resume(VerifyResult(is_valid=is_valid, detail="" if is_valid else WRONG_PASSWORD))
        endings += [effect for effect in effects if isinstance(effect, Authenticated | Rejected)]
        if replies(effects):
            transport.push(replies(effects))
    return transport, negotiation, endings


# A Proton that was built with Cyrus SASL offers EXTERNAL over its own TLS alone: tests/interop has that.
MECHANISMS = [("PLAIN", "test@domain.com"), ("ANONYMOUS", "anonymous")]
if not SASL.extended():
    MECHANISMS.append(("EXTERNAL", "test@domain.com"))


@pytest.mark.parametrize(("mechanism", "user"), MECHANISMS)
def test_a_proton_client_authenticates_and_goes_on_with_amqp(mechanism: str, user: str) -> None:
    """policy 56"""
    transport, negotiation, endings = accept(mechanism, offered=("EXTERNAL", "PLAIN", "ANONYMOUS"))
    assert transport.sasl().outcome == SASL.OK
    assert endings == [Authenticated(identity=Identity(user=user, mechanism=mechanism, is_authenticated=True))]
    assert negotiation.take_rest().startswith(AMQP_HEADER)


def test_a_proton_client_with_a_wrong_password_is_told_so() -> None:
    """policy 57"""
    transport, negotiation, endings = accept("PLAIN", offered=("PLAIN",), is_valid=False)
    assert transport.condition is not None
    assert transport.condition.name == "amqp:unauthorized-access"
    assert transport.condition.description == "Authentication failed [mech=PLAIN]"
    assert isinstance(endings[0], Rejected)
    assert negotiation.take_rest() == b""


@pytest.mark.parametrize("offered", [(), ("ANONYMOUS",)])
def test_a_proton_client_without_a_common_mechanism_gives_up(offered: tuple[str, ...]) -> None:
    """policy 55"""
    transport, _negotiation, endings = accept("PLAIN", offered=offered)
    assert transport.condition is not None
    assert transport.condition.description == "Authentication failed [mech=none]"
    assert endings == []


def test_our_client_authenticates_to_a_proton_server() -> None:
    transport = Transport(Transport.SERVER)
    transport.sasl().allowed_mechs("ANONYMOUS")
    negotiation = ClientNegotiation(
        allowed=None, username=None, password=None, has_certificate=False, is_encrypted=False
    )
    transport.push(SASL_HEADER)
    effects = negotiation.receive(output_of(transport).removeprefix(SASL_HEADER))
    transport.push(replies(effects))
    effects = negotiation.receive(output_of(transport))
    identity = Identity(user=None, mechanism="ANONYMOUS", is_authenticated=True)
    assert effects == [Authenticated(identity=identity)]
    assert transport.sasl().outcome == SASL.OK
