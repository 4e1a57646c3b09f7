"""Expected decisions of a policy, written beside it, and the rules that the expectations have used.

Pure. A file is JSON in which lines that begin with # are comments:

    {"policy": "policy.json",
     "expect": [
       {"user": "alice", "host": "10.0.0.1", "is": "allow"},
       {"user": "alice", "host": "10.0.0.1", "send": ["orders.1", "orders.2"], "is": "allow"},
       {"user": "alice", "host": "10.0.0.1", "send": "alice.replies", "replyAge": 20, "is": "allow"},
       {"user": "alice", "host": "10.0.0.1", "receive": "$management", "is": "deny", "reason": "source_not_allowed"},
       {"user": "alice", "host": "10.0.0.1", "manage": ["create ban", "update vhost"], "is": "deny"}]}
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any, Literal

from policy.addressing.address import resolve_named
from policy.analysis.explain import explain_connection, explain_link, explain_management, is_numeric_host
from policy.attributes import InvalidValue
from policy.decision import Decision, Reason, Rule
from policy.facts import ConnectionFacts, LinkFacts, ManagementFacts
from policy.files.loader import PolicyFileError
from policy.files.positioned_json import Document, NotJson, Problem, parse
from policy.rights import read_request
from policy.ruleset import Ruleset
from policy.vhosts import CONNECTOR_GROUP
from policy.windows import read_instant

_TEXTS = ("name", "user", "host", "vhost", "mechanism", "at", "is", "reason")
_SWITCHES = ("tls", "dynamic", "anonymous", "multiTenant")
_ADDRESSES = ("send", "receive")
_MANAGE = "manage"
_LISTS = (*_ADDRESSES, "groups", _MANAGE)
_REPLY_AGE = "replyAge"  # seconds since the connection received a message with the address as its reply-to
_KEYS = (*_TEXTS, *_SWITCHES, *_LISTS, _REPLY_AGE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """One question and its expected answer.

    asked    None: only the connection is asked about. A link or a management request on a refused connection is denied
    address  of the link, as a client writes it; it is resolved when the router is known
    is_multi_tenant  whether the listener gives each vhost its own address space
    reason   None: any
    """

    name: str
    line: int
    connection: ConnectionFacts
    asked: LinkFacts | ManagementFacts | None
    address: str | None
    is_multi_tenant: bool
    is_allowed: bool
    reason: Reason | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectationFile:
    policy: str
    expectations: tuple[Expectation, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The decision on an expectation.

    rules  the rules that the decisions rest on
    """

    expectation: Expectation
    decision: Decision
    rules: tuple[Rule, ...]

    @property
    def is_met(self) -> bool:
        wanted = self.expectation
        is_reason = wanted.reason is None or wanted.reason is self.decision.reason
        return self.decision.is_allowed == wanted.is_allowed and is_reason


def read_expectations(text: str, file: str) -> ExpectationFile:
    """Reads a file of expectations. Raises PolicyFileError with all problems."""
    try:
        document = parse(text)
    except NotJson as error:
        raise PolicyFileError(file, (error.problem,)) from None
    problems = list(document.problems)
    value = document.value
    if not isinstance(value, dict) or not isinstance(value.get("expect"), list):
        problem = _problem(document, (), 'expectations are {"policy": "FILE", "expect": [{...}, ...]}')
        raise PolicyFileError(file, (problem,))
    if not isinstance(value.get("policy"), str):
        problems.append(_problem(document, ("policy",), '"policy" names a file or folder, beside this file'))
    found: list[Expectation] = []
    for index, entry in enumerate(value["expect"]):
        if not isinstance(entry, dict):
            problems.append(_problem(document, ("expect", index), "an expectation is a map in braces"))
            continue
        wrong = tuple(_problems(document, ("expect", index), entry))
        problems += wrong
        if not wrong:
            found += _expectations(entry, document.position_of(("expect", index))[0])
    if problems:
        raise PolicyFileError(file, tuple(problems))
    return ExpectationFile(policy=value["policy"], expectations=tuple(found))


