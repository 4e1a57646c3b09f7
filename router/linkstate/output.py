"""Collects the effects of one event, and counts what each link and router causes in a tick."""

from collections import Counter
from collections.abc import Callable
from reprlib import Repr
from typing import Any, Final, cast

from router.effects import Log, LogLevel
from router.linkstate.effects import Effect, SendControl
from router.linkstate.limits import MAX_ROUTERS, Limits
from router.linkstate.messages import NewerVersion

# Attack: a body that fills the log, and takes long to write.
_SHORT: Final = Repr()
_SHORT.maxdict = _SHORT.maxlist = _SHORT.maxtuple = 8
_SHORT.maxstring = _SHORT.maxother = 128
_SHORT.maxlevel = 3
_MAX_SHOWN_CHARACTERS: Final = 1024


class Output:
    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self._effects: list[Effect] = []
        self._spent: Counter[tuple[str, int | str]] = Counter()
        self._warned: set[tuple[str, str]] = set()

    def take(self) -> list[Effect]:
        """Returns the effects since the last call."""
        effects, self._effects = self._effects, []
        return effects

    def add(self, effect: Effect) -> None:
        self._effects.append(effect)

    def log(self, module: str, level: str, text: str) -> None:
        self._effects.append(Log(module=module, level=cast(LogLevel, level), text=text))

    def send(self, links: tuple[int, ...], to: str, opcode: str, body: dict[str, Any]) -> None:
        self._effects.append(SendControl(links=links, to=to, opcode=opcode, body=body))

    def tick(self) -> None:
        self._spent.clear()

    def may(self, what: str, whose: int | str, limit: int, otherwise: Callable[[], None] | None = None) -> bool:
        """Counts one more of `what` in this tick.

        Returns True if it is allowed. The first one too many calls `otherwise`.
        """
        spent = self._spent[what, whose] = self._spent[what, whose] + 1
        if spent == limit + 1 and otherwise is not None:
            otherwise()
        return spent <= limit

    def complain(self, link: int, *lines: str) -> None:
        """Logs an error that a message on `link` caused."""
        if self.may("complaints", link, self.limits.complaints_per_link_and_tick):
            for line in lines:
                self.log("ROUTER", "error", line)

    def warn_of_version(self, module: str, message: NewerVersion) -> None:
        """Logs a warning once for each router. Attack: endless ids."""
        warning = (module, message.id)
        if warning not in self._warned and len(self._warned) < 2 * MAX_ROUTERS:
            self._warned.add(warning)
            text = f"Received {message.opcode} at protocol version {message.version} from {message.id}.  Ignoring."
            self.log(module, "warning", text)


def shortened(value: object) -> str:
    """Returns a `repr` of a peer's value with limited length, in one line."""
    return _SHORT.repr(value)[:_MAX_SHOWN_CHARACTERS]
