"""Parses the passwords in a sasldb: the file of a Berkeley DB hash (Debian) or of GDBM (Red Hat).

Pure. An entry's key is user NUL realm NUL property. Only the property `userPassword` counts, the password itself.

A user who can write the file may have written anything. So no page or bucket is followed more than once, and everything
is limited to what a file of MAX_RECORDS needs. Berkeley DB: all pages are read in their order, instead of the buckets
by their numbers. So the only chains of pages, which could loop, are those of long values.
Sources: Berkeley DB 5.3, dbinc/db_page.h; the GDBM manual, and gdbm's header magic numbers in gdbmdefs.h;
docs/spec/policy-and-auth.md §7.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from struct import Struct
from struct import error as StructError
from typing import Final

from auth.credentials import MAX_PASSWORD_BYTES, MAX_USER_BYTES
from auth.secrets import Secret

# Properties of 100,000 users.
MAX_RECORDS: Final = 200_000

# A key has a user and a realm, a value a password. Longer ones could not log in.
_MAX_KEY_BYTES: Final = 2 * MAX_USER_BYTES
_MAX_ITEM_BYTES: Final = max(_MAX_KEY_BYTES, MAX_PASSWORD_BYTES)

_PASSWORD: Final = b"userPassword"


class SasldbError(ValueError):
    """The bytes are not such a database, or a damaged one. The text quotes nothing from it."""


# (user, realm), both as in the file → the password.
Passwords = Mapping[tuple[bytes, bytes], Secret]


def read_passwords(content: bytes) -> Passwords:
    """Returns the passwords in a database. A value that is empty, too long or not UTF-8 is skipped.

    Errors  SasldbError
    """
    found: dict[tuple[bytes, bytes], Secret] = {}
    room = len(content)
    try:
        for number, (key, value) in enumerate(_records(content)):
            # Stops overlapping entries from adding up to more than the file.
            room -= len(key) + len(value)
            if number == MAX_RECORDS or room < 0:
                raise SasldbError(f"more than {MAX_RECORDS} entries, or entries that overlap")
            match key.split(b"\0"):
                case [user, realm, what] if what == _PASSWORD and user and 0 < len(value) <= MAX_PASSWORD_BYTES:
                    try:
                        found[user, realm] = Secret(value.decode("utf-8"))
                    except UnicodeDecodeError:
                        continue
    except StructError:
        raise SasldbError("damaged: an entry reaches beyond the end of the file") from None
    return found


def _records(content: bytes) -> Iterator[tuple[bytes, bytes]]:
    for order in "<>":
        (magic,) = Struct(f"{order}12xI").unpack_from(content) if len(content) >= 16 else (0,)
        if magic == _BERKELEY_HASH:
            return _berkeley(content, order)
        (magic,) = Struct(f"{order}I").unpack_from(content) if len(content) >= 4 else (0,)
        if magic in _GDBM:
            return _gdbm(content, order, is_wide=_GDBM[magic])
    raise SasldbError("neither a hash of Berkeley DB nor of GDBM")


def _cut(content: bytes, start: int, size: int) -> bytes:
    """Returns a slice of the file that lies entirely in it. Errors: SasldbError."""
    if start < 0 or size < 0 or start + size > len(content):
        raise SasldbError("damaged: an entry reaches beyond the end of the file")
    return content[start : start + size]


# Berkeley DB ------------------------------------------------------------------------------------------------------

_BERKELEY_HASH: Final = 0x061561
_HASH_VERSIONS: Final = range(7, 11)
_PAGE_SIZES: Final = tuple(1 << power for power in range(9, 17))
_PAGE_HEADER_BYTES: Final = 26
_HASH_PAGES: Final = (2, 13)  # P_HASH_UNSORTED, P_HASH
_OVERFLOW_PAGE: Final = 7
_ITEM, _OFF_PAGE = 1, 3  # H_KEYDATA, H_OFFPAGE; duplicates a sasldb has none of


@dataclass(frozen=True, slots=True)
class _Pages:
    content: bytes
    order: str
    size: int

    def header(self, number: int) -> tuple[int, int, int, int]:
        """Returns the next page, the number of entries, the offset of free room and the type.

        For long values the offset is the number of their bytes.
        """
        page = Struct(f"{self.order}16xIHHxB")
        found: tuple[int, int, int, int] = page.unpack_from(self.content, number * self.size)
        return found

    def items(self, number: int, entries: int) -> Iterator[bytes]:
        """Yields the items of a hash page, alternately keys and values.

        They are stored from the page's end backwards.
        """
        start = number * self.size
        if _PAGE_HEADER_BYTES + 2 * entries > self.size:
            raise SasldbError("damaged: a page with more entries than it has room for")
        offsets = Struct(f"{self.order}{entries}H").unpack_from(self.content, start + _PAGE_HEADER_BYTES)
        end = self.size
        for offset in offsets:
            if not _PAGE_HEADER_BYTES + 2 * entries <= offset < end:
                raise SasldbError("damaged: entries of a page that overlap")
            yield self._item(_cut(self.content, start + offset, end - offset))
            end = offset

    def _item(self, item: bytes) -> bytes:
        if item[0] == _ITEM:
            return item[1:]
        if item[0] != _OFF_PAGE:
            return b""
        page, size = Struct(f"{self.order}4xII").unpack_from(item)
        # An item that is too long is not assembled: many entries may point to the same pages.
        return self._long(page, size) if size <= _MAX_ITEM_BYTES else b""

    def _long(self, number: int, size: int) -> bytes:
        pieces, missing = [], size
        while missing > 0:
            following, _, length, kind = self.header(number)
            if kind != _OVERFLOW_PAGE or not 0 < length <= min(missing, self.size - _PAGE_HEADER_BYTES):
                raise SasldbError("damaged: the pages of a long value do not hold it")
            pieces.append(_cut(self.content, number * self.size + _PAGE_HEADER_BYTES, length))
            missing -= length
            number = following
        return b"".join(pieces)


def _berkeley(content: bytes, order: str) -> Iterator[tuple[bytes, bytes]]:
    version, size, encryption, _, flags = Struct(f"{order}16xIIBBB").unpack_from(content)
    if version not in _HASH_VERSIONS or size not in _PAGE_SIZES:
        raise SasldbError(f"a hash of Berkeley DB of version {version} with pages of {size} bytes, which nobody knows")
    if encryption or flags & 1:  # DBMETA_CHKSUM: the header of pages is longer; Cyrus SASL writes none
        raise SasldbError("a hash of Berkeley DB with encryption or checksums")
    pages = _Pages(content, order, size)
    for number in range(1, len(content) // size):
        _, entries, _, kind = pages.header(number)
        if kind in _HASH_PAGES:
            items = list(pages.items(number, entries))
            if len(items) % 2:
                raise SasldbError("damaged: a key without a value")
            yield from zip(items[::2], items[1::2], strict=True)


# GDBM -------------------------------------------------------------------------------------------------------------

# Magic → whether offsets have 64 bits. The older format used the machine's size; on machines still in use that is 64.
_GDBM: Final = {
    0x13579ACD: False,
    0x13579ACE: True,
    0x13579ACF: True,
    0x13579AD0: False,
    0x13579AD1: True,
}
_AVAILABLE: Final = 6  # entries for free room in each bucket


def _gdbm(content: bytes, order: str, *, is_wide: bool) -> Iterator[tuple[bytes, bytes]]:
    offset = "q" if is_wide else "i"
    table, table_bytes, _, _, elements = Struct(f"{order}8x{offset}iiii").unpack_from(content)
    width = 8 if is_wide else 4
    if table_bytes <= 0 or table_bytes % width or elements <= 0:
        raise SasldbError("damaged: the header of GDBM has sizes that cannot be")
    offsets = Struct(f"{order}{table_bytes // width}{offset}").unpack(_cut(content, table, table_bytes))
    # C aligns a free-room entry, and a structure with an offset, to the offset's width.
    before = (8 + _AVAILABLE * 16) if is_wide else (4 + _AVAILABLE * 8)
    element = Struct(f"{order}i4x{offset}ii")
    # Many places of the table lead to the same bucket: each is read once, and buckets must not overlap.
    size, end = before + 8 + elements * element.size, 0
    for start in sorted(set(offsets)):
        if start < end:
            raise SasldbError("damaged: buckets of GDBM that overlap")
        end = start + size
        for hash_value, at, key_bytes, value_bytes in element.iter_unpack(_cut(content, start, size)[before + 8 :]):
            if hash_value != -1 and key_bytes <= _MAX_KEY_BYTES and value_bytes <= MAX_PASSWORD_BYTES:
                yield _cut(content, at, key_bytes), _cut(content, at + key_bytes, value_bytes)
