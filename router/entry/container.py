"""`qdrouterd-entry`: the first process of a container. Exit status 1 when the router cannot be started.

It writes the configuration, with the values of its variables, and the hashes of the users into a folder in memory, and
then becomes `qdrouterd`, which reads them there. Nothing that is secret reaches a disk, an argument or the log.
"""

import argparse
import contextlib
import os
import socket
import stat
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from auth.verifiers.disks import is_in_memory
from auth.verifiers.hashes import Cost
from policy.files.regular import MAX_POLICY_BYTES, read_regular
from router.entry.expansion import ExpansionError, expand
from router.entry.mesh import APPLICATION, MeshError, connectors
from router.entry.user_folder import UserFolderError, write_users
from router.io.memory import forbid_core_dumps
from schemas.versions import add_version_option

CONF = "QDROUTERD_CONF"
USERS = "QDROUTERD_AUTO_CREATE_SASLDB_SOURCE"
# Those of the images of AMQ Interconnect, and of the packages.
CONFIGURATIONS = ("/opt/interconnect/etc/qdrouterd.conf", "/etc/qpid-dispatch/qdrouterd.conf")
USER_FOLDER = "/etc/qpid-dispatch/sasl-users"
RUN_DIR = "/run/palisade"

Exec = Callable[[str, list[str], Mapping[str, str]], object]


class EntryError(ValueError):
    """What is wrong, and what would be right."""


def main(
    arguments: Sequence[str] | None = None,
    *,
    environment: Mapping[str, str] | None = None,
    become: Exec = os.execve,
    cost: Cost | None = None,
) -> int:
    """Prepare the run folder and become qdrouterd; the keywords are for tests."""
    options = parser().parse_args(arguments)
    variables = dict(os.environ if environment is None else environment)
    forbid_core_dumps()
    os.umask(0o077)
    try:
        path = prepare(options, variables, cost=cost)
    except (EntryError, ExpansionError, MeshError, UserFolderError) as error:
        print(f"qdrouterd-entry: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"qdrouterd-entry: {error.filename}: {error.strerror}", file=sys.stderr)
        return 1
    sys.stderr.flush()
    become(sys.executable, [sys.executable, "-m", "router.io.daemon", "-c", str(path), *options.arguments], variables)
    return 0


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="qdrouterd-entry",
        description="Prepare the configuration and the users of a router in a container, and become qdrouterd. "
        f"The variable {CONF} has the configuration, or its path; ${{NAME}} in it is the environment variable NAME.",
        epilog="QDROUTERD_AUTO_MESH_DISCOVERY=INFER connects the pods of a StatefulSet: see docs/kubernetes.md.",
    )
    add_version_option(parser)
    parser.add_argument(
        "-c",
        "--config",
        metavar="PATH",
        help=f"the configuration (default: {CONF}, else {', else '.join(CONFIGURATIONS)})",
    )
    parser.add_argument(
        "--users",
        metavar="FOLDER",
        help="one file for each user, whose content is the password "
        f"(default: that of {USERS}, else {USER_FOLDER} if it is there)",
    )
    parser.add_argument(
        "--run-dir",
        metavar="FOLDER",
        default=RUN_DIR,
        help=f"a folder in memory (tmpfs) for what is written (default: {RUN_DIR})",
    )
    parser.add_argument("arguments", nargs="*", metavar="-- OPTION ...", help="further options of qdrouterd")
    return parser


def prepare(options: argparse.Namespace, variables: dict[str, str], *, cost: Cost | None = None) -> Path:
    """Write the files of the run folder, and change `variables` to those of qdrouterd.

    Returns  the path of the configuration
    Errors   ValueErrors of this room, OSError
    """
    folder = _own_folder(Path(options.run_dir))
    text, origin = _configuration(options.config, variables)
    try:
        text = expand(text, variables)
    except ExpansionError as error:
        raise EntryError(f"{origin}: {error}") from None
    mesh = connectors(variables, socket.gethostname())
    if mesh and text.lstrip().startswith("["):
        raise EntryError(f"{origin}: connectors of auto-mesh cannot be added to a configuration in JSON")
    users = options.users or variables.get(USERS)
    if users or os.path.isdir(USER_FOLDER):
        source = Path(users or USER_FOLDER)
        sasl, count = write_users(source, folder, variables.get(APPLICATION) or None, cost=cost)
        # Where the configuration has a saslConfigDir of its own, that one is used.
        variables["PN_SASL_CONFIG_PATH"] = str(sasl)
        print(f"qdrouterd-entry: {count} users of {source}", file=sys.stderr)
    path = folder / "qdrouterd.conf"
    path.unlink(missing_ok=True)
    path.write_text(text + (f"\n\n# Added by auto-mesh:\n{mesh}" if mesh else ""), "utf-8")
    print(f"qdrouterd-entry: {path} from {origin}, {mesh.count('connector {')} connectors added", file=sys.stderr)
    return path


def _own_folder(run_dir: Path) -> Path:
    """A folder in run_dir that only this user may enter. Errors: EntryError, OSError."""
    if not run_dir.is_dir():
        raise EntryError(f"{run_dir}: there is no such folder: mount a tmpfs there (emptyDir with medium: Memory)")
    if not is_in_memory(str(run_dir)):
        raise EntryError(f"{run_dir} is on a disk: mount a tmpfs there (emptyDir with medium: Memory)")
    own = run_dir / "router"
    with contextlib.suppress(FileExistsError):  # the container has been started again
        own.mkdir(mode=0o700)
    # Attack: the volumes of Kubernetes are open to all users. Another container of the pod that shares this one puts a
    # folder or a link of its own there, and reads or replaces what is written.
    status = own.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o077:
        raise EntryError(f"{own}: it is not a folder that belongs to this user alone")
    return own


def _configuration(named: str | None, variables: dict[str, str]) -> tuple[str, str]:
    """The text, and where it is from. Errors: EntryError, OSError."""
    given = variables.get(CONF, "").strip()
    if named is None and given and not (given.startswith("/") and "\n" not in given):
        # It may hold a password, and the router's own environment outlives this process.
        del variables[CONF]
        return given + "\n", f"${CONF}"
    found = named or given or next(filter(os.path.lexists, CONFIGURATIONS), None)
    if found is None:
        raise EntryError(f"there is no configuration: set {CONF}, or mount {CONFIGURATIONS[0]}")
    try:
        return read_regular(found, MAX_POLICY_BYTES).decode("utf-8-sig"), found
    except UnicodeDecodeError:
        raise EntryError(f"{found}: it is not UTF-8") from None


if __name__ == "__main__":
    sys.exit(main())
