"""What an LDAP authenticator is told, how names get into filters and DNs, and answers that are no LDAP."""

import shutil
import socket
import ssl
import time
from pathlib import Path
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
from auth.verifiers.ldap_settings import (
    BindPassword,
    GroupPlace,
    LdapSettingsError,
    UserPlace,
    cache_times,
    escape,
    read_settings,
)
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


def refusal(**changes: Any) -> str:
    with pytest.raises(LdapSettingsError) as found:
        make_ldap_verifier(GIVEN | changes)
    return str(found.value)


URLS = "urls: expected 1 to 8 of the form ldaps://HOST[:PORT], separated by blanks"
USER_DN = "userDn: expected a name with one {user} as a value, such as uid={user},ou=people"
EITHER = "either userBase, below which users are searched, or userDn, such as uid={user},ou=people"


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"urls": ""}, URLS),
        ({"urls": None}, URLS),
        ({"urls": "http://a"}, "urls: 'http://a': expected ldaps://HOST[:PORT] or ldap://HOST[:PORT]"),
        ({"urls": "ldaps://a/#x"}, "urls: 'ldaps://a/#x': expected ldaps://HOST[:PORT] or ldap://HOST[:PORT]"),
        ({"userBase": " "}, EITHER),
        ({"userBase": None, "userDn": "uid={user},cn={user}"}, USER_DN),
        ({"bindDn": "cn=x", "bindPassword": " "}, "bindDn and bindPassword belong together"),
        ({"bindDn": "cn=x", "bindPassword": "literal:"}, "bindPassword is empty, and so would be an anonymous login"),
        ({"userFilter": "uid=x"}, "userFilter: expected a filter in parentheses, such as (objectClass=person)"),
        ({"groupFilter": "cn"}, "groupFilter: expected a filter in parentheses, such as (objectClass=person)"),
        ({"userAttribute": "a b"}, "userAttribute: expected the name of an attribute, such as uid"),
        ({"groupAttribute": "a b"}, "groupAttribute: expected the name of an attribute, such as cn"),
        ({"memberAttribute": "a)"}, "memberAttribute: expected the name of an attribute, such as member"),
        (
            {"memberIs": "name", "memberAttribute": "a)"},
            "memberAttribute: expected the name of an attribute, such as memberUid",
        ),
        (
            {"memberIs": "name", "nestedGroups": True},
            "nestedGroups: groups that hold names of users (memberIs) hold no groups",
        ),
        ({"threads": 65}, "threads: expected 2 to 64, not 65"),
        ({"timeoutSeconds": 86_401}, "timeoutSeconds: expected 1 to 86400, not 86401"),
        ({"retrySeconds": 86_401}, "retrySeconds: expected 1 to 86400, not 86401"),
    ],
)
def test_a_mistake_is_named_with_what_would_be_right(changes: dict[str, Any], text: str) -> None:
    assert refusal(**changes) == text


def test_the_least_and_the_most_of_each_number() -> None:
    for key, least, most in (("threads", 2, 64), ("timeoutSeconds", 1, 86_400), ("retrySeconds", 1, 86_400)):
        for number in (least, most):
            settings = read_settings({**GIVEN, key: number})
            assert number in (settings.threads, settings.timeout_s, settings.retry_s)
    for number in (0, 86_400):
        assert cache_times({"cacheSeconds": number, "negativeCacheSeconds": number}) == (number, number)
    assert cache_times({}) == (60, 5)
    assert len(read_settings({**GIVEN, "urls": " ".join(["ldaps://a"] * 8)}).servers) == 8


