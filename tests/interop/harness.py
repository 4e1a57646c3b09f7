"""A real qdrouterd for the tests against real peers: started on ports the system chooses, stopped, and held to account.

`running_router` writes a configuration, waits for the log lines that say it serves, and at the end asserts that it
stopped with status 0, left no child behind and logged no error that the test did not expect.
"""

import contextlib
import ctypes
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from certificates import Certificates
from process_log import ProcessLog

from auth.secrets import Secret
from auth.verifiers.files import set_user
from auth.verifiers.hashes import Argon2idCost

ROOT = Path(__file__).resolve().parent.parent.parent
STOP_TIMEOUT_S = 15.0
# The least that the hash may cost: the tests are not of the hash.
CHEAP = Argon2idCost(memory_kib=8, iterations=1, lanes=1)
ERROR_LINE = re.compile(r" \((error|critical)\) ")
# What a router writes that a peer kept waiting; no fault of the router.
HANDSHAKE_TIMEOUT = r"ERROR \(error\) Run Time: Timeout waiting for initial handshake"

USERS: Mapping[str, str] = {
    "alice": "alice's password",
    "bob": "bob's password",
    "mallory": "mallory's password",
    "asker": "asker's password",
    "service": "service's password",
}

# alice may use her own addresses and orders; bob may read orders and nothing else; carol has a certificate and no
# password; mallory has a password and no place in the policy. service may read requests, and reply to them.
POLICY: Sequence[tuple[str, Mapping[str, Any]]] = (
    (
        "vhost",
        {
            "hostname": "localhost",
            "aliases": "127.0.0.1",
            "groups": {
                "traders": {
                    "users": "alice, carol",
                    "remoteHosts": "127.0.0.1, ::1",
                    "sources": "orders.*, multicast.*, ${user}.*",
                    "targets": "orders.*, multicast.*, ${user}.*",
                    "allowAnonymousSender": True,
                    "allowDynamicSource": True,
                },
                "readers": {"users": "bob", "remoteHosts": "*", "sources": "orders.*"},
                "services": {
                    "users": "service",
                    "remoteHosts": "127.0.0.1",
                    "sources": "requests.*",
                    "allowReplies": True,
                    "allowAnonymousSender": True,
                },
                "askers": {
                    "users": "asker",
                    "remoteHosts": "127.0.0.1",
                    "targets": "requests.*",
                    "allowDynamicSource": True,
                },
                "guests": {
                    "users": "anonymous",
                    "remoteHosts": "127.0.0.1",
                    "sources": "guests.*",
                    "targets": "guests.*",
                },
            },
        },
    ),
)

