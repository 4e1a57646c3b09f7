"""The core names what it uses of the engine, and the engine has it. mypy compares the types: Peer hands them over."""

import pytest

from router.amqp import engine
from router.core import ports


def members(port: type) -> set[str]:
    classes = [base for base in port.__mro__ if base.__module__ == ports.__name__]
    return {name for base in classes for name in vars(base) if not name.startswith("_")}


@pytest.mark.parametrize(
    ("port", "of_engine"),
    [
        (ports.Engine, engine.Engine),
        (ports.Owner, engine.Owner),
        (ports.IncomingWire, engine.IncomingWire),
        (ports.OutgoingWire, engine.OutgoingWire),
    ],
)
def test_the_engine_has_what_the_core_uses_of_it(port: type, of_engine: type) -> None:
    assert len(members(port)) > 1
    assert {name for name in members(port) if not hasattr(of_engine, name)} == set()