def _problems(document: Document, path: tuple[str | int, ...], entry: Mapping[str, Any]) -> Iterator[Problem]:
    for key, value in entry.items():
        place = (*path, key)
        if key not in _KEYS:
            similar = get_close_matches(key, _KEYS, n=1)
            advice = f"did you mean '{similar[0]}'?" if similar else f"known are {', '.join(_KEYS)}"
            yield _problem(document, place, f"unknown member '{key}': {advice}")
        elif key in _TEXTS and not isinstance(value, str) and not (key == "user" and value is None):
            yield _problem(document, place, f"'{key}' is a text in double quotes")
        elif key in _SWITCHES and not isinstance(value, bool):
            yield _problem(document, place, f"'{key}' is true or false")
        elif key in _LISTS and not (isinstance(value, str) or _is_texts(value)):
            kind = {"groups": "a group", _MANAGE: "a management request"}.get(key, "an address")
            yield _problem(document, place, f"'{key}' is {kind}, or a list of them")
        elif key == _MANAGE:
            yield from _wrong_requests(document, place, value)
    age_s = entry.get(_REPLY_AGE, 0)
    if isinstance(age_s, bool) or not isinstance(age_s, int | float) or age_s < 0:
        yield _problem(document, (*path, _REPLY_AGE), f"'{_REPLY_AGE}' is a number of seconds, from 0 on")
    elif _REPLY_AGE in entry and "send" not in entry:
        yield _problem(document, (*path, _REPLY_AGE), f"'{_REPLY_AGE}' is said of an address to send to")
    if entry.get("is") not in ("allow", "deny"):
        yield _problem(document, (*path, "is"), '"is" is "allow" or "deny"')
    if isinstance(entry.get("host"), str) and not is_numeric_host(entry["host"]):
        yield _problem(document, (*path, "host"), f"'{entry['host']}' is no numeric address, such as 10.0.0.1 or ::1")
    if isinstance(entry.get("at"), str):
        try:
            read_instant(entry["at"])
        except InvalidValue as error:
            yield _problem(document, (*path, "at"), f"'at' {error}")
    if "host" not in entry:
        yield _problem(document, path, '"host" is missing: the numeric address of the peer')
    if "reason" in entry and entry["reason"] not in list(Reason):
        similar = get_close_matches(str(entry["reason"]), list(Reason), n=1)
        advice = f"did you mean '{similar[0]}'?" if similar else f"known are {', '.join(Reason)}"
        yield _problem(document, (*path, "reason"), f"unknown reason: {advice}")
    if sum(key in entry for key in (*_ADDRESSES, _MANAGE, "dynamic", "anonymous")) > 1:
        yield _problem(document, path, "one of send, receive, dynamic, anonymous and manage is enough")


def _wrong_requests(document: Document, place: tuple[str | int, ...], value: str | list[str]) -> Iterator[Problem]:
    for text in _several(value):
        try:
            read_request(text)
        except InvalidValue as error:
            yield _problem(document, place, f"'{_MANAGE}' '{text}': {error}")


def _several(value: str | list[str]) -> list[str]:
    return [value] if isinstance(value, str) else value


def _is_texts(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(each, str) for each in value)


def _expectations(entry: Mapping[str, Any], line: int) -> Iterator[Expectation]:
    connection = ConnectionFacts(
        user=entry.get("user"),
        remote_host=entry["host"],
        requested_vhost=entry.get("vhost", ""),
        connection_name="expected",
        mechanism=entry.get("mechanism"),
        is_encrypted=entry.get("tls", False),
        groups=tuple([groups] if isinstance(groups := entry.get("groups", []), str) else groups),
        now=read_instant(entry["at"]) if "at" in entry else None,
    )
    who = f"'{connection.user}'" if connection.user else "a peer without a name"
    for asked, address, what in _questions(entry):
        yield Expectation(
            name=entry.get("name") or f"{who} from {connection.remote_host}: {what} is {entry['is']}",
            line=line,
            connection=connection,
            asked=asked,
            address=address,
            is_multi_tenant=entry.get("multiTenant", False),
            is_allowed=entry["is"] == "allow",
            reason=Reason(entry["reason"]) if "reason" in entry else None,
        )


