"""A listener's attributes, as its clients meet them in the Open and the Begin."""

from collections.abc import Mapping
from typing import Any

import pytest
from memory_net import Client, Net, Vhosts

from router.connection.terms import Listener, ask_nobody, listener_of

DEFAULTS: dict[str, Any] = {
    "name": "l", "host": "127.0.0.1", "port": "5672", "role": "normal", "cost": 1, "maxFrameSize": 16384,
    "maxSessions": 32768, "idleTimeoutSeconds": 16, "initialHandshakeTimeoutSeconds": 0, "stripAnnotations": "both",
    "requireSsl": False, "requireEncryption": False, "authenticatePeer": False, "multiTenant": False,
    "messageLoggingComponents": "none", "maxConnectionAgeSeconds": 0,
}  # fmt: skip


def made(attributes: Mapping[str, Any]) -> Listener:
    return listener_of(attributes, tls=None, mechanisms=lambda _: (), verify=ask_nobody)


def met(**attributes: Any) -> Client:
    net = Net()
    net.listener = lambda **_: made({**DEFAULTS, **attributes})  # type: ignore[method-assign]
    client = net.client()
    net.pump()
    return client


@pytest.mark.parametrize(("configured", "offered"), [(16384, 16384), (300, 512), (512, 512), (100_000, 100_000)])
def test_max_frame_size(configured: int, offered: int) -> None:
    """routing 6"""
    assert met(maxFrameSize=configured).frames("open")[0][2] == offered


@pytest.mark.parametrize(("configured", "offered"), [(32768, 32767), (10, 9), (1, 0), (0, 32767), (40_000, 32767)])
def test_channel_max(configured: int, offered: int) -> None:
    """routing 7"""
    assert met(maxSessions=configured).frames("open")[0][3] == offered


def test_a_group_may_have_more_sessions_than_the_listener() -> None:
    groups = {"everybody": {"users": "*", "remoteHosts": "*", "maxSessions": 4}}
    net = Net(vhosts=Vhosts({"$default": {"groups": groups}}), channel_max=1)
    client = net.client()
    for _ in range(3):
        client.connection.session().open()
    net.pump()
    assert client.frames("open")[0][3] == 3
    assert len(client.frames("begin")) == 4
    assert not client.is_closed_by_router


@pytest.mark.parametrize(("configured", "offered"), [(16, 8000), (0, None), (60, 30_000)])
def test_idle_timeout(configured: int, offered: int | None) -> None:
    """routing 8"""
    assert (met(idleTimeoutSeconds=configured).frames("open")[0][4] or None) == offered


def test_session_window() -> None:
    """routing 10: set; unset it is the bytes that we are willing to hold, not 2^31-1 frames (listener.py says why)"""
    assert met(maxSessionFrames=10).frames("begin")[0][2] == 10
    assert met().frames("begin")[0][2] == 512


def test_cost_is_told_when_it_is_more_than_one() -> None:
    """routing 11"""
    assert "qd.inter-router-cost" not in met().frames("open")[0][9]
    properties = met(cost=7).frames("open")[0][9]
    assert list(properties) == ["product", "version", "qd.conn-id", "qd.inter-router-cost"]
    assert properties["qd.inter-router-cost"] == 7


def test_open_properties_follow_with_their_types() -> None:
    """routing 12"""
    mine = {"text": "v", "number": 7, "large": 2**40, "real": 1.5, "yes": True, "none": None}
    mine |= {"list": [1], "map": {"k": 1}}
    properties = met(openProperties=mine).frames("open")[0][9]
    assert list(properties)[3:] == list(mine)
    assert {key: properties[key] for key in mine} == mine
    assert isinstance(properties["yes"], bool)


@pytest.mark.parametrize(
    ("role", "strip", "strips"),
    [("normal", "both", (True, True)), ("normal", "in", (True, False)), ("route-container", "out", (False, True)),
     ("normal", "no", (False, False)), ("inter-router", "both", (False, False)), ("edge", "both", (False, False))],
)  # fmt: skip
def test_strip_annotations(role: str, strip: str, strips: tuple[bool, bool]) -> None:
    """routing 99: off for routers (§1.1)"""
    listener = made({**DEFAULTS, "role": role, "stripAnnotations": strip})
    assert (listener.strips_in, listener.strips_out) == strips


def test_link_capacity() -> None:
    """routing 61"""
    client = met(linkCapacity=33)
    sender = client.sender(None)
    client.net.pump()
    assert sender.credit == 33
