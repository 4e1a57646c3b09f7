"""One accepted connection of an HTTP listener: TLS, HTTP, WebSocket, and then the same SASL and AMQP as over TCP.

A peer that only asks for pages never counts as open. The router counts, charges and times it like a peer before its
Open. Sources: docs/spec/routing.md §2; docs/http.md.
"""

from base64 import b64decode
from binascii import Error as NotBase64
from collections.abc import Callable
from email.utils import formatdate
from typing import Final

from auth.credentials import Answer as Verdict
from auth.credentials import CheckPassword, VerifyResult
from auth.identity import Identity
from auth.mechanisms import parse_plain
from router.amqp.headers import Protocol
from router.amqp.terminus import Condition
from router.connection.accepted import Connection
from router.connection.ends import End, HeaderEnd, NoEnd
from router.connection.pace import Pace, is_wrong
from router.connection.stack import FRAMING, Stage
from router.connection.terms import HANDSHAKE_LIMIT_S
from router.effects import Log, RouterReason
from router.web.answers import Answer, text_answer
from router.web.layer import FAILED, WebLayer, WebReason
from router.web.limits import WEB_BYTES
from router.web.requests import Request
from router.web.site import Site

_FIRST_OF_TLS: Final = 0x16
_BASIC: Final = "HTTP-BASIC"  # in the metrics, next to the mechanisms of SASL
_POLICY: Final = "amqp:connection:policy-error"
_UNAUTHORIZED: Final = "amqp:unauthorized-access"
_TOO_LATE: Final = Condition(name="amqp:not-allowed", description="Timeout of an HTTP request or its response")
_ASK: Final = ("www-authenticate", 'Basic realm="metrics", charset="UTF-8"')
_WHO: Final = text_answer(401, "a user and a password are wanted", _ASK)


class _FirstByte:
    """The end of a connection before its first byte: TLS or HTTP follows."""

    __slots__ = ("_begin",)

    def __init__(self, begin: Callable[[bytes], bytes]) -> None:
        self._begin = begin

    def receive(self, data: bytes) -> bytes:
        return self._begin(data)


