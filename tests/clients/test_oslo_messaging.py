"""OpenStack's library, oslo.messaging, against a router that enforces a policy: calls, casts and fan-out."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from certificates import Certificates
from harness import USERS, RunningRouter, running_router
from open_house import OPEN_HOUSE, port_of
from programs import ClientError, Program

# The addresses are those of oslo.messaging's driver: openstack.org/om/rpc/KIND/EXCHANGE/TOPIC.
CONFIGURATION = (
    OPEN_HOUSE
    + """
vhost {
    hostname: openstack
    groups: {
        services: {
            users: alice, service
            remoteHosts: *
            sources: openstack.org/om/rpc/*
            targets: openstack.org/om/rpc/*
            allowDynamicSource: true
            allowReplies: true
        }
        guests: {
            users: asker
            remoteHosts: *
            sources: openstack.org/om/rpc/*
            targets: openstack.org/om/rpc/anycast/*
            allowDynamicSource: true
        }
    }
}
address {
    prefix: openstack.org/om/rpc/multicast
    distribution: multicast
}
address {
    prefix: openstack.org/om/rpc/unicast
    distribution: closest
}
address {
    prefix: openstack.org/om/rpc/anycast
    distribution: balanced
}
listener {
    name: openstack
    host: 127.0.0.1
    port: 0
    sslProfile: interop-tls
    requireSsl: yes
    authenticatePeer: yes
    saslMechanisms: PLAIN
    policyVhost: openstack
}
"""
)
LIMIT_S = 20.0

pytestmark = [
    pytest.mark.parametrize("program", ["oslo"], indirect=True),
    pytest.mark.xdist_group("oslo"),
]


@pytest.fixture(scope="module")
def router(
    certificates: Certificates, router_python: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningRouter]:
    folder = tmp_path_factory.mktemp("router")
    with running_router(folder, certificates, python=router_python, extra=CONFIGURATION) as running:
        yield running


class Service:
    """One connection of the program, of this user."""

    def __init__(self, program: Program, router: RunningRouter, name: str, user: str) -> None:
        self.program, self.name = program, name
        ca, port = router.certificates.ca, port_of(router, "openstack")
        program.ask("connect", **{"as": name}, port=port, ca=ca, user=user, password=USERS[user])

    def ask(self, op: str, **members: object) -> dict[str, object]:
        return self.program.ask(op, on=self.name, **members)

    def call(
        self, topic: str, text: str, *, server: str | None = None, method: str = "echo", limit_s: float = LIMIT_S
    ) -> object:
        return self.ask("call", topic=topic, server=server, method=method, text=text, limit_s=limit_s)["text"]


def test_call_is_answered_by_a_server_of_the_topic(program: Program, router: RunningRouter) -> None:
    servers, caller = Service(program, router, "s1", "alice"), Service(program, router, "c1", "service")
    servers.ask("serve", topic="compute", server="one")
    servers.ask("serve", topic="compute", server="two")
    assert {caller.call("compute", str(number)) for number in range(8)} <= {
        f"{server}: {number}" for server in ("one", "two") for number in range(8)
    }
    assert caller.call("compute", "hello", server="two") == "two: hello"


def test_exception_of_a_server_reaches_the_caller(program: Program, router: RunningRouter) -> None:
    servers, caller = Service(program, router, "s2", "alice"), Service(program, router, "c2", "service")
    servers.ask("serve", topic="storage", server="one")
    with pytest.raises(ClientError, match="no such volume"):
        caller.call("storage", "no such volume", method="fail")


def test_fanout_reaches_each_server(program: Program, router: RunningRouter) -> None:
    servers, caller = Service(program, router, "s3", "alice"), Service(program, router, "c3", "service")
    for server in ("one", "two", "three"):
        servers.ask("serve", topic="network", server=server)
        assert caller.call("network", "up", server=server) == f"{server}: up"
    caller.ask("cast", topic="network", fanout=True, text="reload")
    noted = servers.ask("noted", count=1, limit_s=LIMIT_S)["notes"]
    assert noted == ["one: reload", "three: reload", "two: reload"]


def test_call_to_a_topic_without_servers_ends_with_a_timeout(program: Program, router: RunningRouter) -> None:
    caller = Service(program, router, "c4", "service")
    with pytest.raises(ClientError, match="MessagingTimeout"):
        caller.call("nobody", "hello", limit_s=1)


def test_guest_may_call_but_not_cast_to_each_server(program: Program, router: RunningRouter) -> None:
    servers, guest = Service(program, router, "s5", "alice"), Service(program, router, "c5", "asker")
    servers.ask("serve", topic="images", server="one")
    assert guest.call("images", "hello") == "one: hello"
    with pytest.raises(ClientError, match="MessageDeliveryFailure"):
        guest.ask("cast", topic="images", fanout=True, text="reload")
    router.wait_for_audit(stage="attach", reason="target_not_allowed", user="asker")
    assert servers.ask("noted", count=1, limit_s=0.0)["notes"] == []
