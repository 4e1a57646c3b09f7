"""schemas/management.json says what docs/spec/management.md §6 says, docs/management.md says what it says."""

import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.configuration.log_levels import DEFAULT_ATTRIBUTES, MODULES
from policy.configuration.schema import ValidationError, load_schema
from policy.configuration.value_texts import MAX_SHOWN_CHARACTERS, shown
from router.management import manual
from router.management.docs import DEFAULT_FILE, main, render
from router.values import symbol, uint

SCHEMA = load_schema()
ROOT = Path(__file__).resolve().parents[2]
PREFIX = "org.apache.qpid.dispatch"


# Extensions
AUTHENTICATORS = tuple(name for name in SCHEMA.types if name.endswith(("Authenticator", "authenticatorStats")))


def no_warning(module: str, text: str) -> None:
    raise AssertionError(f"{module}: {text}")


def test_the_reference_page_is_written_from_the_schema() -> None:
    """After a change of the schema: python -m router.management.docs"""
    assert (ROOT / DEFAULT_FILE).read_text("utf-8") == render(SCHEMA)


def test_the_manual_page_is_written_from_the_schema() -> None:
    """After a change of the schema: python -m router.management.manual"""
    page = (ROOT / manual.DEFAULT_FILE).read_text("utf-8")
    assert page == manual.render(SCHEMA)
    assert not [line for line in page.splitlines() if line.startswith(("'", "..")) or "`" in line.partition('\\"')[0]]
    for name in ("listener", "sslProfile", "vhost", "policy"):
        assert f".SS {name}\n" in page
    # No section of a file sets what only the router knows.
    assert ".BR connectionStatus " not in page


