"""qdstat -c and -e."""

from collections.abc import Mapping
from typing import Any

from router.tools.displays.source import Source
from router.tools.formats import Block, Table, time_long


def connections(source: Source) -> list[Block]:
    found = source.limited("connection")
    headers = ["id", "host", "container", "role", "proto", "dir", "security", "authentication", "tenant"]
    has_last_delivery = any("lastDlvSeconds" in connection for connection in found)
    has_uptime = any("uptimeSeconds" in connection for connection in found)
    headers += ["last dlv"] * has_last_delivery + ["uptime"] * has_uptime
    rows = []
    for connection in found:
        row = [
            connection.get("identity"),
            connection.get("host"),
            connection.get("container"),
            connection.get("role"),
            connection.get("protocol"),
            connection.get("dir"),
            security(connection),
            authentication(connection),
            tenant(connection),
        ]
        if has_last_delivery:
            last_s = connection.get("lastDlvSeconds")
            row.append("-" if last_s is None else time_long(last_s))
        if has_uptime:
            row.append(time_long(connection.get("uptimeSeconds")))
        rows.append(row)
    return [Table(title="Connections", headers=tuple(headers), rows=tuple(rows))]


def edge_connections(source: Source) -> list[Block]:
    found = source.limited("connection")
    if not found:
        return [["No Edge Router Connections"]]
    edges = [connection for connection in found if connection.get("role") == "edge"]
    if not edges:
        return []
    has_active = any("active" in connection for connection in edges)
    headers = ("id", "host", "container", "role", "dir", "security", "authentication", "tenant")
    rows = [
        (
            connection.get("identity"),
            connection.get("host"),
            connection.get("container"),
            connection.get("role"),
            connection.get("dir"),
            security(connection),
            authentication(connection),
            tenant(connection),
            *(("yes" if connection.get("active") else "no",) if has_active else ()),
        )
        for connection in edges
    ]
    return [Table(title="Connections", headers=headers + ("active",) * has_active, rows=tuple(rows))]


def security(connection: Mapping[str, Any]) -> str:
    if not connection.get("isEncrypted"):
        return "no-security"
    if connection.get("sasl") == "GSSAPI":
        return "Kerberos"
    return f"{connection.get('sslProto')}({connection.get('sslCipher')})"


def authentication(connection: Mapping[str, Any]) -> str:
    if not connection.get("isAuthenticated"):
        return "no-auth"
    mechanism, user = connection.get("sasl"), connection.get("user")
    if mechanism == "ANONYMOUS":
        return "anonymous-user"
    word = {"GSSAPI": "Kerberos", "EXTERNAL": "x.509"}.get(str(mechanism), str(mechanism or ""))
    return f"{user}({word})" if user else word


def tenant(connection: Mapping[str, Any]) -> str:
    return str(connection.get("tenant") or "").removesuffix("/")
