"""The bytes of a sasldb: docs/spec/policy-and-auth.md §7. Whoever can write the file may have written anything."""

import struct
from collections.abc import Callable
from typing import Any

import pytest
import sasldb_files
from hypothesis import given, settings
from hypothesis import strategies as st
from sasldb_files import PAGE, berkeley, gdbm, key_of

from auth.credentials import MAX_PASSWORD_BYTES, MAX_USER_BYTES
from auth.verifiers import sasldb_format
from auth.verifiers.sasldb_format import SasldbError, read_passwords

ENTRIES = {
    key_of("alice"): b"wonderland",
    key_of("bob", ""): "häs|@".encode(),
    key_of("long"): b"L" * 1500,
    key_of("alice", what="cmusaslsecretOTP"): b"1234",
}
USERS = {(b"alice", b"example.com"): "wonderland", (b"bob", b""): "häs|@", (b"long", b"example.com"): "L" * 1500}
FORMS: dict[str, Callable[..., bytes]] = {
    "berkeley": berkeley,
    "berkeley, big-endian": lambda entries: berkeley(entries, ">"),
    "gdbm": gdbm,
    "gdbm, big-endian": lambda entries: gdbm(entries, ">"),
    "gdbm, 32 bits": lambda entries: gdbm(entries, is_wide=False),
}


def passwords(content: bytes) -> dict[tuple[bytes, bytes], str]:
    return {key: secret.reveal() for key, secret in read_passwords(content).items()}


@pytest.mark.parametrize("form", FORMS)
def test_passwords_are_read_and_nothing_else(form: str) -> None:
    assert passwords(FORMS[form](ENTRIES)) == USERS


@pytest.mark.parametrize("form", FORMS)
def test_what_nobody_could_log_in_with_is_left_out(form: str) -> None:
    content = FORMS[form](
        {
            key_of("empty"): b"",
            key_of("", "example.com"): b"x",
            key_of("latin"): b"h\xe4s",
            key_of("endless"): b"x" * 5000,
            b"no NUL": b"x",
            key_of("a\0b"): b"x",
            key_of("alice"): b"x",
        }
    )
    assert passwords(content) == {(b"alice", b"example.com"): "x"}


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\0" * 100,
        b"alice:$argon2id$",
        berkeley(ENTRIES)[:12] + struct.pack("<I", 0x053162) + berkeley(ENTRIES)[16:],  # a B-tree
        berkeley(ENTRIES, version=99),
        berkeley(ENTRIES)[:24] + b"\x01" + berkeley(ENTRIES)[25:],  # encrypted
        berkeley(ENTRIES)[:26] + b"\x01" + berkeley(ENTRIES)[27:],  # with checksums
        berkeley(ENTRIES)[:20],
        gdbm(ENTRIES)[:20],
        gdbm(ENTRIES)[:300],
    ],
)
def test_what_is_no_such_file_is_refused_without_its_bytes(content: bytes) -> None:
    with pytest.raises(SasldbError) as caught:
        read_passwords(content)
    assert "wonderland" not in str(caught.value)
    assert "alice" not in str(caught.value)


def test_pages_that_lead_to_themselves_end() -> None:
    content = bytearray(berkeley({key_of("long"): b"L" * 1500}))
    struct.pack_into("<I", content, 2 * PAGE + 16, 2)  # the first page of the value names itself as the next
    for has, ends in ((486, SasldbError), (1, None), (0, SasldbError)):
        struct.pack_into("<H", content, 2 * PAGE + 22, has)
        if ends is None:  # once it has as many bytes as it says
            assert passwords(bytes(content)) == {(b"long", b"example.com"): "L" * 1500}
            continue
        with pytest.raises(ends, match="do not hold it"):
            read_passwords(bytes(content))


def test_entries_that_overlap_do_not_grow_beyond_the_file() -> None:
    """Attack: small entries that all point to the same long value."""
    entries = {key_of(f"user{number}"): b"L" * 4000 for number in range(2)}
    content = bytearray(berkeley(entries))
    pages = len(content) // PAGE
    content += content[PAGE : 2 * PAGE] * pages * 4
    with pytest.raises(SasldbError, match="overlap"):
        read_passwords(bytes(content))


