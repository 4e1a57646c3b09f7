"""The SASL server configuration, and the mechanisms that a listener offers by it.

The file has the format of the SASL library that the peer uses: `key: value` lines, `#` comments. Of its user databases
we support two. The sasldb: `auxprop_plugin: sasldb`, `sasldb_path: FILE` (see sasldb.py). And saslauthd:
`pwcheck_method: saslauthd`, `saslauthd_path: SOCKET`. Our own database is `auxprop_plugin: userfile` with
`userfile_path: FILE` (see files.py). A relative FILE is relative to the configuration's folder. `keytab: FILE` is for
GSSAPI (kerberos.py). Keys of other plugins are ignored.
Sources: docs/spec/policy-and-auth.md §7, §8.1.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from auth.mechanisms import Channel
from auth.scram import BINDING, PLUS, hash_of, mechanism_names
from auth.verifiers.saslauthd import DEFAULT_SOCKET
from policy.files.regular import read_regular

# The default sasldb of the SASL library and of saslpasswd2.
DEFAULT_SASLDB = "/etc/sasldb2"

# The default folders of the SASL library, if saslConfigDir is not set.
DEFAULT_FOLDERS = ("/etc/sasl2", "/usr/lib/sasl2")

# A configuration has a dozen lines; stops a wrong path from filling memory.
MAX_CONFIG_BYTES = 64 * 1024


# Offered only if saslMechanisms or mech_list names them. SHA-1 is not broken in SCRAM, but new users should not choose
# it.
ON_REQUEST = mechanism_names("SHA-1")

# Characters of a mechanism's name that an error shows.
_SHOWN_CHARACTERS = 64

# Mechanisms of the SASL library that check a password, whether we support them or not.
_CHECKS_PASSWORD = re.compile(r"PLAIN|LOGIN|CRAM-MD5|DIGEST-MD5|NTLM|SRP|OTP|SCRAM-.*")


class SaslConfigError(ValueError):
    """The configuration cannot be used. The text names the file, if possible the line, and the remedy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SaslConfig:
    """The settings in a SASL configuration.

    mechanisms         mech_list in its order, upper case; None if absent: all supported mechanisms
    user_file, sasldb  path of the user database of that kind; None without one
    saslauthd          path of its socket; None if it is not used
    keytab             path of the Kerberos keys; None without them
    database_fault     why the configured database cannot be used; None if it can or there is none
    """

    mechanisms: tuple[str, ...] | None = None
    user_file: str | None = None
    sasldb: str | None = None
    saslauthd: str | None = None
    keytab: str | None = None
    database_fault: str | None = None


def load_sasl_config(folder: str | None, name: str = "qdrouterd", *, environment: Mapping[str, str]) -> SaslConfig:
    """Reads `<folder>/<name>.conf`.

    folder       router.saslConfigDir; None: $PN_SASL_CONFIG_PATH (folders separated by colons), else DEFAULT_FOLDERS
    name         router.saslConfigName
    environment  os.environ
    Returns      an empty configuration if no folder was configured and the default places have no such file
    Errors       SaslConfigError; also if a configured folder has no such file, since the peer would then use defaults
                 that silently offer ANONYMOUS.
    """
    if "/" in name or not name:
        raise SaslConfigError(f"saslConfigName '{name}': expected a file name without folder and without .conf")
    configured = folder or environment.get("PN_SASL_CONFIG_PATH") or ""
    folders = [folder] if folder else [each for each in configured.split(":") if each] or list(DEFAULT_FOLDERS)
    for each in folders:
        path = Path(each) / f"{name}.conf"
        try:
            content = read_regular(str(path), MAX_CONFIG_BYTES)
        except FileNotFoundError:
            continue
        except OSError as fault:
            raise SaslConfigError(f"{path}: cannot be read: {fault.strerror}") from None
        return parse_sasl_config(content.decode("utf-8", "replace"), str(path))
    if configured:
        raise SaslConfigError(f"no SASL configuration {name}.conf in {configured} (saslConfigDir, saslConfigName)")
    return SaslConfig()


def parse_sasl_config(text: str, path: str) -> SaslConfig:
    """Parses the configuration in `text`. `path` names it in errors and is the base of relative paths.

    Errors  SaslConfigError with file and line.
    """
    values: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        stripped = line.strip()
        if not stripped or stripped.startswith("#"):
            continue
        key, colon, value = stripped.partition(":")
        if not colon:
            raise SaslConfigError(f"{path}:{number}: expected key: value")
        values[key.strip().lower()] = value.strip()
    mechanisms = _words(values["mech_list"]) if "mech_list" in values else None
    keytab = str(Path(path).parent / values["keytab"]) if values.get("keytab") else None
    return replace(_database(values, path), mechanisms=mechanisms, keytab=keytab)


