"""What the gate of one connection answers, counts and leaves alone, asked directly: docs/spec/policy-and-auth.md §3."""

from typing import Any

import pytest
from memory_net import Vhosts, ruleset_of

from auth.identity import Identity
from policy.addressing.address import Address, Unclear, resolve
from policy.rights import NOTHING, UNRESTRICTED, UNSET
from policy.ruleset import Ruleset
from policy.usage import UsageLedger
from router.admission import connection_gate
from router.admission.allows import Allows
from router.admission.connection_gate import ConnectionGate, LinkRequest
from router.admission.gate import Gate
from router.admission.refusals import (
    ADDRESS_REFUSED,
    LINK_LIMIT,
    LINK_REFUSED,
    NO_TARGET,
    OVER_BUDGET,
    SESSION_REFUSED,
    TARGET_REFUSED,
    TOO_LARGE,
    USER_ID_REFUSED,
    Refusal,
)
from router.effects import Audit, Effect, Log

HOST = "192.0.2.1"
NOW = 1.85e9  # 2028
ALL: dict[str, Any] = {"remoteHosts": "*", "sources": "*", "targets": "*", "allowDynamicSource": True}


def rules(**group: Any) -> Ruleset:
    return ruleset_of(Vhosts({"v": {"allowUnknownUser": True, "groups": {"$default": {**ALL, **group}}}}))


def address(text: str) -> Address:
    found = resolve(text, router_id="R1")
    assert isinstance(found, Address)
    return found


ORDERS, NEWS, SECRET = address("orders"), address("news"), address("secret")
UNCLEAR = resolve("", router_id="R1")


class Trial:
    """A candidate policy that notes what it is asked, and agrees to some targets."""

    def __init__(self, settings: Any = None, *, agreed: tuple[str, ...] = ()) -> None:
        self.settings = settings
        self.agreed_targets = agreed
        self.checks_user_id = False
        self.max_message_bytes = 0
        self.asked: list[tuple[Any, ...]] = []

    def __getattr__(self, name: str) -> Any:
        return lambda *told: self.asked.append((name, *told))


class Known:
    """Addresses that a connection has, and those that it may reply to, by their age."""

    def __init__(self, owners: dict[str, Any], ages: dict[str, float]) -> None:
        self.owners, self.ages = owners, ages
        self.asked: list[bool] = []

    def owner(self, address: Address, *, is_ingress: bool) -> Any:
        self.asked.append(is_ingress)
        return self.owners.get(address.written)

    def reply_age(self, address: Address) -> float | None:
        return self.ages.get(address.written)


class House:
    """A gate, one connection of anna's, and everything that is emitted."""

    def __init__(self, ruleset: Ruleset | None = None, *, is_governed: bool = True, has_links: bool = False) -> None:
        self.effects: list[Effect] = []
        self.ledger = UsageLedger()
        gate = Gate(ruleset or rules(), self.ledger, self.effects.append)
        if has_links:
            gate.allows = Allows(self.effects.append, lambda: 0.0, lambda: NOW, has_links=True)
        self.gate = gate
        self.one = ConnectionGate(
            gate, connection_id=7, connection_name=f"{HOST}:9", remote_host=HOST, listener="l:1",
            is_governed=is_governed,
        )  # fmt: skip
        refusal = self.one.admit(Identity(user="anna"), hostname="v", policy_vhost=None, is_encrypted=True, now=NOW - 1)
        assert refusal is None
        self.effects.clear()

    def change(self, ruleset: Ruleset) -> None:
        """Put other rules in force; the connection has not caught up."""
        self.gate.ruleset = ruleset
        self.gate.begin_epoch("policy_change", lambda _connection: True, NOW)

    @property
    def events(self) -> list[Any]:
        return [each.event for each in self.effects if isinstance(each, Audit)]

    @property
    def reasons(self) -> list[str]:
        return [str(event["reason"]) for event in self.events]

    def lines(self) -> list[tuple[str, str]]:
        found: list[tuple[str, str]] = [(each.level, each.text) for each in self.effects if isinstance(each, Log)]
        self.effects.clear()
        return found

    @property
    def counts(self) -> tuple[int, int, int]:
        return (self.one.open_sessions, self.one.open_senders, self.one.open_receivers)


