"""Attack: the router connects to a broker that is hostile, or has been taken over.

The broker attaches $management on that connection, as it may attach anything, and makes the router open a listener for
everyone.
"""

import json
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from daemon_process import audit_events, eventually
from free_ports import free_port
from governed_router import governed
from raw_peer import ATTACH, DETACH, FLOW, attach_receiver, attach_sender, begin, transfer
from server_peer import Call, serving

from router.amqp.codec import encode_message

TYPE = "org.apache.qpid.dispatch.listener"
PATIENCE_S = 30.0


def request(port: int, to: str | None) -> bytes:
    body = {"host": "127.0.0.1", "port": str(port), "authenticatePeer": False, "saslMechanisms": "ANONYMOUS"}
    properties = {"operation": "CREATE", "type": TYPE, "name": "back door"}
    return encode_message(to=to, reply_to="anywhere", application_properties=properties, body=body)


def attacking(target: str | None, port: int, told: list[tuple[int, Any]]) -> Callable[[Call], None]:
    """A broker that asks for a listener through a sender to `target`, None for an anonymous one."""

    def behave(call: Call) -> None:
        call.sasl()
        call.open()
        call.send(begin() + attach_sender(target if target is not None else ""))
        while True:
            code, fields = call.read_frame()
            told.append((code, fields))
            if code == DETACH:
                break
            if code == FLOW and len(fields) > 4 and fields[4] is not None:
                call.send(transfer(request(port, None if target is not None else "$management")))
                break
        call.stay()

    return behave


def is_listening(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1.0).close()
    except OSError:
        return False
    return True


def connector(port: int, *settings: str) -> str:
    lines = ["name: broker", "host: 127.0.0.1", f"port: {port}", "saslMechanisms: ANONYMOUS", *settings]
    return "connector {\n" + "".join(f"    {line}\n" for line in lines) + "}\n"


TARGETS = [
    *("$management", "_local/$management", "_topo/0/governed/$management", "amqp:/_local/$_management_internal"),
    None,
]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("policy_vhost", [None, "partners"])
def test_a_broker_opens_no_listener(tmp_path: Path, target: str | None, policy_vhost: str | None) -> None:
    """management 102: nor where the group $connector of its policyVhost allows it every address and every right."""
    back_door = free_port()
    told: list[tuple[int, Any]] = []
    rights = {"sources": "*", "targets": "*", "allowAnonymousSender": True, "management": "administrator"}
    group = {"$connector": rights}
    partners = f"vhost {{\n    hostname: partners\n    groups: {json.dumps(group)}\n}}\n"
    with serving(attacking(target, back_door, told)) as broker:
        terms = [f"policyVhost: {policy_vhost}"] if policy_vhost is not None else []
        extra = partners + connector(broker.port, *terms)
        with governed(tmp_path, {"anyone": {}}, extra=extra) as router:
            denied = eventually(
                lambda: (
                    is_listening(back_door)
                    or [each for each in audit_events(tmp_path / "audit") if each["reason"] == "in_process_address"]
                )
            )
            assert not is_listening(back_door)
            (event,) = denied
            assert event["stage"] == ("attach" if target is not None else "transfer")
            assert event["detail"]
            router.wait_for_log("DENY AMQP .* an address inside the router: connector .* lacks allowManagement")
    assert any(code == ATTACH for code, _ in told)


def test_a_receiver_is_refused_as_well(tmp_path: Path) -> None:
    told: list[Any] = []

    def behave(call: Call) -> None:
        call.sasl()
        call.open()
        call.send(begin() + attach_receiver("$management"))
        told.append(call.expect(DETACH))
        call.stay()

    with serving(behave) as broker, governed(tmp_path, {"anyone": {}}, extra=connector(broker.port)):
        eventually(lambda: told)
    (fields,) = told
    assert fields[2].value[0] == "amqp:unauthorized-access"


def test_a_setting_of_the_connector_lets_its_peer_in(tmp_path: Path) -> None:
    """So that whoever wants it as in 1.20 has it; with the rights of the group $connector where there is one."""
    front_door = free_port()
    told: list[tuple[int, Any]] = []
    with serving(attacking("$management", front_door, told)) as broker:
        extra = connector(broker.port, "allowManagement: yes")
        with governed(tmp_path, {"anyone": {}}, extra=extra):
            assert eventually(lambda: is_listening(front_door))
