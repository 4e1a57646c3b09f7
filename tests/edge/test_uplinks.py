"""Which connection is the uplink, and which links the edge opens on it."""

from one_edge import OneEdge

from router.edge.effects import AttachLink, End

NOWHERE = End()


def test_only_the_first_connection_of_an_edge_is_active() -> None:
    """network 80, 81: a stand-by has no links until the active one is lost."""
    edge = OneEdge()
    edge.open(7)
    assert edge.logs == ["Edge connection (id=7) to interior established"]
    assert {link.connection for link in edge.links} == {7}
    edge.forget()
    edge.open(8)
    edge.open(9)
    assert edge.effects == []
    edge.close(9)
    edge.open(9)
    edge.close(7)
    assert edge.logs == ["Edge connection (id=7) to interior lost, activating alternate id=8"]
    assert {link.connection for link in edge.links} == {8}
    assert len(edge.links) == 8
    edge.forget()
    edge.open(7)
    assert edge.effects == []
    edge.close(8)
    assert edge.logs == ["Edge connection (id=8) to interior lost, activating alternate id=9"]
    edge.close(7)
    edge.forget()
    edge.close(9)
    assert edge.logs == ["Edge connection (id=9) to interior lost, no alternate connection available"]
    assert edge.machine.uplink is None


def test_the_links_of_an_edge_come_in_their_order() -> None:
    """network 82"""
    edge = OneEdge()
    edge.address("M0orders", receives=True)
    edge.open(7)

    def shape(link: AttachLink) -> tuple[str, str, End | None, End | None, int]:
        return link.session, "send" if link.is_sender else "receive", link.source, link.target, link.credit

    downlink = "qd.router-edge-downlink"
    assert [shape(link) for link in edge.links] == [
        ("endpoint", "send", NOWHERE, NOWHERE, 0),
        ("endpoint", "receive", End(address="E1", capability=downlink), End(capability=downlink), 250),
        ("core", "receive", End(address="_$qd.edge_addr_tracking"), NOWHERE, 32),
        ("core", "send", None, End(address="$management"), 0),
        ("core", "receive", End(is_dynamic=True), None, 100),
        ("core", "send", None, End(address="_$qd.addr_lookup"), 0),
        ("core", "receive", End(is_dynamic=True), None, 250),
        ("core", "send", None, End(address="_$qd.edge_heartbeat"), 0),
        ("endpoint", "receive", End(address="orders"), NOWHERE, 250),
    ]
    assert len({link.link for link in edge.links}) == 9


def test_events_about_links_of_a_lost_uplink_change_nothing() -> None:
    edge = OneEdge()
    edge.address("M0orders", sends=True)
    edge.up(7)
    old = list(edge.links)
    edge.open(8)
    edge.close(7)
    edge.forget()
    for link in old:
        edge.answer(link)
        edge.take(edge.machine.link_detached(link.link))
    edge.wait(20)
    assert edge.effects == []


def test_a_service_that_the_interior_refuses_is_told_of_and_not_asked_again() -> None:
    edge = OneEdge()
    edge.up(7)
    heartbeat = edge.link("heartbeat")
    edge.forget()
    edge.take(edge.machine.link_detached(heartbeat.link))
    assert edge.logs == ["[C7] The interior router closed the heartbeat link of this edge"]
    edge.wait(10)
    assert edge.sent == []
    assert edge.links == []
