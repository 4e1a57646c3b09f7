"""The interior's answers to look-ups of edges. Source: docs/spec/network.md §14.6."""

from collections.abc import Callable

from router.edge.effects import RejectMessage
from router.edge.messages import LookupReply, LookupRequest, Malformed, Message, lookup_reply, read_lookup_request

# (address, is_sender) -> the interior's information about it.
Find = Callable[[str, bool], LookupReply]


def nothing_found(_address: str, _is_sender: bool) -> LookupReply:
    return LookupReply(is_found=False, is_link_route=False, has_destinations=False)


def answer(message: Message, find: Find) -> tuple[LookupRequest, Message] | RejectMessage:
    """Returns the request and its reply, or the reason for refusing it."""
    try:
        request = read_lookup_request(message)
    except Malformed as error:
        return RejectMessage(description=f"Invalid address lookup request: {error}")
    return request, lookup_reply(request, find(request.address, request.is_sender))
