"""Settings that cannot be: each error names the attribute, what was written, and what would be right."""

from pathlib import Path
from typing import Any

import pytest

from policy.configuration.schema import load_schema
from router.control.authenticators import MAKERS, AuthenticatorError

LDAP = {"urls": "ldaps://x.example", "userBase": "ou=x"}
TOKENS = {"issuer": "i", "audience": "b", "keysUrl": "https://x.example/k"}


def made(kind: str, attributes: dict[str, Any]) -> str:
    """The error of an authenticator `a` with these attributes beside the defaults."""
    known = load_schema().types[kind].attributes
    defaults = {name: each.default for name, each in known.items() if each.default is not None}
    with pytest.raises(AuthenticatorError) as caught:
        MAKERS[kind]({"name": "a", **defaults, **attributes})
    return str(caught.value)


@pytest.mark.parametrize(
    ("kind", "attributes", "says"),
    [
        ("fileAuthenticator", {"path": "NONE"}, ["NONE", "No such file"]),
        ("fileAuthenticator", {"path": "JUNK"}, ["JUNK:1", "expected user:hash"]),
        ("fileAuthenticator", {"path": "OPEN"}, ["OPEN", "chmod 600"]),
        ("sasldbAuthenticator", {"path": "NONE"}, ["NONE", "No such file"]),
        ("sasldbAuthenticator", {"path": "JUNK"}, ["JUNK", "Berkeley DB", "GDBM"]),
        ("saslauthdAuthenticator", {"path": "x" * 300}, ["path: 'xxx", "at most 107 bytes", "/run/saslauthd/mux"]),
        ("ldapAuthenticator", {**LDAP, "urls": "http://x"}, ["urls", "'http://x'", "ldaps://HOST[:PORT]"]),
        ("ldapAuthenticator", {**LDAP, "urls": "ldaps://x:99999"}, ["urls", "99999", "ldaps://HOST[:PORT]"]),
        ("ldapAuthenticator", {"urls": "ldaps://x"}, ["userBase", "userDn", "uid={user}"]),
        ("ldapAuthenticator", {**LDAP, "bindDn": "cn=x"}, ["bindDn", "bindPassword"]),
        ("ldapAuthenticator", {**LDAP, "bindDn": "cn=x", "bindPassword": "env:NO_SUCH_VARIABLE"},
         ["bindPassword", "env:NO_SUCH_VARIABLE", "environment variable"]),
        ("ldapAuthenticator", {**LDAP, "bindDn": "cn=x", "bindPassword": "file:NONE"}, ["bindPassword", "NONE"]),
        ("ldapAuthenticator", {**LDAP, "userFilter": "(x"}, ["userFilter", "(objectClass=person)"]),
        ("ldapAuthenticator", {**LDAP, "caCertFile": "NONE"}, ["caCertFile NONE", "No such file"]),
        ("ldapAuthenticator", {**LDAP, "caCertFile": "JUNK"}, ["caCertFile JUNK", "expected PEM"]),
        ("ldapAuthenticator", {**LDAP, "timeoutSeconds": -1}, ["timeoutSeconds", "not -1", "1 to 86400"]),
        ("ldapAuthenticator", {**LDAP, "cacheSeconds": 10**9}, ["cacheSeconds", "not 1000000000", "0 to 86400"]),
        ("tokenAuthenticator", {"issuer": "i", "audience": "b"}, ["one of keysFile and keysUrl"]),
        ("tokenAuthenticator", {**TOKENS, "keysUrl": "http://x/k"}, ["keysUrl", "'http://x/k'", "https://"]),
        ("tokenAuthenticator", {**TOKENS, "keysUrl": "nonsense"}, ["keysUrl", "'nonsense'", "https://HOST/PATH"]),
        ("tokenAuthenticator", {**TOKENS, "keysUrl": "https://u:hidden@x/k"}, ["keysUrl", "password", "take it out"]),
        ("tokenAuthenticator", {**TOKENS, "keysCaFile": "JUNK"}, ["keysCaFile JUNK", "expected PEM"]),
        ("tokenAuthenticator", {**TOKENS, "keysUrl": None, "keysFile": "JUNK"}, ["JUNK", "not JSON"]),
        ("tokenAuthenticator", {**TOKENS, "algorithms": "HS256"}, ["'HS256'", "RS256"]),
        ("tokenAuthenticator", {**TOKENS, "algorithms": "none"}, ["'none'", "RS256"]),
        ("tokenAuthenticator", {**TOKENS, "clockSkewSeconds": 9999}, ["clockSkewSeconds", "'9999'", "0 to 600"]),
        ("tokenAuthenticator", {**TOKENS, "keysSeconds": -5}, ["keysSeconds", "'-5'", "0 to 86400"]),
        ("tokenAuthenticator", {**TOKENS, "keysSeconds": 10**9}, ["keysSeconds", "'1000000000'", "0 to 86400"]),
        ("tokenAuthenticator", {**TOKENS, "issuer": ""}, ["issuer and audience must not be empty"]),
        ("tokenAuthenticator", {**TOKENS, "requiredClaims": "=x"}, ["requiredClaims", "NAME=VALUE"]),
        ("tokenAuthenticator", {**TOKENS, "userClaim": "a..b"}, ["userClaim", "'a..b'", "name of a claim"]),
        ("tokenAuthenticator", {**TOKENS, "groupsClaim": ".a"}, ["groupsClaim", "'.a'", "name of a claim"]),
    ],
)  # fmt: skip
def test_a_wrong_setting_is_named(kind: str, attributes: dict[str, Any], says: list[str], tmp_path: Path) -> None:
    (tmp_path / "JUNK").write_bytes(b"\0\1junk" * 50)
    (tmp_path / "JUNK").chmod(0o600)
    (tmp_path / "OPEN").write_text("a:b\n")
    (tmp_path / "OPEN").chmod(0o666)

    def placed(text: Any) -> Any:
        for name in ("NONE", "JUNK", "OPEN") if isinstance(text, str) else ():
            if text.endswith(name):
                text = text.removesuffix(name) + str(tmp_path / name)
        return text

    error = made(kind, {key: placed(value) for key, value in attributes.items()})
    assert all(each in error.replace(f"{tmp_path}/", "") for each in says), error
    assert "hidden" not in error
