"""What of a Kerberos exchange lets a client in, with the library's answers made up: docs/spec/policy-and-auth.md §8.10.

The real library and a real KDC: tests/daemon/test_daemon_kerberos.py.
"""

import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from auth.credentials import MAX_USER_BYTES, CheckPassword, CheckTicket, TicketStep, VerifyResult, unavailable
from auth.mechanisms import NOT_OWN_AUTHZID
from auth.secrets import Secret
from auth.verifiers.kerberos import KerberosError, KerberosVerifier

KERBEROS, OTHER = "the OID of Kerberos", "the OID of SPNEGO"
NO_LAYER = b"\1\0\0\0"


class GSSError(Exception):
    min_code = 42


class ExpiredError(GSSError):
    min_code = 7


class Context:
    """The acceptor's side: one message of the client completes it, unless `steps` says otherwise."""

    def __init__(self, **changes: Any) -> None:
        self.steps = 1
        self.mech = KERBEROS
        self.target_name = "amqp/host.example@EXAMPLE.ORG"
        self.initiator_name = "alice@EXAMPLE.ORG"
        self.lifetime: int | None = 600
        self.reply: bytes | None = b"reply"
        self.fault: Exception | None = None
        self.tokens: list[bytes] = []
        self.wrapped: list[tuple[bytes, bool]] = []
        vars(self).update(changes)

    @property
    def complete(self) -> bool:
        return len(self.tokens) >= self.steps

    def step(self, token: bytes) -> bytes | None:
        if self.fault is not None:
            raise self.fault
        self.tokens.append(token)
        return self.reply

    def wrap(self, message: bytes, is_encrypted: bool) -> Any:
        self.wrapped.append((message, is_encrypted))
        return SimpleNamespace(message=b"wrapped " + message)

    def unwrap(self, token: bytes) -> Any:
        if self.fault is not None:
            raise self.fault
        return SimpleNamespace(message=token.removeprefix(b"wrapped "))


class Library:
    """In the place of the package gssapi. The machine's own realm is EXAMPLE.ORG."""

    def __init__(self) -> None:
        self.exceptions = SimpleNamespace(GSSError=GSSError)
        self.MechType = SimpleNamespace(kerberos=KERBEROS)
        self.NameType = SimpleNamespace(user="a user's name")
        self.made: list[Any] = []
        self.context = Context()
        self.fault: Exception | None = None

    def Credentials(self, **options: Any) -> str:
        if self.fault is not None:
            raise self.fault
        self.made.append(options)
        return "keys"

    def SecurityContext(self, **options: Any) -> Context:
        self.made.append(options)
        return self.context

    def Name(self, text: str, kind: str) -> Any:
        assert kind == "a user's name"

        def canonicalize(mechanism: str) -> str:
            assert mechanism == KERBEROS
            return f"{text}@EXAMPLE.ORG"

        return SimpleNamespace(canonicalize=canonicalize)


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Library:
    made = Library()
    monkeypatch.setitem(sys.modules, "gssapi", made)
    return made


@pytest.fixture
def keytab(tmp_path: Path) -> Path:
    path = tmp_path / "amqp.keytab"
    path.touch(0o600)
    path.write_bytes(b"\5\2keys")
    return path


@pytest.fixture
def verifier(library: Library, keytab: Path) -> KerberosVerifier:
    return KerberosVerifier(str(keytab), "staff")


def refused(why: str) -> VerifyResult:
    return VerifyResult(is_valid=False, detail=f"SASL(-13): authentication failure: GSSAPI: {why}")


def last(verifier: KerberosVerifier, context: Context, message: bytes = NO_LAYER) -> VerifyResult:
    answer = verifier.verify(CheckTicket(token=b"wrapped " + message, context=context, is_last=True))
    assert isinstance(answer, VerifyResult)
    return answer


# The exchange


