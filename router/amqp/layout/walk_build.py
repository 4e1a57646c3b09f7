"""Compiles walk.c: `setup.py` names this to setuptools. Where it does not compile, the router runs without it."""

import runpy
from pathlib import Path

from cffi import FFI

ffibuilder = FFI()
ffibuilder.cdef(
    """
    typedef struct {
        int64_t user_id_at, annotations_at, annotations_end; uint32_t user_id_size; ...;
    } walk_t;
    int whole(walk_t *walk, const uint8_t *data, uint32_t size);
    int first(walk_t *walk, const uint8_t *data, uint32_t size);
    int next(walk_t *walk, const uint8_t *data, uint32_t size);
    bool is_over(const walk_t *walk);
    """
)
_HOW = runpy.run_path(str(Path(__file__).parent.parent / "hardening.py"))
_SOURCE = _HOW["KEEP_LOCK"] + Path(__file__).with_name("walk.c").read_text()
ffibuilder.set_source("router.amqp.layout._walk", _SOURCE, optional=True, **_HOW["HARDENED"])
