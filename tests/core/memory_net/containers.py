"""Containers: clients to which link routes lead."""

from typing import Any

from memory_net.clients import Client
from memory_net.connected import Fleet
from memory_net.ends import Receiver, Sender
from memory_net.net import Net


def broker(net: Net, name: str = "broker", **terms: Any) -> Client:
    """A container that is open."""
    container = net.client(name, role="route-container", **terms)
    net.pump()
    return container


def broker_at(fleet: Fleet, router: str, name: str = "broker", **terms: Any) -> Client:
    """A container at one router that all know of."""
    container = fleet[router].client(name, role="route-container", **terms)
    fleet.tick(2)
    return container


def receiver_of(container: Client, at: int = -1) -> Receiver:
    """Of the links that the router attached to a container the one of that number; there the container receives."""
    end = container.attached_by_router[at]
    assert isinstance(end, Receiver)
    return end


def sender_of(container: Client, at: int = -1) -> Sender:
    """The same where the container sends."""
    end = container.attached_by_router[at]
    assert isinstance(end, Sender)
    return end