def test_a_ticket_leads_to_the_offer_of_no_layer(verifier: KerberosVerifier, library: Library, keytab: Path) -> None:
    answer = verifier.verify(CheckTicket(token=b"ticket"))
    assert answer == TicketStep(context=library.context, reply=b"reply", offer=b"wrapped " + NO_LAYER)
    assert library.made == [
        {"usage": "accept", "store": {"keytab": f"FILE:{keytab}"}},
        {"creds": "keys", "usage": "accept"},
    ]
    assert library.context.tokens == [b"ticket"]
    assert library.context.wrapped == [(NO_LAYER, False)]
    assert verifier.name == "staff"


def test_an_exchange_of_several_messages_stays_in_its_context(verifier: KerberosVerifier, library: Library) -> None:
    library.context = Context(steps=2, reply=None)
    first = verifier.verify(CheckTicket(token=b"one"))
    assert first == TicketStep(context=library.context, reply=b"", offer=None)
    second = verifier.verify(CheckTicket(token=b"two", context=library.context))
    assert second == TicketStep(context=library.context, reply=b"", offer=b"wrapped " + NO_LAYER)
    assert library.context.tokens == [b"one", b"two"]
    assert len(library.made) == 2, "the keytab was read once"


def test_whom_the_ticket_names_is_let_in_for_as_long_as_it_lasts(verifier: KerberosVerifier) -> None:
    began = time.time()
    result = last(verifier, Context())
    assert (result.is_valid, result.user, result.groups, result.proof) == (True, "alice", (), None)
    assert result.ends_at_s is not None
    assert began + 600 <= result.ends_at_s <= time.time() + 600


@pytest.mark.parametrize("lifetime", [0, -5])
def test_a_ticket_that_has_ended_ends_the_connection(verifier: KerberosVerifier, lifetime: int) -> None:
    began = time.time()
    ends_at_s = last(verifier, Context(lifetime=lifetime)).ends_at_s
    assert ends_at_s is not None
    assert began <= ends_at_s <= time.time()


def test_a_ticket_may_last_for_ever(verifier: KerberosVerifier) -> None:
    assert last(verifier, Context(lifetime=None)) == VerifyResult(is_valid=True, user="alice")


# Who it is


@pytest.mark.parametrize(
    ("principal", "user"),
    [
        ("alice@EXAMPLE.ORG", "alice"),
        ("alice@OTHER.ORG", "alice@OTHER.ORG"),  # attack: the same name in a realm that is trusted
        ("alice@example.org", "alice@example.org"),
        ("host/a.example@EXAMPLE.ORG", "host/a.example"),
        ("alice\\@OTHER.ORG@EXAMPLE.ORG", "alice\\@OTHER.ORG@EXAMPLE.ORG"),  # attack: a name like one of a realm
    ],
)
def test_only_users_of_the_machines_own_realm_lose_it(verifier: KerberosVerifier, principal: str, user: str) -> None:
    assert last(verifier, Context(initiator_name=principal)).user == user


@pytest.mark.parametrize("wanted", ["", "alice", "alice@EXAMPLE.ORG"])
def test_a_client_may_want_to_be_itself(verifier: KerberosVerifier, wanted: str) -> None:
    assert last(verifier, Context(), NO_LAYER + wanted.encode()).is_valid


@pytest.mark.parametrize("wanted", ["root", "alice ", "Alice", "alice@OTHER.ORG", "alice\0", "é"])
def test_a_client_may_want_to_be_nobody_else(verifier: KerberosVerifier, wanted: str) -> None:
    result = last(verifier, Context(), NO_LAYER + wanted.encode())
    assert result == VerifyResult(is_valid=False, detail=NOT_OWN_AUTHZID)


