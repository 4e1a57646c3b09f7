"""How our C is compiled and linked, for the three `*_build.py`, which read this file by path: a build has no `router`.

Calls keep the interpreter's lock. cffi gives it back around each call, for calls that wait; ours last less than the
six operations on mutexes which that costs, and proton bears one thread at a time anyway.

What a fault in it would be used for is made harder: a stack that was written over ends the process, calls of the C
library with buffers of known size check it, and the table of functions cannot be written once the module is loaded.
"""

import os
import sys
from typing import Final

# The sanitizers watch the same calls, and see less of those that FORTIFY has replaced.
_IS_SANITIZED: Final = "-fsanitize" in os.environ.get("CFLAGS", "")
_FORTIFY: Final = [] if _IS_SANITIZED else ["-U_FORTIFY_SOURCE", "-D_FORTIFY_SOURCE=3"]
# Of the ELF format; other linkers do not know them.
_ELF: Final = ["-Wl,-z,relro", "-Wl,-z,now", "-Wl,-z,noexecstack"] if sys.platform == "linux" else []

# Keyword arguments of FFI.set_source. The flags of Python's own build, which optimises, stand before.
HARDENED: Final = {"extra_compile_args": ["-fstack-protector-strong", *_FORTIFY], "extra_link_args": _ELF}

# Stands before our C: the wrappers that cffi writes behind it use these two.
KEEP_LOCK: Final = """
#undef Py_BEGIN_ALLOW_THREADS
#undef Py_END_ALLOW_THREADS
#define Py_BEGIN_ALLOW_THREADS
#define Py_END_ALLOW_THREADS
"""
