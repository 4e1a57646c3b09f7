"""Makes a new, secured router and runs it in the foreground: `make run`.

All its files are in the ignored folder .run/. Existing files are kept, so a second run has the same certificates,
users, policy and audit records, and the same commands work again. The users' passwords are in files that only their
owner may read. The key of the certificate authority, which signs two certificates, is never on disk.
"""

import argparse
import contextlib
import datetime
import errno
import os
import re
import secrets
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from importlib import resources
from pathlib import Path

from cryptography import x509

from auth.authority import Authority, key_pem, make_authority, new_key, pem, sign
from auth.secrets import Secret
from auth.verifiers.files import UserFile, UserFileError, set_user

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
DEFAULT_PORT = 5671
# The listener on PORT accepts user names and passwords, PORT + 2 also client certificates, and PORT + 3 HTTP.
CERTIFICATE_PORT_OFFSET = 2
CONSOLE_PORT_OFFSET = 3
CERTIFICATE_DAYS = 397
HERE = ("localhost", "127.0.0.1", "::1")
USERS = ("operator", "alice")
PASSWORD_BYTES = 18
CONSOLE_LISTENER = re.compile(r"^listener \{\n\s*name: console\n[^}]*?^\s*port:\s*(\d+)", re.MULTILINE)
# Built by `make console`. The router serves these files.
CONSOLE_FILES = ROOT / "router" / "web" / "console" / "dist" / "index.html"
PORT_LINE = re.compile(r"^(\s*port:\s*)(\d+)", re.MULTILINE)

CONFIGURATION = """\
# Written by `make run` and then left alone: edit it, or delete it to have it written again.

router {{
    mode: standalone
    id: quickstart
    saslConfigDir: {run}/sasl
    auditDir: {run}/audit
    messageProgressTimeout: 60
    auditMaxBytes: 1000000000
}}

policy {{
    enableVhostPolicy: yes
    policyDir: {run}/policy
}}

sslProfile {{
    name: quickstart-tls
    caCertFile: {run}/tls/ca.crt
    certFile: {run}/tls/server.crt
    privateKeyFile: {run}/tls/server.key
    protocols: TLSv1.2 TLSv1.3
    uidFormat: n
}}

# User name and password, inside tls.
listener {{
    name: password
    host: 127.0.0.1
    port: {port}
    sslProfile: quickstart-tls
    requireSsl: yes
    authenticatePeer: yes
    saslMechanisms: PLAIN
    initialHandshakeTimeoutSeconds: 10
}}

# A client certificate is demanded here, because EXTERNAL is among the mechanisms.
listener {{
    name: certificate
    host: 127.0.0.1
    port: {certificate_port}
    sslProfile: quickstart-tls
    requireSsl: yes
    authenticatePeer: yes
    saslMechanisms: EXTERNAL PLAIN
    initialHandshakeTimeoutSeconds: 10
}}

# The web console: https on this port. A client certificate is not asked for, since browsers have none.
listener {{
    name: console
    host: 127.0.0.1
    port: {console_port}
    http: yes
    sslProfile: quickstart-tls
    requireSsl: yes
    authenticatePeer: no
    saslMechanisms: PLAIN
    metricsAuth: basic
    initialHandshakeTimeoutSeconds: 10
}}
"""

SASL_CONFIGURATION = """\
pwcheck_method: auxprop
auxprop_plugin: userfile
userfile_path: {run}/users
mech_list: EXTERNAL PLAIN
"""


class QuickstartError(Exception):
    """The text names the fault and the remedy."""


