"""`$management`: requests arrive as deliveries, replies leave as messages to their reply-to.

One request is answered at a time. A long one, a QUERY of many rows, is done in slices between which messages are
routed. A page delays routing by at most 5 ms. Sources: docs/spec/management.md §5.1, §7.1, §7.2.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

from policy.addressing.address import MANAGEMENT_TEXTS, Address
from router.amqp.codec import CodecError, Message, decode_message, encode_message
from router.amqp.encoding import Encoded, encode, encoded_list
from router.core.core import Core
from router.core.in_links import InLink, is_over_budget
from router.effects import Emit, Log, Refused, log
from router.faults import fault_text
from router.io.host_names import KnownNames, NameWanted
from router.io.turns import turn
from router.management.agent import Agent, QueryRows, Request, Requester, Response
from router.values import int_

# Stops a client that asks faster than it is answered from filling the memory with its requests.
MAX_WAITING: Final = 256
_BUSY: Final = Response(status=500, description="Busy: too many management requests are waiting", body={})
_UNREAD: Final = Response(status=500, description="Busy: answers to earlier requests have not been read", body={})


class RequesterOf(Protocol):
    def __call__(self, connection_id: int, /, *, is_direct: bool) -> Requester: ...


@dataclass(frozen=True, slots=True)
class _Question:
    """A request that is to be answered.

    requester  the requester when it asked
    asker      the link that gets its credit back with the answer; None: the link has its credit already
    """

    message: Message
    reply_to: Address
    requester: Requester
    asker: InLink | None


@dataclass(slots=True)
class _Rows:
    """Encoded rows of a reply that is not complete."""

    source: QueryRows
    content: bytearray = field(default_factory=bytearray)
    count: int = 0

    def fill(self) -> bool:
        """Makes rows for one slice of time. Returns True when there are no more rows."""
        has_time = turn()
        for row in self.source.rows:
            if row is not None:
                self.content += encode(row)
                self.count += 1
            if not has_time():
                return False
        return True

    def response(self) -> Response:
        body = self.source.body(Encoded(encoded_list(self.content, self.count)))
        return Response(status=200, description="OK", body=body, count=self.source.counted(self.count))


class ManagementService:
    """The consumer of the management addresses, inside the router."""

    def __init__(
        self,
        core: Core,
        agent: Agent,
        requester_of: RequesterOf,
        reply_address: Callable[[InLink, str], Address | None],
        emit: Emit,
        finish: Callable[[], None],
        names: KnownNames,
    ) -> None:
        """requester_of  (connection id, is the request its peer's own?) → its present rights, even if it is closed
        reply_address  (link of the request, its reply-to) → the address of the reply; None: it is not permitted
        finish       sends messages that were made outside a pass of the loop
        names        host names, as far as the current request has needed them
        """
        self._reply_address = reply_address
        self._core = core
        self._agent = agent
        self._requester_of = requester_of
        self._emit = emit
        self._finish = finish
        self._names = names
        self._waiting: deque[_Question] = deque()
        self._task: asyncio.Task[None] | None = None
        for text in MANAGEMENT_TEXTS:
            core.subscribe(text, self.on_message)
        for name in ("M/$management", "L/$management"):
            log(emit, "ROUTER_CORE", "info", f"In-process subscription {name}")

    def on_message(self, payload: bytes, link: InLink) -> bool:
        """Takes one request, which has been accepted. Without a reply-to there is no answer (§7.1).

        Returns True if the link's credit comes back with the answer. Clients' credit does, so that a client that does
        not read its answers gets no more than its window of them. Routers' credit does not, because their links carry
        the messages of many clients.
        """
        try:
            message = decode_message(payload)
        except CodecError as error:
            line = Log(module="AGENT", level="error", text=f"Error performing request: {error}")
            facts = self._requester_of(link.attachment.connection_id, is_direct=_is_direct(link)).facts
            what = "Error performing request: it cannot be read"
            self._emit(Refused(stage="management", facts=facts, lines=(line,), what=what))
            return False
        if not message.reply_to:
            return False
        reply_to = self._reply_address(link, message.reply_to)
        if reply_to is None:
            return False
        requester = self._requester_of(link.attachment.connection_id, is_direct=_is_direct(link))
        asker = link if not link.attachment.is_neighbour else None
        question = _Question(message, reply_to, requester, asker)
        if self._task is None:
            rest = self._answer(question)
            if rest is not None:
                self._task = asyncio.get_running_loop().create_task(self._work_off(question, rest))
        elif len(self._waiting) < MAX_WAITING:
            self._waiting.append(question)
        else:
            self._reply(question, _BUSY)
        return asker is not None

    def _answer(self, question: _Question) -> _Rows | NameWanted | None:
        """Performs a request and replies. Returns what it still needs, None when it is complete.

        The requester's rights are asked for again; its connection may be gone.
        """
        message, requester = question.message, question.requester
        if question.asker is not None and is_over_budget(question.asker):
            # Attack: a client requests large answers and reads none. Requests that were taken earlier keep no answer.
            self._reply(question, _UNREAD)
            return None
        now = requester
        if requester.connection_id is not None:
            now = self._requester_of(requester.connection_id, is_direct=requester.is_direct)
        request = Request(
            properties=message.application_properties,
            body=message.body,
            requester=now if now.facts else replace(now, facts=requester.facts),
        )
        try:
            response = self._agent.begin(request)
        except NameWanted as wanted:
            return wanted
        self._names.forget()
        if not isinstance(response.body, QueryRows):
            self._reply(question, response)
            return None
        rows = _Rows(response.body)
        return None if self._fill(question, rows) else rows

    def _fill(self, question: _Question, rows: _Rows) -> bool:
        """Makes one slice of a reply's rows. Returns True when the reply has been sent."""
        try:
            if not rows.fill():
                return False
        except Exception as error:  # the router continues, and the client learns nothing about its inside
            self._reply(question, self._agent.failed(error))
            return True
        self._reply(question, rows.response())
        return True

    async def _work_off(self, question: _Question, rest: _Rows | NameWanted | None) -> None:
        """Does the rest of a request, then the requests that have come in between."""
        try:
            while rest is not None or self._waiting:
                await asyncio.sleep(0)
                try:
                    if rest is None:
                        question = self._waiting.popleft()
                        rest = self._answer(question)
                    elif isinstance(rest, NameWanted):
                        await self._names.look_up(rest.name)
                        rest = self._answer(question)
                    elif self._fill(question, rest):
                        rest = None
                except Exception as error:  # our own fault ends only this request, not those that wait
                    rest = None
                    log(self._emit, "AGENT", "error", f"A request was not answered: {fault_text(error)}")
                    if question.asker is not None:
                        question.asker.owe()
                self._finish()
        finally:
            self._task = None

    def _reply(self, question: _Question, response: Response) -> None:
        message = question.message
        try:
            reply = _encoded(message, response)
        except CodecError as error:  # an echo of something that is nested as deep as a value may be
            reply = _encoded(message, self._agent.failed(error))
        self._core.send(question.reply_to, reply, asker=question.asker)


def _is_direct(link: InLink) -> bool:
    """Returns True if the peer itself made the request. An edge has a link to the agent for its own requests."""
    attachment = link.attachment
    return not attachment.is_trunk and (not attachment.is_edge or link.address is not None)


def _encoded(message: Message, response: Response) -> bytes:
    properties: dict[str, object] = {"statusCode": int_(response.status), "statusDescription": response.description}
    if response.count is not None:
        properties |= {"count": int_(response.count), "identity": "self"}
    return encode_message(
        to=message.reply_to,
        raw_correlation_id=message.raw_correlation_id,
        application_properties=properties,
        body=response.body,
    )
