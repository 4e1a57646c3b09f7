"""The steps that every message takes through proton, each as one call of compiled code (steps.c).

This saves about twenty interpreter calls for each message. The code makes no decisions. Tests compare it with the same
steps in Python.
"""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from router.amqp.engine.library import MESSAGE_BYTES, MESSAGE_C, OUTPUT_BYTES, OUTPUT_C, Pointer, ffi, lib
from router.values import Handle

# The results of `first_event` and `next_event`. Events of CONTROL have their proton number, which is positive. All
# other events are skipped.
NOTHING: Final = 0
MESSAGE: Final = -1  # a complete message of less than MESSAGE_BYTES, without a state
OUTCOME: Final = -2  # the receiver has accepted and settled
TRANSFER: Final = -3  # any other change of a delivery
FLOW: Final = -4
CONTROL: Final = (
    lib.PN_CONNECTION_REMOTE_OPEN,
    lib.PN_SESSION_REMOTE_OPEN,
    lib.PN_SESSION_REMOTE_CLOSE,
    lib.PN_LINK_REMOTE_OPEN,
    lib.PN_LINK_REMOTE_DETACH,
    lib.PN_LINK_REMOTE_CLOSE,
    lib.PN_CONNECTION_REMOTE_CLOSE,
    lib.PN_TRANSPORT_ERROR,
)
# `pull` has taken everything if it took less than this. Proton gives at most one peer's frame at once, and at least
# that while it has more.
PULLS_ALL_BYTES: Final = 8 * 1024


class Steps(NamedTuple):
    """The compiled functions.

    step         after MESSAGE, OUTCOME and TRANSFER: `step.link`, `step.delivery`; after FLOW: `step.link`; after
                 NOTHING: `step.is_late` is True if the time has run out and there are more events
    set_slice    (nanoseconds) → from now on `next_event` stops that long after `first_event`; 0: never
    first_event  (collector) → the kind of the next event
    next_event   (collector) → the same, after removing the previous event
    take         (link) → bytes of its current message, which is now in the message buffer; the next message is current
    new_delivery (link) → a delivery with a new tag, to be filled
    send_whole   (link, bytes) → a complete delivery with the first bytes of the message buffer
    send_as      (link, bytes, origin) → the same with the tag of the delivery `origin`
    send_with    (link, bytes, at, inserted, inserted's length) → as send_whole, with `inserted` before the byte at `at`
                 ≤ bytes
    accept       (delivery): accepts and settles it
    pull         (transport, left) → bytes put into the output buffer; ≤ 0 if there are none. `left` of them belong to a
                 frame that began earlier; `step.left` is the same number for the next call. A Flow of a link that is
                 gone becomes a Flow of its session. A Flow of a session that is gone is left out. The reason: proton
                 sends a session's window by a link with a settled delivery, even if it has detached that link. A peer
                 closes the connection for an unknown handle or channel
    """

    step: Any
    set_slice: Callable[[int], None]
    first_event: Callable[[Pointer], int]
    next_event: Callable[[Pointer], int]
    take: Callable[[Pointer], int]
    new_delivery: Callable[[Pointer], Handle]
    send_whole: Callable[[Pointer, int], Handle]
    send_as: Callable[[Pointer, int, Handle], Handle]
    send_with: Callable[[Pointer, int, int, bytes, int], Handle]
    accept: Callable[[Handle], None]
    pull: Callable[[Pointer, int], int]


# In the order of the struct in steps.c.
PROTOTYPES: Final = {
    "pn_collector_peek": "struct pn_event_t *(*)(struct pn_collector_t *)",
    "pn_collector_pop": "_Bool(*)(struct pn_collector_t *)",
    "pn_event_type": "pn_event_type_t(*)(struct pn_event_t *)",
    "pn_event_delivery": "struct pn_delivery_t *(*)(struct pn_event_t *)",
    "pn_event_link": "struct pn_link_t *(*)(struct pn_event_t *)",
    "pn_delivery_link": "struct pn_link_t *(*)(struct pn_delivery_t *)",
    "pn_link_is_receiver": "_Bool(*)(struct pn_link_t *)",
    "pn_delivery_readable": "_Bool(*)(struct pn_delivery_t *)",
    "pn_delivery_partial": "_Bool(*)(struct pn_delivery_t *)",
    "pn_delivery_aborted": "_Bool(*)(struct pn_delivery_t *)",
    "pn_delivery_pending": "size_t(*)(struct pn_delivery_t *)",
    "pn_delivery_settled": "_Bool(*)(struct pn_delivery_t *)",
    "pn_delivery_remote_state": "uint64_t(*)(struct pn_delivery_t *)",
    "pn_delivery_update": "void(*)(struct pn_delivery_t *, uint64_t)",
    "pn_delivery_settle": "void(*)(struct pn_delivery_t *)",
    "pn_link_recv": "ssize_t(*)(struct pn_link_t *, char *, size_t)",
    "pn_link_send": "ssize_t(*)(struct pn_link_t *, char *, size_t)",
    "pn_link_advance": "_Bool(*)(struct pn_link_t *)",
    "pn_delivery": "struct pn_delivery_t *(*)(struct pn_link_t *, struct pn_bytes_t)",
    "pn_transport_pending": "ssize_t(*)(struct pn_transport_t *)",
    "pn_transport_peek": "ssize_t(*)(struct pn_transport_t *, char *, size_t)",
    "pn_transport_pop": "void(*)(struct pn_transport_t *, size_t)",
    "pn_delivery_tag": "struct pn_bytes_t(*)(struct pn_delivery_t *)",
}


_ANEW: Final = "router.amqp.engine._steps {}: run `make`, or install the router anew"


def _bind() -> Steps:
    """Loads the compiled steps.

    Errors: ImportError, if they are not compiled, or are compiled for another proton or from other sources.
    """
    try:
        from router.amqp.engine._steps import ffi as steps_ffi
        from router.amqp.engine._steps import lib as steps
    except ImportError as error:
        raise ImportError(_ANEW.format("is not compiled")) from error
    functions = [ffi.addressof(lib, name) for name in PROTOTYPES]
    if [ffi.typeof(function).cname for function in functions] != list(PROTOTYPES.values()):
        raise ImportError("python-qpid-proton has other functions than router.amqp.engine.steps knows")
    table = steps_ffi.new("void *[]", [ffi.cast("void *", function) for function in functions])
    try:
        step = steps.bind(
            table, len(table), lib.PN_DELIVERY, lib.PN_LINK_FLOW, sum(1 << kind for kind in CONTROL), lib.PN_ACCEPTED,
            MESSAGE_C, MESSAGE_BYTES, OUTPUT_C, OUTPUT_BYTES,
        )  # fmt: skip
        if step:
            return Steps(
                step, steps.set_slice, steps.first_event, steps.next_event, steps.take, steps.new_delivery,
                steps.send_whole, steps.send_as, steps.send_with, steps.accept, steps.pull,
            )  # fmt: skip
    except (AttributeError, TypeError):
        pass
    raise ImportError(_ANEW.format("was compiled from older sources"))


STEPS: Final = _bind()
