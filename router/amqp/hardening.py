"""How our C is compiled and linked. The three `*_build.py` read this file by its path, because a build has no `router`.

Calls keep the interpreter's lock. By default cffi releases it around each call, for calls that wait. Our calls take
less time than the six mutex operations of a release, and proton supports only one thread at a time anyway.

These settings make a fault in the C code harder to use. An overwritten stack ends the process. C library calls with
buffers of known size check that size. The table of functions is read-only after the module is loaded.
"""

import os
import sys
from typing import Final

# The sanitizers watch the same calls, but see less of those that FORTIFY has replaced.
_IS_SANITIZED: Final = "-fsanitize" in os.environ.get("CFLAGS", "")
_FORTIFY: Final = [] if _IS_SANITIZED else ["-U_FORTIFY_SOURCE", "-D_FORTIFY_SOURCE=3"]
# For the ELF format; other linkers do not support them.
_ELF: Final = ["-Wl,-z,relro", "-Wl,-z,now", "-Wl,-z,noexecstack"] if sys.platform == "linux" else []

# Keyword arguments of FFI.set_source. They follow the flags of Python's own build, which optimises.
HARDENED: Final = {"extra_compile_args": ["-fstack-protector-strong", *_FORTIFY], "extra_link_args": _ELF}

# Comes before our C code: the wrappers that cffi writes after it use these two macros.
KEEP_LOCK: Final = """
#undef Py_BEGIN_ALLOW_THREADS
#undef Py_END_ALLOW_THREADS
#define Py_BEGIN_ALLOW_THREADS
#define Py_END_ALLOW_THREADS
"""
