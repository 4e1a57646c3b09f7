"""The recommended policy permits what was used, nothing that was not permitted before, and lints clean (issue 15)."""

import json
from typing import Any

from policy.analysis.difference import diff_rulesets
from policy.files.layout import formatted
from policy.files.validation import load_sections
from policy.lint.rules import check_all
from policy.ruleset import Ruleset, compile_ruleset
from spark.replaying.decisions import Replay
from spark.replaying.recommendation import MAX_EXACT, Recommendation, Unused, Use, recommend

ACME: dict[str, Any] = {
    "hostname": "acme",
    "maxConnections": 100,
    "maxConnectionsPerUser": 10,
    "maxConnectionsPerHost": 20,
    "allowUnknownUser": False,
    "groups": {
        "staff": {
            "users": "alice, bob, carol",
            "remoteHosts": "192.0.2.0-192.0.2.255",
            "sources": "orders.*, mine.${user}, never.*",
            "targets": "orders.*",
            "allowDynamicSource": True,
            "allowAnonymousSender": False,
            "allowAdminStatusUpdate": False,
            "allowDynamicLinkRoutes": False,
            "maxMessageSize": 65536,
            "maxSessions": 10,
            "maxSenders": 10,
            "maxReceivers": 10,
        },
        "idle": {"users": "dan", "remoteHosts": "192.0.2.1", "sources": "a", "targets": "a"},
    },
}
OLD: dict[str, Any] = {"hostname": "old", "groups": {"g": {"users": "x", "remoteHosts": "192.0.2.1", "sources": "a"}}}


def use(user: str, host: str, direction: str | None = None, address: str | None = None, item: str | None = None) -> Use:
    return Use("R1", "acme", "staff", user, host, direction, address, item)


USES = [
    use("alice", "192.0.2.7"),
    use("bob", "192.0.2.8"),
    use("alice", "192.0.2.7", "receive", "orders.new", "sources: orders.*"),
    use("alice", "192.0.2.7", "receive", "mine.alice", "sources: mine.${user}"),
    use("bob", "192.0.2.8", "send", "orders.new", "targets: orders.*"),
]


def ruleset(*vhosts: dict[str, Any]) -> Ruleset:
    return compile_ruleset({"enableVhostPolicy": True}, [(vhost, None) for vhost in vhosts], resolve=lambda _: [])


def made(*vhosts: dict[str, Any], uses: list[Use]) -> Recommendation:
    return recommend(ruleset(*vhosts), [(vhost, None) for vhost in vhosts], uses)


def test_what_was_never_used_is_listed() -> None:
    assert set(made(ACME, OLD, uses=USES).unused) == {
        Unused("vhost", "old", None, "old"),
        Unused("group", "acme", "idle", "idle"),
        Unused("user", "acme", "staff", "carol"),
        Unused("hosts", "acme", "staff", "all but 2 of remoteHosts"),
        Unused("item", "acme", "staff", "sources: never.*"),
        Unused("permission", "acme", "staff", "allowDynamicSource"),
    }


def test_it_permits_what_was_used_and_nothing_more_than_before() -> None:
    (narrow,) = made(ACME, OLD, uses=USES).vhosts
    staff = narrow["groups"]["staff"]
    assert list(narrow["groups"]) == ["staff"]
    assert staff["users"] == ["alice", "bob"]
    assert staff["remoteHosts"] == "192.0.2.7-192.0.2.8"
    assert staff["sources"] == "mine.${user}, orders.new"
    assert staff["targets"] == "orders.new"
    assert staff["maxSenders"] == 10
    rules = ruleset(narrow)
    for each in USES:
        event = {
            "schema_version": 5, "router": "R1",
            "stage": "attach" if each.direction else "open", "decision": "allow", "reason": "allowed",
            "user": each.user, "remote_host": each.remote_host, "requested_vhost": "acme", "connection_name": "",
            "mechanism": "PLAIN", "is_encrypted": True, "direction": each.direction, "address": each.address,
            "usage": {"total": 0, "of_user": 0, "of_host": 0, "open_links": 0}, "time_s": 1.0,
        }  # fmt: skip
        decision = Replay(rules).decide(event).decision
        assert decision is not None
        assert decision.is_allowed, each
    changes = diff_rulesets(ruleset(ACME, OLD), rules, None, router_id="R1")
    assert changes
    assert not [change for change in changes if change.is_widening]


def test_it_lints_clean() -> None:
    text = formatted(json.dumps([["vhost", vhost] for vhost in made(ACME, uses=USES).vhosts]), "recommended.json")
    sections = tuple(load_sections(text, "recommended.json"))
    assert check_all(sections, texts={"recommended.json": text}) == ()


def test_whoever_came_as_unknown_is_known_now() -> None:
    open_to_all = {"hostname": "acme", "allowUnknownUser": True, "groups": {"$default": {"remoteHosts": "*"}}}
    (narrow,) = made(open_to_all, uses=[Use("R1", "acme", "$default", "zoe", "192.0.2.7", None, None, None)]).vhosts
    assert narrow["allowUnknownUser"] is False
    assert narrow["groups"] == {"known-users": {"users": ["zoe"], "remoteHosts": "192.0.2.7"}}


def test_attack_an_address_with_the_grammar_of_a_list_widens_nothing() -> None:
    """A client that was allowed `orders.*` attached to names that a list would read as more."""
    for address in ("orders.a,secret", "orders.*", "orders.#", "orders.${user}", "orders. ", "orders.\u200b"):
        uses = [use("alice", "192.0.2.7", "receive", address, "sources: orders.*")]
        (narrow,) = made(ACME, uses=uses).vhosts
        assert narrow["groups"]["staff"]["sources"] == "orders.*", address


def test_attack_a_user_with_the_grammar_of_a_list_widens_nothing() -> None:
    anybody = {"hostname": "acme", "groups": {"g": {"users": "*", "remoteHosts": "*", "sources": "a"}}}
    unknown = {"hostname": "acme", "allowUnknownUser": True, "groups": {"$default": {"remoteHosts": "*"}}}
    for name in ("*", "anna,root", " anna", "@admins", "${user}"):
        (narrow,) = made(anybody, uses=[Use("R1", "acme", "g", name, "192.0.2.7", None, None, None)]).vhosts
        assert narrow["groups"]["g"]["users"] == "*", name
        (narrow,) = made(unknown, uses=[Use("R1", "acme", "$default", name, "192.0.2.7", None, None, None)]).vhosts
        assert list(narrow["groups"]) == ["$default"], name
        assert narrow["allowUnknownUser"] is True


def test_many_addresses_keep_their_item_and_anonymous_senders_their_targets() -> None:
    uses = [use("alice", "192.0.2.7", "receive", f"orders.{n}", "sources: orders.*") for n in range(MAX_EXACT + 1)]
    uses.append(use("alice", "192.0.2.7", "send", None, None))
    (narrow,) = made(ACME, uses=uses).vhosts
    assert narrow["groups"]["staff"]["sources"] == "orders.*"
    assert narrow["groups"]["staff"]["targets"] == "orders.*"


def test_uses_of_another_policy_are_counted() -> None:
    other = Use("R1", "acme", "gone", "x", "192.0.2.7", None, None, None)
    assert made(ACME, uses=[*USES, other]).strangers == 1