def write_new(path: Path, content: bytes, mode: int = 0o600) -> None:
    """Writes a file that must not exist yet. It never has wider permissions than `mode`."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        file.write(content)


def make_certificates(tls: Path) -> None:
    """Makes a CA, a server and a client certificate. Makes all three again if any file is missing."""
    names = ("ca.crt", "server.crt", "server.key", "client.crt", "client.key")
    if all((tls / name).is_file() for name in names):
        refuse_expired(tls)
        return
    tls.mkdir(mode=0o700, exist_ok=True)
    for name in names:
        (tls / name).unlink(missing_ok=True)
    authority = make_authority("Palisade quick start CA", CERTIFICATE_DAYS)
    write_new(tls / "ca.crt", pem(authority.certificate), 0o644)
    write_pair(tls, "server", authority, "localhost", hosts=HERE, is_client=False)
    write_pair(tls, "client", authority, "client")


def write_pair(
    tls: Path, file: str, authority: Authority, name: str, *, hosts: Sequence[str] = (), is_client: bool = True
) -> None:
    """Writes a key, and its certificate from auth.authority.sign."""
    key = new_key()
    signed = sign(authority, name, key.public_key(), CERTIFICATE_DAYS, hosts=hosts, is_client=is_client)
    write_new(tls / f"{file}.crt", pem(signed), 0o644)
    write_new(tls / f"{file}.key", key_pem(key))


def refuse_expired(tls: Path) -> None:
    """Checks that no certificate has expired, since the TLS failure would be hard to understand.

    Errors: QuickstartError.
    """
    for path in sorted(tls.glob("*.crt")):
        until = x509.load_pem_x509_certificate(path.read_bytes()).not_valid_after_utc
        if until < datetime.datetime.now(datetime.UTC):
            raise QuickstartError(f"{path} expired on {until:%Y-%m-%d}. Renew all three: rm -r {tls}")


def make_users(path: Path, folder: Path, names: tuple[str, ...]) -> None:
    """Creates the users that are missing, or whose password file is missing, each with its password file.

    path    the file of users
    folder  of the passwords, one file each
    Errors  QuickstartError
    """
    folder.mkdir(mode=0o700, exist_ok=True)
    try:
        present = UserFile.load(str(path)).users if path.exists() else ()
        for name in names:
            if name in present and (folder / name).exists():
                continue
            password = secrets.token_urlsafe(PASSWORD_BYTES)
            (folder / name).unlink(missing_ok=True)
            write_new(folder / name, f"{password}\n".encode())
            set_user(str(path), name, Secret(password), must_exist=False)
    except UserFileError as error:
        raise QuickstartError(str(error)) from None


def make_configuration(run: Path, port: int | None) -> int:
    """Writes the missing parts of configuration and policy. Returns the port of the first listener.

    port    None keeps the ports of an existing configuration; a number replaces them.
    """
    for folder in ("sasl", "policy", "audit"):
        (run / folder).mkdir(mode=0o700, exist_ok=True)
    if not any((run / "policy").glob("*.json")):
        example = resources.files("policies").joinpath("quickstart/policy.json")
        write_new(run / "policy" / "policy.json", example.read_bytes())
    if not (run / "sasl" / "qdrouterd.conf").exists():
        write_new(run / "sasl" / "qdrouterd.conf", SASL_CONFIGURATION.format(run=run).encode())
    path = run / "qdrouterd.conf"
    if not path.exists():
        port = port or DEFAULT_PORT
        others = {"certificate_port": port + CERTIFICATE_PORT_OFFSET, "console_port": port + CONSOLE_PORT_OFFSET}
        write_new(path, CONFIGURATION.format(run=run, port=port, **others).encode())
    elif port:
        text = path.read_text()
        offsets = (0, CERTIFICATE_PORT_OFFSET, *([CONSOLE_PORT_OFFSET] if CONSOLE_LISTENER.search(text) else []))
        ports = iter([port + offset for offset in offsets])
        path.write_text(PORT_LINE.sub(lambda line: f"{line[1]}{next(ports, line[2])}", text))
    found = PORT_LINE.findall(path.read_text())
    if len(found) < 2:
        raise QuickstartError(f"{path} no longer has two listeners with ports. Start it yourself, or delete it.")
    return int(found[0][1])


def console_url(configuration: Path) -> str | None:
    """Returns the URL of the console. None if the configuration has no listener for it."""
    found = CONSOLE_LISTENER.search(configuration.read_text())
    return f"https://127.0.0.1:{found[1]}/" if found else None


def introduce_console(url: str, authority: str, user: str) -> None:
    if CONSOLE_FILES.is_file():
        print(f"\n  The web console: {url} for {user}. Its certificate is of {authority}, which browsers do not know")
    else:
        print(f"\n  There is no web console, since npm is missing: {url} says how to get it")


def refuse_used_ports(run: Path, port: int) -> None:
    console = console_url(run / "qdrouterd.conf")
    for number in (port, port + CERTIFICATE_PORT_OFFSET, *([int(console[:-1].rpartition(":")[2])] if console else [])):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", number))
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise QuickstartError(f"127.0.0.1:{number} cannot be used: {error.strerror}") from None
                raise QuickstartError(
                    f"127.0.0.1:{number} is in use by another program. Choose another port: make run PORT={port + 100}"
                ) from None


def commands(run: Path, port: int) -> list[tuple[str, str]]:
    """Returns things to try, each with its command, for a shell in the checkout.

    The commands contain no secrets: they read passwords from files, so that `ps` does not show them.
    """
    bin_, here = shown(BIN), shown(run)
    bus = f"-b amqps://127.0.0.1:{port} --ssl-trustfile {here}/tls/ca.crt"
    certificate_bus = f"-b amqps://127.0.0.1:{port + CERTIFICATE_PORT_OFFSET} --ssl-trustfile {here}/tls/ca.crt"
    alice = f"{bus} --sasl-username alice --sasl-password-file {here}/passwords/alice"
    operator = f"{bus} --sasl-username operator --sasl-password-file {here}/passwords/operator"
    client = f"{certificate_bus} --ssl-certificate {here}/tls/client.crt --ssl-key {here}/tls/client.key"
    return [
        (
            "alice receives five messages, which she sends",
            f"{bin_}/qdreceive {alice} -a orders.new -c 5 & {bin_}/qdsend {alice} -a orders.new -c 5; wait $!",
        ),
        ("alice is denied an address", f"{bin_}/qdsend {alice} -a secret"),
        (
            "client, whose certificate is its identity",
            f"{bin_}/qdreceive {client} -a orders.new -c 5 & {bin_}/qdsend {client} -a orders.new -c 5; wait $!",
        ),
        ("the operator asks for connections", f"{bin_}/qdstat {operator} -c"),
        ("are there mistakes in the policy?", f"{bin_}/qdpolicy lint {here}/policy"),
        ("what was denied to whom?", f"{bin_}/qdaudit denials {here}/audit"),
    ]


def shown(path: Path) -> str:
    """Returns a path as written in the commands: relative if it is in the checkout, quoted if necessary."""
    return shlex.quote(str(path.relative_to(ROOT) if path.is_relative_to(ROOT) else path))


def introduce(run: Path, port: int) -> None:
    """Prints the commands to paste."""
    print("\nIn another terminal:\n")
    print(f"  cd {shlex.quote(str(ROOT))}")
    print(f"\n  The passwords of {' and '.join(USERS)} are in {shown(run)}/passwords, which only you may read.")
    for what, command in commands(run, port):
        print(f"\n  # {what}\n  {command}")
    if url := console_url(run / "qdrouterd.conf"):
        introduce_console(url, f"{shown(run)}/tls/ca.crt", "operator")
    print(
        f"\nCtrl-C stops the router. Configuration, users, policy and audit records stay in {shown(run)}\n", flush=True
    )


def run_router(run: Path) -> int:
    """Runs qdrouterd until it ends. Returns 0 if it was asked to stop."""
    with own_terminal():
        # The router itself handles Ctrl-C. Unlike SIG_IGN, it does not inherit a handler.
        signal.signal(signal.SIGINT, lambda *_: None)
        router = subprocess.Popen([BIN / "qdrouterd", "-c", run / "qdrouterd.conf"])
        # The router ignores SIGHUP by design, and would outlive a closed terminal.
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, lambda *_: router.terminate())
        status = router.wait()
    # By convention qdrouterd ends itself with SIGINT after it has stopped gracefully.
    return 0 if status == -signal.SIGINT else status


@contextlib.contextmanager
def own_terminal() -> Iterator[None]:
    """Keeps Ctrl-C from make, which would report a clean stop as an error.

    Moves this process into its own process group and makes it the terminal's foreground group, if there is a terminal
    and the present group has it. Undone at the end.
    """
    try:
        terminal = os.open("/dev/tty", os.O_RDWR)
    except OSError:
        yield
        return
    group = os.getpgrp()
    try:
        if os.tcgetpgrp(terminal) != group:
            yield
            return
        # To change the terminal's group from a background group would stop this process. So would Ctrl-Z, and make
        # could not continue it.
        for number in (signal.SIGTTOU, signal.SIGTSTP):
            signal.signal(number, signal.SIG_IGN)
        os.setpgid(0, 0)
        os.tcsetpgrp(terminal, os.getpgrp())
        try:
            yield
        finally:
            os.tcsetpgrp(terminal, group)
    finally:
        os.close(terminal)


def main() -> int:
    parser = argparse.ArgumentParser(description="A secured router on 127.0.0.1, made from nothing.")
    parser.add_argument("--port", type=int, help=f"default: that of the configuration, {DEFAULT_PORT} in a new one")
    parser.add_argument("--folder", type=Path, default=ROOT / ".run", help="where everything is kept (default: .run)")
    options = parser.parse_args()
    run: Path = options.folder.resolve()
    os.umask(0o077)
    run.mkdir(mode=0o700, exist_ok=True)
    try:
        make_certificates(run / "tls")
        port = make_configuration(run, options.port)
        refuse_used_ports(run, port)
        make_users(run / "users", run / "passwords", USERS)
        introduce(run, port)
    except QuickstartError as error:
        print(error, file=sys.stderr)
        return 1
    return run_router(run)


if __name__ == "__main__":
    sys.exit(main())
