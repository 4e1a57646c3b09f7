"""HTTP and WebSocket connections, in memory: what is answered, what is bounded, and what is left behind."""

from collections.abc import Callable

import pytest
from memory_net import Net, Vhosts
from web_net import (
    ACCEPT,
    AMQP,
    SASL,
    LargeFile,
    Pulse,
    WebPeer,
    anonymous,
    close_code,
    frame,
    frames_of,
    open_frame,
    request,
    site,
    websocket,
)

from auth.credentials import CheckPassword, MechanismRequest, VerifyResult
from router.connection.stack import Stage
from router.connection.terms import Done
from router.web import limits


@pytest.fixture
def net() -> Net:
    return Net()


def test_healthz_is_three_bytes_of_text(net: Net) -> None:
    """Checklist routing 30."""
    response = WebPeer(net, site()).get("/healthz")
    assert (response.status, response.body) == (200, b"OK\n")
    assert (response.headers["content-type"], response.headers["content-length"]) == ("text/plain", "3")
    assert response.headers["server"] == "qpid-dispatch-router"


def test_healthz_fails_where_the_core_does_not_work(net: Net) -> None:
    pulse = Pulse()
    pulse.is_fine = False
    assert WebPeer(net, site(pulse=pulse)).get("/healthz").status == 503


def test_metrics_close_the_connection(net: Net) -> None:
    """Checklist routing 31."""
    peer = WebPeer(net, site())
    response = peer.get("/metrics")
    assert (response.status, response.headers["connection"]) == (200, "close")
    assert response.headers["content-type"].startswith("text/plain")
    assert peer.is_closed


def test_metrics_that_take_a_while_come_when_they_are_made(net: Net) -> None:
    pulse = Pulse()
    pulse.is_slow = True
    peer = WebPeer(net, site(pulse=pulse))
    assert peer.get("/metrics").status == 0
    pulse.waiting[0](b"later\n")
    assert peer.read().endswith(b"\r\n\r\nlater\n")
    assert peer.is_closed


@pytest.mark.parametrize("path", ["/healthz", "/metrics"])
def test_what_is_off_is_not_found(net: Net, path: str) -> None:
    """Checklist routing 32."""
    assert WebPeer(net, site(has_healthz=False, has_metrics=False)).get(path).status == 404


def test_the_page_at_the_root_says_that_there_is_no_console(net: Net) -> None:
    peer = WebPeer(net, site())
    response = peer.get("/")
    assert response.status == 200
    assert b"console was not built" in response.body
    assert peer.get("/other").status == 404


def test_requests_follow_each_other_on_one_connection(net: Net) -> None:
    peer = WebPeer(net, site())
    peer.send(request("/healthz") * 3)
    assert peer.read().count(b"HTTP/1.1 200 OK") == 3
    assert not peer.is_closed


def test_a_head_has_no_body(net: Net) -> None:
    peer = WebPeer(net, site())
    response = peer.get("/healthz", method="HEAD")
    assert (response.status, response.body, response.headers["content-length"]) == (200, b"", "3")
    assert peer.get("/healthz").status == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "TRACE", "CONNECT"])
def test_other_methods_are_refused(net: Net, method: str) -> None:
    response = WebPeer(net, site()).get("/", method=method)
    assert response.status in (400, 405)


def test_every_response_forbids_scripts_of_others_and_to_be_embedded(net: Net) -> None:
    for target in ("/", "/nothing", "/healthz"):
        headers = WebPeer(net, site()).get(target).headers
        policy = headers["content-security-policy"]
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert "strict-transport-security" not in headers


