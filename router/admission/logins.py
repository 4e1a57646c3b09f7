"""The results of logins, for whoever counts them. Pure."""

from typing import Literal, Protocol

Result = Literal["accepted", "refused", "unavailable"]


class LoginCounts(Protocol):
    """Is told of each login: its mechanism, its result, and the seconds from its credentials on; None: none came."""

    def __call__(self, mechanism: str | None, result: Result, seconds: float | None, /) -> None: ...


def count_nothing(_mechanism: str | None, _result: Result, _seconds: float | None) -> None:
    """Takes what nobody counts."""
