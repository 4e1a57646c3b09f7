"""The AMQP engine and our own C under AddressSanitizer, while peers say everything in every order.

Short here: PALISADE_ASAN_SECONDS says how long (default 15, for each campaign). An hour by hand:
`python -m tests.fuzz.sanitized neighbours --seconds 3600 --seed 7`.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests" / "fuzz"))

from sanitized import Missing, Sanitized, sanitized  # noqa: E402

SECONDS = os.environ.get("PALISADE_ASAN_SECONDS", "15")
SEED = os.environ.get("PALISADE_ASAN_SEED", "20261122")
# Those of whose harm nothing else tells each time.
ATTACKS = (
    "interior_refuses_an_edges_link",
    "receiver_leaves_with_a_full_window",
    "routed_links_used_when_gone",
    "sender_settles_in_turns",
    "session_ends_in_mid_message",
    "tag_of_a_message_that_is_gone",
)
# Uses memory that it has freed, in the engine itself: what the guard keeps from it.
USE_AFTER_FREE = """
from cproton_ffi import ffi, lib
connection = lib.pn_connection()
lib.pn_decref(connection)
lib.pn_connection_open(connection)
"""


@pytest.fixture(scope="session")
def built() -> Sanitized:
    try:
        return sanitized()
    except Missing as missing:
        if os.environ.get("PALISADE_REQUIRE_ALL"):
            pytest.fail(str(missing))
        pytest.skip(str(missing))


def python(built: Sanitized, *arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [str(built.python), *arguments], cwd=ROOT, env=os.environ | built.environment() | environment,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", check=False,
    )  # fmt: skip


def test_the_sanitizer_sees_the_engines_memory(built: Sanitized) -> None:
    """Guards the test below: without it, that would prove nothing."""
    result = python(built, "-c", USE_AFTER_FREE)
    assert result.returncode == 86
    assert "heap-use-after-free" in result.stdout


def test_no_order_of_frames_corrupts_memory(built: Sanitized) -> None:
    run_campaign("connections", built)


def test_no_hostile_neighbour_corrupts_memory(built: Sanitized) -> None:
    run_campaign("neighbours", built)


def test_no_change_of_a_network_corrupts_memory(built: Sanitized) -> None:
    run_campaign("networks", built)


def run_campaign(name: str, built: Sanitized) -> None:
    arguments = "-m", f"tests.fuzz.{name}", "--seconds", SECONDS, "--seed", SEED
    result = python(built, *arguments)
    assert result.returncode == 0, result.stdout


@pytest.mark.parametrize("attack", ATTACKS)
def test_no_attack_corrupts_memory(attack: str, built: Sanitized) -> None:
    arguments = "-m", "pytest", "-q", "-p", "sanitized_modules", "-p", "no:xdist", "-p", "no:cacheprovider"
    environment = {"PYTHONPATH": str(ROOT / "tests" / "fuzz")}
    result = python(built, *arguments, f"tests/attacks/test_{attack}.py", **environment)
    assert result.returncode == 0, result.stdout


def test_no_torn_message_between_routers_is_read_behind_its_end(built: Sanitized) -> None:
    result = python(built, "-m", "tests.fuzz.fronts", "--seconds", SECONDS, "--seed", SEED)
    assert result.returncode == 0, result.stdout
