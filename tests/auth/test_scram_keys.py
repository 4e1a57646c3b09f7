"""Stored SCRAM keys: what is taken for one, and what is made up where there is none."""

from base64 import b64encode
from collections import Counter

import pytest
from scramp import ScramMechanism

from auth.secrets import Secret
from auth.verifiers.hashes import HashError
from auth.verifiers.scram_keys import (
    ITERATIONS,
    MAX_ITERATIONS,
    MIN_ITERATIONS,
    Shape,
    decoy_keys,
    make_scram_keys,
    read_scram_keys,
    shapes_of,
)

SEED = b"s" * 32


def text(salt: bytes = b"s" * 16, stored: bytes = b"k" * 32, server: bytes = b"v" * 32, iterations: int = 4096) -> str:
    salted, *keys = (b64encode(part).decode() for part in (salt, stored, server))
    return f"SCRAM-SHA-256${iterations}:{salted}${':'.join(keys)}"


@pytest.mark.parametrize(("asked", "iterations"), [({}, ITERATIONS), ({"iterations": 5000}, 5000)])
def test_keys_have_the_iterations_that_were_asked_for(asked: dict[str, int], iterations: int) -> None:
    """Each guess at a stolen file costs so many hashes."""
    hash_name, keys = read_scram_keys(make_scram_keys(Secret("wonderland"), "SHA-512", **asked))
    assert (hash_name, keys.iterations, keys.is_known) == ("SHA-512", iterations, True)
    _, stored, server, _ = ScramMechanism("SCRAM-SHA-512").make_auth_info(
        "wonderland", iteration_count=iterations, salt=keys.salt
    )
    assert (keys.stored_key, keys.server_key) == (stored, server)


def test_a_password_that_saslprep_forbids_is_named_as_such() -> None:
    with pytest.raises(HashError) as caught:
        make_scram_keys(Secret("a\u0007b"), "SHA-256")
    assert str(caught.value) == "the password has a character that SCRAM does not permit (RFC 4013)"


@pytest.mark.parametrize("iterations", [MIN_ITERATIONS, MAX_ITERATIONS])
def test_the_fewest_and_the_most_iterations(iterations: int) -> None:
    assert read_scram_keys(text(iterations=iterations))[1].iterations == iterations


WRONG_FORM = "not of the form SCRAM-SHA-256$<iterations>:<salt>$<stored key>:<server key>"
WRONG_LENGTH = "SCRAM-SHA-256 keys of a wrong length: expected 32 bytes, and a salt of at least 12"


@pytest.mark.parametrize(
    ("written", "why"),
    [
        ("SCRAM-SHA-256", WRONG_FORM),
        (text().replace("256", "384"), WRONG_FORM),
        (text(iterations=4095), "SCRAM with 4095 iterations: expected 4096 to 10000000"),
        (text(iterations=10_000_001), "SCRAM with 10000001 iterations: expected 4096 to 10000000"),
        (text().replace(":c3Nz", ":=c3Nz"), "SCRAM keys that are not base64"),
        (text(stored=b"k" * 31), WRONG_LENGTH),
        (text(stored=b"k" * 33), WRONG_LENGTH),
        (text(server=b"v" * 31), WRONG_LENGTH),
        (text(server=b"v" * 33), WRONG_LENGTH),
        (text(salt=b"s" * 11), WRONG_LENGTH),
    ],
)
def test_what_are_no_keys_is_refused_with_what_would_be_right(written: str, why: str) -> None:
    with pytest.raises(HashError) as caught:
        read_scram_keys(written)
    assert str(caught.value) == why


def test_the_shortest_salt() -> None:
    assert read_scram_keys(text(salt=b"s" * 12))[1].salt == b"s" * 12


def test_shapes_are_counted() -> None:
    keys = [read_scram_keys(text(salt=b"s" * size, iterations=count))[1] for size, count in ((12, 4096), (16, 5000))]
    assert shapes_of([*keys, keys[0]]) == {Shape(4096, 12): 2, Shape(5000, 16): 1}


def test_made_up_keys_differ_from_each_other_and_are_nobodys() -> None:
    keys = decoy_keys(SEED, "mallory", "SHA-256", {})
    assert keys.is_known is False
    assert keys.stored_key != keys.server_key
    assert (len(keys.stored_key), len(keys.server_key)) == (32, 32)
    assert decoy_keys(SEED, "mallory", "SHA-256", {}) == keys
    assert decoy_keys(b"t" * 32, "mallory", "SHA-256", {}).salt != keys.salt


def test_in_an_empty_file_made_up_keys_are_like_those_that_would_be_made() -> None:
    keys = decoy_keys(SEED, "mallory", "SHA-256", {})
    made = read_scram_keys(make_scram_keys(Secret("wonderland"), "SHA-256"))[1]
    assert (keys.iterations, len(keys.salt)) == (made.iterations, len(made.salt))


def test_made_up_keys_have_each_shape_as_often_as_the_entries() -> None:
    """Attack: to know users by a shape that no made-up name has; tests/attacks/test_scram_keys_reveal_users.py."""
    shapes = {Shape(4096, 16): 6, Shape(8192, 16): 3, Shape(8192, 32): 1}
    made = [decoy_keys(SEED, f"made up {number}", "SHA-256", shapes) for number in range(4000)]
    found = Counter(Shape(keys.iterations, len(keys.salt)) for keys in made)
    assert {shape: round(10 * number / len(made), 1) for shape, number in found.items()} == pytest.approx(
        shapes, abs=0.25
    )


def test_what_is_no_text_gets_keys_too() -> None:
    """A client may send half a surrogate pair for its name: it learns no more than with any other."""
    assert decoy_keys(SEED, "\ud800", "SHA-256", {}).salt != decoy_keys(SEED, "\ud801", "SHA-256", {}).salt


def test_a_salt_says_which_keys_it_is_of() -> None:
    """Another shape, another salt: as with a user's new password."""
    salts = {decoy_keys(SEED, "mallory", "SHA-256", {Shape(count, 16): 1}).salt for count in (4096, 5000)}
    assert len(salts) == 2


@pytest.mark.parametrize(("hash_name", "size"), [("SHA-1", 20), ("SHA-256", 32), ("SHA-512", 64)])
def test_the_keys_of_a_made_up_name_are_as_secret_as_the_seed(hash_name: str, size: int) -> None:
    """Attack: to compute the stored key of a name that nobody has, and log in as it, or tell it from a user."""
    keys = decoy_keys(SEED, "mallory", hash_name, {})
    others = [decoy_keys(b"t" * 32, "mallory", hash_name, {}), decoy_keys(SEED, "trudy", hash_name, {})]
    stored = [each.stored_key for each in (keys, *others)]
    server = [each.server_key for each in (keys, *others)]
    assert {len(key) for key in stored + server} == {size}
    assert len({*stored, *server}) == 6


def test_a_seed_may_be_longer_than_a_key_of_the_hash() -> None:
    assert decoy_keys(b"s" * 100, "mallory", "SHA-256", {}).iterations == ITERATIONS


def test_made_up_names_are_drawn_among_two_shapes_as_well() -> None:
    """Attack: to know the users of a file with two numbers of iterations by the one that no made-up name has."""
    shapes = {Shape(4096, 16): 1, Shape(5000, 16): 1}
    made = Counter(decoy_keys(SEED, f"made up {number}", "SHA-256", shapes).iterations for number in range(400))
    assert set(made) == {4096, 5000}
    assert min(made.values()) > 120
