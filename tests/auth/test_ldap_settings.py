"""What an LDAP authenticator is told, how names get into filters and DNs, and answers that are no LDAP."""

import socket
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ldap3.operation.search import search_operation
from ldap3.utils.dn import parse_dn

from auth.credentials import CheckToken, FetchGroups, Recheck, VerifyResult
from auth.identity import Proof
from auth.secrets import Secret
from auth.verifiers.ldap import LdapVerifier, ldap_warnings, make_ldap_verifier
from auth.verifiers.ldap_settings import LdapSettingsError, escape, read_settings
from auth.verifiers.ldap_wire import LdapConnection, LdapError, Limits, ServerAddress

GIVEN: dict[str, Any] = {"name": "staff", "urls": "ldaps://a.example ldap://[::1]:1389", "userBase": "ou=people"}


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_a_name_in_a_filter_is_that_name_and_nothing_else(name: str) -> None:
    """The server gets a condition of one attribute with these bytes."""
    request = search_operation("", f"(uid={escape(name)})", "BASE", "NEVER", [], 0, 0, False, False, False)
    if name:
        match = request["filter"]["equalityMatch"]
        assert (bytes(match["attributeDesc"]), bytes(match["assertionValue"])) == (b"uid", name.encode())


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1))
def test_a_name_in_a_dn_is_one_value(name: str) -> None:
    settings = read_settings({**GIVEN, "userBase": None, "userDn": "uid={user},ou=people"})
    dn = settings.users.dn_of(name)
    (_, value, _), rest = parse_dn(dn)[0], parse_dn(dn)[1:]
    assert [(attribute, text) for attribute, text, _ in rest] == [("ou", "people")]
    assert value == escape(name)


def test_defaults() -> None:
    settings = read_settings(GIVEN)
    assert [str(server) for server in settings.servers] == ["ldaps://a.example:636", "ldap://[::1]:1389"]
    assert settings.starts_tls
    assert settings.clear_servers == ()
    assert settings.tls.verifies_hostname
    assert (settings.users.attribute, settings.groups.attribute, settings.groups.member) == ("uid", "cn", "member")
    assert (settings.timeout_s, settings.retry_s, settings.threads) == (5, 5, 8)
    assert list(ldap_warnings(GIVEN)) == []
    assert read_settings({**GIVEN, "memberIs": "name"}).groups.member == "memberUid"


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"urls": ""}, "urls: expected 1 to 8"),
        ({"urls": " ".join(["ldaps://a"] * 9)}, "urls: expected 1 to 8"),
        *(
            ({"urls": url}, "urls: '")
            for url in ("a.example", "ldapi:///x", "ldaps://", "ldaps://a:x", "ldaps://a:70000", "ldaps://a/ou=x",
                        "ldaps://u@a", "ldaps://a?x", "ldaps://[::1")
        ),
        ({"userBase": None}, "either userBase"),
        ({"userDn": "uid={user},ou=people"}, "either userBase"),
        *(
            ({"userBase": None, "userDn": dn}, "userDn: expected a name with one {user}")
            for dn in ("uid=alice", "{user}", "{user}=alice", "uid={user}{user}", "{user},ou=people")
        ),
        ({"bindDn": "cn=x"}, "bindDn and bindPassword belong together"),
        ({"bindPassword": "x"}, "bindDn and bindPassword belong together"),
        ({"bindDn": "cn=x", "bindPassword": "env:NO_SUCH_VARIABLE"}, "bindPassword: Not found"),
        ({"bindDn": "cn=x", "bindPassword": "file:/no/such/file"}, "bindPassword: Unable to open"),
        ({"bindDn": "cn=x", "bindPassword": "literal:"}, "bindPassword is empty"),
        *(({"userFilter": each}, "userFilter: expected") for each in ("uid=x", "(uid=x", "(a=b)(c=d)", "()", "(&)(")),
        ({"groupFilter": "cn"}, "groupFilter: expected"),
        *(({"userAttribute": each}, "userAttribute: expected") for each in ("", "a b", "uid)(x", "uid=", "1")),
        ({"memberIs": "name", "nestedGroups": True}, "nestedGroups: groups that hold names"),
        ({"threads": 1}, "threads: expected 2 to 64"),
        ({"threads": 65}, "threads: expected 2 to 64"),
        ({"timeoutSeconds": 0}, "timeoutSeconds: expected 1"),
        ({"retrySeconds": 0}, "retrySeconds: expected 1"),
        ({"cacheSeconds": -1}, "cacheSeconds: expected 0"),
        ({"negativeCacheSeconds": 90_000}, "negativeCacheSeconds: expected 0"),
        ({"caCertFile": "/no/such/file"}, "TLS: SSL CA configuration failed"),
        ({"protocols": "SSLv3"}, "TLS: "),
    ],
)  # fmt: skip
def test_mistakes_are_found_at_the_start(changes: dict[str, Any], text: str) -> None:
    with pytest.raises(LdapSettingsError) as found:
        make_ldap_verifier(GIVEN | changes)
    assert str(found.value).startswith(text)