def test_the_manual_page_is_what_roff_understands() -> None:
    if shutil.which("groff") is None:
        pytest.skip("groff is not installed")
    page = ROOT / manual.DEFAULT_FILE
    ran = subprocess.run(["groff", "-man", "-ww", "-Tutf8", str(page)], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")


def test_the_reference_page_goes_where_it_is_told(tmp_path: Path) -> None:
    assert main([str(tmp_path / "page.md")]) == 0
    assert (tmp_path / "page.md").read_text("utf-8") == render(SCHEMA)


def test_all_types_are_there_with_known_bases_and_words() -> None:
    assert len(SCHEMA.without("ban", "budget", "shadowPolicy", "shadowDisagreement", *AUTHENTICATORS).types) == 29
    for each in SCHEMA.types.values():
        assert each.long_name.startswith(f"{PREFIX}.")
        assert all(base in SCHEMA.types for base in each.bases)
        assert each.bases[-1:] == (("entity",) if each.short_name != "entity" else ())
        assert list(each.attributes)[-3:] == ["name", "identity", "type"]
        assert all(attribute.description for attribute in each.attributes.values())


def test_columns_have_known_types() -> None:
    known = {
        "string",
        "boolean",
        "int",
        "uint",
        "ulong",
        "long",
        "map",
        "list of string",
        "list of ulong",
        "list of long",
    }
    assert {wire for each in SCHEMA.types.values() for wire in each.columns.values()} == known
    core = {each.short_name for each in SCHEMA.types.values() if each.is_core}
    assert {each.short_name for each in SCHEMA.types.values() if each.columns} == core - {"console"}


def test_the_order_of_log_modules_is_that_of_the_code() -> None:
    log = SCHEMA.types["log"].attributes
    assert log["module"].tags == MODULES
    assert set(DEFAULT_ATTRIBUTES) == {"enable", "includeTimestamp", "includeSource", "outputFile"} <= log.keys()


def test_secrets_are_marked() -> None:
    secrets = {(each.short_name, name) for each in SCHEMA.types.values() for name in each.secrets}
    assert secrets == {
        *(("sslProfile", "password"), ("connector", "saslPassword"), ("connector", "saslToken")),
        ("ldapAuthenticator", "bindPassword"),
    }


@pytest.mark.parametrize(
    "name",
    [
        *("listener", f"{PREFIX}.listener", "address", "router.config.address", f"{PREFIX}.router.config.address"),
        *("org.amqp.management", f"{PREFIX}.org.amqp.management"),
    ],
)
def test_types_answer_to_short_and_long_names(name: str) -> None:
    found = SCHEMA.type(name)
    assert found.long_name == SCHEMA.long_name(name)
    assert found.long_name.endswith(name)


@pytest.mark.parametrize("name", ["", "Listener", "__class__", None, 5, [], f"{PREFIX}."])
def test_nothing_else_is_a_type(name: object) -> None:
    with pytest.raises(ValidationError, match=r"^No such entity type "):
        SCHEMA.type(name)


@pytest.mark.parametrize(
    ("kind", "name", "given", "held"),
    [
        ("listener", "port", 5672, "5672"),
        ("listener", "port", symbol("amqp"), "amqp"),
        ("listener", "cost", 5.9, 5),
        ("listener", "cost", True, 1),
        ("listener", "cost", " 7 ", 7),
        ("listener", "cost", uint(9), 9),
        ("listener", "requireSsl", "YES", True),
        ("listener", "requireSsl", "off", False),
        ("listener", "requireSsl", 0, False),
        ("listener", "role", "edge", "edge"),
        ("listener", "role", 1, "inter-router"),
        ("listener", "role", "2", "route-container"),
        ("listener", "openProperties", {"a": [1]}, {"a": [1]}),
        ("vhost", "groups", {"g": {}}, {"g": {}}),
    ],
)
def test_values_are_converted(kind: str, name: str, given: object, held: object) -> None:
    attribute = SCHEMA.types[kind].attributes[name]
    made = attribute.convert(given, "t")
    assert (made, type(made)) == (held, type(held))


@pytest.mark.parametrize(
    ("name", "given", "text"),
    [
        ("cost", "x", "t: invalid literal for int() with base 10: 'x':"),
        ("cost", "", "t: invalid literal for int() with base 10: '':"),
        ("cost", "1_000", "t: invalid literal for int() with base 10: '1_000':"),
        ("cost", float("nan"), "t: invalid literal for int()"),
        ("cost", float("inf"), "t: invalid literal for int()"),
        ("cost", 2**63, "t: invalid literal for int()"),
        ("cost", [1], "t: invalid literal for int()"),
        ("requireSsl", "x", "t: Invalid Boolean value ''x''"),
        ("role", "x", "t: Invalid value for enum['normal', 'inter-router', 'route-container', 'edge']: 'x'"),
        ("role", 4, "t: Invalid value for enum"),
        ("role", -1, "t: Invalid value for enum"),
        ("role", True, "t: Invalid value for enum"),
        ("host", b"\xff", "t: Attribute 'host' must be text"),
        ("openProperties", [], "t: Properties must be a map"),
        ("openProperties", {"é": 1}, "t: Property keys must be ASCII encoded"),
    ],
)
def test_values_that_do_not_fit_are_refused(name: str, given: object, text: str) -> None:
    with pytest.raises(ValidationError) as caught:
        SCHEMA.types["listener"].attributes[name].convert(given, "t")
    assert str(caught.value).startswith(text)


def test_null_counts_as_missing() -> None:
    made = SCHEMA.types["listener"].validate({"host": None, "sslProfile": None}, no_warning)
    assert made["host"] == ""
    assert "sslProfile" not in made


def test_an_error_quotes_only_the_beginning_of_a_value() -> None:
    """Attack: a megabyte of text sent back and logged."""
    for name, value in (("cost", "x" * 10**6), ("role", "x" * 10**6), ("x" * 10**6, 1)):
        with pytest.raises(ValidationError) as caught:
            SCHEMA.types["listener"].validate({name: value}, no_warning)
        assert len(str(caught.value)) < 1000


def test_what_is_shown_hides_secrets_at_any_depth_and_is_bounded() -> None:
    """management 72"""
    assert shown({"a": [{"saslPassword": "x", "b": uint(1)}], "pass_phrase": 5}) == (
        "{'a': [{'saslPassword': *******, 'b': 1}], 'pass_phrase': *******}"
    )
    assert shown(["x" * 5000]).endswith("...")
    assert len(shown([list(range(10**5))] * 100)) <= MAX_SHOWN_CHARACTERS + 3


@pytest.mark.slow
@given(
    st.recursive(st.one_of(st.text(), st.integers(), st.binary(), st.floats(), st.none(), st.booleans()), st.lists),
    st.integers(0, 60),
)
def test_anything_can_be_shown(value: object, limit: int) -> None:
    assert len(shown(value, limit)) <= limit + 3
