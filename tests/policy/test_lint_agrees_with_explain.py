"""A rule that says what the router will decide says what `explain` says. Issue 37, point 1."""

from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from policy.addressing.address import resolve
from policy.analysis.explain import explain_connection, explain_link
from policy.attributes import SourceLocation
from policy.facts import ConnectionFacts, LinkFacts
from policy.files.sections import Section
from policy.lint import mute_responder
from policy.lint.findings import PolicyText
from policy.ruleset import compile_ruleset

ROUTER = "QDR"
REPLIES = (f"amqp:/_topo/0/{ROUTER}/temp.abcdefghijklmno", f"amqp:/_edge/{ROUTER}/temp.abcdefghijklmno")
OTHER_REPLIES = tuple(reply.replace(ROUTER, "other") for reply in REPLIES)
SCHEMES = st.sampled_from(["", "amqp:/", "amqp:///", "amqp://host/", "/"])
PLACES = (
    "_topo/*",
    "_topo/0/*",
    f"_topo/0/{ROUTER}/*",
    "_topo/0/other/*",
    "_topo/all/*",
    "_edge/*",
    "events",
    "temp.*",
)
ITEMS = st.lists(st.builds(str.__add__, SCHEMES, st.sampled_from(PLACES)), min_size=1, max_size=3)
PATTERNS = ("_topo/#", f"_topo/0/{ROUTER}/#", "_topo/*/*/*", "events", "_edge/#")
LISTS: st.SearchStrategy[dict[str, list[str]]] = st.one_of(
    st.fixed_dictionaries({"targets": ITEMS}, optional={"denyTargets": ITEMS}),
    st.fixed_dictionaries({"targetPattern": st.lists(st.sampled_from(PATTERNS), min_size=1, max_size=2)}),
    st.just({}),
)


def no_names(name: str) -> tuple[str, ...]:
    raise OSError(name)


def section(type_: str, attributes: Mapping[str, object]) -> Section:
    return Section(type=type_, attributes=attributes, source=SourceLocation(file="r.conf", line=1))


@given(lists=LISTS)
def test_a_responder_is_mute_where_explain_denies_its_replies(lists: Mapping[str, list[str]]) -> None:
    group = {"remoteHosts": "*"}
    groups = {
        "askers": {**group, "users": "asker", "targets": "requests", "allowDynamicSource": True},
        "services": {**group, "users": "somebody", "sources": "requests", **lists},
    }
    vhost = {"hostname": "h", "groups": groups}
    found = list(
        mute_responder.check(PolicyText(entities=(section("router", {"id": ROUTER}), section("vhost", vhost))))
    )

    ruleset = compile_ruleset({"enableVhostPolicy": True}, [(vhost, None)], resolve=no_names)
    facts = ConnectionFacts(user="somebody", remote_host="::1", requested_vhost="h", connection_name="[::1]:1")
    settings = explain_connection(ruleset, facts).settings
    assert settings is not None

    def is_allowed(reply: str) -> bool:
        # At the router that made the address.
        address = resolve(reply, router_id=reply.split("/")[-2])
        return explain_link(settings, LinkFacts(direction="send", address=address)).decision.is_allowed

    # Other routers count where an item names them.
    others = OTHER_REPLIES if any("/other/" in item for item in lists.get("targets", ())) else ()
    allowed = any(map(is_allowed, (*REPLIES, *others)))
    assert bool(found) == (not allowed)
