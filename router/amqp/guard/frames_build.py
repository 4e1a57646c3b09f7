"""Compiles frames.c. setup.py gives this file to setuptools."""

import runpy
from pathlib import Path

from cffi import FFI

ffibuilder = FFI()
ffibuilder.cdef(
    """
    typedef struct { uint64_t key; uint32_t value, id, flags; } entry_t;
    typedef struct {
        entry_t *entries; uint32_t mask, used; uint32_t max_frame; uint32_t span; uint64_t seed;
    } tables_t;
    tables_t *tables_new(uint64_t seed);
    void tables_free(tables_t *tables);
    entry_t *find(tables_t *tables, uint64_t key);
    entry_t *add(tables_t *tables, uint64_t key);
    void discard(tables_t *tables, uint64_t key);
    size_t scan(tables_t *tables, const uint8_t *data, size_t size, uint32_t max_span);
    """
)
_HOW = runpy.run_path(str(Path(__file__).parent.parent / "hardening.py"))
_SOURCE = _HOW["KEEP_LOCK"] + Path(__file__).with_name("frames.c").read_text()
ffibuilder.set_source("router.amqp.guard._frames", _SOURCE, **_HOW["HARDENED"])
