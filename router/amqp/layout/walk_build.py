"""Compiles walk.c and front.c. setup.py gives this file to setuptools."""

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

    typedef struct { ...; } known_t;
    known_t *known_new(uint64_t seed);
    void known_free(known_t *known);
    int64_t look_ahead(const uint8_t *data, uint32_t size);
    int64_t peel(const known_t *known, uint8_t *data, uint32_t size);
    int remember(known_t *known, const uint8_t *section, uint32_t size);
    """
)
_HOW = runpy.run_path(str(Path(__file__).parent.parent / "hardening.py"))
_SOURCES = [Path(__file__).with_name(name).read_text() for name in ("walk.c", "front.c")]
_SOURCE = "".join([_HOW["KEEP_LOCK"], *_SOURCES])
ffibuilder.set_source("router.amqp.layout._walk", _SOURCE, **_HOW["HARDENED"])
