"""Attack: `qdrouterd -U qdrouterd` without `-d` silently stayed root: one fault in it, and the host is lost.

Now the process becomes that user in the foreground too, before the configuration is read. A router that cannot do this
does not start.
"""

import os
import pwd
from pathlib import Path

import pytest
from daemon_process import LISTENER, run, run_python, write_configuration

needs_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can become somebody else")

# Tells who would read the configuration and serve.
WHO = """
import os, sys
from router.io import daemon
daemon.run = lambda path, options, report, kind: print(os.getresuid(), os.getresgid(), os.getgroups()) or 0
if sys.argv[1] != "root":
    os.setuid(int(sys.argv[1]))
sys.exit(daemon.main(["qdrouterd", "-c", "router.conf", *sys.argv[2:]]))
"""


@needs_root
def test_the_user_is_taken_on_without_daemon_too() -> None:
    nobody = pwd.getpwnam("nobody")
    ran = run_python("-c", WHO, "root", "-U", "nobody")
    assert (ran.status, ran.err) == (0, "")
    assert ran.out == f"{(nobody.pw_uid,) * 3} {(nobody.pw_gid,) * 3} [{nobody.pw_gid}]\n"


@needs_root
def test_who_cannot_become_the_user_does_not_start() -> None:
    ran = run_python("-c", WHO, str(pwd.getpwnam("nobody").pw_uid), "-U", "daemon")
    assert (ran.status, ran.out) == (1, "")
    assert "qdrouterd: Can't set user ID for user daemon, errno=1: Operation not permitted\n" in ran.err


@needs_root
def test_who_is_the_user_already_starts() -> None:
    ran = run_python("-c", WHO, str(pwd.getpwnam("nobody").pw_uid), "-U", "nobody")
    assert (ran.status, ran.err) == (0, "")


def test_an_unknown_user_stops_the_start(tmp_path: Path) -> None:
    ran = run("-c", str(write_configuration(tmp_path, LISTENER)), "-U", "no-such-user-here")
    assert ran.status == 1
    assert "Can't look up user no-such-user-here" in ran.err
    assert "Listening" not in ran.err
