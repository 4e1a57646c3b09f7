"""An OpenStack service and its callers by oslo.messaging: one JSON request a line on stdin, one JSON reply a line.

connect   as, port, ca, user, password    TLS and SASL PLAIN to localhost
serve     on, topic, server               answers `echo`, `fail` and `note` of this topic
call      on, topic, server, method, text, limit_s   replies {"text"}; server null for any server of the topic
cast      on, topic, fanout, text         does not wait; calls `note` of one server, or of each with fanout
noted     on, count, limit_s              waits until each of its servers has `count` notes; replies {"notes"}

A failure is {"error": {"condition": the exception's name, "description": its text}}.
"""

import json
import logging
import sys
import threading
from typing import Any
from urllib.parse import quote, urlencode

import oslo_messaging
from oslo_config import cfg
from oslo_messaging._metrics import client as metrics


class Endpoint:
    """The methods that a server offers."""

    def __init__(self, server: str) -> None:
        self.server = server
        self.notes: list[str] = []
        self.changed = threading.Condition()

    def echo(self, _context: object, text: str) -> str:
        return f"{self.server}: {text}"

    def fail(self, _context: object, text: str) -> None:
        raise ValueError(text)

    def note(self, _context: object, text: str) -> None:
        with self.changed:
            self.notes.append(f"{self.server}: {text}")
            self.changed.notify_all()

    def wait_for_notes(self, count: int, limit_s: float) -> None:
        with self.changed:
            self.changed.wait_for(lambda: len(self.notes) >= count, limit_s)


class Connection:
    """One transport of oslo.messaging, with the servers that were started on it."""

    def __init__(self, port: int, ca: str, user: str, password: str) -> None:
        configuration = cfg.ConfigOpts()
        configuration([])
        # Calls read these options, which the library registers with its global configuration only.
        configuration.register_opts(metrics.oslo_messaging_metrics, group="oslo_messaging_metrics")
        # The time until a cast fails whose link is refused again and again is 30 s by default.
        options = {"ssl": "true", "ssl_ca_file": ca, "sasl_mechanisms": "PLAIN", "default_send_timeout": 5}
        url = f"amqp://{user}:{quote(password)}@localhost:{port}/?{urlencode(options)}"
        self.transport = oslo_messaging.get_rpc_transport(configuration, url=url)
        self.endpoints: list[Endpoint] = []

    def serve(self, topic: str, server: str) -> None:
        endpoint = Endpoint(server)
        self.endpoints.append(endpoint)
        target = oslo_messaging.Target(topic=topic, server=server)
        oslo_messaging.get_rpc_server(self.transport, target, [endpoint], executor="threading").start()

    def call(self, topic: str, server: str | None, method: str, text: str, limit_s: float) -> Any:
        target = oslo_messaging.Target(topic=topic, server=server)
        return oslo_messaging.get_rpc_client(self.transport, target, timeout=limit_s).call({}, method, text=text)

    def cast(self, topic: str, fanout: bool, text: str) -> None:
        target = oslo_messaging.Target(topic=topic, fanout=fanout)
        oslo_messaging.get_rpc_client(self.transport, target).cast({}, "note", text=text)

    def noted(self, count: int, limit_s: float) -> list[str]:
        for endpoint in self.endpoints:
            endpoint.wait_for_notes(count, limit_s)
        return sorted(note for endpoint in self.endpoints for note in endpoint.notes)


def main() -> None:
    logging.basicConfig(level=logging.ERROR, stream=sys.stderr)
    connections: dict[str, Connection] = {}
    for line in sys.stdin:
        request = json.loads(line)
        op = request.pop("op")
        reply: dict[str, Any] = {}
        try:
            if op == "connect":
                name = request.pop("as")
                connections[name] = Connection(**request)
            else:
                answer = getattr(connections[request.pop("on")], op)(**request)
                reply = {"notes": answer} if op == "noted" else {"text": answer}
        except Exception as error:  # whatever the library raises is the reply
            reply = {"error": {"condition": type(error).__name__, "description": str(error)}}
        print(json.dumps(reply), flush=True)


main()