@pytest.mark.parametrize("protocol", ["amqp", "binary", "mqtt, amqp", "binary, amqp"])
def test_amqp_passes_over_a_websocket(net: Net, protocol: str) -> None:
    """Checklist routing 33."""
    peer = WebPeer(net, site(), mechanisms=lambda _channel: ("ANONYMOUS",))
    response = peer.upgrade(protocol=protocol)
    assert response.status == 101
    assert response.headers["sec-websocket-accept"] == ACCEPT
    assert response.headers["sec-websocket-protocol"] == ("binary" if protocol == "binary" else "amqp")
    assert "sec-websocket-extensions" not in response.headers
    peer.send(frame(SASL + anonymous()))
    assert frames_of(peer.read())[0][1].startswith(SASL)
    peer.send(frame(AMQP + open_frame()))
    assert peer.router.is_open
    assert net.ledger.open_connections == 1
    peer.close()
    net.nothing_left()


def test_amqp_comes_in_any_pieces(net: Net) -> None:
    """Frames are not AMQP's: a header in two of them, an Open in fragments, a Ping in between."""
    peer = websocket(net)
    said = AMQP + open_frame()
    peer.send(frame(said[:3]) + frame(said[3:11]))
    peer.send(frame(said[11:20], first=0x02) + frame(b"are you there", first=0x89) + frame(said[20:25], first=0x00))
    for byte in frame(said[25:], first=0x80):
        peer.send(bytes((byte,)))
    assert peer.router.is_open
    assert (10, b"are you there") in frames_of(peer.read())


def test_upgrades_are_refused_where_websockets_are_off(net: Net) -> None:
    """Checklist routing 33."""
    peer = WebPeer(net, site(has_websockets=False))
    assert peer.upgrade().status == 403
    assert peer.is_closed
    assert [event["reason"] for event in net.audits] == ["websocket_refused"]


@pytest.mark.parametrize(
    ("options", "status"),
    [({"protocol": "mqtt"}, 400), ({"version": "8"}, 426), ({"key": "c2hvcnQ="}, 400), ({"key": "?"}, 400)],
)
def test_wrong_upgrades_are_refused(net: Net, options: dict[str, str], status: int) -> None:
    peer = WebPeer(net, site())
    assert peer.upgrade(**options).status == status
    assert peer.is_closed
    assert [(event["stage"], event["reason"]) for event in net.audits] == [("header", "websocket_refused")]


def test_an_upgrade_counts_against_max_connections_and_a_page_does_not() -> None:
    net = Net(vhosts=Vhosts(policy={"maxConnections": 1}))
    first = websocket(net)
    assert WebPeer(net, site()).get("/healthz").status == 200
    refused = WebPeer(net, site())
    assert refused.upgrade().status == 503
    assert refused.is_closed
    assert [event["reason"] for event in net.audits] == ["router_connection_limit"]
    first.close()
    assert net.ledger.open_connections == 0


def test_tls_inside_a_websocket_is_refused(net: Net) -> None:
    peer = websocket(net)
    peer.send(frame(b"\x16\x03\x01\x00\x05hello"))
    assert peer.stage is Stage.CLOSED
    assert close_code(peer.read())[0] == 1011


def test_a_clean_close_is_code_1000_and_a_failure_1011(net: Net) -> None:
    peer = websocket(net)
    peer.send(frame(AMQP + open_frame()))
    peer.read()
    peer.router.close_for_shutdown()
    net.work.finish()
    assert close_code(peer.read()) == (1000, "")

    other = websocket(net)
    other.send(frame(b"GET / HT"))
    code, why = close_code(other.read())
    assert code == 1011
    assert "Expected AMQP protocol header" in why


def test_a_close_of_the_peer_is_answered_and_ends_the_connection(net: Net) -> None:
    peer = websocket(net)
    peer.send(frame(AMQP + open_frame()))
    peer.read()
    peer.send(frame((1001).to_bytes(2, "big") + b"away", first=0x88))
    assert close_code(peer.read()) == (1001, "")
    assert peer.is_closed
    net.nothing_left()


def test_large_output_is_framed_in_large_pieces(net: Net) -> None:
    """A frame for each frame of AMQP would cost the browser and us as many reads."""
    peer = websocket(net)
    peer.send(frame(AMQP + open_frame()))
    peer.read()
    peer.router.layers.write(bytes(70_000))
    assert [len(payload) for _, payload in frames_of(peer.read())] == [70_000]