WHOM = "user 'anna', rhost '192.0.2.1', vhost 'v'"


def link(direction: Any = "send", target: Any = ORDERS, **more: Any) -> LinkRequest:
    return LinkRequest(direction=direction, address=target, link_name="a link", **more)


# Sessions


def test_sessions_are_counted_up_to_their_limit() -> None:
    house = House(rules(maxSessions=2))
    assert [house.one.begin() for _ in range(3)] == [None, None, SESSION_REFUSED]
    assert house.counts == (2, 0, 0)
    (event,) = house.events
    assert (event["stage"], event["usage"], event["limit"]) == ("begin", {"open_sessions": 2}, 2)
    lines = house.lines()
    assert lines[0] == ("trace", f"[C7] ALLOW AMQP Begin Session. user: anna, rhost: {HOST}, vhost: v")
    house.one.end()
    assert house.counts == (1, 0, 0)
    assert house.one.begin() is None
    house = House(rules(maxSessions=3))
    for _ in range(3):
        house.one.begin()
    house.one.end()
    assert house.counts == (2, 0, 0)


def test_sessions_that_nobody_governs_are_counted_without_a_word() -> None:
    house = House(is_governed=False)
    assert [house.one.begin() for _ in range(3)] == [None] * 3
    assert (house.counts, house.effects) == ((3, 0, 0), [])
    assert house.one.begin_again(1000) is None


def test_an_open_session_is_judged_by_those_that_are_older() -> None:
    house = House(rules(maxSessions=2))
    for _ in range(2):
        house.one.begin()
    house.change(rules(maxSessions=1))
    house.one.catch_up()
    house.effects.clear()
    assert house.one.begin_again(0) is None
    assert house.gate.ended["sessions"] == 0
    assert house.one.begin_again(1) == SESSION_REFUSED
    assert house.gate.ended["sessions"] == 1
    (event,) = house.events
    assert (event["redecision"], event["usage"]) == ("policy_change", {"open_sessions": 1})
    assert house.counts == (2, 0, 0), "its owner ends it"
    house.one.begin_again(1)
    assert house.gate.ended["sessions"] == 2


# Links


def test_links_are_counted_by_direction_up_to_their_limits() -> None:
    house = House(rules(maxSenders=1, maxReceivers=2))
    assert house.one.attach(link("send")) is None
    assert house.counts == (0, 1, 0)
    assert house.one.attach(link("send")) == LINK_LIMIT
    assert [house.one.attach(link("receive")) for _ in range(3)] == [None, None, LINK_LIMIT]
    assert house.counts == (0, 1, 2)
    assert house.reasons == ["sender_limit", "receiver_limit"]
    assert [event["usage"] for event in house.events] == [{"open_links": 1}, {"open_links": 2}]
    house.one.detach("receive")
    assert house.counts == (0, 1, 1)
    house.one.detach("send")
    assert house.counts == (0, 0, 1)
    assert house.one.attach(link("send")) is None
    house = House(rules(maxSenders=3, maxReceivers=3))
    for direction in ("send", "receive") * 3:
        house.one.attach(link(direction))
    assert house.counts == (0, 3, 3)
    house.one.detach("send")
    house.one.detach("receive")
    assert house.counts == (0, 2, 2)


def test_a_link_that_is_allowed_is_logged_where_policy_governs() -> None:
    house = House()
    house.one.attach(link("receive", NEWS))
    ((level, text),) = house.lines()
    assert level == "trace"
    assert text == f"[C7] ALLOW AMQP Attach receiver link 'news' for {WHOM} based on link source name"
    ungoverned = House(is_governed=False)
    assert ungoverned.one.attach(link("receive", NEWS)) is None
    assert (ungoverned.effects, ungoverned.counts) == ([], (0, 0, 1))


def test_a_link_to_what_is_not_granted_is_refused_and_not_counted() -> None:
    house = House(rules(sources="news", targets="orders"))
    assert house.one.attach(link("send", SECRET)) == LINK_REFUSED
    assert house.one.attach(link("receive", ORDERS)) == LINK_REFUSED
    assert (house.counts, house.reasons) == ((0, 0, 0), ["target_not_allowed", "source_not_allowed"])
    assert [event["link_name"] for event in house.events] == ["a link", "a link"]
    assert [event["direction"] for event in house.events] == ["send", "receive"]


