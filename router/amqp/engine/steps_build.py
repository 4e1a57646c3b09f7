"""Compiles steps.c. setup.py gives this file to setuptools."""

import runpy
from pathlib import Path

from cffi import FFI

ffibuilder = FFI()
ffibuilder.cdef(
    """
    typedef struct { void *link; void *delivery; _Bool is_late; size_t left; } step_t;
    step_t *bind(void **functions, size_t count, int delivery, int link_flow, uint64_t heard_kinds, uint64_t accepted,
                 char *message_buffer, size_t message_size, char *output_buffer, size_t output_size);
    void set_slice(int64_t nanoseconds);
    int first_event(void *events);
    int next_event(void *events);
    ssize_t take(void *link);
    void *new_delivery(void *link);
    void *send_whole(void *link, size_t size);
    void *send_as(void *link, size_t size, void *origin);
    void *send_with(void *link, size_t size, size_t at, const char *inserted, size_t inserted_size);
    void accept(void *delivery);
    ssize_t pull(void *transport, size_t left);
    size_t tidy(uint8_t *data, size_t size, size_t *used);
    """
)
_HOW = runpy.run_path(str(Path(__file__).parent.parent / "hardening.py"))
_SOURCE = _HOW["KEEP_LOCK"] + Path(__file__).with_name("steps.c").read_text()
ffibuilder.set_source("router.amqp.engine._steps", _SOURCE, **_HOW["HARDENED"])