def _questions(entry: Mapping[str, Any]) -> Iterator[tuple[LinkFacts | ManagementFacts | None, str | None, str]]:
    directions: tuple[Literal["send", "receive"], ...] = ("send", "receive")
    for direction in directions:
        for address in _several(entry.get(direction, [])):
            age_s = entry.get(_REPLY_AGE) if direction == "send" else None
            what = f"{direction} '{address}'" + (f" as a reply after {age_s:g} s" if age_s is not None else "")
            yield LinkFacts(direction=direction, address=None, reply_age_s=age_s), address, what
    for text in _several(entry.get(_MANAGE, [])):
        yield read_request(text), None, f"by management '{text}'"
    if entry.get("dynamic"):
        yield LinkFacts(direction="receive", address=None, is_dynamic=True), None, "a dynamic receiver"
    elif entry.get("anonymous"):
        yield LinkFacts(direction="send", address=None), None, "an anonymous sender"
    elif not any(key in entry for key in (*_ADDRESSES, _MANAGE)):
        yield None, None, "connecting"


def check_expectations(
    ruleset: Ruleset, expectations: Iterable[Expectation], *, router_id: str = ""
) -> tuple[Outcome, ...]:
    """Decides each question by the policy and compares the decision with the expected one.

    router_id  as for addressing.address.resolve
    """
    outcomes = []
    for wanted in expectations:
        explained = [explain_connection(ruleset, wanted.connection)]
        if explained[0].decision.is_allowed and isinstance(wanted.asked, LinkFacts):
            tenant = explained[0].vhost or wanted.connection.requested_vhost or None
            tenant = tenant if wanted.is_multi_tenant else None
            address = resolve_named(wanted.address, router_id=router_id, tenant=tenant)
            explained.append(explain_link(explained[0].settings, replace(wanted.asked, address=address)))
        elif explained[0].decision.is_allowed and isinstance(wanted.asked, ManagementFacts):
            explained.append(explain_management(explained[0].settings, wanted.asked))
        steps = [step for explanation in explained for step in explanation.steps]
        rules = tuple(step.rule for step in steps if step.rule is not None)
        outcomes.append(Outcome(expectation=wanted, decision=explained[-1].decision, rules=rules))
    return tuple(outcomes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """The rules of a policy that can decide something: groups, and items of their address lists."""

    used: tuple[Rule, ...]
    unused: tuple[Rule, ...]

    @property
    def percent(self) -> int:
        count = len(self.used) + len(self.unused)
        return 100 * len(self.used) // count if count else 100


def coverage_of(ruleset: Ruleset, outcomes: Iterable[Outcome]) -> Coverage:
    """Divides the rules by whether an outcome rested on them. A group counts as used if a user was in it."""
    touched = set()
    for outcome in outcomes:
        for rule in outcome.rules:
            touched.add((rule.vhost, rule.group, rule.item))
            touched.add((rule.vhost, rule.group, None))
    used: list[Rule] = []
    unused: list[Rule] = []
    for rule in _rules(ruleset):
        item = rule.item if ":" in (rule.item or "") else None
        (used if (rule.vhost, rule.group, item) in touched else unused).append(rule)
    return Coverage(used=tuple(used), unused=tuple(unused))


def _rules(ruleset: Ruleset) -> Iterator[Rule]:
    for vhost in ruleset.vhosts.values():
        for group in vhost.groups.values():
            if group.name == CONNECTOR_GROUP and not group.users:
                continue
            yield group.rule("remoteHosts")
            for key, rules in ((group.source_key, group.sources), (group.target_key, group.targets)):
                for item in rules.items:
                    yield group.rule(key, item)


def _problem(document: Document, path: tuple[str | int, ...], text: str) -> Problem:
    line, column = document.position_of(path)
    return Problem(line=line, column=column, text=text)