@pytest.mark.parametrize("is_governed", [True, False])
def test_an_address_that_is_none_is_refused_with_or_without_policy(is_governed: bool) -> None:
    """Attack: the router would bind an address that nobody has judged."""
    assert isinstance(UNCLEAR, Unclear)
    house = House(is_governed=is_governed)
    for direction in ("send", "receive"):
        assert house.one.attach(link(direction, UNCLEAR)) == ADDRESS_REFUSED
        assert house.one.attach_again(link(direction, UNCLEAR), 0) == ADDRESS_REFUSED
    assert house.counts == (0, 0, 0)
    assert house.reasons == ["unclear_address"] * 4
    assert {event["link_name"] for event in house.events} == {"a link"}
    assert [event["direction"] for event in house.events] == ["send", "send", "receive", "receive"]


def test_the_rest_of_an_attach_is_judged_too() -> None:
    house = House(rules(allowDynamicSource=False, allowAnonymousSender=False, allowWaypointLinks=False))
    for request in (
        link("receive", None, is_dynamic=True),
        link("send", None),
        link("send", is_coordinator=True),
        link("receive", NEWS, capabilities=("qd.waypoint_1",)),
    ):
        house.one.attach(request)
    assert house.reasons == ["dynamic_source", "anonymous_sender", "anonymous_sender", "waypoint_capability"]


def test_an_open_link_is_judged_by_those_that_are_older() -> None:
    house = House(rules(maxSenders=2))
    house.change(rules(maxSenders=1))
    house.one.catch_up()
    house.effects.clear()
    assert house.one.attach_again(link(), 0) is None
    assert house.gate.ended["links"] == 0
    assert house.one.attach_again(link(), 1) == LINK_LIMIT
    assert house.gate.ended["links"] == 1
    (event,) = house.events
    assert (event["redecision"], event["usage"], event["link_name"]) == ("policy_change", {"open_links": 1}, "a link")
    assert house.counts == (0, 0, 0)
    house.one.attach_again(link(), 1)
    assert house.gate.ended["links"] == 2


def test_a_link_to_ones_own_dynamic_address_is_judged_as_such() -> None:
    """Who made it may receive from it; nobody else may, also where the peer has no settings."""
    for is_governed in (True, False):
        house = House(rules(sources="news"), is_governed=is_governed)
        for owner, is_allowed in (("own", True), ("other", False)):
            house.one.addresses = Known({"news": owner}, {})
            assert (house.one.attach(link("receive", NEWS)) is None) is is_allowed, (is_governed, owner)


def test_who_owns_an_address_is_asked_for_the_way_of_the_link() -> None:
    house = House()
    house.one.addresses = known = Known({}, {})
    house.one.attach(link("send"))
    house.one.attach(link("receive"))
    house.one.attach(link("send", None))
    assert known.asked == [True, False]


def test_who_may_reply_may_attach_a_sender_and_no_receiver() -> None:
    house = House(rules(targets="orders", sources="orders", allowReplies=True))
    house.one.addresses = Known({}, {"news": 1.0})
    assert house.one.attach(link("send", NEWS)) is None
    assert house.one.attach(link("receive", NEWS)) == LINK_REFUSED
    house.one.addresses = Known({}, {"news": 1e6})
    assert house.one.attach(link("send", NEWS)) == LINK_REFUSED


def test_without_policy_a_link_is_nobodys_business() -> None:
    """Where vhost policy is off, not even another's dynamic address is."""
    house = House(ruleset_of(None))
    house.one.addresses = Known({"news": "other"}, {})
    assert house.one.attach(link("receive", NEWS)) is None


