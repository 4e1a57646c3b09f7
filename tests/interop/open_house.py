"""Configuration that several suites add to the harness's: a listener with clients that may do everything."""

from collections.abc import Iterator
from contextlib import contextmanager

from harness import RunningRouter, eventually

from router.management.client import ManagementClient
from router.tools.connection_options import ConnectionOptions
from router.tools.transport import connect

OPEN_HOUSE = """
vhost {
    hostname: open-house
    groups: {
        everybody: {
            users: anonymous
            remoteHosts: *
            sources: *
            targets: *
            allowAnonymousSender: true
            allowDynamicSource: true
            management: administrator, host
        }
    }
}
listener {
    name: free
    host: 127.0.0.1
    port: 0
    authenticatePeer: no
    saslMechanisms: ANONYMOUS
    policyVhost: open-house
}
"""


def port_of(router: RunningRouter, name: str, *, since: int = 0) -> int:
    """The port of a listener with `port: 0`, by its name; remembered in `router.ports`."""
    if name not in router.ports:
        found = router.wait_for_log(rf"Listening on \S+:(\d+)(?:, \S+)* \({name}\)", since=since)
        router.ports[name] = int(found[1])
    return router.ports[name]


@contextmanager
def management(router: RunningRouter) -> Iterator[ManagementClient]:
    """Through the open house."""
    with connect(ConnectionOptions(host="127.0.0.1", port=port_of(router, "free"), timeout_s=10)) as client:
        yield client


def connector_row(client: ManagementClient, name: str, **expected: object) -> dict[str, object]:
    """The connector's row once it has these members; fails with the last row when that does not come about."""
    last: dict[str, object] = {}

    def matches() -> bool:
        nonlocal last
        last = client.read(type="connector", name=name)
        return all(last.get(key) == value for key, value in expected.items())

    assert eventually(matches, 10.0), last
    return last
