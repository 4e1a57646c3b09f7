"""Becomes a daemon and another user: fork, session, pid file, user. Sources: docs/spec/management.md §2.2."""

import grp
import os
import pwd
import sys
from collections.abc import Sequence
from typing import Protocol

from router.io.pidfile import PidFileError, write_pidfile

# Other users may not read the daemon's files. (The C router uses umask 0.)
DAEMON_UMASK = 0o027
_STARTED = "ok"


class DaemonError(Exception):
    """The text goes to the launching process."""


class Report(Protocol):
    def __call__(self, error: str | None, passed_over: Sequence[str] = ()) -> None:
        """Reports the end of start-up to the launching process.

        error        why the router does not start; None: it serves
        passed_over  the parts of the configuration that are left out
        """
        ...


def daemonize(*, pidfile: str | None, user: str | None) -> Report:
    """Forks twice. Returns, only in the daemon, a function to report start-up.

    The launching process waits for that report and exits: with 0, or with 1 after printing the error on stderr. It also
    prints the parts of the configuration that were left out, because stderr of the daemon is /dev/null.
    """
    reader, writer = os.pipe()
    if os.fork():
        os.close(writer)
        _wait_for_report(reader)
    os.close(reader)
    os.setsid()
    if os.fork():
        os._exit(0)
    os.umask(DAEMON_UMASK)
    os.chdir("/")
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)
    os.close(null)

    waiting = [writer]

    def report(error: str | None, passed_over: Sequence[str] = ()) -> None:
        while waiting:  # only once; then the waiting process has ended
            os.write(waiting[0], (error or "\n".join((_STARTED, *passed_over))).encode())
            os.close(waiting.pop())

    try:
        if pidfile is not None:
            _write_pidfile(pidfile, user)
        if user is not None:
            become(user)
    except DaemonError as error:
        report(str(error))
        os._exit(1)
    return report


def _wait_for_report(reader: int) -> None:
    with os.fdopen(reader, "rb") as pipe:
        text = pipe.read().decode("utf-8", "replace")
    if text.partition("\n")[0] == _STARTED:
        for line in text.splitlines()[1:]:
            print(f"{sys.argv[0]}: {line}", file=sys.stderr, flush=True)
        os._exit(0)
    print(f"{sys.argv[0]}: {text or 'the daemon ended before it was ready'}", file=sys.stderr, flush=True)
    os._exit(1)


def _write_pidfile(path: str, user: str | None) -> None:
    owners = {os.geteuid()} if user is None else {os.geteuid(), _entry(user).pw_uid}
    try:
        write_pidfile(path, os.getpid(), owners)
    except PidFileError as error:
        raise DaemonError(f"Can't write pidfile {path}: {error}") from None


def _entry(user: str) -> pwd.struct_passwd:
    try:
        return pwd.getpwnam(user)
    except KeyError:
        raise DaemonError(f"Can't look up user {user}") from None


def become(user: str) -> None:
    """Changes to the user's id, group and other groups, permanently. Does nothing if the process is already this
    user's.

    Raises DaemonError. The process may then have lost some of its groups, and must end.
    """
    entry = _entry(user)
    if os.getresuid() == (entry.pw_uid,) * 3 and entry.pw_uid != 0:
        return
    try:
        groups = [group.gr_gid for group in grp.getgrall() if user in group.gr_mem]
        os.setgroups(sorted({*groups, entry.pw_gid}))
        os.setgid(entry.pw_gid)
        os.setuid(entry.pw_uid)
    except OSError as error:
        raise DaemonError(f"Can't set user ID for user {user}, errno={error.errno}: {error.strerror}") from None