@pytest.mark.parametrize(
    ("name", "is_taken"),
    [
        ("a" * MAX_USER_BYTES, True),
        ("a" * (MAX_USER_BYTES + 1), False),
        ("é" * (MAX_USER_BYTES // 2), True),
        ("é" * (MAX_USER_BYTES // 2) + "a", False),
        ("", False),
        ("a", True),
        ("al\nice", False),
        ("al\ud800ice", False),
    ],
)
def test_names_that_a_principal_may_have(verifier: KerberosVerifier, name: str, is_taken: bool) -> None:
    result = last(verifier, Context(initiator_name=f"{name}@EXAMPLE.ORG"))
    if is_taken:
        assert (result.is_valid, result.user) == (True, name)
    else:
        assert result == refused("an unprintable or too long a name")


@pytest.mark.parametrize(
    "message", [b"", b"\1\0\0", b"\2\0\0\0", b"\4\0\0\0alice", b"\1\0\0\1", b"\0\0\0\0", b"\7\0\0\0"]
)
def test_a_layer_that_was_not_offered_is_refused(verifier: KerberosVerifier, message: bytes) -> None:
    """Attack: a client that takes what follows to be encrypted, or that has no layer agreed at all."""
    assert last(verifier, Context(), message) == refused("a security layer that was not offered")


# What is refused


def test_a_mechanism_other_than_kerberos_is_refused(verifier: KerberosVerifier, library: Library) -> None:
    library.context = Context(mech=OTHER)
    assert verifier.verify(CheckTicket(token=b"t")) == refused("a mechanism other than Kerberos")


@pytest.mark.parametrize(
    ("service", "target", "is_taken"),
    [
        ("amqp", "amqp/host@R", True),
        ("amqp", "imap/host@R", False),
        ("amqp", "amqps/host@R", False),
        ("amqp", "amqp@R", False),
        ("amqp", "x/amqp/host@R", False),
        ("imap", "imap/host@R", True),
        ("imap", "amqp/host@R", False),
    ],
)
def test_a_ticket_for_another_service_is_refused(
    library: Library, keytab: Path, service: str, target: str, is_taken: bool
) -> None:
    """Attack: a keytab of the whole host; a ticket that was got for its mail."""
    library.context = Context(target_name=target)
    asked = KerberosVerifier(str(keytab), "staff", service) if service != "amqp" else KerberosVerifier(str(keytab), "s")
    answer = asked.verify(CheckTicket(token=b"t"))
    if is_taken:
        assert isinstance(answer, TicketStep)
    else:
        assert answer == refused(f"a ticket for another service than {service}")


@pytest.mark.parametrize("is_last", [False, True])
@pytest.mark.parametrize(("fault", "why"), [(GSSError("al"), "GSSError 42"), (ExpiredError("al"), "ExpiredError 7")])
def test_what_the_library_refuses_is_said_without_its_text(
    verifier: KerberosVerifier, fault: Exception, why: str, is_last: bool
) -> None:
    asked = CheckTicket(token=b"t", context=Context(fault=fault), is_last=is_last)
    assert verifier.verify(asked) == refused(why)


def test_a_keytab_that_cannot_be_used_says_nothing_of_the_client(
    verifier: KerberosVerifier, library: Library, keytab: Path
) -> None:
    library.fault = GSSError("no key")
    assert verifier.verify(CheckTicket(token=b"t")) == unavailable(f"the keytab {keytab} cannot be used (GSSError)")


def test_other_questions_are_not_answered(verifier: KerberosVerifier) -> None:
    answer = verifier.verify(CheckPassword(user="alice", password=Secret("x")))
    assert answer == unavailable("Kerberos knows tickets only")


# Settings


def test_a_missing_package_is_named(keytab: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gssapi", None)
    with pytest.raises(KerberosError, match=r"^Kerberos wants the package gssapi: pip install gssapi$"):
        KerberosVerifier(str(keytab), "staff")


def test_a_keytab_that_will_not_do_is_named(library: Library, keytab: Path) -> None:
    def fault() -> str:
        with pytest.raises(KerberosError) as caught:
            KerberosVerifier(str(keytab), "staff")
        return str(caught.value)

    for content in (b"", b"5", b"\4\2", b"alice:hash"):
        keytab.write_bytes(content)
        assert fault() == f"{keytab}: not a keytab"
    keytab.write_bytes(b"\5\2keys")
    keytab.chmod(0o644)
    assert "chmod 600" in fault()
    keytab.unlink()
    assert fault() == f"{keytab}: cannot be read: No such file or directory"
