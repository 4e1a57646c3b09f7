"""The honest clients of the campaign: `python siege_citizens.py PORT SECONDS`. Prints their measurements as JSON.

One client sends messages to itself and waits for each: the message, its settlement, and the way back. Another logs in
once a second.
"""

import json
import socket
import sys
import threading
import time

import wire
from siege_attackers import login

from router.amqp.codec import decode
from router.values import Described

START = login("alice", "alice's") + wire.frame(wire.open_("alice", "localhost")) + wire.frame(wire.begin())
PATIENCE_S = 30.0
PAUSE_S = 0.002


class Citizen:
    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), PATIENCE_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.buffer = b""
        self.socket.sendall(START)
        self.wait_for(wire.BEGIN)

    def wait_for(self, code: int) -> list[object]:
        """The fields of the next performative of that code."""
        while True:
            while len(self.buffer) >= 8:
                size = 8 if self.buffer.startswith(b"AMQP") else int.from_bytes(self.buffer[:4], "big")
                if len(self.buffer) < size:
                    break
                one, self.buffer = self.buffer[:size], self.buffer[size:]
                if size > 8 and one[5] == 0:
                    value, _ = decode(one[8:])
                    assert isinstance(value, Described)
                    if int(value.descriptor) == code:
                        return list(value.value)
                    assert int(value.descriptor) != wire.CLOSE, value.value
            data = self.socket.recv(1 << 16)
            assert data, "the router closed an honest client's connection"
            self.buffer += data


def exchange(port: int, ends: float, seconds: list[float], faults: list[str]) -> None:
    """Round trips. A message that is not accepted, or does not come, is a fault."""
    try:
        peer = Citizen(port)
        receive = wire.attach("r", 0, is_receiver=True, address="alice.own")
        send = wire.attach("s", 1, is_receiver=False, address="alice.own")
        peer.socket.sendall(wire.frame(receive) + wire.frame(send) + wire.frame(wire.flow(0, credit=1 << 30, count=0)))
        while peer.wait_for(wire.FLOW)[4:5] != [1]:
            pass
        number = 0
        while time.monotonic() < ends:
            started = time.monotonic()
            payload = wire.message(200)
            peer.socket.sendall(wire.frame(wire.transfer(1, number, payload)))
            (_, theirs, *_) = peer.wait_for(wire.TRANSFER)
            assert isinstance(theirs, int)
            settle = wire.disposition(is_receiver=True, first=theirs, state=wire.ACCEPTED)
            peer.socket.sendall(wire.frame(settle))
            state = peer.wait_for(wire.DISPOSITION)[4]
            assert isinstance(state, Described)
            assert int(state.descriptor) == 0x24
            seconds.append(time.monotonic() - started)
            number += 1
            if number % 1000 == 0:
                flow = wire.flow(0, credit=1 << 30, count=number, next_in=number, next_out=number)
                peer.socket.sendall(wire.frame(flow))
            time.sleep(PAUSE_S)
    except Exception as error:  # whatever it is, it was seen by an honest client
        faults.append(f"round trips: {error!r}")


def log_in(port: int, ends: float, seconds: list[float], faults: list[str]) -> None:
    while time.monotonic() < ends:
        started = time.monotonic()
        try:
            peer = Citizen(port)
            peer.socket.close()
        except (AssertionError, OSError) as error:
            faults.append(f"login: {error!r}")
        seconds.append(time.monotonic() - started)
        time.sleep(max(0.0, 1 - (time.monotonic() - started)))


def main(port: int, lasts_s: float) -> None:
    ends = time.monotonic() + lasts_s
    trips: list[float] = []
    logins: list[float] = []
    faults: list[str] = []
    threads = [
        threading.Thread(target=exchange, args=(port, ends, trips, faults)),
        threading.Thread(target=log_in, args=(port, ends, logins, faults)),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    trips.sort()
    p99 = trips[len(trips) * 99 // 100] if trips else float("inf")
    # Less than a pipe holds: nobody reads it before the end.
    print(json.dumps({"p99": p99, "count": len(trips), "login": max(logins, default=0.0), "faults": faults[:20]}))


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]))
