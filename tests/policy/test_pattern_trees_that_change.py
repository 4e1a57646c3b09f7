"""A tree of patterns that come and go is at each moment what it would be had it been built anew."""

from hypothesis import given
from hypothesis import strategies as st

from policy.addressing.patterns import PatternTree, normalise_tokens

TOKENS = st.lists(st.sampled_from(["a", "b", "*", "#"]), min_size=1, max_size=4).map(
    lambda each: normalise_tokens(each)
)
NAMES = st.lists(st.sampled_from(["a", "b", "c"]), max_size=5)


@given(st.lists(st.tuples(st.booleans(), TOKENS), max_size=20), st.lists(NAMES, min_size=1, max_size=5))
def test_what_was_added_and_not_discarded_is_found(
    steps: list[tuple[bool, tuple[str, ...]]], names: list[list[str]]
) -> None:
    tree, there = PatternTree(()), dict[tuple[str, ...], str]()
    for is_added, tokens in steps:
        if is_added and tokens not in there:
            there[tokens] = "/".join(tokens)
            tree.add(tokens, there[tokens])
        elif not is_added:
            there.pop(tokens, None)
            tree.discard(tokens)
    anew = PatternTree(there.items())
    for name in names:
        assert tree.find(name) == anew.find(name)
    for tokens in list(there):
        tree.discard(tokens)
    assert tree._root.is_bare