def test_each_attribute_is_for_what_its_name_says() -> None:
    given = {
        "name": "staff", "urls": "ldap://a ldaps://b:7/", "startTls": False, "verifyHostname": False,
        "bindDn": " cn=x ", "bindPassword": "literal:sesame", "userBase": "ou=p", "userFilter": "(a=b)",
        "userAttribute": "mail", "groupBase": "ou=g", "groupFilter": "(c=d)", "groupAttribute": "name",
        "memberAttribute": "2.5.4.31", "nestedGroups": True, "caCertFile": "/ca", "certFile": "/cert",
        "privateKeyFile": "/key", "ciphers": "HIGH", "protocols": "TLSv1.3",
    }  # fmt: skip
    settings = read_settings(given)
    assert settings.name == "staff"
    assert settings.servers == (
        ServerAddress(host="a", port=389, is_tls=False), ServerAddress(host="b", port=7, is_tls=True)
    )  # fmt: skip
    assert (settings.starts_tls, settings.tls.verifies_hostname) == (False, False)
    assert settings.bind_dn == "cn=x"
    assert settings.bind_password is not None
    assert settings.bind_password.read().reveal() == "sesame"
    assert settings.users == UserPlace(base="ou=p", filter="(a=b)", attribute="mail", dn="")
    assert settings.groups == GroupPlace(
        base="ou=g", filter="(c=d)", attribute="name", member="2.5.4.31", holds_names=False, is_nested=True
    )
    assert settings.tls.files == (("caCertFile", "/ca"), ("certFile", "/cert"), ("privateKeyFile", "/key"))
    profile = settings.tls._profile
    assert (profile.name, profile.ciphers, profile.protocols) == ("staff", "HIGH", "TLSv1.3")
    assert settings.has_service
    by_name = read_settings({**GIVEN, "memberIs": "name", "groupBase": "ou=g"}).groups
    assert (by_name.holds_names, by_name.is_nested, by_name.filter) == (True, False, "(objectClass=*)")


def test_what_a_service_is() -> None:
    template = {"userBase": None, "userDn": "uid={user}"}
    assert read_settings(GIVEN).has_service, "it is bound as nobody"
    assert not read_settings({**GIVEN, **template}).has_service
    assert read_settings({**GIVEN, **template, "bindDn": "cn=x", "bindPassword": "literal:p"}).has_service


@pytest.mark.parametrize(("text", "escaped"), [("aZ09", "aZ09"), ("a b", "a\\20b"), ("*", "\\2a"), ("é", "\\c3\\a9")])
def test_every_byte_but_letters_and_digits_is_escaped(text: str, escaped: str) -> None:
    assert escape(text) == escaped
    assert read_settings({**GIVEN, "userFilter": "(a=b)"}).users.condition(text) == f"(&(a=b)(uid={escaped}))"


def test_half_a_surrogate_pair_is_no_text() -> None:
    with pytest.raises(UnicodeEncodeError):
        escape("\ud800")


