"""Multi-tenant listeners: each tenant's mobile addresses are its own (routing 46, policy 42)."""

from memory_net import ACCEPTED, REJECTED, Client, Net, Vhosts


def tenant(net: Net, hostname: str | None) -> Client:
    return net.client(hostname=hostname, is_multi_tenant=True)


def test_tenants_do_not_meet() -> None:
    """routing 46: the same address text is two addresses, `M0v/x` and `M0w/x`."""
    net = Net()
    mine, theirs = tenant(net, "v").receiver("x", credit=10, accepts=True), tenant(net, "w").receiver("x", credit=10)
    net.pump()
    sender = tenant(net, "v").sender("x")
    net.pump()
    sending = sender.send(b"hello", address="x")
    net.pump()
    assert sending.outcome == ACCEPTED
    assert len(mine.complete) == 1
    assert theirs.complete == []
    assert {"M0v/x", "M0w/x"} <= set(net.core.table.addresses)
    net.nothing_left()


def test_a_client_outside_meets_the_tenant_by_its_full_address() -> None:
    """routing 46: and sees the message's own `to` unchanged."""
    net = Net()
    outside = net.client().receiver("v/x", credit=10, accepts=True)
    net.pump()
    sender = tenant(net, "v").sender("x")
    net.pump()
    sender.send(b"hello", address="x")
    net.pump()
    assert [received.message.address for received in outside.complete] == ["x"]


def test_local_addresses_have_no_tenant() -> None:
    """routing 46: `_local/x` is unprefixed."""
    net = Net()
    receiver = tenant(net, "v").receiver("_local/x", credit=10, accepts=True)
    net.pump()
    sender = net.client().sender("_local/x")
    net.pump()
    sender.send(b"hello")
    net.pump()
    assert len(receiver.complete) == 1
    assert "Lx" in net.core.table.addresses


def test_anonymous_messages_stay_in_the_tenant() -> None:
    """routing 46: `to` of messages on anonymous links likewise."""
    net = Net()
    mine = tenant(net, "v").receiver("x", credit=10, accepts=True)
    net.client().receiver("x", credit=10, accepts=True)
    net.pump()
    sender = tenant(net, "v").sender(None)
    net.pump()
    sending = sender.send(b"hello", address="x")
    net.pump()
    assert sending.outcome == ACCEPTED
    assert len(mine.complete) == 1


def test_without_a_hostname_nothing_is_prefixed() -> None:
    """routing §3.4."""
    net = Net()
    receiver = tenant(net, None).receiver("x", credit=10, accepts=True)
    net.pump()
    sender = net.client().sender("x")
    net.pump()
    sender.send(b"hello")
    net.pump()
    assert len(receiver.complete) == 1


def test_policy_sees_the_tenants_form_on_anonymous_links_only() -> None:
    """policy 42: `<tenant>/<to>` is compared for messages, the client's own text for attaches."""
    group = {"users": "*", "remoteHosts": "*", "targets": "x, v/y", "sources": "x, y", "allowAnonymousSender": True}
    net = Net(vhosts=Vhosts(vhosts={"v": {"groups": {"all": group}}}))
    receiver = tenant(net, "v").receiver("y", credit=10, accepts=True)
    net.pump()
    sender = tenant(net, "v").sender(None)
    net.pump()
    allowed = sender.send(b"1", address="y")
    denied = sender.send(b"2", address="x")
    net.pump()
    assert (allowed.outcome, denied.outcome) == (ACCEPTED, REJECTED)
    assert len(receiver.complete) == 1