def test_dangers_are_told_and_no_password_is() -> None:
    dangerous = {
        **GIVEN, "urls": "ldaps://a ldap://b", "startTls": False, "verifyHostname": False, "bindDn": "cn=x",
        "bindPassword": "literal:sesame",
    }  # fmt: skip
    warnings = list(ldap_warnings(dangerous))
    assert [text.split(":")[0] for text in warnings] == [
        *("ldap", "verifyHostname is off", "bindPassword stands in the configuration"),
    ]
    settings = read_settings(dangerous)
    assert "sesame" not in repr(settings) + str(warnings)


def test_what_it_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where users can only be known by their password, nobody is asked about others; a token is never known."""
    monkeypatch.setattr(LdapConnection, "open", lambda *_: pytest.fail("a directory is asked"))
    alone = LdapVerifier(read_settings({**GIVEN, "userBase": None, "userDn": "uid={user}"}))
    assert alone.mechanisms == ("PLAIN",)
    proof = Proof(verifier="staff", user="alice", value="x")
    for question in (FetchGroups(user="alice"), Recheck(proof=proof), CheckToken(token=Secret("x"))):
        answer = alone.verify(question)
        assert isinstance(answer, VerifyResult)
        assert (answer.is_valid, answer.is_compared) == (False, False)
    assert LdapVerifier(read_settings(GIVEN)).mechanisms == ("EXTERNAL", "PLAIN")


# The beginnings of answers that are LDAP: to a bind, an entry, the end of a search with a cookie.
SEEDS = (
    bytes.fromhex("300c02010161070a010004000400"),
    bytes.fromhex("301c020101641704047569643d300f300d0403756964310604046164616d"),
    bytes.fromhex("300c02010165070a010004000400"),
    bytes.fromhex(
        "303402010165070a010004000400a02630240416312e322e3834302e3131333535362e312e342e333139040a300802010004033132"
    ),
)


def _mutated(seed: bytes, at: int, byte: int, rest: bytes) -> bytes:
    at %= len(seed)
    return seed[:at] + bytes([byte]) + seed[at + 1 :] + rest


MUTATED = st.builds(
    _mutated, st.sampled_from(SEEDS), st.integers(0, 80), st.integers(0, 255), st.sampled_from((b"", *SEEDS))
)


@given(st.one_of(st.binary(max_size=200), MUTATED))
def test_any_answer_is_an_answer_or_a_fault(answer: bytes) -> None:
    """Never another exception, nor an endless wait."""
    near, far = socket.socketpair()
    connection = LdapConnection(ServerAddress(host="x", port=1, is_tls=False))
    connection._socket = near
    far.sendall(answer)
    far.shutdown(socket.SHUT_WR)
    limits = Limits(1.0, time.monotonic() + 2)
    try:
        connection.search("", "SUBTREE", "(uid=x)", ["uid"], limits)
    except LdapError:
        pass
    finally:
        connection.close()
        far.close()
