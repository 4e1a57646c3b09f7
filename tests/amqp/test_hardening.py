"""Our compiled modules are built so that a fault in them is harder to use: read from the modules themselves."""

import importlib
import importlib.util
import struct
import sys
from pathlib import Path
from typing import Any

import pytest

AMQP = Path(__file__).resolve().parents[2] / "router" / "amqp"
MODULES = ("engine._steps", "guard._frames", "layout._walk")
BUILDERS = ("engine/steps_build.py", "guard/frames_build.py", "layout/walk_build.py")
PT_DYNAMIC, PT_GNU_STACK, PT_GNU_RELRO = 2, 0x6474E551, 0x6474E552
DT_FLAGS, DT_FLAGS_1 = 30, 0x6FFFFFFB
BIND_NOW, NOW = 8, 1  # in the one and in the other


def compiled(name: str) -> bytes:
    """The module's file, ELF with 64 bits."""
    try:
        file = importlib.import_module(f"router.amqp.{name}").__file__
    except ImportError:
        pytest.skip("there is no C compiler, so the router runs without the compiled modules")
    assert file is not None
    data = Path(file).read_bytes()
    if data[:5] != b"\x7fELF\x02":
        pytest.skip("not ELF with 64 bits")
    return data


def segments(data: bytes) -> dict[int, tuple[int, int, int]]:
    """Type -> (flags, offset, size) of the program headers."""
    (start,) = struct.unpack_from("<Q", data, 32)
    size, count = struct.unpack_from("<HH", data, 54)
    found = (struct.unpack_from("<IIQQQQ", data, start + size * index) for index in range(count))
    return {kind: (flags, offset, in_file) for kind, flags, offset, _, _, in_file in found}


def dynamic(data: bytes) -> dict[int, int]:
    _, offset, size = segments(data)[PT_DYNAMIC]
    return dict(struct.iter_unpack("<QQ", data[offset : offset + size - size % 16]))


@pytest.mark.parametrize("name", MODULES)
def test_addresses_are_bound_at_the_start_and_then_read_only(name: str) -> None:
    data = compiled(name)
    flags = dynamic(data)
    assert flags.get(DT_FLAGS, 0) & BIND_NOW or flags.get(DT_FLAGS_1, 0) & NOW, "run make: built without -z now"
    assert PT_GNU_RELRO in segments(data)


@pytest.mark.parametrize("name", MODULES)
def test_the_stack_is_guarded_and_not_executable(name: str) -> None:
    data = compiled(name)
    assert b"\0__stack_chk_fail\0" in data, "run make: built without -fstack-protector-strong"
    assert not segments(data)[PT_GNU_STACK][0] & 1


@pytest.mark.parametrize("builder", BUILDERS)
def test_calls_with_buffers_of_known_size_are_checked(builder: str) -> None:
    """Our C has none today that would leave a name with `_chk` in the module."""
    spec = importlib.util.spec_from_file_location("builder", AMQP / builder)
    assert spec is not None
    assert spec.loader is not None
    module: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    keywords = module.ffibuilder._assigned_source[3]
    assert any(flag.startswith("-D_FORTIFY_SOURCE=") for flag in keywords["extra_compile_args"])
    assert ("-Wl,-z,now" in keywords["extra_link_args"]) is (sys.platform == "linux")
