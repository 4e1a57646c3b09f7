"""The command line of qdrouterd. Sources: docs/spec/management.md §2.1."""

import getopt
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

CHECK: Final = "check"
# Letter -> long name.
LONG_OPTIONS = {
    **{"c": "config", "I": "include", "d": "daemon", "P": "pidfile", "U": "user", "T": "test-hooks"},
    **{"v": "version", "h": "help"},
}
OPTIONS_WITH_VALUE = frozenset("cIPU")
_LETTER = {name: letter for letter, long in LONG_OPTIONS.items() for name in (letter, long)}

DEFAULT_CONFIG = "/etc/qpid-dispatch/qdrouterd.conf"


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of the command line.

    config  None: the default of the Program
    """

    program: str
    config: str | None = None
    is_daemon: bool = False
    pidfile: str | None = None
    user: str | None = None
    has_test_hooks: bool = False
    checks_only: bool = False
    shows_version: bool = False
    shows_help: bool = False


class UsageError(Exception):
    """The command line is wrong. `diagnostic` goes to stderr, the usage to stdout, and the exit status is 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """One of the programs that the daemon can be.

    purpose          in one line
    config           the file that it reads if none is named
    otherwise        what it does if that file is missing, for the usage
    is_auth_service  True for qdauthd, which authenticates the clients of routers
    """

    purpose: str
    config: str
    otherwise: str = ""
    is_auth_service: bool = False


ROUTER: Final = Program(
    purpose="A policy- and security-focused AMQP 1.0 message router.",
    config=DEFAULT_CONFIG,
    otherwise=""";
                        where that is not there, one that is installed with the
                        router: on 127.0.0.1 only, with a policy""",
)
AUTH_SERVICE: Final = Program(
    purpose="An authentication service for AMQP 1.0 routers (authServicePlugin).",
    config="/etc/qpid-dispatch/qdauthd.conf",
    is_auth_service=True,
)


def usage(program: str, kind: Program = ROUTER) -> str:
    return f"""Usage: {program} [OPTIONS]

{kind.purpose}

  -c, --config=PATH     Load configuration from file at PATH
                        (default {kind.config}{kind.otherwise})
  -I, --include=PATH    Accepted for compatibility, without effect
  -d, --daemon          Run as a daemon: return when the configuration is
                        loaded and the listeners are open
  -P, --pidfile=PATH    With --daemon: write the daemon's process id
  -U, --user=NAME       Run as this user, with its groups: the configuration and
                        all files are read as this user
  -T, --test-hooks      Internal test features: stuck deliveries are looked for
                        every 5 seconds
  -v, --version         Print the version and exit
      --check [PATH]    Start nothing: say what of the configuration, and of the
                        files it names, would stop the start or be left out
  -h, --help            Print this help and exit

Exit status: 0 after SIGTERM, --help or --version, and with --check where the
start would succeed, as far as ports can be opened; 1 when the command line or
the configuration is wrong or a required listener cannot be opened.

Signals: SIGTERM and SIGQUIT stop the router; SIGINT too, and the parent sees
it; SIGHUP reopens the log files and reads certificates and policies anew.
"""


def parse(arguments: Sequence[str]) -> Options:
    """Reads `arguments` (argv). Errors: UsageError."""
    program = arguments[0]
    try:
        found, rest = getopt.gnu_getopt(
            list(arguments[1:]),
            "".join(letter + ":" * (letter in OPTIONS_WITH_VALUE) for letter in LONG_OPTIONS),
            [CHECK, *(long + "=" * (letter in OPTIONS_WITH_VALUE) for letter, long in LONG_OPTIONS.items())],
        )
    except getopt.GetoptError as error:
        raise UsageError(f"{program}: {error.msg}") from None
    checks_only = any(name == f"--{CHECK}" for name, _ in found)
    given = {_LETTER[name.lstrip("-")]: value for name, value in found if name != f"--{CHECK}"}
    if checks_only and len(rest) == 1 and "c" not in given:
        given["c"] = rest.pop()
    if rest:
        raise UsageError(f"Unexpected arguments: {' '.join(rest)}\n")
    return Options(
        program=program,
        config=given.get("c"),
        is_daemon="d" in given,
        pidfile=given.get("P"),
        user=given.get("U"),
        has_test_hooks="T" in given,
        checks_only=checks_only,
        shows_version="v" in given,
        shows_help="h" in given,
    )
