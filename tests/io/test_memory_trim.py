"""Memory is given back to the system when much was held and is not any more; not for little, and not often."""

from router.io.memory import Trimmer

MIB = 1024 * 1024


class Held:
    def __init__(self) -> None:
        self.bytes = 0
        self.trims = 0
        self.trimmer = Trimmer(lambda: self.bytes)
        self.trimmer._trim = self._count

    def _count(self, _pad: int) -> int:
        self.trims += 1
        return 1

    def seconds(self, *held_mib: int, start: int = 100) -> int:
        for second, mib in enumerate(held_mib):
            self.bytes = mib * MIB
            self.trimmer.on_second(float(start + second))
        return self.trims


def test_after_a_flood() -> None:
    assert Held().seconds(0, 50, 50, 0, 0, 0) == 1


def test_not_for_little_or_while_it_lasts() -> None:
    assert Held().seconds(0, 5, 0, 5, 0) == 0
    assert Held().seconds(0, 50, 60, 70) == 0


def test_not_often() -> None:
    held = Held()
    assert held.seconds(50, 0, 50, 0, 50, 0, 50, 0) == 1
    assert held.seconds(50, 0, start=120) == 2


def test_the_system_s_own_trim_is_called() -> None:
    trimmer = Trimmer(lambda: 0)
    assert trimmer._trim(0) in (0, 1)