def test_buckets_that_overlap_are_refused() -> None:
    content = bytearray(gdbm(ENTRIES))
    struct.pack_into("<q", content, 256 + 8, 512 + 8)
    with pytest.raises(SasldbError, match="overlap"):
        read_passwords(bytes(content))


def refusal(content: bytes | bytearray) -> str:
    with pytest.raises(SasldbError) as caught:
        read_passwords(bytes(content))
    return str(caught.value)


def changed(content: bytes, form: str, at: int, *values: int) -> bytes:
    found = bytearray(content)
    struct.pack_into(form, found, at, *values)
    return bytes(found)


ALICE = {key_of("alice"): b"x"}
ONE = {(b"alice", b"example.com"): "x"}
BEYOND = "damaged: an entry reaches beyond the end of the file"
NEITHER = "neither a hash of Berkeley DB nor of GDBM"


@pytest.mark.parametrize("form", FORMS)
def test_the_longest_password_and_the_longest_name(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sasldb_files, "PAGE", 4096)
    password = "é" * (MAX_PASSWORD_BYTES // 2)
    name = "n" * (2 * MAX_USER_BYTES - len(key_of("", "r")))
    entries = {key_of("alice", "r"): password.encode(), key_of(name, "r"): b"x"}
    entries[key_of("bob", "r")] = password.encode() + b"x"
    found = passwords(FORMS[form](entries))
    assert found == {(b"alice", b"r"): password, (name.encode(), b"r"): "x"}


@pytest.mark.parametrize("form", FORMS)
def test_a_file_has_so_many_entries(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sasldb_format, "MAX_RECORDS", 3)
    entries = {key_of(f"user{number}"): b"x" for number in range(4)}
    assert refusal(FORMS[form](entries)) == "more than 3 entries, or entries that overlap"
    entries.popitem()
    assert len(passwords(FORMS[form](entries))) == 3


@pytest.mark.parametrize(
    "content", [b"", b"\0\0\0", b"\0" * 15, b"\0" * 16, struct.pack("<I", 0x13579ACC) + b"\0" * 50]
)
def test_what_is_neither_format_is_said(content: bytes) -> None:
    assert refusal(content) == NEITHER


def test_what_ends_too_early_is_said() -> None:
    assert refusal(berkeley(ALICE)[:16]) == BEYOND
    assert refusal(gdbm(ALICE)[:4]) == BEYOND
    assert refusal(gdbm(ALICE)[:-1]) == BEYOND
    assert refusal(changed(gdbm(ALICE), "<q", 8, -16)) == BEYOND


# Berkeley DB


@pytest.mark.parametrize(("version", "is_known"), [(6, False), (7, True), (8, True), (10, True), (11, False)])
def test_versions_of_a_hash(version: int, is_known: bool) -> None:
    content = berkeley(ALICE, version=version)
    if is_known:
        assert passwords(content) == ONE
    else:
        text = f"a hash of Berkeley DB of version {version} with pages of 512 bytes, which nobody knows"
        assert refusal(content) == text


@pytest.mark.parametrize(
    ("size", "is_known"), [(256, False), (512, True), (1024, True), (1536, False), (65536, True), (131072, False)]
)
def test_sizes_of_pages(size: int, is_known: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if is_known and size < 65536:
        monkeypatch.setattr(sasldb_files, "PAGE", size)
        assert passwords(berkeley(ALICE)) == ONE
    elif is_known:
        assert passwords(changed(berkeley(ALICE), "<I", 20, size)) == {}
    else:
        assert refusal(changed(berkeley(ALICE), "<I", 20, size)) == (
            f"a hash of Berkeley DB of version 9 with pages of {size} bytes, which nobody knows"
        )


@pytest.mark.parametrize(
    ("at", "value", "is_read"), [(24, 1, False), (26, 1, False), (26, 3, False), (26, 2, True), (25, 9, True)]
)
def test_a_file_with_encryption_or_checksums_is_not_read(at: int, value: int, is_read: bool) -> None:
    content = changed(berkeley(ALICE), "<B", at, value)
    if is_read:
        assert passwords(content) == ONE
    else:
        assert refusal(content) == "a hash of Berkeley DB with encryption or checksums"


@pytest.mark.parametrize(("kind", "found"), [(2, ONE), (13, ONE), (1, {}), (0, {}), (7, {}), (14, {})])
def test_only_pages_of_a_hash_have_entries(kind: int, found: dict[Any, str]) -> None:
    assert passwords(changed(berkeley(ALICE), "<B", PAGE + 25, kind)) == found


def test_a_page_may_have_several_entries() -> None:
    """As saslpasswd2 writes them: keys and values in turn, from the end of the page."""
    items = [b"\1" + each for name in ("alice", "bob", "eve") for each in (key_of(name), name.encode())]
    page, offsets = b"", []
    for item in items:
        page = item + page
        offsets.append(PAGE - len(page))
    content = berkeley(ALICE)
    head = content[PAGE : PAGE + 26] + struct.pack("<6H", *offsets)
    content = content[:PAGE] + head.ljust(PAGE - len(page), b"\0") + page
    found = passwords(changed(content, "<H", PAGE + 20, 6))
    assert found == {(name.encode(), b"example.com"): name for name in ("alice", "bob", "eve")}


def test_a_page_that_is_not_whole_is_not_read() -> None:
    """The file is being written, or was cut off."""
    both = berkeley({**ALICE, key_of("bob"): b"y"})
    assert passwords(both[:-1]) == ONE
    assert len(passwords(both)) == 2


ROOM = (PAGE - 26) // 2


def test_what_cannot_be_a_page_is_said() -> None:
    content = berkeley(ALICE)
    assert (
        refusal(changed(content, "<H", PAGE + 20, ROOM + 1)) == "damaged: a page with more entries than it has room for"
    )
    overlap = "damaged: entries of a page that overlap"
    assert refusal(changed(content, "<H", PAGE + 20, ROOM)) == overlap
    (first, second) = struct.unpack_from("<HH", content, PAGE + 26)
    assert refusal(changed(content, "<HH", PAGE + 26, second, first)) == overlap
    assert refusal(changed(content, "<HH", PAGE + 26, first, first)) == overlap
    assert refusal(changed(content, "<HH", PAGE + 26, PAGE, second)) == overlap
    assert refusal(changed(content, "<HH", PAGE + 26, first, 29)) == overlap
    assert passwords(changed(content, "<HH", PAGE + 26, first, 30)) == {}, "its first byte is of no kind that we know"
    assert refusal(changed(content, "<H", PAGE + 20, 1)) == "damaged: a key without a value"


@pytest.mark.parametrize("kind", [0, 2, 4, 255])
def test_items_of_other_kinds_are_nobodys(kind: int) -> None:
    (_, value) = struct.unpack_from("<HH", berkeley(ALICE), PAGE + 26)
    assert passwords(changed(berkeley(ALICE), "<B", PAGE + value, kind)) == {}


LONG = {key_of("alice"): b"L" * 1000}
HELD = "damaged: the pages of a long value do not hold it"


def test_a_long_value_goes_over_pages_and_ends() -> None:
    content = berkeley(LONG)
    assert passwords(content) == {(b"alice", b"example.com"): "L" * 1000}
    assert refusal(changed(content, "<B", 2 * PAGE + 25, 13)) == HELD
    assert refusal(changed(content, "<H", 2 * PAGE + 22, 0)) == HELD
    assert refusal(changed(content, "<H", 2 * PAGE + 22, PAGE - 26 + 1)) == HELD
    too_long = changed(changed(content, "<H", 2 * PAGE + 22, PAGE - 26 + 1), "<H", 4 * PAGE + 22, 1000 - 2 * 486 - 1)
    assert refusal(too_long) == HELD, "a page has no more than it has room for, though the sum is right"
    assert refusal(changed(content, "<I", 2 * PAGE + 16, 1)) == HELD, "a page of the hash"
    assert refusal(changed(content, "<I", 2 * PAGE + 16, 1000)) == BEYOND
    last = 4 * PAGE
    (has,) = struct.unpack_from("<H", content, last + 22)
    assert refusal(changed(content, "<H", last + 22, has + 1)) == HELD, "more than is missing"


def test_a_value_longer_than_a_password_is_not_gathered() -> None:
    """Attack: many entries that point to the same pages. Its pages are not looked at."""
    content = berkeley({key_of("alice"): b"L" * (MAX_PASSWORD_BYTES + 1), key_of("bob"): b"x"})
    damaged = changed(content, "<B", 2 * PAGE + 25, 0)
    assert passwords(content) == passwords(damaged) == {(b"bob", b"example.com"): "x"}


# GDBM


@pytest.mark.parametrize(
    ("magic", "is_wide"),
    [(0x13579ACD, False), (0x13579ACE, True), (0x13579ACF, True), (0x13579AD0, False), (0x13579AD1, True)],
)
@pytest.mark.parametrize("order", ["<", ">"])
def test_the_magics_of_gdbm(magic: int, is_wide: bool, order: str) -> None:
    assert passwords(changed(gdbm(ALICE, order, is_wide=is_wide), f"{order}I", 0, magic)) == ONE


@pytest.mark.parametrize("is_wide", [True, False])
@pytest.mark.parametrize(
    ("member", "value"), [("table", 0), ("table", -8), ("table", 6), ("elements", 0), ("elements", -1)]
)
def test_sizes_that_cannot_be_are_said(is_wide: bool, member: str, value: int) -> None:
    at = {"table": 16, "elements": 28} if is_wide else {"table": 12, "elements": 24}
    content = changed(gdbm(ALICE, is_wide=is_wide), "<i", at[member], value)
    assert refusal(content) == "damaged: the header of GDBM has sizes that cannot be"


@pytest.mark.parametrize("is_wide", [True, False])
def test_a_table_may_have_one_place(is_wide: bool) -> None:
    assert passwords(changed(gdbm(ALICE, is_wide=is_wide), "<i", 16 if is_wide else 12, 8 if is_wide else 4)) == ONE


@pytest.mark.parametrize("is_wide", [True, False])
def test_buckets_may_lie_side_by_side_and_not_overlap(is_wide: bool) -> None:
    """Two of them: where one ends the other begins, or a byte before that."""
    whole = gdbm(ALICE, is_wide=is_wide)
    element = 24 if is_wide else 20
    before = 8 + 96 + 8 if is_wide else 4 + 48 + 8
    size = before + 2 * element
    bucket = whole[512 : 512 + size]
    form, width = ("<q", 8) if is_wide else ("<i", 4)
    side_by_side = changed(whole[:512] + bucket + bucket + whole[512 + size :], form, 256 + width, 512 + size)
    data_at = 512 + 2 * size
    for offset_at in (512 + before + 8, 512 + size + before + 8):
        side_by_side = changed(side_by_side, form, offset_at, data_at)
    assert passwords(side_by_side) == ONE
    overlapping = changed(side_by_side, form, 256 + width, 512 + size - 1)
    assert refusal(overlapping) == "damaged: buckets of GDBM that overlap"


def test_free_places_of_a_bucket_are_no_entries() -> None:
    content = gdbm(ALICE)
    at = 512 + 8 + 96 + 8
    assert passwords(changed(content, "<i", at, -1)) == {}
    assert passwords(changed(content, "<i", at, 0)) == ONE
    assert passwords(changed(content, "<i", 28, 1)) == ONE, "a bucket with one place"
    assert passwords(changed(content, "<i", at + 16, 2 * MAX_USER_BYTES + 1)) == {}
    assert passwords(changed(content, "<i", at + 20, MAX_PASSWORD_BYTES + 1)) == {}
    assert refusal(changed(content, "<i", at + 16, -1)) == BEYOND
    assert refusal(changed(content, "<q", at + 8, -1)) == BEYOND


@pytest.mark.slow
@given(
    form=st.sampled_from(list(FORMS.values())),
    changes=st.lists(
        st.tuples(st.integers(0, 6000), st.one_of(st.binary(min_size=1, max_size=8), st.just(b"\xff\xff\xff\xff"))),
        max_size=8,
    ),
    cut=st.integers(0, 6000),
)
@settings(max_examples=400, deadline=None)
def test_a_mutated_file_is_read_or_refused(form: Callable[..., bytes], changes: Any, cut: int) -> None:
    content = bytearray(form(ENTRIES))
    for at, data in changes:
        if at < len(content):
            content[at : at + len(data)] = data
    content = content[: len(content) - cut // 8] if cut % 3 == 0 else content
    try:
        found = passwords(bytes(content))
    except SasldbError:
        return
    assert sum(map(len, found.values())) <= len(content)


@given(st.binary(max_size=4096), st.sampled_from([b"", struct.pack("<III", 0x13579ACF, 512, 0)]))
@settings(max_examples=200, deadline=None)
def test_any_bytes_are_read_or_refused(content: bytes, head: bytes) -> None:
    try:
        read_passwords(head + content)
    except SasldbError:
        return
