"""Answers sessions and links that a router begins by itself on a management tool's connection.

A router attaches its auto links to every peer that connects to a listener of role route-container. Links on which the
router would receive are accepted, because the tool never sends on them. Links on which it would send are refused: it
would send messages of its users, which the tool does not settle. Source: AMQP 1.0 part 2.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from router.values import Described, symbol, uint, ulong, ushort

_BEGIN, _ATTACH, _DETACH, _END = 0x11, 0x12, 0x16, 0x17
_ERROR: Final = 0x1D
# Attack: a router that begins sessions or attaches links without end. It may use this number of channels in addition to
# our own session's, and handles up to this number on each.
MAX_SESSIONS: Final = 31
MAX_HANDLE: Final = 255
_REFUSAL: Final = Described(ulong(_ERROR), [symbol("amqp:not-allowed"), "this client takes no messages of users"])


class TooMany(Exception):
    """The peer has used a channel or a handle that it may not use."""


@dataclass(slots=True)
class _Session:
    """One session that the peer began.

    refused  handles whose Detach we have sent, and the peer has not answered
    """

    channel: int
    refused: set[int] = field(default_factory=set)


class PeerSessions:
    """The sessions that the peer began on one connection.

    send  (performative, fields, our channel)
    """

    def __init__(self, send: Callable[[int, list[Any], int], None]) -> None:
        self._send = send
        self._sessions: dict[int, _Session] = {}  # by the peer's channel

    def __contains__(self, channel: int) -> bool:
        return channel in self._sessions

    def begin(self, channel: int) -> None:
        """Accepts a session that the peer begins on its channel."""
        taken = {session.channel for session in self._sessions.values()}
        own = next((free for free in range(1, MAX_SESSIONS + 1) if free not in taken), None)
        if own is None or channel in self._sessions:
            raise TooMany
        self._sessions[channel] = _Session(own)
        none = uint(0)
        self._send(_BEGIN, [ushort(channel), none, uint(1), uint(1), uint(MAX_HANDLE)], own)

    def on_frame(self, channel: int, performative: int, fields: list[Any]) -> None:
        """Handles a frame of one of these sessions. Flows and dispositions need no answer."""
        session = self._sessions[channel]
        if performative == _END:
            del self._sessions[channel]
            self._send(_END, [], session.channel)
        elif performative in (_ATTACH, _DETACH):
            handle = fields[1 if performative == _ATTACH else 0]
            if not isinstance(handle, int) or not 0 <= handle <= MAX_HANDLE:
                raise TooMany
            if performative == _ATTACH:
                self._attach(session, handle, fields)
            elif handle in session.refused:
                session.refused.remove(handle)
            else:
                self._send(_DETACH, [uint(handle), fields[1] is True], session.channel)

    def _attach(self, session: _Session, handle: int, fields: list[Any]) -> None:
        name, is_receiver, source, target = fields[0], fields[2] is True, fields[5], fields[6]
        answer = [name, uint(handle), not is_receiver, None, None, source, target if is_receiver else None]
        # The sender of the link gives its initial delivery-count.
        self._send(_ATTACH, [*answer, None, None, uint(0)] if is_receiver else answer, session.channel)
        if not is_receiver:
            session.refused.add(handle)
            self._send(_DETACH, [uint(handle), True, _REFUSAL], session.channel)
