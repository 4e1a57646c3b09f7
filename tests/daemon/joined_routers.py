"""Interior routers as processes: each has a certificate with its name; mutual TLS connects them."""

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from certificates import Certificates
from daemon_process import Daemon, eventually, start

CONFIGURATION = """
router {{
    mode: interior
    id: {id}
    auditDir: {folder}/audit
}}
sslProfile {{
    name: routers
    caCertFile: {ca}
    certFile: {certificate}
    privateKeyFile: {key}
    uidFormat: n
}}
listener {{
    name: plain
    host: 127.0.0.1
    port: 0
    authenticatePeer: no
    saslMechanisms: ANONYMOUS
}}
listener {{
    name: network
    host: 127.0.0.1
    port: 0
    role: inter-router
    sslProfile: routers
    requireSsl: yes
    authenticatePeer: yes
    saslMechanisms: EXTERNAL
    routerIds: {router_ids}
}}
"""
CONNECTOR = """
connector {{
    name: {name}
    host: 127.0.0.1
    port: {port}
    role: inter-router
    sslProfile: routers
    saslMechanisms: EXTERNAL
    {terms}
}}
"""


@dataclass(slots=True)
class RouterNetwork:
    """Routers by their ids. Each has a client listener `plain` and a listener `network` for routers."""

    folder: Path
    certificates: Certificates
    routers: dict[str, Daemon]

    def start(
        self,
        router_id: str,
        *neighbours: str,
        holder: str | None = None,
        router_ids: str = "${user}",
        terms: str = "",
        extra: str = "",
    ) -> Daemon:
        """Starts a router that connects to its neighbours.

        holder      the name in its certificate; None: its own id
        router_ids  of its listener
        terms       of its connectors
        extra       sections of its configuration
        """
        folder = self.folder / f"{router_id}{holder or ''}"
        folder.mkdir()
        certificate, key = self.certificates.pair(holder or router_id)
        text = CONFIGURATION.format(
            id=router_id,
            folder=folder,
            ca=self.certificates.ca,
            certificate=certificate,
            key=key,
            router_ids=router_ids,
        )
        for name in neighbours:
            port = self.routers[name].port("network")
            text += CONNECTOR.format(name=f"to-{name}", port=port, terms=terms)
        router = start(folder, text + extra)
        self.routers[folder.name] = router
        router.wait_for_log(r"Listening on \S+ \(network\)")
        return router

    def settle(self, *router_ids: str) -> None:
        """Waits until each of these routers knows the way to all the others."""
        for router_id in router_ids:
            with self.routers[router_id].client() as client:
                assert eventually(lambda client=client: reached(client) >= set(router_ids))  # type: ignore[misc]


def reached(client: Any) -> set[str]:
    """Returns the routers that a router has a way to, itself included."""
    return {str(row["id"]) for row in nodes(client) if row["nextHop"] or row.get("routerLink") is not None}


def nodes(client: Any) -> list[Mapping[str, Any]]:
    found = client.query("router.node")
    return [dict(zip(found.attribute_names, row, strict=True)) for row in found.rows]


@contextlib.contextmanager
def router_network(folder: Path, *names: str) -> Iterator[RouterNetwork]:
    """Yields a network without routers, and ends its routers afterwards.

    names  of routers, and of other certificates
    """
    tls = folder / "tls"
    tls.mkdir()
    network = RouterNetwork(folder, Certificates.make(tls, *names), {})
    try:
        yield network
    finally:
        for router in network.routers.values():
            router.end()
