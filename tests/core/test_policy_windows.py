"""Groups with validFrom and validUntil at the door: the wall clock decides, and the record says so."""

from memory_net import Net, Vhosts

from auth.identity import Identity
from router.admission.connection_gate import CONNECTION_REFUSED, ConnectionGate

END = "2023-11-14T22:13:30Z"  # ten seconds after the clock of a Net begins
TEMPORARY = {"users": "*", "remoteHosts": "*", "validUntil": END}
POLICY = Vhosts(
    vhosts={"$default": {"groups": {"temps": TEMPORARY, "$connector": {"validUntil": END}, "$default": {}}}}
)


def test_whoever_comes_after_the_end_is_refused() -> None:
    net = Net(vhosts=POLICY)
    early = net.client()
    net.advance(9.5)
    late_enough = net.client()
    net.pump()
    assert net.audits == []
    net.advance(0.5)
    late = net.client()
    net.pump()
    assert late.is_closed_by_router
    assert (late.condition.name, late.condition.description) == (  # type: ignore[union-attr]
        CONNECTION_REFUSED.condition,
        CONNECTION_REFUSED.description,
    )
    assert not early.is_closed_by_router
    assert not late_enough.is_closed_by_router
    assert net.ledger.vhost_stats("$default")["connectionsDenied"] == 1


def test_the_denial_is_recorded_with_the_window_and_the_time_that_was_judged() -> None:
    """A replay of the record at its time must come to the same decision."""
    net = Net(vhosts=POLICY)
    net.advance(10.0)
    net.client()
    net.pump()
    (audit,) = net.audit_effects
    assert audit.time_s == net.wall_s
    assert (audit.event["reason"], audit.event["group"]) == ("group_not_valid", "temps")
    assert audit.event["rule"] is not None
    assert audit.event["rule"]["item"] == f"validUntil: {END}"
    (text,) = (text for text in net.log_texts("POLICY") if text.startswith("DENY"))
    place = f"[group_not_valid: validUntil: {END} of group 'temps' of vhost '$default']"
    assert text.endswith(f"vhost '$default': User group is not valid at this time {place}")


def test_a_connector_group_that_is_over_refuses_the_server() -> None:
    net = Net(vhosts=POLICY)

    def adopt(now: float) -> tuple[bool, bool]:
        gate = ConnectionGate(
            net.gate,
            connection_id=7,
            connection_name="server:5672",
            remote_host="",
            listener="server:5672",
            is_governed=False,
            is_accepted=False,
        )
        refusal = gate.adopt_connector(Identity(user=None), policy_vhost="$default", is_encrypted=False, now=now)
        return refusal is None, gate.settings is not None

    assert adopt(net.wall_s + 9.9) == (True, True)
    assert adopt(net.wall_s + 10.0) == (False, False)
    (event,) = net.audits
    assert (event["reason"], event["rule"]["item"]) == ("group_not_valid", f"validUntil: {END}")
    expected = "[C7] No valid policyVhost settings for connection '7', policyVhost: '$default'"
    place = f"[group_not_valid: validUntil: {END} of group '$connector' of vhost '$default']"
    assert f"{expected} {place}" in net.log_texts("POLICY")
