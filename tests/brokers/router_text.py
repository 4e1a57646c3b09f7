"""Pieces of the configuration of a router before brokers."""

# Of a router: for clients, and to the broker.
LISTENER = """
listener {
    name: clients
    host: 127.0.0.1
    port: 0
    authenticatePeer: no
    saslMechanisms: ANONYMOUS
}
"""
CONNECTOR = """connector {{
    name: {name}
    host: 127.0.0.1
    port: {port}
    role: route-container
    saslMechanisms: PLAIN
    saslUsername: {user}
    saslPassword: {password}
}}
"""
WAYPOINT = "address {{\n    prefix: {address}\n    waypoint: yes\n}}\n"
AUTO_LINK = "autoLink {{\n    address: {address}\n    direction: {direction}\n    connection: {connection}\n}}\n"
LINK_ROUTE = "linkRoute {{\n    prefix: {prefix}\n    direction: {direction}\n    connection: {connection}\n}}\n"


def link_routes(*prefixes: str, connection: str = "broker") -> str:
    """Of the router: both ways for each, and transactions."""
    pairs = [(prefix, direction) for prefix in prefixes for direction in ("in", "out")]
    pairs.append(("$coordinator", "in"))
    return "".join(LINK_ROUTE.format(prefix=each, direction=way, connection=connection) for each, way in pairs)


def waypoint(address: str, *connections: str) -> str:
    """Of the router: an address whose messages wait in brokers."""
    links = [(connection, way) for connection in connections for way in ("out", "in")]
    auto = (AUTO_LINK.format(address=address, direction=way, connection=connection) for connection, way in links)
    return WAYPOINT.format(address=address) + "".join(auto)
