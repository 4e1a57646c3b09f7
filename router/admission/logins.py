"""The results of logins, for the code that counts them. Pure."""

from typing import Literal, Protocol

Result = Literal["accepted", "refused", "unavailable"]


class LoginCounts(Protocol):
    """Gets each login: its mechanism, its result, and the seconds since its credentials came; None: none came."""

    def __call__(self, mechanism: str | None, result: Result, seconds: float | None, /) -> None: ...


def count_nothing(_mechanism: str | None, _result: Result, _seconds: float | None) -> None:
    """Ignores the result: the default."""
