"""A candidate policy on trial: asked wherever the policy in force decides, without any effect on the result.

A fault in this module is counted and reported. The caller continues as if it had not asked. Pure.

The candidate decides on the same facts as the gate, with one exception: its connection limits are compared with the
open connections that it would have admitted itself. So a connection over the limit does not count against the next one.
Connections that the policy in force denied never count. Source: docs/policy.md, Shadow.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Final, Literal

from policy.addressing.address import Address
from policy.decide import (
    ConnectionDecision,
    Settings,
    decide_connection,
    decide_connector,
    decide_link,
    decide_message,
    decide_session,
)
from policy.decision import Decision, Reason
from policy.facts import ConnectionFacts, LinkFacts, MessageFacts, Usage
from policy.ruleset import Ruleset
from policy.usage import UsageLedger
from router.admission.disagreements import Disagreements, Subject, kept
from router.admission.refusals import judged_text, rule_members
from router.effects import (
    AuditDecision,
    AuditEvent,
    AuditStage,
    ConnectionMembers,
    Direction,
    Emit,
    RequestMembers,
    ShadowMembers,
    audit_event,
)
from router.faults import fault_text

_ALLOWED: Final = Decision(is_allowed=True, reason=Reason.ALLOWED)
# Attack: endless distinct addresses on one connection fill the memory.
MAX_AGREED_TARGETS: Final = 1024
MAX_AGREED_CHARACTERS: Final = 1024
_NO_SIDE: Final[ShadowMembers] = {
    "vhost": None,
    "group": None,
    "item": None,
    "file": None,
    "line": None,
    "total": None,
    "of_user": None,
    "of_host": None,
    "limit": None,
    "ruleset_digest": None,
}


@dataclass(frozen=True, slots=True)
class _Guard:
    """A context manager that counts an exception inside it as a fault of the shadow, and suppresses it."""

    shadow: "Shadow"
    stage: AuditStage

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> bool:
        if not isinstance(error, Exception):
            return False
        self.shadow.note_fault(error, self.stage)
        return True


class Shadow:
    """The candidate policy, and the connections as it would have them. Exists only if shadowPolicyDir is set.

    decisions  how often it was asked since it was loaded
    faults     how often asking it failed since the router started
    """

    def __init__(self, emit: Emit) -> None:
        self.ruleset: Ruleset | None = None  # None: no candidate could be used yet
        self.ledger = UsageLedger()
        self.disagreements = Disagreements(emit)
        self.decisions = 0
        self.faults = 0
        self.connections: dict[ConnectionShadow, None] = {}  # in the order of their Opens

    def use(self, ruleset: Ruleset) -> bool:
        """Starts to use a candidate. Returns True if it differs from the last: then ask it about all that is open.

        A different candidate starts with all counts at zero. One with the same rules continues with the current counts.
        """
        if self.ruleset is not None and ruleset.digest == self.ruleset.digest:
            return False
        self.disagreements.flush()
        self.disagreements.clear()
        self.ruleset = ruleset
        self.ledger = UsageLedger()
        self.decisions = 0
        for connection in self.connections:
            connection.forget()
        return True

    def opened(
        self,
        facts: ConnectionFacts,
        judged: ConnectionDecision,
        describe: Callable[[], ConnectionMembers],
        *,
        is_connector: bool = False,
    ) -> "ConnectionShadow | None":
        """Asks the candidate about an Open. Returns its view of the connection, or None if the connection is refused.

        judged        the decision of the policy in force, or allowed if there is none
        describe      returns the connection's own members of an audit event
        is_connector  True for an outgoing connection whose connector has a policyVhost, the requested one
        """
        connection = ConnectionShadow(self, facts, describe, is_connector=is_connector)
        if judged.decision.is_allowed:
            self.connections[connection] = None
        with self.guard("open"):
            connection.judge_open(judged)
        return connection if judged.decision.is_allowed else None

    def guard(self, stage: AuditStage) -> _Guard:
        return _Guard(self, stage)

    def note_fault(self, error: Exception, stage: AuditStage) -> None:
        self.faults += 1
        with suppress(Exception):  # the result of the request stays the same, even if logging fails
            text = fault_text(error)
            digest = self.ruleset.digest if self.ruleset is not None else None
            self.disagreements.tell(
                "shadow_error",
                (stage, text),
                stage,
                lambda decision: {
                    "stage": stage,
                    "decision": decision,
                    "reason": Reason.INTERNAL_ERROR.value,
                    "detail": f"the candidate policy could not be asked: {text}",
                    "shadow": {**_NO_SIDE, "reason": Reason.INTERNAL_ERROR.value, "ruleset_digest": digest},
                },
            )


class ConnectionShadow:
    """One connection, as the candidate policy would decide about it.

    settings        what the candidate grants; None if it would refuse the connection. It reported that at the Open, and
                    does not report it again for each link
    agreed_targets  targets of messages on anonymous links that both policies allow
    """

    __slots__ = ("_asked", "_describe", "_facts", "_is_connector", "_shadow", "agreed_targets", "settings")

    def __init__(
        self,
        shadow: Shadow,
        facts: ConnectionFacts,
        describe: Callable[[], ConnectionMembers],
        *,
        is_connector: bool,
    ) -> None:
        self._shadow = shadow
        self._facts = facts
        self._describe = describe
        self._is_connector = is_connector
        self._asked: Ruleset | None = None
        self.settings: Settings | None = None
        self.agreed_targets: set[str] = set()

    # Open

    def judge_open(self, judged: ConnectionDecision) -> None:
        shadow, facts = self._shadow, self._facts
        ruleset = shadow.ruleset
        self._asked = ruleset
        if ruleset is None:
            return
        usage = Usage()
        if self._is_connector:
            own = decide_connector(ruleset, facts.requested_vhost, facts.user, facts.now)
        else:
            selected = ruleset.select_vhost(facts.requested_vhost)
            if selected is not None:
                usage = shadow.ledger.usage(selected.name, facts.user or "", facts.remote_host)
            own = decide_connection(ruleset, facts, usage)
        if own.decision.is_allowed and judged.decision.is_allowed and own.settings is not None:
            self.settings = own.settings
            if not self._is_connector:
                shadow.ledger.admit(own.settings.vhost, *self._place)
        self._compare(
            "open",
            judged.decision,
            own.decision,
            side={
                "vhost": own.vhost,
                "group": own.group,
                "total": usage.total,
                "of_user": usage.of_user,
                "of_host": usage.of_host,
            },
            judged={"vhost": judged.vhost, "group": judged.group},
        )

    def forget(self) -> None:
        """Drops the grants of a candidate that is no longer used."""
        self.settings = None
        self.agreed_targets.clear()

    def judge_again(self, now: float) -> bool:
        """Asks a new candidate about this open connection. Returns False if it was already asked.

        now  seconds since 1970 UTC
        """
        if self._asked is self._shadow.ruleset:
            return False
        with self._shadow.guard("open"):
            self._facts = replace(self._facts, now=now)
            facts = self._describe()
            self.judge_open(ConnectionDecision(decision=_ALLOWED, vhost=facts["vhost"], group=facts["group"]))
        return True

    def close(self) -> None:
        """Removes the connection, which has ended. Call once."""
        shadow, settings = self._shadow, self.settings
        with shadow.guard("open"):
            shadow.connections.pop(self, None)
            if settings is not None and not self._is_connector:
                shadow.ledger.release(settings.vhost, *self._place)

    @property
    def _place(self) -> tuple[str, str, str]:
        """User, host and connection name, as the ledger needs them."""
        facts = self._facts
        return facts.user or "", facts.remote_host, facts.connection_name

    # Sessions, links, messages

    def begin(self, real: Decision, open_sessions: int) -> None:
        settings = self.settings
        if settings is not None:
            with self._shadow.guard("begin"):
                own = decide_session(settings, open_sessions)
                self._compare("begin", real, own, side=_side(settings, settings.max_sessions))

    def session_again(self, older: int) -> None:
        """Asks a new candidate about an open session.

        older  the number of sessions that were begun before it
        """
        self.begin(_ALLOWED, older)

    def attach(self, real: Decision, facts: LinkFacts) -> None:
        """Asks the candidate about an Attach.

        facts  the facts that the policy in force was asked about
        """
        settings = self.settings
        if settings is not None:
            with self._shadow.guard("attach"):
                own = decide_link(settings, facts)
                is_limit = own.reason in (Reason.SENDER_LIMIT, Reason.RECEIVER_LIMIT)
                limit = settings.max_senders if facts.direction == "send" else settings.max_receivers
                side = _side(settings, limit if is_limit else None)
                address = judged_text(facts.address)
                self._compare("attach", real, own, side=side, direction=facts.direction, address=address)

    @property
    def checks_user_id(self) -> bool:
        return self.settings is not None and not self.settings.allow_user_id_proxy

    def user_id(self, real: Decision, user_id: bytes, address: str | None) -> None:
        settings = self.settings
        if settings is not None:
            with self._shadow.guard("transfer"):
                own = decide_message(settings, MessageFacts(user_id=user_id))
                self._compare("transfer", real, own, side=_side(settings), direction="send", address=address)

    def target(self, real: Decision, facts: MessageFacts) -> None:
        """Asks the candidate about a message on an anonymous link. Remembers targets that both policies allow.

        These need not be asked about again. Targets that no list allows are not remembered: a right to reply lasts only
        for a time.
        """
        settings, target = self.settings, facts.target
        if settings is not None and (facts.is_blank_target or isinstance(target, Address)):
            with self._shadow.guard("transfer"):
                own = decide_message(settings, facts)
                text = target.written if target is not None else ""
                is_other = self._compare("transfer", real, own, side=_side(settings), direction="send", address=text)
                if isinstance(target, Address) and own.is_allowed and own.rule is None and not is_other:
                    if len(self.agreed_targets) >= MAX_AGREED_TARGETS:
                        self.agreed_targets.clear()
                    if len(target.written) <= MAX_AGREED_CHARACTERS:
                        self.agreed_targets.add(target.written)

    @property
    def max_message_bytes(self) -> int:
        """The candidate's limit, in bytes. 0: no limit"""
        return self.settings.max_message_size if self.settings is not None else 0

    def size(self, real: Decision, size: int, before: int, address: str | None) -> None:
        """Asks about a message that has grown from `before` to `size` bytes, past one of the two policies' limits.

        A message that passes both limits is reported once, when it passes the candidate's.
        """
        settings = self.settings
        if settings is not None:
            with self._shadow.guard("transfer"):
                limit = settings.max_message_size
                if limit and before > limit:
                    return
                own = _ALLOWED
                if limit and size > limit:
                    rule = settings.rule("maxMessageSize", limit)
                    own = Decision(is_allowed=False, reason=Reason.MESSAGE_TOO_LARGE, rule=rule)
                side = _side(settings, limit or None)
                self._compare("transfer", real, own, side=side, direction="send", address=address)

    # Records

    def _compare(
        self,
        stage: Literal["open", "begin", "attach", "transfer"],
        real: Decision,
        own: Decision,
        *,
        side: ShadowMembers,
        direction: Direction | None = None,
        address: str | None = None,
        judged: ConnectionMembers | None = None,
    ) -> bool:
        """Records a difference between the two decisions. Returns True if they differ.

        side    the members of the event's `shadow` other than the reason and the rule
        judged  vhost and group of the policy in force, if the connection does not have them
        """
        shadow = self._shadow
        shadow.decisions += 1
        if real.is_allowed == own.is_allowed:
            return False
        facts: ConnectionMembers = {**self._describe(), **(judged if judged is not None else {})}
        subject = Subject(
            stage=stage,
            user=kept(self._facts.user) if self._facts.user is not None else None,
            remote_host=self._facts.remote_host,
            requested_vhost=kept(self._facts.requested_vhost),
            vhost=facts["vhost"],
            candidate_vhost=side["vhost"],
            direction=direction,
            address=kept(address) if address is not None else None,
        )

        def event(decision: AuditDecision) -> AuditEvent:
            rule = own.rule
            request: RequestMembers = {"direction": direction, "address": address, "detail": ""}
            made = audit_event(stage, decision, real.reason.value, facts, request, rule_members(real.rule))
            made["shadow"] = {
                **_NO_SIDE,
                "reason": own.reason.value,
                "item": rule.item if rule is not None else None,
                "file": rule.file if rule is not None else None,
                "line": rule.line if rule is not None else None,
                "ruleset_digest": shadow.ruleset.digest if shadow.ruleset is not None else None,
                **side,
            }
            return made

        shadow.disagreements.note(subject, is_denied=real.is_allowed, real=real, own=own, event=event)
        return True


def _side(settings: Settings, limit: int | None = None) -> ShadowMembers:
    return {"vhost": settings.vhost, "group": settings.group, "limit": limit}
