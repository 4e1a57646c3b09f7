"""Checks names that entities of a configuration refer to: ports, sslProfiles, authenticators, plugins. Pure.

Each function returns why a name cannot be used, or None if it can. Startup checks against the names in the file,
management against those of the running router.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Final

from policy.configuration.schema import MAX_QUOTED_CHARACTERS
from policy.configuration.unique_names import RuleError

AUTHENTICATORS: Final = (
    *("fileAuthenticator", "ldapAuthenticator", "tokenAuthenticator", "sasldbAuthenticator"),
    *("saslauthdAuthenticator", "kerberosAuthenticator"),
)
PLUGIN: Final = "authServicePlugin"
PROFILE: Final = "sslProfile"
# The name of the SASL configuration's own verifier.
_DEFAULT: Final = "saslConfig"
RESERVED_AUTHENTICATORS: Final = (_DEFAULT, f"{_DEFAULT}.keytab")
MAX_PORT: Final = 65535
# The services of a plugin are tried one after another while a client waits.
MAX_PLACES: Final = 8
# The services of AMQP, which are also known on a host without a list of services.
WELL_KNOWN_SERVICES: Final[Mapping[str, int]] = {"amqp": 5672, "amqps": 5671}
MAX_SESSION_SECONDS: Final = 2**31 - 1

IsService = Callable[[str], bool]
"""Has this host a service of that name?"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """The names that the sections of a configuration may refer to.

    names       short type name -> the names of its sections
    is_service  returns whether the host has a service of that name
    """

    names: Mapping[str, Collection[str]]
    is_service: IsService

    @property
    def authenticators(self) -> frozenset[str]:
        return frozenset(name for each in AUTHENTICATORS for name in self.names[each])


def port_problem(user: str, port: str, least: int, is_service: IsService) -> str | None:
    """Returns why a port cannot be used, None if it can.

    user  the name of the entity in the error, such as `listener 0.0.0.0:amqp`
    """
    if port.isascii() and port.isdigit():
        # The resolver would take a greater number modulo 65536 and open an unintended port.
        is_port = len(port) <= len(str(MAX_PORT)) and least <= int(port) <= MAX_PORT
    else:
        is_port = is_service(port)
    if is_port:
        return None
    wanted = f"a number from {least} to {MAX_PORT}, or the name of a service"
    return f"{user}: '{port[:MAX_QUOTED_CHARACTERS]}' is no port: {wanted}"


def profile_problem(user: str, name: str, known: Collection[str]) -> str | None:
    if name in known:
        return None
    return f"{user}: no sslProfile named '{name}' (known: {', '.join(sorted(known)) or 'none is defined'})"


def authenticator_problem(written: str, known: Collection[str]) -> str | None:
    """Returns the error text if an authenticator is unknown, else None.

    written  a listener's `authenticators`
    """
    unknown = [name for name in written.split() if name not in known]
    if not unknown:
        return None
    defined = ", ".join(sorted(known)) or "none is defined"
    return f"no authenticator named '{unknown[0]}' (known: {defined})"


def authenticator_name_problem(name: str) -> str | None:
    if name in RESERVED_AUTHENTICATORS or name.split() != [name]:
        return f"authenticator '{name}': expected a name without blanks, other than {_DEFAULT}"
    return None


def service_places(name: str, text: str, port: str, is_service: IsService) -> list[tuple[str, str]]:
    """Returns host and port of each service in a list such as `auth1, auth2:5671, [::1]:5672`. Errors: RuleError."""

    def refused(why: str, attribute: str = "host") -> RuleError:
        return RuleError(f"{PLUGIN} '{name}': {why}", attribute, kind="Configuration")

    places = []
    for item in text.replace(",", " ").split():
        host, _, given = item.rpartition(":")
        if not host or (not host.endswith("]") and ":" in host):  # no port, or an IPv6 address without brackets
            host, given = item, ""
        if host.startswith("[") != host.endswith("]"):
            host = ""
        host = host.removeprefix("[").removesuffix("]")
        if not host or any(each in host for each in "[]/@"):
            raise refused(f"'{item}': expected host, host:port or [address]:port")
        if (problem := port_problem(f"{PLUGIN} '{name}'", given or port, 1, is_service)) is not None:
            raise RuleError(problem, "host" if given else "port", kind="Configuration")
        places.append((host, given or port))
    if not places:
        raise refused("expected the host of the service")
    if len(places) > MAX_PLACES:
        raise refused(f"{len(places)} services, at most {MAX_PLACES} are tried")
    return places


def token_problem(written: str) -> str | None:
    """Returns the error text for a connector's saslToken that is not a file or variable, else None.

    written  the attribute. Any other form would put the token itself in the configuration
    """
    form, _, name = written.partition(":")
    return None if form in ("file", "env") and name else "saslToken: expected file:PATH or env:VARIABLE"


def session_problem(written: object) -> str | None:
    """Returns the error text for an entity's maxSessionSeconds that is out of range, else None."""
    seconds = int(str(written or 0))
    if 0 <= seconds <= MAX_SESSION_SECONDS:
        return None
    return f"maxSessionSeconds: '{seconds}': expected 0 (without end) to {MAX_SESSION_SECONDS}"
