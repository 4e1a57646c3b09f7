"""The gate as one connection meets it: accept and Open, then Begin, Attach and, where a rule needs it, each message.

Every denial leaves a log line with the C router's wording, a count, and one audit event with the complete facts it was
decided on. Sources: docs/spec/policy-and-auth.md §3, §4, §5.
"""

from typing import Final, Literal

from policy.addressing.address import Address, Unclear
from policy.decide import ALLOWED, decide_link, decide_message, decide_session, decide_ungoverned_link
from policy.decision import Decision, Reason, Rule
from policy.facts import LinkFacts, MessageFacts
from policy.rights import NOTHING, UNRESTRICTED, UNSET, ManagementRights
from router.admission.gate import Admission, Gate, Occasion
from router.admission.refusals import (
    ADDRESS_REFUSED,
    CONNECTION_REFUSED,
    LINK_LIMIT,
    LINK_REFUSED,
    MALFORMED,
    SESSION_REFUSED,
    TARGET_REFUSED,
    TOO_LARGE,
    USER_ID_REFUSED,
    Direction,
    Refusal,
    attach_text,
    judged_text,
    rule_text,
)
from router.effects import log

__all__ = ["CONNECTION_REFUSED", "ConnectionGate", "Direction", "Gate", "Occasion", "Refusal"]

# Remembered per-message target decisions per connection; stops endless distinct addresses from growing it.
MAX_REMEMBERED_TARGETS: Final = 1024
# Longer ones are judged each time: stops a few endless addresses from doing the same.
MAX_REMEMBERED_CHARACTERS: Final = 1024
_UNCLEAR: Final = Decision(is_allowed=False, reason=Reason.UNCLEAR_ADDRESS)


