"""The sites of HTTP listeners, made from the listeners' attributes. Source: docs/spec/routing.md §2; docs/http.md."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from router.control.router import Router
from router.effects import AuditEvent, Emit, log
from router.management.requests import ManagementError

if TYPE_CHECKING:
    from router.control.web_pulse import WebPulse
    from router.web.site import Site

# Attributes without effect on listeners without http, each with its default.
_OF_WEB: Final = {"websockets": True, "healthz": True, "metrics": True, "metricsAuth": "off", "httpOrigins": None}


# The console's built files; they are missing if the router was installed without npm.
CONSOLE: Final = Path(__file__).parent.parent / "web" / "console" / "dist"


def is_of_web(attributes: Mapping[str, Any]) -> bool:
    """Returns True if the listener speaks HTTP."""
    return bool(attributes.get("http") or attributes.get("httpRootDir"))


class WebSites:
    """The sites of all HTTP listeners. Before the first of them, no HTTP code is loaded and nothing is counted.

    rows, extra      see WebPulse
    is_auth_service  the peers are routers that ask who their clients are
    """

    def __init__(
        self,
        router: Router,
        rows: Callable[[], Iterator[Mapping[str, Any] | None]],
        extra: Callable[[], Mapping[str, int]],
        emit: Emit,
        *,
        is_auth_service: bool,
    ) -> None:
        self._router = router
        self._rows = rows
        self._extra = extra
        self._emit = emit
        self._pulse: WebPulse | None = None
        self.is_auth_service = is_auth_service

    def on_event(self, event: AuditEvent) -> None:
        """Counts an audit event."""
        if self._pulse is not None:
            self._pulse.on_event(event)

    def made(self, attributes: Mapping[str, Any], user: str) -> "Site | None":
        """Returns the site; None if the listener speaks AMQP. Errors: ManagementError.

        user  the name of the listener in errors
        """
        if not is_of_web(attributes):
            self._warn_of_web(attributes, user)
            return None
        if self.is_auth_service:
            raise ManagementError(400, f"{user}: an authentication service has no http listeners", "http")
        from router.control.web_files import WebFiles
        from router.control.web_pulse import WebPulse
        from router.web.origins import read_origins
        from router.web.site import Site

        is_guarded = attributes.get("metricsAuth") == "basic"
        if is_guarded and attributes.get("saslPlugin"):
            text = f"{user}: metricsAuth is basic, and a remote service (saslPlugin) compares no password of HTTP"
            raise ManagementError(400, text, "metricsAuth")
        try:
            origins = read_origins(attributes.get("httpOrigins") or "")
        except ValueError as error:
            raise ManagementError(400, f"{user}: httpOrigins: {error}", "httpOrigins") from None
        root = attributes.get("httpRootDir")
        if root and not Path(root).is_dir():
            self._warn(f"{user}: httpRootDir {root} is no folder: every file of it is missing until it is one")
        served = root or (CONSOLE if (CONSOLE / "index.html").is_file() else None)
        if self._pulse is None:
            self._pulse = WebPulse(self._router, self._rows, self._extra)
        return Site(
            pulse=self._pulse,
            files=WebFiles(str(served)) if served else None,
            has_websockets=bool(attributes["websockets"]),
            has_healthz=bool(attributes["healthz"]),
            has_metrics=bool(attributes["metrics"]),
            is_metrics_guarded=is_guarded,
            origins=origins,
        )

    def _warn_of_web(self, attributes: Mapping[str, Any], user: str) -> None:
        given = [name for name, unset in _OF_WEB.items() if (attributes.get(name) or None) != (unset or None)]
        if given:
            self._warn(f"{user}: {', '.join(given)} without http: no effect, the listener speaks AMQP alone")

    def _warn(self, text: str) -> None:
        log(self._emit, "CONN_MGR", "warning", text)
