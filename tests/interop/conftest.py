"""Fixtures of the tests against real peers."""

from fixtures import certificates, client, router

__all__ = ["certificates", "client", "router"]
