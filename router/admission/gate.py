"""May a socket, a connection be: at accept, at its Open, and again when the rules or the time have changed.

Every denial leaves a log line with the C router's wording, a count, and one audit event with the complete facts it was
decided on. Sources: docs/spec/policy-and-auth.md §2.7, §2.8, §3.2 to §3.5.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any, Final, Literal, Protocol

from auth.identity import Identity
from policy.addressing.address import Address
from policy.ban_set import BanSet
from policy.decide import ConnectionDecision, Settings, decide_accept, decide_connection, decide_connector
from policy.decision import Decision, Reason
from policy.facts import ConnectionFacts, Usage
from policy.ruleset import Ruleset
from policy.usage import UsageLedger
from router.admission.ban_gate import BanGate
from router.admission.breakoffs import Breakoffs
from router.admission.candidate import ConnectionShadow, Shadow
from router.admission.refusals import CONNECTION_REFUSED, MOVED, OPEN_TEXTS, Refusal, explained, rule_text
from router.effects import AdmissionFailed, Audit, Emit, log

# Denials at Open that count towards an automatic ban. Not the limits of connections: others reach them for a bystander.
_COUNTED_AS_FAILURES: Final = frozenset({Reason.NO_VHOST, Reason.UNKNOWN_USER, Reason.HOST_NOT_ALLOWED})

# Why open connections are decided again; `redecision` of an audit event.
Occasion = Literal["policy_change", "expiry"]


class KnownAddresses(Protocol):
    """Which addresses are a connection's own, and which it was asked to reply to (router.connection.replies)."""

    def owner(self, address: Address, *, is_ingress: bool) -> Literal["own", "other"] | None: ...
    def reply_age(self, address: Address) -> float | None: ...


class Gate:
    """The rules in force, who is banned and who is connected. `ruleset` is replaced whole when the policy changes.

    shadow  a candidate policy that is asked beside it and changes nothing; None where none is tried
    """

    def __init__(
        self,
        ruleset: Ruleset,
        ledger: UsageLedger,
        emit: Emit,
        shadow: Shadow | None = None,
        bans: BanSet | None = None,
    ) -> None:
        self.ruleset = ruleset
        self.ledger = ledger
        self.emit = emit
        self.shadow = shadow
        self.bans = BanGate(bans if bans is not None else BanSet(), ledger, emit)
        self.breakoffs = Breakoffs(emit)
        self.explains = False  # denials name their rule to the peer (policy verboseDenials)
        # What was granted in an earlier epoch holds no longer for whoever is concerned.
        self.epoch = 0
        self.began_at = 0.0
        self.occasion: Occasion = "policy_change"
        self.ended: Counter[str] = Counter()  # connections, sessions, links that were denied in this epoch
        self._concerns: list[Callable[[Admission], bool]] = []

    def begin_epoch(self, occasion: Occasion, concerns: "Callable[[Admission], bool]", now: float) -> None:
        """From now on connections that are open are decided again before they get anything new, and nobody forgets one.

        concerns  which of them: those of an epoch that has not ended stay concerned
        now       seconds since 1970 UTC: the time they are decided for
        """
        self.epoch += 1
        self.began_at = now
        self.occasion = occasion
        self._concerns.append(concerns)

    def end_epoch(self) -> None:
        """Every connection that was open has been decided again."""
        self._concerns.clear()
        self.ended.clear()

    def is_concerned(self, connection: "Admission") -> bool:
        return any(concerns(connection) for concerns in self._concerns)

    def accept(self, *, connection_id: int, remote_host: str, connection_name: str, listener: str) -> bool:
        """May this accepted socket stay? Counts it. Enforced with or without vhost policy (§3.2)."""
        open_connections = self.ledger.open_connections
        decision = decide_accept(self.ruleset, open_connections)
        self.ledger.count_accept(decision.is_allowed)
        verdict: tuple[Literal["trace", "info"], str] = ("trace", "ALLOW") if decision.is_allowed else ("info", "DENY")
        log(
            self.emit,
            "POLICY",
            verdict[0],
            f"{verdict[1]} Connection '{remote_host}' based on global connection count. "
            f"nConnections= {self.ledger.open_connections}{'' if decision.is_allowed else rule_text(decision)}",
        )
        if not decision.is_allowed:
            self.audit(
                decision,
                stage="accept",
                connection=connection_id,
                connection_name=connection_name,
                listener=listener,
                remote_host=remote_host,
                usage={"open_connections": open_connections},
                limit=self.ruleset.max_connections,
            )
        return decision.is_allowed

    def audit(self, decision: Decision, *, now: float | None = None, **facts: Any) -> None:
        """now  the time the decision looked at, seconds since 1970 UTC; None where it looked at none"""
        rule = asdict(decision.rule) if decision.rule is not None else None
        event = {
            "decision": "deny",
            "reason": decision.reason.value,
            "rule": rule,
            "ruleset_digest": self.ruleset.digest,
            **facts,
        }
        self.emit(Audit(event=event, time_s=now))


