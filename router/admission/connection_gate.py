"""The gate of one connection: decides about its Begins, its Attaches and, if a rule needs it, each message.

Sources: docs/spec/policy-and-auth.md §3, §4, §5.
"""

from dataclasses import dataclass
from typing import Final

from policy.addressing.address import Address, Unclear
from policy.decide import ALLOWED, decide_link, decide_message, decide_session, decide_ungoverned_link
from policy.decision import Decision, Reason
from policy.facts import LinkFacts, MessageFacts
from policy.rights import NOTHING, UNRESTRICTED, UNSET, ManagementRights
from router.admission.denials import (
    begin_text,
    budget_denied,
    in_process_link_denied,
    in_process_message_denied,
    link_denied,
    link_members,
    malformed_message_denied,
    message_stalled,
    receiver_stalled,
    session_denied,
    size_denied,
    target_denied,
    unclear_link_denied,
    unclear_message_denied,
    user_id_denied,
)
from router.admission.gate import Admission, Gate
from router.admission.refusals import (
    ADDRESS_REFUSED,
    CONNECTION_REFUSED,
    NO_TARGET,
    TARGET_REFUSED,
    Refusal,
    attach_text,
    message_text,
)
from router.effects import AuditStage, Direction

__all__ = ["CONNECTION_REFUSED", "ConnectionGate", "Direction", "Gate", "LinkRequest", "Refusal"]

# The bytes that the remembered targets of one connection may take. Past this limit all are forgotten. Attack: endless
# distinct addresses.
MAX_REMEMBERED_BYTES: Final = 256 * 1024
# The size of an address without its texts, and a bound for its texts' bytes per character.
_ADDRESS_BYTES, _BYTES_PER_CHARACTER = 600, 16


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkRequest:
    """A client's Attach.

    address       of its target or source. If it is allowed, this same object is bound
    capabilities  of that terminus
    """

    direction: Direction
    address: Address | Unclear | None
    link_name: str
    is_dynamic: bool = False
    is_coordinator: bool = False
    capabilities: tuple[str, ...] = ()


