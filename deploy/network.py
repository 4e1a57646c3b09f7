"""Runs a network on 127.0.0.1: three interior routers in a ring and two edge routers, over mutual TLS: `make network`.

The configurations come from policies/network. They are copied into the ignored folder .run/network, where they may be
edited; a second run keeps them and the certificates. The key of the certificate authority is never on disk: it signs a
certificate for each router, for the client `demo` and for the operator, and is forgotten. The operator also has a
password, for the web console of router A; only its hash is kept.
"""

import argparse
import errno
import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from importlib import resources
from pathlib import Path

from quickstart import (
    BIN,
    CERTIFICATE_DAYS,
    HERE,
    PORT_LINE,
    ROOT,
    QuickstartError,
    console_url,
    introduce_console,
    make_users,
    own_terminal,
    refuse_expired,
    shown,
    write_new,
    write_pair,
)

from auth.authority import make_authority, pem

INTERIORS = ("A", "B", "C")
EDGES = ("E1", "E2")
CLIENTS = ("demo", "operator")
# The lowest port in policies/network; --port moves all ports together. The routers' client ports are consecutive.
FIRST_PORT = 5771
START_TIMEOUT_S = 30.0


def make_certificates(tls: Path) -> None:
    """Makes a CA, and a certificate for each router and client. Makes all of them again if any file is missing."""
    holders = (*INTERIORS, *EDGES, *CLIENTS)
    names = ["ca.crt", *(f"{holder}.{kind}" for holder in holders for kind in ("crt", "key"))]
    if all((tls / name).is_file() for name in names):
        refuse_expired(tls)
        return
    tls.mkdir(mode=0o700, exist_ok=True)
    for name in names:
        (tls / name).unlink(missing_ok=True)
    authority = make_authority("Palisade example network CA", CERTIFICATE_DAYS)
    write_new(tls / "ca.crt", pem(authority.certificate), 0o644)
    for holder in holders:
        write_pair(tls, holder, authority, holder, hosts=() if holder in CLIENTS else HERE)


SASL_CONFIGURATION = """\
pwcheck_method: auxprop
auxprop_plugin: userfile
userfile_path: users
mech_list: EXTERNAL PLAIN
"""


def make_operator(run: Path) -> None:
    """Creates the user `operator` if it does not exist. Errors: QuickstartError."""
    (run / "sasl").mkdir(mode=0o700, exist_ok=True)
    if not (run / "sasl" / "qdrouterd.conf").exists():
        write_new(run / "sasl" / "qdrouterd.conf", SASL_CONFIGURATION.encode())
    make_users(run / "sasl" / "users", run / "passwords", ("operator",))


def copy_examples(run: Path, routers: tuple[str, ...]) -> None:
    """Copies the configurations and the policy, unless they exist already."""
    (run / "policy").mkdir(mode=0o700, exist_ok=True)
    (run / "audit").mkdir(mode=0o700, exist_ok=True)
    example = resources.files("policies").joinpath("network")
    for name in (*(f"{router}.conf" for router in routers), "policy/network.json"):
        if not (run / name).exists():
            write_new(run / name, example.joinpath(name).read_bytes())


def client_ports(run: Path, routers: tuple[str, ...]) -> dict[str, int]:
    """Returns the port of each router's first listener, which is for clients. Errors: QuickstartError."""
    found = {}
    for router in routers:
        path = run / f"{router}.conf"
        if (line := PORT_LINE.search(path.read_text())) is None:
            raise QuickstartError(f"{path} has no port any more. Delete it to have it written again.")
        found[router] = int(line[2])
    return found


def move_ports(run: Path, routers: tuple[str, ...], first: int) -> None:
    """Changes the ports in all configurations, so that the lowest is `first`."""
    by = first - min(client_ports(run, routers).values())
    for router in routers:
        path = run / f"{router}.conf"
        path.write_text(PORT_LINE.sub(lambda line: f"{line[1]}{int(line[2]) + by}", path.read_text()))


def refuse_used_ports(run: Path, routers: tuple[str, ...]) -> None:
    """Checks that all listener ports are free. Errors: QuickstartError."""
    for router in routers:
        text = (run / f"{router}.conf").read_text()
        listeners = text.partition("\nconnector {")[0]
        for _, port in PORT_LINE.findall(listeners):
            with socket.socket() as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                try:
                    probe.bind(("127.0.0.1", int(port)))
                except OSError as error:
                    why = "in use by another program" if error.errno == errno.EADDRINUSE else error.strerror
                    raise QuickstartError(f"127.0.0.1:{port} is {why}. Try: make network PORT=6771") from None


