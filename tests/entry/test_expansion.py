"""`${NAME}` in a configuration, by qdrouterd-entry."""

import pytest

from router.entry.expansion import ExpansionError, expand


def test_a_variable_is_replaced_and_other_texts_stay() -> None:
    """`${user}` is policy's, and a doubled sign keeps the text."""
    text = "id: ${HOSTNAME}\n# ${NOT_THERE}\nrouterIds: ${user}\nsources: $${HOSTNAME}, ${user:escaped}\n"
    assert expand(text, {"HOSTNAME": "mesh-0"}) == (
        "id: mesh-0\n# ${NOT_THERE}\nrouterIds: ${user}\nsources: ${HOSTNAME}, ${user:escaped}\n"
    )


def test_a_missing_variable_is_named_with_its_line() -> None:
    with pytest.raises(ExpansionError, match="line 2: there is no environment variable POD_IP"):
        expand("router {\n  host: ${POD_IP}\n}", {"OTHER": "x"})


@pytest.mark.parametrize("value", ["a\n}\nlistener {\n port: 5672", "a\rb", "a # b", 'a"b', "a\\u0041"])
def test_a_value_cannot_become_more_than_a_value(value: str) -> None:
    """Attack: whoever sets a variable adds a listener without TLS to the configuration."""
    with pytest.raises(ExpansionError, match="environment variable ID has") as caught:
        expand("id: ${ID}", {"ID": value})
    assert value not in str(caught.value)


def test_a_value_is_not_expanded_again() -> None:
    assert expand("id: ${A}", {"A": "${B}", "B": "secret"}) == "id: ${B}"
