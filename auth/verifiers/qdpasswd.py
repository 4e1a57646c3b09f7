"""`qdpasswd` maintains the users of a user file.

Exit status 0 done, 1 refused (the text on standard error says why), 2 wrong usage.
"""

import argparse
import getpass
import os
import sys
from collections.abc import Sequence

from auth.scram import HASHES
from auth.secrets import Secret
from auth.verifiers.files import UserFileError, remove_user, set_user
from auth.verifiers.hashes import Cost, HashError, ScryptCost
from schemas.versions import add_version_option

# Longer than any accepted password; stops a mistaken `< bigfile` from being read as a whole.
_MAX_STDIN_CHARACTERS = 8192


def main(arguments: Sequence[str] | None = None, *, cost: Cost | None = None) -> int:
    """Runs the command line. `cost` is for tests."""
    options = parser().parse_args(arguments)
    try:
        if options.delete:
            remove_user(options.file, options.user)
            print(f"{options.file}: user '{options.user}' removed")
            return 0
        if not options.create and not os.path.exists(options.file):
            raise _Refused(f"{options.file}: there is no such file; -c creates it")
        password = _from_stdin() if options.stdin else _from_terminal(options.user)
        chosen = cost or (ScryptCost() if options.scrypt else None)
        set_user(
            options.file,
            options.user,
            password,
            cost=chosen,
            scram=options.scram or (),
            must_exist=not options.create,
        )
    except (UserFileError, HashError, _Refused) as fault:
        print(f"qdpasswd: {fault}", file=sys.stderr)
        return 1
    except OSError as fault:
        print(f"qdpasswd: {options.file}: {fault.strerror}", file=sys.stderr)
        return 1
    except (KeyboardInterrupt, EOFError):
        print("\nqdpasswd: nothing changed", file=sys.stderr)
        return 1
    print(f"{options.file}: password of user '{options.user}' set")
    return 0


class _Refused(ValueError):
    pass


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="qdpasswd",
        description="Add, change or delete a user of a user file. The password is asked for, or read from standard "
        "input; it is never an argument, where every process of the machine could read it.",
    )
    add_version_option(parser)
    parser.add_argument("-f", "--file", required=True, metavar="FILE", help="the user file (userfile_path)")
    parser.add_argument("-c", "--create", action="store_true", help="create FILE (mode 600) if there is none")
    parser.add_argument("--scrypt", action="store_true", help="hash with scrypt instead of argon2id")
    parser.add_argument(
        "--scram",
        action="append",
        choices=HASHES,
        metavar="HASH",
        help="store keys for SCRAM-HASH too, so that the password need not be sent: SHA-256, SHA-512 or SHA-1; "
        "may be given again",
    )
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--stdin", action="store_true", help="take the first line of standard input as password")
    what.add_argument("--delete", action="store_true", help="delete USER")
    parser.add_argument("user", metavar="USER", help="the name clients log in with, such as alice or alice@example.com")
    return parser


def _from_stdin() -> Secret:
    line = sys.stdin.readline(_MAX_STDIN_CHARACTERS)
    return Secret(line.removesuffix("\n"))


def _from_terminal(user: str) -> Secret:
    if not sys.stdin.isatty():
        raise _Refused("no terminal to ask for the password; give it on standard input with --stdin")
    first = getpass.getpass(f"Password of '{user}': ")
    if first != getpass.getpass("Again: "):
        raise _Refused("the two passwords differ; nothing changed")
    return Secret(first)


if __name__ == "__main__":
    sys.exit(main())