class ConnectionGate(Admission):
    """Decides about the requests of one connection by its settings. Without settings it is unrestricted.

    `may_…`, `is_…`, `management_rights` and `known_target` change nothing. They answer no until the connection has
    caught up with the rules in force. The other methods log, count and record.
    """

    __slots__ = ()

    # Begin

    def begin(self) -> Refusal | None:
        """Decides about a client's Begin. None: it is allowed, and counted until `end`."""
        settings, open_sessions = self.settings, self.open_sessions
        decision = decide_session(settings, open_sessions) if settings is not None else ALLOWED
        if self.shadow is not None:
            self.shadow.begin(decision, open_sessions)
        if not decision.is_allowed:
            return self._deny(session_denied(self, decision, open_sessions))
        if settings is not None:
            self._log("trace", f"[C{self.connection_id}] ALLOW AMQP Begin Session. {begin_text(self)}")
        self.open_sessions += 1
        return None

    def begin_again(self, older: int) -> Refusal | None:
        """Decides about an open session by the current rules.

        older  the number of sessions begun before it that stay
        """
        decision = decide_session(self.settings, older) if self.settings is not None else ALLOWED
        if decision.is_allowed:
            return None
        refusal = self._deny(session_denied(self, decision, older, self.gate.occasion))
        self.gate.ended["sessions"] += 1
        return refusal

    def end(self) -> None:
        self.open_sessions -= 1

    # Attach

    def attach(self, request: LinkRequest) -> Refusal | None:
        """Decides about a client's Attach. None: it is allowed, and counted until `detach`."""
        address, direction = request.address, request.direction
        if isinstance(address, Unclear):
            return self._refuse_unclear_link(address, request)
        facts = self._link_facts(request, self.open_senders if direction == "send" else self.open_receivers)
        decision = self._decide_link(facts)
        if self.shadow is not None:
            self.shadow.attach(decision, facts)
        if not decision.is_allowed:
            return self._deny(link_denied(self, decision, facts, request.link_name))
        if self.settings is not None:
            self._log("trace", f"[C{self.connection_id}] ALLOW {attach_text(decision, facts, self.text)}")
        if direction == "send":
            self.open_senders += 1
        else:
            self.open_receivers += 1
        if self.gate.allows is not None:
            self.gate.allows.attached(self._facts_in_force(), link_members(facts, request.link_name))
        return None

    def attach_again(self, request: LinkRequest, older: int) -> Refusal | None:
        """Decides about an open link by the current rules.

        older  the number of links of its direction, attached before it, that stay
        """
        if isinstance(request.address, Unclear):
            return self._refuse_unclear_link(request.address, request)
        facts = self._link_facts(request, older)
        decision = self._decide_link(facts)
        if decision.is_allowed:
            return None
        refusal = self._deny(link_denied(self, decision, facts, request.link_name, self.gate.occasion))
        self.gate.ended["links"] += 1
        return refusal

    def ask_candidate(self, request: LinkRequest, older: int) -> None:
        """Asks a new candidate policy about an open link. `older` is as for `attach_again`."""
        if self.shadow is not None:
            self.shadow.attach(ALLOWED, self._link_facts(request, older))

    def _link_facts(self, request: LinkRequest, open_links: int) -> LinkFacts:
        owner = age_s = None
        if isinstance(request.address, Address) and self.addresses is not None:
            is_ingress = request.direction == "send"
            owner = self.addresses.owner(request.address, is_ingress=is_ingress)
            age_s = self.addresses.reply_age(request.address) if is_ingress else None
        return LinkFacts(
            direction=request.direction,
            address=request.address,
            is_dynamic=request.is_dynamic,
            is_coordinator=request.is_coordinator,
            capabilities=request.capabilities,
            open_links=open_links,
            dynamic_address=owner,
            reply_age_s=age_s,
        )

    def _decide_link(self, facts: LinkFacts) -> Decision:
        if self.settings is not None:
            return decide_link(self.settings, facts)
        return decide_ungoverned_link(facts) if self.gate.ruleset.is_enabled else ALLOWED

    def _refuse_unclear_link(self, address: Unclear, request: LinkRequest) -> Refusal:
        """Refuses an unclear address, with or without policy. The peer learns no rule."""
        self._deny(unclear_link_denied(self, address, request.direction, request.link_name))
        return ADDRESS_REFUSED

    def refuse_in_process(self, direction: Direction, address: str | None, *, link_name: str) -> Refusal:
        """Refuses a link to an address inside the router, because the peer's connector lacks allowManagement."""
        return self._deny(in_process_link_denied(self, direction, address, link_name))

    def detach(self, direction: Direction) -> None:
        if direction == "send":
            self.open_senders -= 1
        else:
            self.open_receivers -= 1

    # Messages

    @property
    def refuses_user_ids(self) -> bool:
        """True if messages with another user's user-id are refused. A candidate policy refuses none."""
        return self.settings is not None and not self.settings.allow_user_id_proxy

    @property
    def checks_user_id(self) -> bool:
        return self.refuses_user_ids or (self.shadow is not None and self.shadow.checks_user_id)

    def refuse_user_id(self, user_id: bytes, link_id: int, address: str | None) -> Refusal | None:
        """Decides about a message's user-id. None: it is the user's own, or empty (§3.9 step 4), or any is allowed."""
        settings, shadow = self.settings, self.shadow
        decision = decide_message(settings, MessageFacts(user_id=user_id)) if settings is not None else ALLOWED
        if shadow is not None:
            shadow.user_id(decision, user_id, address)
        if decision.is_allowed:
            return None
        return self._deny(user_id_denied(self, decision, link_id, address, user_id))

    def record_malformed(self, link_id: int, address: str | None) -> None:
        """Records a refused message in which clients may find another user-id than the router did."""
        self._deny(malformed_message_denied(self, link_id, address))

    def known_target(self, text: str) -> Address | None:
        """Returns the address of a message on an anonymous link, if both policies allowed it before.

        None: ask `judge_target`. Hot: the code of `is_denied` is repeated here.
        """
        address = self._allowed_targets.get(text)
        if address is None or self._epoch != self.gate.epoch or self.refusal is not None:
            return None
        return address if self.shadow is None or text in self.shadow.agreed_targets else None

    def judge_target(self, address: Address | Unclear | None, link_id: int) -> Address | Refusal:
        """Decides about the address of a message on an anonymous link, None for "". Remembers allowed addresses."""
        self.catch_up()
        if self.is_denied:
            return TARGET_REFUSED
        if isinstance(address, Unclear):
            self._deny(unclear_message_denied(self, address, link_id))
            return ADDRESS_REFUSED
        settings, shadow, text = self.settings, self.shadow, address.written if address is not None else ""
        if (known := self.known_target(text)) is not None:
            return known
        is_known = text in self._allowed_targets
        decision, facts = ALLOWED, self._message_facts(address)
        if settings is not None and not is_known:
            decision = decide_message(settings, facts)
        if shadow is not None:
            shadow.target(decision, facts)
        if is_known and address is not None:
            return address
        if not decision.is_allowed:
            return self._deny(target_denied(self, decision, facts, link_id))
        if address is None:
            return NO_TARGET
        if decision.rule is None:  # allowed by a list, and not as a reply, which has a time limit
            self._remember_target(text, address)
        if settings is not None:
            self._log("trace", f"[C{self.connection_id}] ALLOW {message_text(address, self.text)}")
        return address

    def _remember_target(self, text: str, address: Address) -> None:
        size = _ADDRESS_BYTES + _BYTES_PER_CHARACTER * len(text)
        if self._allowed_targets_bytes + size > MAX_REMEMBERED_BYTES:
            self._allowed_targets.clear()
            self._allowed_targets_bytes = 0
        if size <= MAX_REMEMBERED_BYTES:
            self._allowed_targets[text] = address
            self._allowed_targets_bytes += size

    def refuse_reply(self, target: Address, link_id: int) -> Refusal | None:
        """Decides about a message to `target` on a link attached to reply. Never remembered: the right ends."""
        self.catch_up()
        if self.is_denied:
            return TARGET_REFUSED
        settings = self.settings
        if settings is None:
            return None
        facts = self._message_facts(target)
        decision = decide_message(settings, facts)
        if self.shadow is not None:
            self.shadow.target(decision, facts)
        return None if decision.is_allowed else self._deny(target_denied(self, decision, facts, link_id))

    def refuse_message_in_process(self, address: str | None) -> Refusal:
        """Refuses a message like `refuse_in_process`, but on an anonymous link."""
        return self._deny(in_process_message_denied(self, address))

    def _message_facts(self, target: Address | None) -> MessageFacts:
        if self.addresses is None or target is None:
            return MessageFacts(target=target, is_blank_target=target is None)
        owner, age_s = self.addresses.owner(target, is_ingress=True), self.addresses.reply_age(target)
        return MessageFacts(target=target, dynamic_address=owner, reply_age_s=age_s)

    def is_listed(self, address: Address) -> bool:
        """Returns True if a link may always use this target, and not only to reply."""
        return self.settings is None or self.settings.targets.judge(address).item is not None

    # Byte budgets

    def refuse_over_budget(self, stage: AuditStage, what: str, *, budget: str, limit: int, held: int) -> Refusal:
        """Refuses an action because too many bytes are held already (router.core.budget).

        what    the action: "AMQP Attach"
        budget  the setting and its owner
        limit, held  bytes
        """
        return self._deny(budget_denied(self, stage, what, budget, limit, held))

    # Rights

    def may_name(self, address: Address) -> bool:
        """Returns True if a message of the client may name `address` as its reply-to, for its receiver to send there.

        Attack: a reply-to where its sender may not send, so that a service writes there instead.
        """
        settings = self.settings
        if settings is None and self.shadow is not None:
            settings = self.shadow.settings
        return not self.is_denied and (settings is None or settings.targets.judge(address).item is not None)

    def may_send_to(self, address: Address) -> bool:
        """Returns True if `address` is among the targets. For actions in the client's name."""
        return not self.is_denied and self.is_listed(address)

    def may_update_admin_status(self) -> bool:
        """Returns True if the client may close other connections by management."""
        return not self.is_denied and (self.settings is None or self.settings.allow_admin_status_update)

    def management_rights(self) -> ManagementRights:
        """Returns the client's management rights, by its current settings."""
        if self.is_denied:
            return NOTHING
        if self.settings is not None:
            return self.settings.management
        return UNSET if self.gate.ruleset.is_enabled else UNRESTRICTED

    # Sizes and times

    @property
    def reply_window_s(self) -> int:
        """The seconds for which the reply-to of a message must be remembered; 0: not needed."""
        asking = (self.settings, self.shadow.settings if self.shadow is not None else None)
        return max((each.reply_window_s for each in asking if each is not None and each.allow_replies), default=0)

    @property
    def watched_message_bytes(self) -> int:
        """The message size past which `refuse_size` must be asked; 0: never."""
        limits = (
            self.settings.max_message_size if self.settings is not None else 0,
            self.shadow.max_message_bytes if self.shadow is not None else 0,
        )
        return min((limit for limit in limits if limit), default=0)

    def refuse_size(self, size: int, before: int, link_id: int, address: str | None) -> Refusal | None:
        """Decides by maxMessageSize about a message of which `before` bytes had arrived and `size` have now (§3.10)."""
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
        return self._deny(size_denied(self, decision, limit, link_id, address))

    def give_up_message(self, seconds: float, link_id: int, address: str | None, *, holds_up_others: bool) -> Refusal:
        """Gives up a message that made no progress, or delayed others, for this time. Policy has no effect on this."""
        return self._deny(message_stalled(self, seconds, link_id, address, holds_up_others=holds_up_others))

    def give_up_receiver(self, seconds: float, link_id: int, address: str | None) -> Refusal:
        """Gives up a receiver that took nothing of a message for this time. Policy has no effect on this."""
        return self._deny(receiver_stalled(self, seconds, link_id, address))
