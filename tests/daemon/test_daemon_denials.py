"""What a peer of a running router is told of a denial, and what the log says."""

from collections.abc import Callable

import pytest
from daemon_process import LISTENER, Daemon
from proton.utils import BlockingConnection, LinkDetached

POLICY = """
policy {
    enableVhostPolicy: yes
    MORE
}
vhost {
    hostname: $default
    allowUnknownUser: true
    groups: {
        $default: {
            remoteHosts: *
            targets: a
        }
    }
}
"""
RULE = "target_not_allowed, vhost '$default', group '$default', targets"


@pytest.mark.parametrize(
    ("more", "told"),
    [("", ""), ("verboseDenials: no", ""), ("verboseDenials: yes", f": {RULE}")],
    ids=["unset", "no", "yes"],
)
def test_the_description_names_the_rule_where_the_policy_says_so(
    more: str, told: str, daemon: Callable[..., Daemon]
) -> None:
    router = daemon(LISTENER + POLICY.replace("MORE", more))
    connection = BlockingConnection(f"127.0.0.1:{router.port()}", timeout=10, allowed_mechs="ANONYMOUS")
    with pytest.raises(LinkDetached) as caught:
        connection.create_sender("b")
    refusal = caught.value.link.remote_condition
    assert refusal is not None
    assert refusal.description == f"link disallowed by local policy{told}"
    place = r"of group '\$default' of vhost '\$default', .*qdrouterd\.conf:\d+\]"
    router.wait_for_log(
        rf"DENY AMQP Attach sender link 'b' .* based on link target name \[target_not_allowed: targets {place}"
    )
    connection.close()