class Admission:
    """May one connection be, and by which settings. Without `settings` it is unrestricted (§3.1)."""

    __slots__ = (
        "_allowed_targets",
        "_epoch",
        "_is_counted",
        "_judged_as",
        "_redecided_in",
        "addresses",
        "connection_id",
        "connection_name",
        "gate",
        "hostname",
        "identity",
        "is_accepted",
        "is_encrypted",
        "is_governed",
        "listener",
        "open_receivers",
        "open_senders",
        "open_sessions",
        "refusal",
        "remote_host",
        "requested_vhost",
        "settings",
        "shadow",
    )

    def __init__(
        self,
        gate: Gate,
        *,
        connection_id: int,
        connection_name: str,
        remote_host: str,
        listener: str,
        is_governed: bool,
        is_accepted: bool = True,
    ) -> None:
        """is_accepted  false for connections the router itself makes: they never counted against maxConnections."""
        self.gate = gate
        self.is_accepted = is_accepted
        self.connection_id = connection_id
        self.connection_name = connection_name
        self.remote_host = remote_host
        self.listener = listener
        self.is_governed = is_governed
        self.identity = Identity(user=None)
        self.is_encrypted = False
        self.hostname: str | None = None
        self.requested_vhost = ""
        self.settings: Settings | None = None
        self.shadow: ConnectionShadow | None = None
        self.addresses: KnownAddresses | None = None  # None: not open yet
        self.open_sessions = self.open_senders = self.open_receivers = 0
        self._allowed_targets: dict[str, Address] = {}  # of messages, as far as they are remembered
        self.refusal: Refusal | None = None  # decided again, and denied: the connection is to be closed
        self._epoch = self._redecided_in = 0
        self._is_counted = False  # in the ledger, under its settings' vhost
        self._judged_as: Literal["client", "connector"] | None = None

    # Open

    def admit(
        self, identity: Identity, *, hostname: str | None, policy_vhost: str | None, is_encrypted: bool, now: float
    ) -> Refusal | None:
        """Judge the Open. None: the connection may stay and is counted until `close`. now  seconds since 1970 UTC"""
        gate = self.gate
        self.identity = identity
        self.is_encrypted = is_encrypted
        self.hostname = hostname
        self.requested_vhost = policy_vhost or hostname or ""
        self._epoch = gate.epoch
        if gate.bans.refuses({**self.facts(), "stage": "open", "condition": CONNECTION_REFUSED.condition}):
            self.count_failure()
            return CONNECTION_REFUSED
        if not self.is_governed or not (gate.ruleset.is_enabled or gate.shadow is not None):
            return None
        user = identity.user or ""
        selected = gate.ruleset.select_vhost(self.requested_vhost) if gate.ruleset.is_enabled else None
        usage = gate.ledger.usage(selected.name, user, self.remote_host) if selected is not None else Usage()
        facts = self._connection_facts(now)
        judged = decide_connection(gate.ruleset, facts, usage)
        if gate.shadow is not None:
            self.shadow = gate.shadow.opened(facts, judged, self._facts_in_force)
            if not gate.ruleset.is_enabled:
                return None
        self._log_selection(judged)
        decision = judged.decision
        if decision.is_allowed and judged.settings is not None and judged.vhost is not None:
            self.settings = judged.settings
            self._count()
            self._judged_as = "client"
            if judged.vhost != self.requested_vhost:
                text = f"AMQP Open lookup settings for vhost '{self.requested_vhost}'"
                self._log("debug", f"{text}: proceeds using vhost '{judged.vhost}' ruleset")
            self._log(
                "trace",
                f"[C{self.connection_id}] ALLOW AMQP Open lookup_user: {user}, rhost: {self.remote_host}, "
                f"vhost: {self.requested_vhost}, connection: {self.connection_name}. Usergroup: '{judged.group}'",
            )
            return None
        if decision.reason in _COUNTED_AS_FAILURES:
            self.count_failure()
        return self._deny_open(judged, usage, now)

    def _log_selection(self, judged: ConnectionDecision) -> None:
        """Which vhost governs, where it is not simply the one that was asked for (§2.7)."""
        requested, ruleset = self.requested_vhost, self.gate.ruleset
        if ruleset.tree is not None:
            found = ruleset.find_pattern(requested)
            shown = found if found is not None else "null"
            self._log("trace", f"vhost hostname pattern '{requested}' lookup returned '{shown}'")
        if judged.vhost is not None and judged.vhost != requested:
            who = f"user '{self.identity.user or ''}', rhost '{self.remote_host}', vhost '{requested}'"
            self._log("debug", f"AMQP Open for {who}: proceeds using vhost '{judged.vhost}' ruleset")

    def _deny_open(self, judged: ConnectionDecision, usage: Usage, now: float, **more: Any) -> Refusal:
        decision = judged.decision
        shown_vhost = judged.vhost if judged.vhost is not None else self.requested_vhost
        who = f"for user '{self.identity.user or ''}', rhost '{self.remote_host}', vhost '{shown_vhost}'"
        if decision.reason is Reason.INTERNAL_ERROR:
            text = "Internal error: the connection's facts could not be judged"
            self._log("info", f"DENY AMQP Open lookup_user failed {who}: {text}{rule_text(decision)}")
        for reason in (decision.reason, *decision.also):
            if text := OPEN_TEXTS.get(reason, ""):
                rule = rule_text(decision) if reason is decision.reason else ""
                self._log("info", f"DENY AMQP Open {who}: {text}{rule}")
        if judged.vhost is not None and decision.reason is not Reason.INTERNAL_ERROR:
            self.gate.ledger.count_open_denied(judged.vhost)
        return self._audit(
            decision,
            stage="open",
            vhost=judged.vhost,
            group=judged.group,
            usage={"total": usage.total, "of_user": usage.of_user, "of_host": usage.of_host},
            refusal=CONNECTION_REFUSED,
            now=now,
            **more,
        )

    def count_failure(self) -> None:
        """The peer's credentials do not hold, or do not let it in: towards an automatic ban of its host."""
        if self.is_accepted:
            self.gate.emit(AdmissionFailed(remote_host=self.remote_host))

    def adopt_connector(
        self, identity: Identity, *, policy_vhost: str, is_encrypted: bool, now: float
    ) -> Refusal | None:
        """The settings of an outgoing connection whose connector has a policyVhost (§3.5). now  as for `admit`"""
        gate = self.gate
        self.identity = identity
        self.is_encrypted = is_encrypted
        self.requested_vhost = policy_vhost
        self._epoch = gate.epoch
        judged = decide_connector(gate.ruleset, policy_vhost, identity.user, now)
        if gate.shadow is not None:
            facts = self._connection_facts(now)
            self.shadow = gate.shadow.opened(facts, judged, self._facts_in_force, is_connector=True)
        if judged.decision.is_allowed:
            self.settings = judged.settings
            self._judged_as = "connector"
            return None
        return self._deny_connector(judged, now)

    def _deny_connector(self, judged: ConnectionDecision, now: float, **more: Any) -> Refusal:
        decision = judged.decision
        what = f"policyVhost settings for connection '{self.connection_id}', policyVhost: '{self.requested_vhost}'"
        text = f"No valid {what}" if decision.reason is Reason.GROUP_NOT_VALID else f"Failed to find {what}"
        log(self.gate.emit, "POLICY", "error", f"[C{self.connection_id}] {text}{rule_text(decision)}")
        return self._audit(
            decision, stage="open", vhost=judged.vhost, group=judged.group, refusal=CONNECTION_REFUSED, now=now, **more
        )

    def _connection_facts(self, now: float) -> ConnectionFacts:
        return ConnectionFacts(
            user=self.identity.user,
            remote_host=self.remote_host,
            requested_vhost=self.requested_vhost,
            connection_name=self.connection_name,
            mechanism=self.identity.mechanism,
            is_encrypted=self.is_encrypted,
            groups=self.identity.groups,
            now=now,
        )

    # Once more

    def is_denied_now(self) -> bool:
        """Before anything new: has the connection lost what it was granted? Decides it again where that is not known.

        Limits on connections are `keep_within_limits`'s: they hit the newest, whoever asks first.
        """
        epoch = self.gate.epoch
        if self._epoch != epoch:
            if self.gate.is_concerned(self):
                self._redecide()
                self._redecided_in = epoch
            self._epoch = epoch  # last: where a fault comes between, it is not decided yet
        return self.refusal is not None

    def is_over_at(self, now: float) -> bool:
        """Is the group whose settings the connection has not valid any more?"""
        return self.settings is not None and not self.settings.origin.window.contains(now)

    @property
    def is_redecided(self) -> bool:
        """Was the connection decided again in this epoch?"""
        return self._redecided_in == self.gate.epoch

    def _redecide(self) -> None:
        """By the rules in force and the facts of the Open: a refusal as then, or settings that take effect at once."""
        gate, now = self.gate, self.gate.began_at
        if self._judged_as is None or self.refusal is not None:
            return
        if self._judged_as == "connector":
            judged = decide_connector(gate.ruleset, self.requested_vhost, self.identity.user, now)
        else:
            judged = decide_connection(gate.ruleset, self._connection_facts(now), Usage())
        if judged.decision.is_allowed:
            self._take(judged.settings)
        elif self._judged_as == "connector":
            self._deny_again(self._deny_connector(judged, now, redecision=gate.occasion))
        else:
            self._deny_again(self._deny_open(judged, Usage(), now, redecision=gate.occasion))

    def _take(self, settings: Settings | None) -> None:
        before = self.settings.vhost if self.settings is not None else None
        is_elsewhere = before != (settings.vhost if settings is not None else None)
        if is_elsewhere:
            self._uncount()
        self.settings = settings
        self._allowed_targets.clear()
        if is_elsewhere and self.is_accepted:
            self._count()

    def _deny_again(self, refusal: Refusal) -> None:
        """From now on the connection counts for nothing; whoever serves it closes it."""
        self.refusal = refusal
        self.gate.ended["connections"] += 1
        self._log("info", f"[C{self.connection_id}] Connection closed: decided again after {self.gate.occasion}")
        self._uncount()

    def _count(self) -> None:
        settings = self.settings
        if settings is not None:
            user = self.identity.user or ""
            self.gate.ledger.admit(settings.vhost, user, self.remote_host, self.connection_name)
            self._is_counted = True

    def _uncount(self) -> None:
        """INVARIANT: as often as `_count`, and with the same words, whatever became of the connection."""
        settings = self.settings
        if self._is_counted and settings is not None:
            self._is_counted = False
            user = self.identity.user or ""
            self.gate.ledger.release(settings.vhost, user, self.remote_host, self.connection_name)

    def keep_within_limits(self) -> bool:
        """Once all are decided again, asked from the newest to the oldest: is there still room for this one?"""
        settings, now = self.settings, self.gate.began_at
        if self.refusal is not None or not self.is_redecided or settings is None or not self._is_counted:
            return self.refusal is None
        counted = self.gate.ledger.usage(settings.vhost, settings.user, self.remote_host)
        others = Usage(total=counted.total - 1, of_user=counted.of_user - 1, of_host=counted.of_host - 1)
        judged = decide_connection(self.gate.ruleset, self._connection_facts(now), others)
        if not judged.decision.is_allowed:
            self._deny_again(self._deny_open(judged, others, now, redecision=self.gate.occasion))
        return self.refusal is None

    def refuse_move(self) -> None:
        """The connection's addresses are in the space of a vhost that governs it no longer."""
        decision = {"decision": "deny", "reason": "vhost_changed", "stage": "open", "redecision": self.gate.occasion}
        what = {"condition": MOVED.condition, "detail": MOVED.description}
        self.gate.emit(Audit(event={**self._facts_in_force(), **decision, **what}))
        self._deny_again(MOVED)

    def close(self) -> None:
        """The connection ended: give back what it was counted for. Call once for every connection."""
        if self.shadow is not None:
            self.shadow.close()
            self.shadow = None
        ledger = self.gate.ledger
        settings = self.settings
        if not self.is_accepted:
            return
        ledger.count_accept_closed()
        if settings is None:
            return
        self._uncount()
        denied = ledger.vhost_denials(settings.vhost)
        self._log(
            "debug",
            f"[C{self.connection_id}] Connection '{self.connection_name}' closed with resources "
            f"n_sessions={self.open_sessions}, n_senders={self.open_senders}, n_receivers={self.open_receivers}, "
            f"sessions_denied={denied['sessionDenied']}, senders_denied={denied['senderDenied']}, "
            f"receivers_denied={denied['receiverDenied']}, max_message_size_denied:{denied['maxMessageSizeDenied']}, "
            f"nConnections= {ledger.open_connections}.",
        )
        self.settings = None

    def _again(self, older: int | None, kind: str) -> Mapping[str, Any]:
        """The member of an audit event that says that the peer had not asked."""
        if older is None:
            return {}
        self.gate.ended[kind] += 1
        return {"redecision": self.gate.occasion}

    # Records

    @property
    def _user(self) -> str:
        return self.identity.user if self.identity.user is not None else "(null)"

    @property
    def _vhost(self) -> str:
        return self.hostname if self.hostname is not None else "(null)"

    def _log(self, level: Literal["trace", "debug", "info", "warning"], text: str) -> None:
        log(self.gate.emit, "POLICY", level, text)

    def facts(self) -> Mapping[str, Any]:
        """The members of an audit event that are the connection's own."""
        settings = self.settings
        return {
            "connection": self.connection_id,
            "connection_name": self.connection_name,
            "listener": self.listener,
            "remote_host": self.remote_host,
            "user": self.identity.user,
            "mechanism": self.identity.mechanism,
            "is_encrypted": self.is_encrypted,
            "requested_vhost": self.requested_vhost,
            "vhost": settings.vhost if settings is not None else None,
            "group": settings.group if settings is not None else None,
        }

    def _facts_in_force(self) -> Mapping[str, Any]:
        """Those of an event that speaks of the policy in force beside another."""
        return {**self.facts(), "ruleset_digest": self.gate.ruleset.digest}

    def _audit(self, decision: Decision, *, refusal: Refusal, **facts: Any) -> Refusal:
        """Record a denial. Returns what the peer is told: `refusal`, with the rule where the policy wants that."""
        refusal = explained(refusal, decision) if self.gate.explains else refusal
        merged = {**self.facts(), "condition": refusal.condition, "detail": refusal.description, **facts}
        self.gate.audit(decision, **merged)
        return refusal
