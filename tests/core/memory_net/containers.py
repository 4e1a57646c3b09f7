"""Containers: clients to which link routes lead."""

from typing import Any

from memory_net.clients import Client
from memory_net.connected import Fleet
from memory_net.ends import Receiver, Sender
from memory_net.net import Net


def broker(net: Net, name: str = "broker", **terms: Any) -> Client:
    """Returns an open container."""
    container = net.client(name, role="route-container", **terms)
    net.pump()
    return container


def broker_at(fleet: Fleet, router: str, name: str = "broker", **terms: Any) -> Client:
    """Returns a container at one router that all routers know."""
    container = fleet[router].client(name, role="route-container", **terms)
    fleet.tick(2)
    return container


def receiver_of(container: Client, at: int = -1) -> Receiver:
    """Returns the link number `at` that the router attached to a container. The container receives on it."""
    end = container.attached_by_router[at]
    assert isinstance(end, Receiver)
    return end


def sender_of(container: Client, at: int = -1) -> Sender:
    """Returns the link number `at` that the router attached to a container. The container sends on it."""
    end = container.attached_by_router[at]
    assert isinstance(end, Sender)
    return end