class WebConnection(Connection):
    """A connection of a listener that has a site."""

    _web: WebLayer | None = None
    _is_answering = False
    _asked: Request | None = None  # the request that waits for a login

    @property
    def _site(self) -> Site:
        assert self.listener.site is not None
        return self.listener.site

    def _first_end(self) -> End:
        return _FirstByte(self._begin_web)

    def opened(self) -> None:
        if self._web is not None:
            self._web.know()
        super().opened()

    @property
    def tells_why(self) -> bool:
        return self._web is not None or super().tells_why

    @property
    def _is_plain(self) -> bool:
        """Returns True if the peer speaks HTTP, or has sent nothing yet."""
        return self._web is None or not self._web.is_established

    # Layers

    def _begin_web(self, data: bytes) -> bytes:
        """Takes the first bytes of the socket, or the first bytes inside TLS."""
        if self.tunnel is None and data[0] == _FIRST_OF_TLS:
            return self._begin_tls(data, Protocol.TLS_RECORD)
        web = self._web = WebLayer(self, self.core.clock, is_secure=self.tunnel is not None)
        self.layers.add(web, self._on_upgraded, self._hold)
        self._end = NoEnd()
        self.core.set_timer(self, web.deadline)
        return self.layers.receive_last(data)

    def _begin(self, protocol: Protocol, data: bytes) -> bytes:
        # TLS would be inside WebSocket: no client uses that, and the tunnel would be mistaken for the socket's.
        if protocol in (Protocol.TLS_RECORD, Protocol.AMQP_TLS):
            self._refuse_header(protocol)
            return b""
        return super()._begin(protocol, data)

    def _on_upgraded(self) -> None:
        """Begins the login after the upgrade to WebSocket, with the same time limit as on an AMQP port."""
        self._deadline = self.core.clock() + self.listener.handshake_timeout_s
        self._pace = Pace(self.gate, self.core, self._deadline)
        self._end = HeaderEnd(self._begin)
        self._hold()
        self.core.set_timer(self, self._deadline)

    def _hold(self, pending: int = 0) -> None:
        if (web := self._web) is not None:
            pending += WEB_BYTES + web.held_bytes
            if not web.is_established:
                pending += self.unsent_bytes()
        super()._hold(pending)

    def set_blocked(self, is_blocked: bool, unsent_bytes: Callable[[], int] = lambda: 0) -> None:
        super().set_blocked(is_blocked, unsent_bytes)
        if (web := self._web) is not None and not web.is_established:
            web.set_blocked(is_blocked)
            if not is_blocked:
                self.go_on()

    # Time

    def on_timer(self, now: float) -> float | None:
        web = self._web
        if web is None or web.deadline is None or self.is_closed:
            return super().on_timer(now)
        if now < web.deadline:
            return web.deadline
        was_idle = web.is_idle
        web.time_out()
        self.layers.write_last()
        if was_idle:
            self.shut()
        else:
            self.fail(_TOO_LATE, "handshake_timeout")
        return None

    # The host of the layer

    def dated(self) -> str:
        return formatdate(self.surroundings.wall_clock(), usegmt=True)

    def answer(self, request: Request) -> None:
        self._is_answering = True
        try:
            if self.tunnel is None and self.listener.tls is not None and self.listener.requires_encryption:
                self._note("encryption_required", "HTTP without TLS on a listener with requireSsl")
                self._respond(text_answer(400, "this port speaks TLS", closes=True))
            elif request.wants_upgrade:
                self._upgrade(request)
            elif self._site.is_guarded(request):
                self._log_in(request)
            else:
                self._site.answer(request, self._respond)
        finally:
            self._is_answering = False

    def _respond(self, answer: Answer) -> None:
        """Answers the current request, at once or later."""
        if (web := self._web) is None or self.is_closed:
            if answer.source is not None:
                answer.source.close()
            return
        try:
            web.respond(answer)
        except Exception as error:
            self.crash(error)
        if not self._is_answering:
            self.go_on()

    def go_on(self) -> None:
        """Writes an answer that became ready after its read, and continues with data that has come since then."""
        web = self._web
        if web is None:
            return
        try:
            self.layers.write_last()
            web.go_on(self.core.work.begin_turn())
            self.layers.write_last()
            if web.has_more:
                self.on_behind()
            if not self.is_closed:
                self._hold()
        except Exception as error:
            self.crash(error)
        self.core.work.finish()

    def broken(self, reason: WebReason, why: str) -> None:
        self.fail(Condition(name=FRAMING, description=why), reason)

    def ended(self) -> None:
        if not self._is_plain and not self.is_closed and not self._is_reported:
            self._survive(self._record_lost)
        self._is_reported = True
        self.shut()

    def _note(self, reason: RouterReason, why: str, name: str = _POLICY) -> None:
        """Records a refusal. The peer then gets an HTTP answer, and the connection ends."""
        self._is_reported = True
        self._record(Condition(name=name, description=why), reason, ())

    # WebSocket

    def _upgrade(self, request: Request) -> None:
        web, site = self._web, self._site
        assert web is not None
        if not site.has_websockets:
            self._refuse_upgrade("websocket_refused", text_answer(403, "there is no WebSocket here", closes=True))
            return
        found = site.may_upgrade(request, is_secure=self.tunnel is not None)
        if isinstance(found, Answer):
            reason: RouterReason = "origin_refused" if found.status == 403 else "websocket_refused"
            self._refuse_upgrade(reason, found, request.headers.get("origin", "") if found.status == 403 else "")
        elif self._expel_where_banned():
            return
        elif not self.gate.gate.take_in(self.gate):
            self._is_reported = True
            self._respond(text_answer(503, "there are too many connections", closes=True))
        else:
            web.upgrade(found.protocol, found.key)

    def _refuse_upgrade(self, reason: RouterReason, answer: Answer, origin: str = "") -> None:
        why = answer.body.decode().strip()
        self._note(reason, f"{why}: {origin[:200]}" if origin else why)
        self._respond(answer)

    # Login by HTTP Basic, which works like SASL PLAIN

    def _log_in(self, request: Request) -> None:
        credentials = _basic(request.headers.get("authorization", ""))
        web = self._web
        assert web is not None
        if credentials is None:
            self._respond(_WHO)
            return
        if "PLAIN" not in self.listener.mechanisms(self._channel()):
            self._respond(text_answer(403, "this listener takes no passwords on this channel", closes=True))
            return
        self._asked, self.stage, self._claimed_user = request, Stage.SASL, credentials.user
        web.deadline = self.core.clock() + HANDSHAKE_LIMIT_S
        self._pace = Pace(self.gate, self.core, web.deadline)
        self._pace.begin(credentials)
        if not self._expel_where_banned():
            verify, host = self.listener.verify, self.gate.remote_host
            self._give_up = verify(credentials, host, self._begins_verification, self._on_verified)

    def _hand_on(self, answer: Verdict) -> None:
        request, self._asked = self._asked, None
        if request is None:
            super()._hand_on(answer)
            return
        was_held, self._give_up = self._give_up is not None, None
        try:
            if not (was_held and not is_wrong(answer) and self._expel_where_banned()):
                self._answer_login(request, answer)
        except Exception as error:
            self.crash(error)
        self.core.work.finish()

    def _answer_login(self, request: Request, answer: Verdict) -> None:
        if isinstance(answer, VerifyResult) and answer.is_valid:
            self._pace.succeed(_BASIC)
            self.stage = Stage.SNIFF
            self._site.answer(request, self._respond)
            return
        self.gate.identity = Identity(user=self._claimed_user, mechanism="PLAIN")
        self._pace.conclude(_BASIC, "refused" if is_wrong(answer) else "unavailable")
        if is_wrong(answer):
            self._note("sasl_failed", "HTTP Basic: the user or the password is wrong", _UNAUTHORIZED)
            self._respond(text_answer(401, "the user or the password is wrong", _ASK, closes=True))
        else:
            self._note("verifier_unavailable", "HTTP Basic: nothing was compared", _UNAUTHORIZED)
            self._respond(text_answer(503, "the login could not be verified", closes=True))

    # The end

    def fail(self, condition: Condition, reason: RouterReason, *lines: Log) -> None:
        self._tell_end(condition)
        super().fail(condition, reason, *lines)

    def expel(self, condition: Condition) -> None:
        self._tell_end(condition)
        super().expel(condition)

    def _tell_end(self, condition: Condition) -> None:
        if self._web is not None:
            self._web.closes_with = (FAILED, str(condition))

    def _record_lost(self) -> None:
        """Records a peer that leaves. A peer that only used HTTP may leave at any time."""
        if self._web is None or self._web.is_established or self.stage is Stage.SASL:
            super()._record_lost()

    def on_lost(self) -> None:
        super().on_lost()
        self._web = self._asked = None


def _basic(header: str) -> CheckPassword | None:
    """Returns the credentials of an Authorization header; None if it has no usable ones."""
    scheme, _, encoded = header.partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        user, separator, password = b64decode(encoded.strip(), validate=True).partition(b":")
    except (NotBase64, ValueError):
        return None
    found = parse_plain(b"\0" + user + b"\0" + password) if separator else None
    return found if isinstance(found, CheckPassword) else None
