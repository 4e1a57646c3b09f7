"""The Open of a connection (docs/spec/policy-and-auth.md §3.3)."""

from memory_net import Net, Vhosts

ANYBODY = Vhosts(vhosts={"$default": {"groups": {"all": {"users": "*", "remoteHosts": "*"}}}})


def test_a_second_open_is_not_admitted_again() -> None:
    """Attack: each Open would be counted, and only one given back, until nobody else may connect."""
    net = Net(vhosts=ANYBODY)
    client = net.client()
    net.pump()
    first = client.uttered[8 : 8 + int.from_bytes(client.uttered[8:12], "big")]
    client.say(bytes(first))
    net.pump()
    assert client.is_closed_by_router
    assert net.ledger.vhost_stats("$default")["connectionsApproved"] == 1
    assert [event["reason"] for event in net.audits] == ["malformed_frame"]
    client.kill()
    net.pump()
    assert net.ledger.vhost_stats("$default")["connectionsCurrent"] == 0