def _database(values: Mapping[str, str], path: str) -> SaslConfig:
    """Returns the part of the configuration that says who verifies passwords. Errors: SaslConfigError."""
    method = values.get("pwcheck_method", "auxprop").lower()
    plugin = values.get("auxprop_plugin", "").lower()
    if method == "saslauthd":
        return SaslConfig(saslauthd=values.get("saslauthd_path") or DEFAULT_SOCKET)
    if method != "auxprop":
        fault = f"{path}: pwcheck_method '{method}' is not supported, expected auxprop or saslauthd"
        return SaslConfig(database_fault=fault)
    folder = Path(path).parent
    if plugin == "userfile" or (not plugin and "userfile_path" in values):
        if not values.get("userfile_path"):
            raise SaslConfigError(f"{path}: auxprop_plugin userfile wants userfile_path: FILE")
        return SaslConfig(user_file=str(folder / values["userfile_path"]))
    if plugin == "sasldb" or (not plugin and "sasldb_path" in values):
        return SaslConfig(sasldb=str(folder / (values.get("sasldb_path") or DEFAULT_SASLDB)))
    if plugin:
        return SaslConfig(database_fault=_foreign_database(path, plugin))
    return SaslConfig()


def offered_mechanisms(
    config: SaslConfig,
    *,
    served: Sequence[str],
    sasl_mechanisms: str | None,
    authenticate_peer: bool,
    channel: Channel,
) -> tuple[str, ...]:
    """Returns the mechanisms for one connection, in the order to offer them; may be none.

    served                    mechanisms that a verifier supports, strongest first: the order if mech_list gives none
    sasl_mechanisms           the listener's filter: words in any case; None or blank for no filter
    authenticate_peer         excludes ANONYMOUS
    channel                   without a verified certificate EXTERNAL is excluded
    Errors                    SaslConfigError if a mechanism with passwords would be offered but the configured user
                              database cannot be used: offering the rest silently would lock users out, or admit them
                              as `anonymous`.
    """
    return _offered(
        config,
        tuple(served),
        sasl_mechanisms or "",
        authenticate_peer,
        channel.has_certificate,
        channel.binding(BINDING) is not None,
    )


@lru_cache(maxsize=64)  # each connection asks; few listeners differ
def _offered(
    config: SaslConfig,
    served: tuple[str, ...],
    sasl_mechanisms: str,
    authenticate_peer: bool,
    has_certificate: bool,
    has_binding: bool,
) -> tuple[str, ...]:
    wanted = set(_words(sasl_mechanisms))
    # The unusable database would have served passwords.
    by_verifier = (name for name in _forms(served) if name != "EXTERNAL")
    by_broken = ("PLAIN",) if config.database_fault else ()
    installed = ("EXTERNAL", *by_verifier, *by_broken, "ANONYMOUS")
    by_default = tuple(name for name in installed if name not in ON_REQUEST or name in wanted)
    listed = by_default if config.mechanisms is None else tuple(dict.fromkeys(config.mechanisms))
    chosen = [name for name in listed if not wanted or name in wanted]
    if config.database_fault and any(_CHECKS_PASSWORD.fullmatch(name) for name in chosen):
        raise SaslConfigError(config.database_fault)
    usable = set(installed)
    if authenticate_peer:
        usable.discard("ANONYMOUS")
    if not has_certificate:
        usable.discard("EXTERNAL")
    if not has_binding:
        usable = {name for name in usable if not name.endswith(PLUS)}
    return tuple(name for name in chosen if name in usable)


def unserved_mechanisms(config: SaslConfig, served: Sequence[str]) -> tuple[str, ...]:
    """Returns the mechanisms in mech_list that no listener can offer, in its order.

    served  as in `offered_mechanisms`
    """
    have = {"EXTERNAL", "ANONYMOUS", *_forms(served)}
    return tuple(name for name in dict.fromkeys(config.mechanisms or ()) if name not in have)


def _forms(served: Sequence[str]) -> Iterator[str]:
    """Yields the mechanisms; each SCRAM mechanism comes after its form with channel binding."""
    for name in served:
        hash_name = hash_of(name)
        yield from (name,) if hash_name is None else mechanism_names(hash_name)


def why_unserved(sasl_mechanisms: str, *, authenticates: bool) -> str:
    """Returns why a listener offers none of these saslMechanisms, and the remedy."""
    reasons = {
        "EXTERNAL": "EXTERNAL wants an sslProfile with caCertFile, and a mech_list that has it",
        "ANONYMOUS": "ANONYMOUS wants authenticatePeer: no, and a mech_list that has it"
        if authenticates
        else "ANONYMOUS wants a mech_list that has it",
        "PLAIN": "PLAIN wants users (saslConfigDir of the router, or authenticators), and a mech_list that has it",
        "GSSAPI": "GSSAPI wants a keytab (SASL configuration, kerberosAuthenticator), and a mech_list that has it",
    }
    given = (name[:_SHOWN_CHARACTERS] for name in dict.fromkeys(_words(sasl_mechanisms)))
    return "; ".join(reasons.get(name, f"there is nobody to answer {name}") for name in given)


def demands_certificate(sasl_mechanisms: str | None) -> bool:
    """Returns whether a listener with this saslMechanisms requires a client certificate in the TLS handshake (§6.5)."""
    return "EXTERNAL" in (sasl_mechanisms or "").upper()


def _words(text: str) -> tuple[str, ...]:
    return tuple(word for word in re.split(r"[\s,]+", text.upper()) if word)


def _foreign_database(path: str, plugin: str) -> str:
    return (
        f"{path}: the user database of auxprop_plugin '{plugin}' cannot be read by this router. "
        "Enter its users into a user file, for each: qdpasswd -c -f FILE USER, "
        "and set auxprop_plugin: userfile and userfile_path: FILE"
    )