class Network:
    """The running routers."""

    def __init__(self, run: Path) -> None:
        self._run = run
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self.is_stopping = False

    def start(self, router: str, port: int) -> None:
        """Starts a router and waits until it serves, so that routers which connect to it find it at once.

        Errors  QuickstartError if it ends, or does not serve in time.
        """
        log = (self._run / f"{router}.log").open("wb")
        with log:
            process = self._processes[router] = subprocess.Popen(
                [BIN / "qdrouterd", "-c", f"{router}.conf"], cwd=self._run, stdout=log, stderr=log
            )
        deadline = time.monotonic() + START_TIMEOUT_S
        while not _answers(port) and not self.is_stopping:
            if process.poll() is not None or time.monotonic() > deadline:
                raise QuickstartError(f"router {router} does not serve: see {self._run / f'{router}.log'}")
            time.sleep(0.05)

    def wait(self) -> int:
        """Waits until the network must stop, or a router has ended by itself. Returns the exit status."""
        while not self.is_stopping and all(process.poll() is None for process in self._processes.values()):
            time.sleep(0.2)
        return (
            0
            if self.is_stopping
            or all(process.poll() in (None, 0, -signal.SIGINT) for process in self._processes.values())
            else 1
        )

    def stop(self) -> None:
        for process in self._processes.values():
            if process.poll() is None:
                process.terminate()
        for process in self._processes.values():
            process.wait()


def _answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1.0).close()
    except OSError:
        return False
    return True


def commands(run: Path, ports: dict[str, int]) -> list[tuple[str, str]]:
    """Returns things to try, each with its command, for a shell in the checkout."""
    bin_, here = shown(BIN), shown(run)
    sender, receiver = EDGES

    def at(router: str, holder: str) -> str:
        files = f"--ssl-certificate {here}/tls/{holder}.crt --ssl-key {here}/tls/{holder}.key"
        return f"-b amqps://127.0.0.1:{ports[router]} --ssl-trustfile {here}/tls/ca.crt {files}"

    receive, send = f"{bin_}/qdreceive {at(receiver, 'demo')}", f"{bin_}/qdsend {at(sender, 'demo')}"
    return [
        (f"receive at {receiver}", f"{receive} -a demo.orders -c 5"),
        (f"send at {sender}, in another terminal", f"{send} -a demo.orders -c 5 --body order -t 60"),
        ("the routers of the network, as A sees them", f"{bin_}/qdstat {at('A', 'operator')} -n"),
        ("the connections of B, asked by way of A", f"{bin_}/qdstat {at('A', 'operator')} -r B -c"),
        ("every router's addresses", f"{bin_}/qdstat {at('A', 'operator')} --all-routers -a"),
        ("are there mistakes in the configurations?", f"{bin_}/qdpolicy lint --fleet {here}"),
    ]


def introduce(run: Path, ports: dict[str, int]) -> None:
    print(f"\nRouters {', '.join((*INTERIORS, *EDGES))} serve. In another terminal:\n")
    print(f"  cd {shlex.quote(str(ROOT))}")
    for what, command in commands(run, ports):
        print(f"\n  # {what}\n  {command}")
    if url := console_url(run / "A.conf"):
        introduce_console(url, f"{shown(run)}/tls/ca.crt", "operator")
        print(f"  The operator's password is in {shown(run)}/passwords/operator, which only you may read.")
    print(f"\nCtrl-C stops the routers. Configurations, policy, logs and records stay in {shown(run)}\n", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description="Three interior routers and two edges on 127.0.0.1, over mutual TLS.")
    parser.add_argument("--port", type=int, help=f"the least of the ports (default in a new folder: {FIRST_PORT})")
    parser.add_argument("--folder", type=Path, default=ROOT / ".run" / "network", help="default: .run/network")
    options = parser.parse_args()
    run: Path = options.folder.resolve()
    os.umask(0o077)
    run.mkdir(mode=0o700, parents=True, exist_ok=True)
    network = Network(run)
    with own_terminal():
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            # No more than this: the interrupted code may hold the lock of a process.
            signal.signal(number, lambda *_: setattr(network, "is_stopping", True))
        try:
            make_certificates(run / "tls")
            routers = (*INTERIORS, *EDGES)
            copy_examples(run, routers)
            make_operator(run)
            if options.port:
                move_ports(run, routers, options.port)
            ports = client_ports(run, routers)
            refuse_used_ports(run, routers)
            for router in routers:
                if not network.is_stopping:
                    network.start(router, ports[router])
            if not network.is_stopping:
                introduce(run, ports)
            return network.wait()
        except QuickstartError as error:
            print(error, file=sys.stderr)
            return 1
        finally:
            network.stop()


if __name__ == "__main__":
    sys.exit(main())
