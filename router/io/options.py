"""The command line of qdrouterd. Sources: docs/spec/management.md §2.1."""

import getopt
from collections.abc import Sequence
from dataclasses import dataclass

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

    config  None: DEFAULT_CONFIG, and where that is not there, the one that is installed with the router
    """

    program: str
    config: str | None = None
    is_daemon: bool = False
    pidfile: str | None = None
    user: str | None = None
    has_test_hooks: bool = False
    shows_version: bool = False
    shows_help: bool = False


class UsageError(Exception):
    """`diagnostic` goes to stderr, the usage to stdout, the exit status is 1."""


def usage(program: str) -> str:
    return f"""Usage: {program} [OPTIONS]

A policy- and security-focused AMQP 1.0 message router.

  -c, --config=PATH     Load configuration from file at PATH
                        (default {DEFAULT_CONFIG};
                        where that is not there, one that is installed with the
                        router: on 127.0.0.1 only, with a policy)
  -I, --include=PATH    Accepted for compatibility, without effect
  -d, --daemon          Run as a daemon: return when the configuration is
                        loaded and the listeners are open
  -P, --pidfile=PATH    With --daemon: write the daemon's process id
  -U, --user=NAME       Run as this user, with its groups: the configuration and
                        all files are read as this user
  -T, --test-hooks      Internal test features: stuck deliveries are looked for
                        every 5 seconds
  -v, --version         Print the version and exit
  -h, --help            Print this help and exit

Exit status: 0 after SIGTERM, --help or --version; 1 when the command line or
the configuration is wrong or a required listener cannot be opened.

Signals: SIGTERM and SIGQUIT stop the router; SIGINT too, and the parent sees
it; SIGHUP reopens the log files and reads certificates and policies anew.
"""


def parse(arguments: Sequence[str]) -> Options:
    """Read `arguments` (argv). Errors: UsageError."""
    program = arguments[0]
    try:
        found, rest = getopt.gnu_getopt(
            list(arguments[1:]),
            "".join(letter + ":" * (letter in OPTIONS_WITH_VALUE) for letter in LONG_OPTIONS),
            [long + "=" * (letter in OPTIONS_WITH_VALUE) for letter, long in LONG_OPTIONS.items()],
        )
    except getopt.GetoptError as error:
        raise UsageError(f"{program}: {error.msg}") from None
    if rest:
        raise UsageError(f"Unexpected arguments: {' '.join(rest)}\n")
    given = {_LETTER[name.lstrip("-")]: value for name, value in found}
    return Options(
        program=program,
        config=given.get("c"),
        is_daemon="d" in given,
        pidfile=given.get("P"),
        user=given.get("U"),
        has_test_hooks="T" in given,
        shows_version="v" in given,
        shows_help="h" in given,
    )
