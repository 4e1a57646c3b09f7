"""Unauthenticated peers that all speak at the same moment: `python -m benchmarks.strangers ATTACK PORT [FOLDER]`.

They first connect, from many addresses of this machine, and the program prints `ready`. After a line on standard input
all of them speak. Then it prints `done` and the number of peers that were answered or refused. Loopback only, limited
in number and time.
"""

import contextlib
import selectors
import socket
import ssl
import sys
import time
from pathlib import Path

from benchmarks.crowd import raise_file_limit, unverified_context
from benchmarks.wire import AMQP_HEADER, SASL_HEADER

HELLOS = 1_500
CHAINS = 400
SPEAKERS = 2_500
# The number of their addresses, so that the limits of one host have no effect.
HOSTS = 100
# Limit for the answers, in seconds.
PATIENCE_S = 30.0

# Each peer sends the first message of a TLS handshake, its last one with the client's certificates, or a protocol
# header.
ATTACKS = ("hellos", "chains", "headers")


def main() -> None:
    attack, port, *folder = sys.argv[1:]
    raise_file_limit()
    match attack:
        case "hellos":
            said = [(connected, _hello()) for connected in _connected(int(port), HELLOS)]
        case "chains":
            said = _last_messages(_connected(int(port), CHAINS), Path(folder[0]))
        case "headers":
            headers = (SASL_HEADER, AMQP_HEADER)
            said = [
                (connected, headers[number % 2]) for number, connected in enumerate(_connected(int(port), SPEAKERS))
            ]
        case _:
            raise SystemExit(f"no attack {attack}")
    print("ready", flush=True)
    sys.stdin.readline()
    for connected, data in said:
        connected.send(data)
    print("done", _answered([connected for connected, _ in said]), flush=True)


def _connected(port: int, count: int) -> list[socket.socket]:
    made = []
    for number in range(count):
        source = f"127.0.1.{1 + number % HOSTS}"
        made.append(socket.create_connection(("127.0.0.1", port), PATIENCE_S, source_address=(source, 0)))
        made[-1].setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        time.sleep(0.0005)  # the router must accept them before they speak, and the backlog must not refuse them
    return made


def _hello() -> bytes:
    outgoing = ssl.MemoryBIO()
    tls = unverified_context().wrap_bio(ssl.MemoryBIO(), outgoing)
    with contextlib.suppress(ssl.SSLWantReadError):
        tls.do_handshake()
    return outgoing.read()


def _last_messages(peers: list[socket.socket], folder: Path) -> list[tuple[socket.socket, bytes]]:
    """Makes the handshake of each, up to its last message, and returns that message."""
    context = unverified_context()
    context.load_cert_chain(folder / "chain.pem", folder / "chain.key")
    said = []
    for connected in peers:
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = context.wrap_bio(incoming, outgoing)
        while True:
            try:
                tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                connected.sendall(outgoing.read())
                incoming.write(connected.recv(65536))
        tls.write(SASL_HEADER)  # it is answered: in TLSv1.3 nothing else shows that the chain was checked
        said.append((connected, outgoing.read()))
    return said


def _answered(peers: list[socket.socket]) -> int:
    """Counts the peers that get an answer, or are closed, within the time limit."""
    count, end = 0, time.monotonic() + PATIENCE_S
    with selectors.DefaultSelector() as waiting:
        for connected in peers:
            connected.setblocking(False)
            waiting.register(connected, selectors.EVENT_READ)
        while count < len(peers) and time.monotonic() < end:
            for key, _ in waiting.select(1.0):
                waiting.unregister(key.fileobj)
                count += 1
    return count


if __name__ == "__main__":
    main()