class ConnectionGate(Admission):
    """What one connection asks for, judged by the settings it was admitted with; without any it is unrestricted."""

    __slots__ = ()

    # Begin

    def begin(self, older: int | None = None) -> Refusal | None:
        """Judge a client's Begin. None: it is counted until `end`.

        older  of a session that is open and judged again: how many that were begun before it stay
        """
        settings, shadow = self.settings, self.shadow
        others = self.open_sessions if older is None else older
        decision = decide_session(settings, others) if settings is not None else ALLOWED
        if shadow is not None and older is None:
            shadow.begin(decision, others)
        if settings is not None:
            where = f"user: {self._user}, rhost: {self.remote_host}, vhost: {self._vhost}"
            if not decision.is_allowed:
                text = f"DENY AMQP Begin Session due to session limit. {where}{rule_text(decision)}"
                self._log("info", f"[C{self.connection_id}] {text}")
                self.gate.ledger.count_session_denied(settings.vhost)
                return self._audit(
                    decision, stage="begin", usage={"open_sessions": others},
                    limit=settings.max_sessions, refusal=SESSION_REFUSED, **self._again(older, "sessions"),
                )  # fmt: skip
            if older is None:
                self._log("trace", f"[C{self.connection_id}] ALLOW AMQP Begin Session. {where}")
        if older is None:
            self.open_sessions += 1
        return None

    def end(self) -> None:
        self.open_sessions -= 1

    # Attach

    def attach(
        self,
        direction: Direction,
        *,
        address: Address | Unclear | None,
        link_name: str,
        is_dynamic: bool,
        is_coordinator: bool,
        capabilities: tuple[str, ...],
        dynamic_address: Literal["own", "other"] | None = None,
        reply_age_s: float | None = None,
        older: int | None = None,
        is_for_candidate: bool = False,
    ) -> Refusal | None:
        """Judge a client's Attach. None: it is counted until `detach`.

        address  of its target or source; the very value that is bound where it is allowed
        dynamic_address, reply_age_s  as in LinkFacts
        older    of a link that is open and judged again: how many of its direction that were attached before it stay
        is_for_candidate  ask a new candidate policy about a link that is open, and nobody else
        """
        if isinstance(address, Unclear):
            return self._refuse_unclear(address, "attach", direction=direction, link_name=link_name)
        settings, shadow = self.settings, self.shadow
        if settings is not None or shadow is not None or self.gate.ruleset.is_enabled:
            open_links = self.open_senders if direction == "send" else self.open_receivers
            open_links = open_links if older is None else older
            asked = LinkFacts(
                direction=direction,
                address=address,
                is_dynamic=is_dynamic,
                is_coordinator=is_coordinator,
                capabilities=capabilities,
                open_links=open_links,
                dynamic_address=dynamic_address,
                reply_age_s=reply_age_s,
            )
            if is_for_candidate:
                if shadow is not None:
                    shadow.attach(ALLOWED, asked)
                return None
            if settings is not None:
                decision = decide_link(settings, asked)
            else:
                decision = decide_ungoverned_link(asked) if self.gate.ruleset.is_enabled else ALLOWED
            if shadow is not None and older is None:
                shadow.attach(decision, asked)
            if not decision.is_allowed:
                return self._deny_link(decision, asked, link_name, older)
            if settings is not None and older is None:
                self._log("trace", f"[C{self.connection_id}] ALLOW {attach_text(decision, asked, self._who)}")
        if older is None and direction == "send":
            self.open_senders += 1
        elif older is None:
            self.open_receivers += 1
        return None

    def _deny_link(self, decision: Decision, facts: LinkFacts, link_name: str, older: int | None) -> Refusal:
        settings, direction = self.settings, facts.direction
        text = attach_text(decision, facts, self._who)
        self._log("info", f"[C{self.connection_id}] DENY {text}{rule_text(decision)}")
        limit = None
        if settings is not None:
            self.gate.ledger.count_link_denied(settings.vhost, direction)
            limit = settings.max_senders if direction == "send" else settings.max_receivers
        is_limit = decision.reason in (Reason.SENDER_LIMIT, Reason.RECEIVER_LIMIT)
        return self._audit(
            decision, stage="attach", direction=direction, address=judged_text(decision, facts.address),
            link_name=link_name, usage={"open_links": facts.open_links}, limit=limit if is_limit else None,
            refusal=LINK_LIMIT if is_limit else LINK_REFUSED, **self._again(older, "links"),
        )  # fmt: skip

    @property
    def _who(self) -> str:
        return f"for user '{self._user}', rhost '{self.remote_host}', vhost '{self._vhost}'"

    def detach(self, direction: Direction) -> None:
        if direction == "send":
            self.open_senders -= 1
        else:
            self.open_receivers -= 1

    # Messages

    @property
    def refuses_user_ids(self) -> bool:
        """Are messages with somebody else's user-id refused? A candidate policy refuses none."""
        return self.settings is not None and not self.settings.allow_user_id_proxy

    @property
    def checks_user_id(self) -> bool:
        return self.refuses_user_ids or (self.shadow is not None and self.shadow.checks_user_id)

    def refuse_user_id(self, user_id: bytes, link_id: int, address: str | None) -> Refusal | None:
        """Is this user-id somebody else's? Empty ones pass (§3.9 step 4)."""
        settings, shadow = self.settings, self.shadow
        decision = decide_message(settings, MessageFacts(user_id=user_id)) if settings is not None else ALLOWED
        if shadow is not None:
            shadow.user_id(decision, user_id, address)
        if decision.is_allowed:
            return None
        log(
            self.gate.emit,
            "ROUTER",
            "debug",
            f"[C{self.connection_id}][L{link_id}] Message rejected due to user_id proxy violation. User:{self._user}",
        )
        text = f"DENY AMQP message with the user-id of another {self._who}{rule_text(decision)}"
        self._log("info", f"[C{self.connection_id}][L{link_id}] {text}")
        return self._audit(decision, stage="transfer", direction="send", address=address, refusal=USER_ID_REFUSED)

    def record_malformed(self, link_id: int, address: str | None) -> None:
        """A message was refused in which clients may find another user-id than the router did."""
        log(
            self.gate.emit,
            "ROUTER",
            "debug",
            f"[C{self.connection_id}][L{link_id}] Message rejected: its sections are malformed. User:{self._user}",
        )
        decision = Decision(is_allowed=False, reason=Reason.MALFORMED_MESSAGE)
        text = f"DENY AMQP message with malformed sections {self._who}{rule_text(decision)}"
        self._log("info", f"[C{self.connection_id}][L{link_id}] {text}")
        self._audit(decision, stage="transfer", direction="send", address=address, refusal=MALFORMED)

    def known_target(self, text: str) -> Address | None:
        """The address a message on an anonymous link is for, where that was allowed before and still is."""
        if self.is_denied_now():
            return None
        address = self._allowed_targets.get(text)  # after it: to decide again may forget them
        if address is None:
            return None
        return address if self.shadow is None or text in self.shadow.agreed_targets else None

    def judge_target(self, address: Address | Unclear, link_id: int) -> Address | Refusal:
        """May a message on an anonymous link go to `address`? Allowed ones are remembered."""
        if self.is_denied_now():
            return TARGET_REFUSED
        if isinstance(address, Unclear):
            return self._refuse_unclear(address, "transfer", direction="send", link_id=link_id)
        settings, shadow, text = self.settings, self.shadow, address.written
        is_known = text in self._allowed_targets
        decision, facts = ALLOWED, self._message_facts(address)
        if settings is not None and not is_known:
            decision = decide_message(settings, facts)
        if shadow is not None:
            shadow.target(decision, facts)
        if is_known:
            return address
        if not decision.is_allowed:
            return self._deny_message(decision, address, link_id)
        if decision.rule is None:  # allowed by a list, and not as a reply, which is for a time
            if len(self._allowed_targets) >= MAX_REMEMBERED_TARGETS:
                self._allowed_targets.clear()
            if len(text) <= MAX_REMEMBERED_CHARACTERS:
                self._allowed_targets[text] = address
        if settings is not None:
            self._log("trace", f"[C{self.connection_id}] ALLOW {self._message_text(decision, address)}")
        return address

    def refuse_reply(self, target: Address, link_id: int) -> Refusal | None:
        """May a message still go to `target` on a link that was attached to reply? Never remembered: time passes."""
        if self.is_denied_now():
            return TARGET_REFUSED
        settings = self.settings
        if settings is None:
            return None
        facts = self._message_facts(target)
        decision = decide_message(settings, facts)
        if self.shadow is not None:
            self.shadow.target(decision, facts)
        return None if decision.is_allowed else self._deny_message(decision, target, link_id)

    def _message_facts(self, target: Address) -> MessageFacts:
        if self.addresses is None:
            return MessageFacts(target=target)
        owner, age_s = self.addresses.owner(target, is_ingress=True), self.addresses.reply_age(target)
        return MessageFacts(target=target, dynamic_address=owner, reply_age_s=age_s)

    def _message_text(self, decision: Decision, target: Address) -> str:
        return f"AMQP message to '{decision.address or target.full}' {self._who} based on target address"

    def _deny_message(self, decision: Decision, target: Address, link_id: int) -> Refusal:
        self._log("info", f"[C{self.connection_id}] DENY {self._message_text(decision, target)}{rule_text(decision)}")
        log(
            self.gate.emit,
            "ROUTER",
            "debug",
            f"[C{self.connection_id}][L{link_id}] Message rejected due to policy violation on target. "
            f"User:{self._user}",
        )
        return self._audit(
            decision, stage="transfer", direction="send", address=decision.address or target.full,
            refusal=TARGET_REFUSED,
        )  # fmt: skip

    def is_listed(self, address: Address) -> bool:
        """Is what a link with this target may do for good, or only as a reply?"""
        return self.settings is None or self.settings.targets.judge(address).item is not None

    def may_name(self, address: Address) -> bool:
        """May a message of the client name `address` as its reply-to, so that its receiver may send there?

        Attack: a reply-to where its sender may not send, to have a service write there in its place.
        """
        if self.is_denied_now():
            return False
        settings = self.settings
        if settings is None and self.shadow is not None:
            settings = self.shadow.settings
        return settings is None or settings.targets.judge(address).item is not None

    @property
    def reply_window_s(self) -> int:
        """For how long the reply-to of a message is to be remembered; 0: nobody asks for it."""
        asking = (self.settings, self.shadow.settings if self.shadow is not None else None)
        return max((each.reply_window_s for each in asking if each is not None and each.allow_replies), default=0)

    def _refuse_unclear(
        self,
        address: Unclear,
        stage: Literal["attach", "transfer"],
        *,
        direction: Direction,
        link_name: str | None = None,
        link_id: int | None = None,
    ) -> Refusal:
        """With or without policy: what the router would bind is not what anybody has judged."""
        where = f"[C{self.connection_id}]" + (f"[L{link_id}]" if link_id is not None else "")
        what = "Attach" if stage == "attach" else "message"
        text = f"DENY AMQP {what} address '{address.written}' {self._who}: {address.why}"
        self._log("info", f"{where} {text}{rule_text(_UNCLEAR)}")
        if stage == "attach" and self.settings is not None:
            self.gate.ledger.count_link_denied(self.settings.vhost, direction)
        self._audit(
            _UNCLEAR, stage=stage, direction=direction, address=address.written, link_name=link_name,
            detail=address.why, refusal=ADDRESS_REFUSED,
        )  # fmt: skip
        return ADDRESS_REFUSED

    def may_send_to(self, address: Address) -> bool:
        """Is `address` among the targets? For what is done in the client's name."""
        if self.is_denied_now():
            return False
        return self.settings is None or self.settings.targets.judge(address).item is not None

    def may_update_admin_status(self) -> bool:
        """May the client drop other connections by management?"""
        if self.is_denied_now():
            return False
        return self.settings is None or self.settings.allow_admin_status_update

    def management_rights(self) -> ManagementRights:
        """What the client may do by management, by the settings it has now."""
        if self.is_denied_now():
            return NOTHING
        if self.settings is not None:
            return self.settings.management
        return UNSET if self.gate.ruleset.is_enabled else UNRESTRICTED

    def refuse_in_process(self, direction: Direction, address: str | None, *, link_name: str | None) -> Refusal:
        """The peer of a connector without allowManagement wants to an address inside the router.

        link_name  None: a message on an anonymous link
        """
        refusal = TARGET_REFUSED if link_name is None else LINK_REFUSED
        settings = self.settings
        if link_name is not None:
            self.gate.ledger.count_link_denied(settings.vhost if settings is not None else None, direction)
        what = "AMQP message to" if link_name is None else f"AMQP Attach of a {direction} link with"
        text = f"{what} '{address}', an address inside the router: connector {self.listener} lacks allowManagement"
        decision = Decision(
            is_allowed=False,
            reason=Reason.IN_PROCESS_ADDRESS,
            rule=Rule(item=f"connector {self.listener}, allowManagement"),
        )
        self._log("info", f"[C{self.connection_id}] DENY {text}{rule_text(decision)}")
        return self._audit(
            decision, stage="transfer" if link_name is None else "attach",
            direction=direction, address=address, link_name=link_name, refusal=refusal,
            detail=f"an address inside the router: connector {self.listener} lacks allowManagement",
        )  # fmt: skip

    @property
    def watched_message_bytes(self) -> int:
        """The size past which `refuse_size` is to be asked about a message; 0: never."""
        limits = (
            self.settings.max_message_size if self.settings is not None else 0,
            self.shadow.max_message_bytes if self.shadow is not None else 0,
        )
        return min((limit for limit in limits if limit), default=0)

    def refuse_size(self, size: int, before: int, link_id: int, address: str | None) -> Refusal | None:
        """A message, of which `before` bytes had come, has `size` now: is that over maxMessageSize (§3.10)?"""
        settings, shadow = self.settings, self.shadow
        limit = settings.max_message_size if settings is not None else 0
        decision = ALLOWED
        if settings is not None and limit and size > limit:
            rule = settings.rule("maxMessageSize", limit)
            decision = Decision(is_allowed=False, reason=Reason.MESSAGE_TOO_LARGE, rule=rule)
        if shadow is not None:
            shadow.size(decision, size, before, address)
        if settings is None or decision.is_allowed:
            return None
        text = f"DENY AMQP Transfer maxMessageSize exceeded{rule_text(decision)}"
        self._log("warning", f"[C{self.connection_id}][L{link_id}] {text}")
        self.gate.ledger.count_oversize(settings.vhost)
        return self._audit(
            decision, stage="transfer", direction="send", address=address,
            limit=settings.max_message_size, refusal=TOO_LARGE,
        )  # fmt: skip
