"""The management row of one connection. Sources: docs/spec/routing.md §1.11."""

from collections.abc import Mapping
from typing import Any

from router.connection.peer import Peer
from router.connection.stack import Stack

_TYPE = "org.apache.qpid.dispatch.connection"


def connection_row(connection: Stack, now_s: int, *, is_traced: bool) -> Mapping[str, Any]:
    """Returns the row.

    connection  its Open was admitted: before that there is no entity (routing §1.6).
    """
    peer = connection.peer
    assert peer is not None
    assert peer.remote is not None
    return {
        "name": f"connection/{connection.remote_name}",
        "identity": str(connection.connection_id),
        "host": connection.remote_name,
        "role": connection.terms.role,
        "protocol": "amqp",
        "dir": "out" if peer.is_outgoing else "in",
        "container": peer.remote.container_id,
        "sasl": peer.identity.mechanism,
        "isAuthenticated": peer.identity.is_authenticated,
        "user": peer.identity.user,
        "isEncrypted": peer.security["isEncrypted"],
        "sslProto": peer.security["sslProto"],
        "sslCipher": peer.security["sslCipher"],
        "properties": {str(key): value for key, value in peer.remote.properties.items()},
        "sslSsf": peer.security["sslSsf"],
        "tenant": f"{peer.tenant}/" if peer.tenant is not None else None,
        "type": _TYPE,
        "ssl": peer.security["ssl"],
        "opened": True,
        "active": peer.is_active,
        "adminStatus": "enabled",
        "operStatus": "up",
        "uptimeSeconds": now_s - peer.opened_at_s,
        "lastDlvSeconds": _last_delivery_age(peer, now_s),
        "enableProtocolTrace": is_traced,
        "heldBackCount": peer.attachment.held_back_count,
    }


def _last_delivery_age(peer: Peer, now_s: int) -> int | None:
    return None if peer.last_delivery_s is None else now_s - peer.last_delivery_s