CONFIGURATION = """\
router {{
    mode: standalone
    id: interop
    saslConfigDir: {folder}/sasl
    auditDir: {folder}/audit
    managementDirs: {files}
}}
policy {{
    enableVhostPolicy: yes
    policyDir: {folder}/policy
}}
sslProfile {{
    name: interop-tls
    caCertFile: {tls}/ca.crt
    certFile: {tls}/server.crt
    privateKeyFile: {tls}/server.key
    uidFormat: n
}}
address {{
    prefix: multicast
    distribution: multicast
}}
listener {{
    name: password
    host: 127.0.0.1
    port: 0
    sslProfile: interop-tls
    requireSsl: yes
    authenticatePeer: yes
    saslMechanisms: PLAIN
    {timeouts}
}}
listener {{
    name: certificate
    host: 127.0.0.1
    port: 0
    sslProfile: interop-tls
    requireSsl: yes
    authenticatePeer: yes
    saslMechanisms: EXTERNAL
    {timeouts}
}}
listener {{
    name: clear
    host: 127.0.0.1
    port: 0
    authenticatePeer: no
    saslMechanisms: ANONYMOUS PLAIN
    {timeouts}
}}
"""
LISTENERS = ("password", "certificate", "clear")
SASL_CONFIGURATION = """\
pwcheck_method: auxprop
auxprop_plugin: userfile
userfile_path: {folder}/users
mech_list: EXTERNAL PLAIN ANONYMOUS
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """Of the listeners, in seconds.

    Many peers of tests send no empty frames: on a busy machine they would be idle longer than the 16 s of the schema.
    """

    handshake_s: int = 10
    idle_s: int = 120

    def lines(self) -> str:
        return f"initialHandshakeTimeoutSeconds: {self.handshake_s}\n    idleTimeoutSeconds: {self.idle_s}"


@dataclass(slots=True, kw_only=True)
class RunningRouter(ProcessLog):
    """A router that serves.

    ports  listener name -> port on 127.0.0.1
    """

    folder: Path
    certificates: Certificates
    ports: dict[str, int] = field(default_factory=dict)
    is_killed: bool = False

    @property
    def pid(self) -> int:
        return self.process.pid

    def mark(self) -> int:
        """Now, as a place in the log: what is waited for `since` it is not an older line."""
        with self.grew:
            return len(self.lines)

    def has_logged(self, pattern: str) -> bool:
        with self.grew:
            return any(re.search(pattern, line) for line in self.lines)

    def audit_files(self) -> list[Path]:
        return sorted(path for path in (self.folder / "audit").iterdir() if path.is_file())

    def audit_events(self) -> list[dict[str, Any]]:
        """Every whole line of every audit file, oldest file first; a line that is no JSON object fails."""
        events = []
        for path in self.audit_files():
            lines = path.read_bytes().split(b"\n")
            events += [json.loads(line) for line in lines[:-1]]
        return events

    def wait_for_audit(self, timeout_s: float = 10.0, **members: object) -> dict[str, Any]:
        """The first event with these members; fails with all events when none comes in time."""

        def found() -> dict[str, Any] | None:
            return next(
                (event for event in self.audit_events() if all(event[key] == value for key, value in members.items())),
                None,
            )

        event: dict[str, Any] | None = eventually(found, timeout_s)
        assert event is not None, f"no audit event with {members} among {self.audit_events()[-10:]}"
        return event

    def resident_kb(self) -> int:
        fields = Path(f"/proc/{self.pid}/statm").read_text().split()
        return int(fields[1]) * os.sysconf("SC_PAGE_SIZE") // 1024

    def open_files(self) -> int:
        """File descriptors of the router, sockets among them."""
        return len(self.open_file_names())

    def open_file_names(self) -> list[str]:
        """What they are. Without what the router opens once, at some time: the ring of its event loop, and the file of
        the audit log, when a peer is killed before its Open say.
        """
        names = []
        for each in Path(f"/proc/{self.pid}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):  # closed since it was listed
                names.append(os.readlink(each))
        return sorted(name for name in names if name != "anon_inode:[io_uring]" and "/audit/" not in name)

    def kill(self) -> None:
        """End it as a power cut would."""
        self.is_killed = True
        self.process.kill()
        self.process.wait(STOP_TIMEOUT_S)


def eventually(claim: "Callable[[], Any]", timeout_s: float) -> Any:
    """The first true result of `claim`; its last result when `timeout_s` is over."""
    deadline = time.monotonic() + timeout_s
    while not (value := claim()) and time.monotonic() < deadline:
        time.sleep(0.01)
    return value


def write_configuration(
    folder: Path, certificates: Certificates, *, timeouts: Timeouts, users: Mapping[str, str], extra: str
) -> None:
    for name in ("sasl", "policy", "audit"):
        (folder / name).mkdir(mode=0o700)
    (folder / "sasl" / "qdrouterd.conf").write_text(SASL_CONFIGURATION.format(folder=folder))
    (folder / "policy" / "interop.json").write_text(json.dumps(POLICY, indent=1))
    for user, password in users.items():
        set_user(str(folder / "users"), user, Secret(password), cost=CHEAP, must_exist=False)
    # What tests write lies beside it.
    text = CONFIGURATION.format(folder=folder, files=folder.parent, tls=certificates.folder, timeouts=timeouts.lines())
    (folder / "qdrouterd.conf").write_text(text + extra)


def router_command(python: Path) -> list[str]:
    """The installed qdrouterd beside `python`; where there is none, the module of this checkout."""
    installed = python.parent / "qdrouterd"
    return [str(installed)] if installed.exists() else [str(python), "-m", "router.io.daemon"]


@contextlib.contextmanager
def running_router(
    folder: Path,
    certificates: Certificates,
    *,
    python: Path | None = None,
    timeouts: Timeouts | None = None,
    extra: str = "",
    expected_errors: Sequence[str] = (),
) -> Iterator[RunningRouter]:
    """A router on `folder`, which is filled when it has no configuration yet, until the end of the body.

    extra            appended to the configuration
    expected_errors  patterns of error and critical lines that the test causes
    A body that kills the router itself (`RunningRouter.kill`) is not held to a clean end.
    """
    if not (folder / "qdrouterd.conf").exists():
        folder.mkdir(parents=True, exist_ok=True)
        write_configuration(folder, certificates, timeouts=timeouts or Timeouts(), users=USERS, extra=extra)
    process = subprocess.Popen(
        [*router_command(python or Path(sys.executable)), "-c", str(folder / "qdrouterd.conf")],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        preexec_fn=die_with_parent,
    )
    router = RunningRouter(process=process, folder=folder, certificates=certificates)
    reader = threading.Thread(target=router.read_log, daemon=True)
    reader.start()
    try:
        router.wait_for_log(r"SERVER \(notice\) Operational, \d+ Threads Running")
        for name in LISTENERS:
            router.ports[name] = int(router.wait_for_log(rf"Listening on 127\.0\.0\.1:(\d+) \({name}\)")[1])
        yield router
    finally:
        was_killed = process.poll() == -signal.SIGKILL
        children = children_of(process.pid)
        status = stop(process)
        reader.join(STOP_TIMEOUT_S)
    if not was_killed:
        log = "\n".join(router.lines[-60:])
        assert status == 0, f"the router ended with status {status}:\n{log}"
        assert children == [], f"the router had child processes: {children}"
    allowed = [re.compile(pattern) for pattern in expected_errors]
    errors = [line for line in router.lines if ERROR_LINE.search(line) or line.startswith("Traceback")]
    unexpected = [line for line in errors if not any(pattern.search(line) for pattern in allowed)]
    assert unexpected == [], "the router logged errors:\n" + "\n".join(unexpected)


def stop(process: "subprocess.Popen[str]") -> int:
    """SIGTERM, and SIGKILL for what does not listen to it; the exit status."""
    process.terminate()
    try:
        return process.wait(STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()


def children_of(pid: int) -> list[int]:
    with contextlib.suppress(OSError):
        tasks = Path(f"/proc/{pid}/task").iterdir()
        return [int(child) for task in tasks for child in (task / "children").read_text().split()]
    return []


def die_with_parent() -> None:
    """Between fork and exec: a router outlives no test run, even one that is killed."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def connect(router: RunningRouter, listener: str, timeout_s: float = 10.0) -> socket.socket:
    """A plain TCP connection to one of the router's listeners."""
    return socket.create_connection(("127.0.0.1", router.ports[listener]), timeout_s)
