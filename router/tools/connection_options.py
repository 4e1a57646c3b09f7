"""The connection options of all tools, and their meaning.

Source: docs/spec/management.md section 9.1. Passwords become Secret at once and appear in no output.
"""

import argparse
import re
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import unquote

from auth.secrets import Secret

DEFAULT_BUS = "0.0.0.0"  # noqa: S104 - as an address to connect to, this host
DEFAULT_TIMEOUT_S = 5.0
DEFAULT_PORTS = {"amqp": 5672, "amqps": 5671}

BUS_URL = re.compile(
    r"(?:(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://)?"
    r"(?:(?P<user>[^:@/]*)(?::(?P<password>[^@/]*))?@)?"
    r"(?:\[(?P<ipv6>[0-9A-Fa-f:.]+(?:%[^\]\s]+)?)\]|(?P<host>[^:/\[\]@\s]*))"
    r"(?::(?P<port>[A-Za-z0-9]+))?"
    r"(?:/(?P<path>.*))?"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionOptions:
    """Where and how to connect.

    address          management address from the URL's path, None if it has none
    mechanisms       SASL mechanisms to choose from, None for any
    has_sasl         True to authenticate with SASL; False to send a plain AMQP header
    checks_peer_name True if the certificate must be for `host` (its chain is always verified)
    """

    host: str
    port: int
    address: str | None = None
    timeout_s: float = DEFAULT_TIMEOUT_S
    is_tls: bool = False
    certificate_file: str | None = None
    key_file: str | None = None
    key_password: Secret | None = None
    trust_file: str | None = None
    checks_peer_name: bool = True
    mechanisms: tuple[str, ...] | None = None
    username: str | None = None
    password: Secret | None = None
    token: Secret | None = None

    @property
    def has_sasl(self) -> bool:
        given = (self.mechanisms, self.username, self.password, self.token)
        return self.is_tls or any(each is not None for each in given)

    @property
    def where(self) -> str:
        """host:port for messages."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def add_connection_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("connection")
    group.add_argument(
        "-b",
        "--bus",
        metavar="URL",
        default=DEFAULT_BUS,
        help="router to ask: host, host:port or amqp[s]://[user[:password]@]host[:port][/management-address]; "
        f"default {DEFAULT_BUS}. A password here is visible to others on this host: prefer --sasl-password-file",
    )
    group.add_argument(
        "-t",
        "--timeout",
        metavar="SECS",
        type=seconds,
        default=DEFAULT_TIMEOUT_S,
        help="seconds to wait for the connection, and for each answer; default %(default)g",
    )
    group.add_argument("--ssl-certificate", metavar="CERT", help="PEM file with the certificate to show to the router")
    group.add_argument("--ssl-key", metavar="KEY", help="PEM file with its private key, if not in the same file")
    group.add_argument(
        "--ssl-trustfile",
        metavar="TRUSTED-CA-DB",
        help="PEM file with the certificate authorities to trust; default: those of the system",
    )
    group.add_argument("--ssl-password", metavar="PASSWORD", help="password of the private key; visible to others")
    group.add_argument("--ssl-password-file", metavar="SSL-PASSWORD-FILE", help="file with the key's password")
    group.add_argument(
        "--ssl-disable-peer-name-verify",
        action="store_true",
        help="accept a certificate for another host name; its chain is verified all the same",
    )
    group.add_argument("--sasl-mechanisms", metavar="MECHS", help="mechanisms to choose from, separated by blanks")
    group.add_argument("--sasl-username", metavar="USER", help="user name for SASL")
    group.add_argument("--sasl-password", metavar="PASSWORD", help="its password; visible to others on this host")
    group.add_argument("--sasl-password-file", metavar="SASL-PASSWORD-FILE", help="file with the password")
    group.add_argument(
        "--sasl-token-file",
        metavar="TOKEN-FILE",
        help="file with a bearer token (OAUTHBEARER); it is sent inside TLS only",
    )


def seconds(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"wants a number of seconds, not '{text}'") from None


def connection_options(given: argparse.Namespace, read_text: Callable[[str], str]) -> ConnectionOptions:
    """Returns the options of the parsed arguments.

    read_text  path -> content; may raise OSError
    Errors     ValueError for an invalid URL, OSError for an unreadable password file.
    """
    url = BUS_URL.fullmatch(given.bus)
    if url is None or (url["scheme"] or "amqp").lower() not in DEFAULT_PORTS:
        # The URL itself is not shown, because it may contain a password.
        raise ValueError("--bus wants host, host:port or amqp[s]://[user[:password]@]host[:port][/address]")
    if not 0 < given.timeout < float("inf"):
        raise ValueError(f"--timeout wants a positive number of seconds, not {given.timeout:g}")
    is_tls = (url["scheme"] or "").lower() == "amqps" or bool(given.ssl_certificate or given.ssl_trustfile)
    user, password = url["user"], url["password"]
    return ConnectionOptions(
        host=url["ipv6"] or url["host"] or DEFAULT_BUS,
        port=_port(url["port"] or ("amqps" if is_tls else "amqp")),
        address=url["path"] or None,
        timeout_s=given.timeout,
        is_tls=is_tls,
        certificate_file=given.ssl_certificate,
        key_file=given.ssl_key,
        key_password=_secret(given.ssl_password, "--ssl-password-file", given.ssl_password_file, read_text),
        trust_file=given.ssl_trustfile,
        checks_peer_name=not given.ssl_disable_peer_name_verify,
        mechanisms=tuple(given.sasl_mechanisms.split()) if given.sasl_mechanisms else None,
        username=given.sasl_username or (unquote(user) if user else None),
        password=_secret(
            given.sasl_password or (unquote(password) if password else None),
            "--sasl-password-file",
            given.sasl_password_file,
            read_text,
        ),
        # A script that builds its own options like those of 1.20 has no token option.
        token=_secret(None, "--sasl-token-file", getattr(given, "sasl_token_file", None), read_text),
    )


def router_address(router: str | None, edge_router: str | None) -> str:
    """Returns the management address that -r and -d mean."""
    if router:
        return f"_topo/0/{router}/$management"
    if edge_router:
        return f"_edge/{edge_router}/$management"
    return "$management"


def _secret(text: str | None, option: str, path: str | None, read_text: Callable[[str], str]) -> Secret | None:
    """Returns the text, or the content of the file. Errors: OSError with the option in its text."""
    if path:
        try:
            return Secret(read_text(path).strip())
        except OSError as error:
            raise type(error)(f"{option} {path}: {error.strerror}") from None
    return Secret(text) if text else None


def _port(text: str) -> int:
    port = DEFAULT_PORTS.get(text.lower()) or (int(text) if text.isdecimal() and text.isascii() else 0)
    if not 0 < port < 65536:
        raise ValueError("--bus wants as port a number between 1 and 65535, amqp or amqps")
    return port