def test_a_password_of_the_service_is_read_each_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A new one needs no restart; one that is gone is named without the password itself."""
    file = tmp_path / "password"
    for source, put in (
        (f"file:{file}", file.write_text),
        ("env:LDAP_PASSWORD", lambda text: monkeypatch.setenv("LDAP_PASSWORD", text)),
    ):
        put("first")
        password = BindPassword(configured=source)
        assert password.read().reveal() == "first"
        assert not password.is_in_configuration
        put("second")
        assert password.read().reveal() == "second"
    monkeypatch.delenv("LDAP_PASSWORD")
    with pytest.raises(LdapSettingsError) as caught:
        password.read()
    assert str(caught.value).startswith("bindPassword: ")
    assert str(caught.value).endswith(" (env:LDAP_PASSWORD)")
    for configured in ("literal:sesame", "sesame"):
        assert BindPassword(configured=configured).is_in_configuration
        assert BindPassword(configured=configured).read().reveal() == "sesame"
        assert "sesame" not in repr(BindPassword(configured=configured))


def test_files_of_tls_that_will_not_do_are_named(tmp_path: Path, pki: Any) -> None:
    missing, empty = f"{tmp_path}/none", tmp_path / "empty"
    empty.touch()
    why = "SSL CA configuration failed"
    assert refusal(caCertFile=missing) == f"TLS: {why}: caCertFile {missing}: No such file or directory"
    assert refusal(caCertFile=str(empty)) == (
        f"TLS: {why}: caCertFile {empty}: expected PEM, and a certificate's own key"
    )
    why = "SSL local certificate configuration failed"
    assert refusal(caCertFile=pki.ca, certFile=pki.server_cert, privateKeyFile=missing) == (
        f"TLS: {why}: privateKeyFile {missing}: No such file or directory"
    )
    assert refusal(caCertFile=missing, certFile=missing, privateKeyFile=pki.server_key).endswith(
        f": caCertFile {missing}: No such file or directory; certFile {missing}: No such file or directory"
    )
    assert refusal(caCertFile=pki.ca, certFile=pki.client_cert, privateKeyFile=pki.server_key) == (
        f"TLS: {why}: caCertFile {pki.ca}, certFile {pki.client_cert}, privateKeyFile {pki.server_key}: "
        "expected PEM, and a certificate's own key"
    )
    make_ldap_verifier({**GIVEN, "urls": "ldap://a", "startTls": False, "caCertFile": missing})


def test_each_danger_is_said_where_there_is_one() -> None:
    clear = "passwords are sent in the clear: use ldaps: or startTls"
    off = "verifyHostname is off: any certificate of the same authority is good enough"
    written = "bindPassword stands in the configuration: use file: or env:"
    for changes, texts in (
        ({"urls": "ldap://a ldap://b", "startTls": False}, [f"ldap://a:389: {clear}", f"ldap://b:389: {clear}"]),
        ({"urls": "ldap://a ldaps://b", "startTls": False}, [f"ldap://a:389: {clear}"]),
        ({"urls": "ldap://a", "startTls": False, "verifyHostname": False}, [f"ldap://a:389: {clear}"]),
        ({"urls": "ldap://a", "verifyHostname": False}, [off]),
        ({"bindDn": "cn=x", "bindPassword": "pass:sesame"}, [written]),
        ({"bindDn": "cn=x", "bindPassword": "literal:sesame"}, [written]),
    ):
        assert list(ldap_warnings(GIVEN | changes)) == texts, changes


def test_files_of_tls_are_read_again_when_they_are_others(tmp_path: Path, pki: Any) -> None:
    """An authority that is no longer trusted is not trusted after the next look."""
    file = tmp_path / "ca.pem"
    shutil.copy(pki.ca, file)
    tls = read_settings({**GIVEN, "caCertFile": str(file)}).tls
    first = tls.context()
    assert tls.context() is first
    assert (first.verify_mode, first.check_hostname) == (ssl.CERT_REQUIRED, True)
    assert [each["subject"] for each in first.get_ca_certs()] == [((("commonName", "Test CA"),),)]
    shutil.copy(pki.other_ca, tmp_path / "new")
    (tmp_path / "new").replace(file)
    second = tls.context()
    assert second is not first
    assert [each["subject"] for each in second.get_ca_certs()] == [((("commonName", "Other CA"),),)]
    file.unlink()
    for _ in range(2):
        with pytest.raises(ValueError, match="SSL CA configuration failed"):
            tls.context()
    shutil.copy(pki.ca, file)
    assert tls.context() is not second
    lax = read_settings({**GIVEN, "caCertFile": str(file), "verifyHostname": False}).tls.context()
    assert (lax.verify_mode, lax.check_hostname) == (ssl.CERT_REQUIRED, False)


@pytest.mark.parametrize("key", ["certFile", "privateKeyFile"])
def test_another_certificate_of_the_client_is_used_from_then_on(key: str, tmp_path: Path, pki: Any) -> None:
    paths = {"certFile": tmp_path / "cert", "privateKeyFile": tmp_path / "key"}
    shutil.copy(pki.client_cert, paths["certFile"])
    shutil.copy(pki.client_key, paths["privateKeyFile"])
    tls = read_settings({**GIVEN, "caCertFile": pki.ca, **{name: str(path) for name, path in paths.items()}}).tls
    first = tls.context()
    paths[key].write_bytes(paths[key].read_bytes() + b"\n")
    assert tls.context() is not first


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
