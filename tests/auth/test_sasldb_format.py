"""The bytes of a sasldb: docs/spec/policy-and-auth.md §7. Whoever can write the file may have written anything."""

import struct
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sasldb_files import PAGE, berkeley, gdbm, key_of

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
