"""What is left for the end of a pass (router.core.work)."""

from collections.abc import Callable
from typing import Any

from router.core.work import Work


class Held:
    """A connection that its budget holds back: it goes on after so many turns."""

    engine: Any = None  # it does not fail

    def __init__(self, turns: int) -> None:
        self.turns = turns

    def relieve(self, has_time: Callable[[], bool]) -> bool:
        self.turns -= 1
        return not self.turns


def test_who_is_relieved_goes_on_although_reads_have_used_up_every_turn() -> None:
    work = Work(lambda _: b"", begin_turn=lambda: lambda: False)
    first, second = Held(2), Held(1)
    work.relieved = {first: None, second: None}
    for left in (2, 1, 0):
        work.finish()
        assert len(work.relieved) == left