def test_a_link_that_is_allowed_is_on_record_where_that_is_asked_for() -> None:
    house = House(rules(allowAnonymousSender=True), has_links=True)
    house.one.attach(link("send", is_coordinator=True, capabilities=("queue",)))
    (event,) = house.events
    assert (event["asked"]["is_coordinator"], event["asked"]["capabilities"]) == (True, '["queue"]')
    assert (event["stage"], event["decision"], event["address"], event["link_name"]) == (
        *("attach", "allow", "orders", "a link"),
    )
    assert event["ruleset_digest"] == house.gate.ruleset.digest
    house.one.addresses = Known({}, {"news": 1.0})
    house.one.attach(link("receive", NEWS))
    assert house.events[1].get("asked") is None, "a reply is sent, and never received"


def test_what_lies_inside_the_router_is_refused_to_a_connectors_peer() -> None:
    house = House()
    assert house.one.refuse_in_process("receive", "$management", link_name="a link") == LINK_REFUSED
    assert house.one.refuse_message_in_process("$management") == TARGET_REFUSED
    attach, transfer = house.events
    assert (attach["stage"], attach["direction"], attach["address"], attach["link_name"]) == (
        *("attach", "receive", "$management", "a link"),
    )
    assert (transfer["stage"], transfer["address"]) == ("transfer", "$management")


# Messages


@pytest.mark.parametrize(
    ("user_id", "is_proxy", "is_allowed"),
    [
        (b"anna", False, True),
        (b"", False, True),
        (b"root", False, False),
        (b"root", True, True),
        (b"Anna", False, False),
    ],
)
def test_whose_user_id_a_message_may_have(user_id: bytes, is_proxy: bool, is_allowed: bool) -> None:
    house = House(rules(allowUserIdProxy=is_proxy))
    assert house.one.refuses_user_ids is house.one.checks_user_id is not is_proxy
    refusal = house.one.refuse_user_id(user_id, 3, "orders")
    assert refusal == (None if is_allowed else USER_ID_REFUSED)
    if refusal is not None:
        (event,) = house.events
        assert (event["reason"], event["address"]) == ("user_id_proxy", "orders")
        assert any("[C7][L3]" in text for _, text in house.lines())


def test_without_settings_any_user_id_may_be() -> None:
    house = House(is_governed=False)
    assert not house.one.refuses_user_ids
    assert not house.one.checks_user_id
    assert house.one.refuse_user_id(b"root", 3, None) is None
    assert house.effects == []


def test_a_candidate_is_asked_about_user_ids_and_refuses_none() -> None:
    house = House(rules(allowUserIdProxy=True))
    house.one.shadow = trial = Trial()  # type: ignore[assignment]
    assert not house.one.checks_user_id
    trial.checks_user_id = True
    assert house.one.checks_user_id
    assert not house.one.refuses_user_ids
    assert house.one.refuse_user_id(b"root", 3, "orders") is None
    ((name, decision, user_id, where),) = trial.asked
    assert (name, decision.is_allowed, user_id, where) == ("user_id", True, b"root", "orders")


def test_a_message_with_malformed_sections_is_on_record() -> None:
    house = House()
    house.one.record_malformed(3, "orders")
    (event,) = house.events
    assert (event["reason"], event["address"]) == ("malformed_message", "orders")
    assert any("[L3]" in text for _, text in house.lines())


def test_targets_that_are_allowed_are_remembered_and_no_others() -> None:
    house = House(rules(targets="orders"))
    assert house.one.known_target("orders") is None
    assert house.one.judge_target(ORDERS, 3) is ORDERS
    assert house.lines() == [("trace", f"[C7] ALLOW AMQP message to 'orders' for {WHOM} based on target address")]
    assert house.one.known_target("orders") is ORDERS
    assert house.one.judge_target(ORDERS, 3) is ORDERS
    assert house.effects == [], "said once"
    for _ in range(2):
        assert house.one.judge_target(SECRET, 3) == TARGET_REFUSED
        assert house.one.known_target("secret") is None
    assert house.reasons == ["message_target_not_allowed"] * 2
    assert [event["address"] for event in house.events] == ["secret"] * 2
    assert any("[L3]" in text for _, text in house.lines())


def test_a_message_without_an_address_is_denied_by_policy_or_by_the_router() -> None:
    house = House(rules(targets="orders"))
    assert house.one.judge_target(None, 3) == TARGET_REFUSED
    house = House(is_governed=False)
    for _ in range(2):
        assert house.one.judge_target(None, 3) == NO_TARGET
    assert house.one.known_target("") is None
    assert house.effects == []