def test_a_body_waits_for_its_reader(net: Net) -> None:
    files = LargeFile(size=300)
    peer = WebPeer(net, site(files=files))
    peer.send(request("/big"))
    body = files.bodies[0]
    peer.router.set_blocked(True)
    body.give(bytes(100))
    assert body.asked is None
    peer.router.set_blocked(False)
    body.give(bytes(200))
    assert body.is_closed
    assert len(peer.read().partition(b"\r\n\r\n")[2]) == 300
    assert not peer.is_closed


def test_a_body_ends_with_its_connection(net: Net) -> None:
    files = LargeFile(size=300)
    peer = WebPeer(net, site(files=files))
    peer.send(request("/big"))
    peer.close()
    assert files.bodies[0].is_closed
    files.bodies[0].give(bytes(100))
    net.nothing_left()


def test_a_file_that_has_become_shorter_cuts_the_response_off(net: Net) -> None:
    files = LargeFile(size=300)
    peer = WebPeer(net, site(files=files))
    peer.send(request("/big"))
    files.bodies[0].give(b"")
    assert peer.is_closed


def asked(net: Net, is_right: bool) -> WebPeer:
    """A peer that wants metrics with a password."""
    asked_for: list[MechanismRequest] = []
    answers: list[Done] = []

    def verify(question: MechanismRequest, host: str, begins: Callable[[], bool], done: Done) -> Callable[[], None]:
        assert begins()
        asked_for.append(question)
        answers.append(done)
        return lambda: None

    net.verify = verify
    peer = WebPeer(net, site(is_metrics_guarded=True), mechanisms=lambda _channel: ("PLAIN",))
    peer.send(request("/metrics", "Authorization: Basic b3BzOnJpZ2h0"))  # ops:right
    assert [(each.user, each.password.reveal()) for each in asked_for if isinstance(each, CheckPassword)] == [
        ("ops", "right")
    ]
    answers[0](VerifyResult(is_valid=is_right, user="ops"))
    return peer


def test_metrics_with_basic_are_for_users(net: Net) -> None:
    anybody = WebPeer(net, site(is_metrics_guarded=True), mechanisms=lambda _channel: ("PLAIN",))
    response = anybody.get("/metrics")
    assert response.status == 401
    assert response.headers["www-authenticate"].startswith("Basic ")
    assert anybody.get("/healthz").status == 200


def test_a_right_password_shows_metrics(net: Net) -> None:
    assert b"qdr_connections_total" in asked(net, is_right=True).read()


def test_a_wrong_password_is_recorded_as_a_failed_login(net: Net) -> None:
    assert b"HTTP/1.1 401" in asked(net, is_right=False).read()
    assert [(event["stage"], event["reason"], event["user"]) for event in net.audits] == [
        ("sasl", "sasl_failed", "ops")
    ]
    assert any(type(effect).__name__ == "AdmissionFailed" for effect in net.effects)


def test_passwords_are_taken_only_where_sasl_takes_them(net: Net) -> None:
    peer = WebPeer(net, site(is_metrics_guarded=True), mechanisms=lambda _channel: ("SCRAM-SHA-256",))
    assert peer.get("/metrics", "Authorization: Basic b3BzOnJpZ2h0").status == 403


def test_an_idle_connection_ends_without_a_record(net: Net) -> None:
    peer = WebPeer(net, site())
    peer.get("/healthz")
    peer.look(limits.KEEP_ALIVE_S + 1)
    assert peer.is_closed
    assert not net.audits


def test_what_is_held_for_a_peer_is_told(net: Net) -> None:
    peer = WebPeer(net, site())
    peer.send(b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 20)
    assert peer.held > limits.WEB_BYTES
    waiting = peer.held
    peer.send(b"Host: h\r\n\r\n")
    assert peer.held < waiting
