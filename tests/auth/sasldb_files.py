"""Files of users in the formats of a sasldb, made here, byte by byte: no program for them has to be installed."""

import struct
from collections.abc import Mapping

PAGE = 512


def key_of(user: str, realm: str = "example.com", what: str = "userPassword") -> bytes:
    return b"\0".join(text.encode() for text in (user, realm, what))


def berkeley(entries: Mapping[bytes, bytes], order: str = "<", version: int = 9) -> bytes:
    """A hash of Berkeley DB: a page for each entry, behind it those of a value that is too long for one."""
    pages: list[bytes] = []
    for key, value in entries.items():
        here = len(pages) + 1
        if len(value) > PAGE // 2:
            pieces = [value[at : at + PAGE - 26] for at in range(0, len(value), PAGE - 26)]
            item = struct.pack(f"{order}BxxxII", 3, here + 1, len(value))
        else:
            pieces, item = [], b"\x01" + value
        items = (b"\x01" + key, item)
        offsets = PAGE - len(items[0]), PAGE - len(items[0]) - len(items[1])
        head = _page(order, here, 0, 2, offsets[1], 13) + struct.pack(f"{order}HH", *offsets)
        pages.append(head.ljust(offsets[1], b"\0") + items[1] + items[0])
        for number, piece in enumerate(pieces, start=here + 1):
            following = number + 1 if number < here + len(pieces) else 0
            pages.append((_page(order, number, following, 1, len(piece), 7) + piece).ljust(PAGE, b"\0"))
    meta = struct.pack(f"{order}8xIIIIBBBx", 0, 0x061561, version, PAGE, 0, 8, 0).ljust(PAGE, b"\0")
    return meta + b"".join(pages)


def _page(order: str, number: int, following: int, entries: int, offset: int, kind: int) -> bytes:
    return struct.pack(f"{order}8xIIIHHBB", number, 0, following, entries, offset, 0, kind)


def gdbm(entries: Mapping[bytes, bytes], order: str = "<", *, is_wide: bool = True) -> bytes:
    """A file of GDBM: one bucket, to which all of the table leads."""
    offset, width = ("q", 8) if is_wide else ("i", 4)
    magic = 0x13579ACF if is_wide else 0x13579ACD
    bucket_at, table_at = 512, 256
    bucket = b"\0" * ((8 + 6 * 16) if is_wide else (4 + 6 * 8)) + struct.pack(f"{order}ii", 0, len(entries))
    slots = len(entries) + 1
    data_at = bucket_at + len(bucket) + slots * struct.calcsize(f"{order}i4x{offset}ii")
    data = b""
    for number, (key, value) in enumerate(entries.items()):
        bucket += struct.pack(f"{order}i4s{offset}ii", number, key[:4], data_at + len(data), len(key), len(value))
        data += key + value
    bucket += struct.pack(f"{order}i4x{offset}ii", -1, 0, 0, 0)
    head = struct.pack(f"{order}ii{offset}iiii", magic, 512, table_at, 2 * width, 1, len(bucket), slots)
    table = struct.pack(f"{order}2{offset}", bucket_at, bucket_at)
    return head.ljust(table_at, b"\0") + table.ljust(bucket_at - table_at, b"\0") + bucket + data