def test_a_message_to_an_address_that_is_none_is_refused() -> None:
    for is_governed in (True, False):
        house = House(is_governed=is_governed)
        assert house.one.judge_target(UNCLEAR, 3) == ADDRESS_REFUSED
        assert house.reasons == ["unclear_address"]
        assert any("[L3]" in text for _, text in house.lines())


def test_a_target_that_is_allowed_as_a_reply_is_not_remembered() -> None:
    """It is allowed for a time."""
    house = House(rules(targets="orders", allowReplies=True))
    house.one.addresses = known = Known({}, {"news": 1.0})
    assert house.one.judge_target(NEWS, 3) is NEWS
    assert house.one.known_target("news") is None
    assert known.asked == [True]
    known.ages["news"] = 1e6
    assert house.one.judge_target(NEWS, 3) == TARGET_REFUSED


def test_a_message_to_ones_own_dynamic_address_is_allowed_and_to_anothers_a_matter_of_replies() -> None:
    for allow_replies, owner, reason in (
        (False, "own", None),
        (False, "other", "message_target_not_allowed"),
        (True, "other", "reply_not_expected"),
    ):
        house = House(rules(targets="orders", allowReplies=allow_replies))
        house.one.addresses = Known({"news": owner}, {})
        assert house.one.judge_target(NEWS, 3) == (NEWS if reason is None else TARGET_REFUSED)
        assert house.reasons == ([] if reason is None else [reason])


def test_other_rules_forget_the_targets_and_end_who_is_denied() -> None:
    house = House(rules(targets="orders"))
    house.one.judge_target(ORDERS, 3)
    house.change(rules(targets="news"))
    assert house.one.known_target("orders") is None, "it has not caught up"
    assert house.one.judge_target(ORDERS, 3) == TARGET_REFUSED
    assert house.one.judge_target(NEWS, 3) is NEWS
    house.change(ruleset_of(Vhosts({"v": {"groups": {"g": {**ALL, "users": "bob"}}}})))
    house.effects.clear()
    assert house.one.judge_target(NEWS, 3) == TARGET_REFUSED
    assert house.one.refuse_reply(NEWS, 3) == TARGET_REFUSED
    assert house.one.known_target("news") is None
    assert house.reasons == ["unknown_user"], "the connection alone is denied, once"


def test_what_is_remembered_is_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attack: endless distinct addresses. An address takes 600 bytes, and 16 for each character."""
    house = House()
    room = 2 * (600 + 16 * 5)
    monkeypatch.setattr(connection_gate, "MAX_REMEMBERED_BYTES", room)
    for name in ("aaaaa", "bbbbb"):
        house.one.judge_target(address(name), 3)
    assert [house.one.known_target(name) is not None for name in ("aaaaa", "bbbbb")] == [True, True]
    house.one.judge_target(address("ccccc"), 3)
    assert [house.one.known_target(name) is not None for name in ("aaaaa", "bbbbb", "ccccc")] == [False, False, True]
    house.one.judge_target(address("ddddd"), 3)
    assert [house.one.known_target(name) is not None for name in ("ccccc", "ddddd")] == [True, True]
    fits = "e" * 40
    monkeypatch.setattr(connection_gate, "MAX_REMEMBERED_BYTES", 600 + 16 * 40)
    house.one.judge_target(address(fits), 3)
    assert house.one.known_target(fits) is not None
    house.one.judge_target(address(fits + "e"), 3)
    assert house.one.known_target(fits + "e") is None
    house.one.judge_target(address("f"), 3)
    assert house.one.known_target("f") is not None, "the longest has taken no room"


def test_a_target_is_known_where_the_candidate_agrees_too() -> None:
    """Else each message is asked about: its count is what the candidate would have denied."""
    house = House(rules(targets="orders"))
    house.one.judge_target(ORDERS, 3)
    house.effects.clear()
    house.one.shadow = trial = Trial()  # type: ignore[assignment]
    assert house.one.known_target("orders") is None
    assert house.one.judge_target(ORDERS, 3) is ORDERS
    assert house.effects == [], "it was said before"
    ((name, decision, facts),) = trial.asked
    assert (name, decision.is_allowed, facts.target) == ("target", True, ORDERS)
    trial.agreed_targets = ("orders",)
    assert house.one.known_target("orders") is ORDERS
    house.one.judge_target(ORDERS, 3)
    assert len(trial.asked) == 1
    house.one.judge_target(SECRET, 3)
    assert [told[1].is_allowed for told in trial.asked] == [True, False]


def test_a_candidate_is_asked_about_what_nobody_governs() -> None:
    house = House(is_governed=False)
    house.one.shadow = trial = Trial()  # type: ignore[assignment]
    house.one.begin()
    house.one.attach(link())
    house.one.judge_target(ORDERS, 3)
    house.one.refuse_size(10, 0, 3, "orders")
    house.one.ask_candidate(link("receive", NEWS), 4)
    assert [told[0] for told in trial.asked] == ["begin", "attach", "target", "size", "attach"]
    assert all(told[1].is_allowed for told in trial.asked)
    assert trial.asked[0][2] == 0
    assert (trial.asked[1][2].address, trial.asked[1][2].open_links) == (ORDERS, 0)
    assert trial.asked[3][2:] == (10, 0, "orders")
    assert (trial.asked[4][2].address, trial.asked[4][2].open_links) == (NEWS, 4)
    house.one.shadow = None
    house.one.ask_candidate(link("receive", NEWS), 4)


def test_a_reply_is_judged_each_time() -> None:
    house = House(rules(targets="orders", allowReplies=True))
    house.one.addresses = known = Known({}, {"news": 1.0})
    house.one.shadow = trial = Trial()  # type: ignore[assignment]
    assert house.one.refuse_reply(NEWS, 3) is None
    known.ages["news"] = 1e6
    assert house.one.refuse_reply(NEWS, 3) == TARGET_REFUSED
    assert house.reasons == ["reply_window_over"]
    assert [told[1].is_allowed for told in trial.asked] == [True, False]
    assert [(told[2].target, told[2].reply_age_s) for told in trial.asked] == [(NEWS, 1.0), (NEWS, 1e6)]
    assert [event["address"] for event in house.events] == ["news"]
    assert any("[L3]" in text for _, text in house.lines())
    assert House(is_governed=False).one.refuse_reply(NEWS, 3) is None


def test_a_reply_is_judged_by_the_rules_of_now() -> None:
    house = House(rules(targets="orders"))
    assert house.one.refuse_reply(ORDERS, 3) is None
    house.change(rules(targets="news"))
    assert house.one.refuse_reply(ORDERS, 3) == TARGET_REFUSED


# Rights


def test_what_may_be_named_and_sent_to_is_what_is_granted() -> None:
    house = House(rules(targets="orders"))
    one = house.one
    for ask in (one.may_name, one.may_send_to, one.is_listed):
        assert [ask(ORDERS), ask(SECRET)] == [True, False]
    house.change(rules(targets="orders"))
    for ask in (one.may_name, one.may_send_to):
        assert ask(ORDERS) is False, "it has not caught up"
    free = House(is_governed=False).one
    for ask in (free.may_name, free.may_send_to, free.is_listed):
        assert ask(SECRET) is True


def test_a_candidate_may_forbid_to_name_where_nothing_governs() -> None:
    """So that its replies are counted as they would be."""
    granted = House(rules(targets="orders")).one.settings
    free = House(is_governed=False).one
    free.shadow = Trial(granted)  # type: ignore[assignment]
    assert [free.may_name(ORDERS), free.may_name(SECRET)] == [True, False]
    governed = House(rules(targets="*")).one
    governed.shadow = Trial(granted)  # type: ignore[assignment]
    assert governed.may_name(SECRET)


@pytest.mark.parametrize("is_permitted", [True, False])
def test_who_may_drop_connections(is_permitted: bool) -> None:
    house = House(rules(allowAdminStatusUpdate=is_permitted))
    assert house.one.may_update_admin_status() is is_permitted
    house.change(rules(allowAdminStatusUpdate=True))
    assert house.one.may_update_admin_status() is False
    assert House(is_governed=False).one.may_update_admin_status() is True


def test_rights_of_management_are_those_of_the_settings_of_now() -> None:
    house = House(rules(managementRights="read connection"))
    settings = house.one.settings
    assert settings is not None
    assert house.one.management_rights() is settings.management
    house.change(rules())
    assert house.one.management_rights() is NOTHING
    assert House(is_governed=False).one.management_rights() is UNSET
    assert House(ruleset_of(None)).one.management_rights() is UNRESTRICTED


# Sizes and times


def test_for_how_long_replies_are_remembered() -> None:
    def window(ruleset: Ruleset | None, trial: Ruleset | None = None) -> int:
        one = House(ruleset, is_governed=ruleset is not None).one
        if trial is not None:
            one.shadow = Trial(House(trial).one.settings)  # type: ignore[assignment]
        return one.reply_window_s

    replies = {"allowReplies": True, "replyWindow": 30}
    assert window(rules(**replies)) == 30
    assert window(rules(replyWindow=30)) == 0
    assert window(None) == 0
    assert window(None, rules(**replies)) == 30
    assert window(rules(**replies), rules(allowReplies=True, replyWindow=60)) == 60
    assert window(rules(**replies), rules(allowReplies=True, replyWindow=20)) == 30


@pytest.mark.parametrize(
    ("own", "trials", "watched"), [(0, 0, 0), (100, 0, 100), (0, 50, 50), (100, 50, 50), (50, 100, 50)]
)
def test_past_which_size_a_message_is_asked_about(own: int, trials: int, watched: int) -> None:
    house = House(rules(maxMessageSize=own))
    assert house.one.watched_message_bytes == own
    house.one.shadow = trial = Trial()  # type: ignore[assignment]
    trial.max_message_bytes = trials
    assert house.one.watched_message_bytes == watched
    assert House(is_governed=False).one.watched_message_bytes == 0


def test_a_message_may_have_so_many_bytes() -> None:
    house = House(rules(maxMessageSize=100))
    house.one.shadow = trial = Trial()  # type: ignore[assignment]
    assert house.one.refuse_size(100, 0, 3, "orders") is None
    assert house.one.refuse_size(101, 90, 3, "orders") == TOO_LARGE
    (event,) = house.events
    assert (event["reason"], event["limit"], event["address"]) == ("message_too_large", 100, "orders")
    assert event["rule"]["item"] == "maxMessageSize: 100"
    ((level, text),) = house.lines()
    assert (level, text.startswith("[C7][L3] DENY ")) == ("warning", True)
    assert [told[1].is_allowed for told in trial.asked] == [True, False]
    assert [told[2:] for told in trial.asked] == [(100, 0, "orders"), (101, 90, "orders")]
    assert House().one.refuse_size(10**12, 0, 3, None) is None
    assert House(is_governed=False).one.refuse_size(10**12, 0, 3, None) is None


# What is ended whatever policy says


def test_what_does_not_happen_for_bytes_that_are_held_is_on_record() -> None:
    house = House()
    refusal = house.one.refuse_over_budget("attach", "AMQP Attach", budget="userByteBudget of 'anna'", limit=9, held=10)
    assert refusal == OVER_BUDGET
    (event,) = house.events
    assert (event["stage"], event["reason"], event["limit"]) == ("attach", "byte_budget", 9)
    assert event["rule"]["item"] == "userByteBudget of 'anna': 9"
    ((_, text),) = house.lines()
    assert text.startswith(f"[C7] DENY AMQP Attach for {WHOM}: 10 bytes are held")


@pytest.mark.parametrize(("side", "how"), [("give_up_message", {"holds_up_others": False}), ("give_up_receiver", {})])
def test_what_makes_no_progress_is_on_record(side: str, how: dict[str, bool]) -> None:
    house = House()
    refusal = getattr(house.one, side)(30.0, 3, "orders", **how)
    assert isinstance(refusal, Refusal)
    assert refusal.description.endswith(" for 30 seconds")
    (event,) = house.events
    assert event["address"] == "orders"
    assert any("[L3]" in text for _, text in house.lines())
