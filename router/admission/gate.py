"""Decides about sockets at accept, and about connections at their Open and when rules or time have changed.

Sources: docs/spec/policy-and-auth.md §2.7, §2.8, §3.2 to §3.5.
"""

from collections import Counter
from collections.abc import Callable
from typing import Final, Literal, Protocol

from auth.identity import Identity
from policy.addressing.address import Address
from policy.ban_set import BanSet
from policy.decide import ConnectionDecision, Settings, decide_accept, decide_connection, decide_connector
from policy.decision import Reason
from policy.facts import Usage
from policy.ruleset import Ruleset
from policy.usage import UsageLedger
from router.admission.allows import Allows
from router.admission.ban_gate import BanGate
from router.admission.breakoffs import Breakoffs
from router.admission.candidate import ConnectionShadow, Shadow
from router.admission.denials import Denied, Recorder, accept_denied, connector_denied, open_denied
from router.admission.entrance import Entrance
from router.admission.folding import Folding
from router.admission.guessing import Guesses, nobody_guesses
from router.admission.logins import LoginCounts, count_nothing
from router.admission.party import Party
from router.admission.refusals import CONNECTION_REFUSED, MOVED, Refusal
from router.effects import (
    AdmissionFailed,
    Audit,
    ConnectionMembers,
    Emit,
    LogLevel,
    Occasion,
    RequestMembers,
    audit_event,
    log,
)

# Denials at Open that count towards an automatic ban. Connection limits do not: another peer could use them up to get a
# host banned.
_COUNTED_AS_FAILURES: Final = frozenset(
    {Reason.NO_VHOST, Reason.UNKNOWN_USER, Reason.RESERVED_USER_NAME, Reason.HOST_NOT_ALLOWED}
)


class KnownAddresses(Protocol):
    """A connection's own addresses, and those that it was asked to reply to (router.connection.replies)."""

    def owner(self, address: Address, *, is_ingress: bool) -> Literal["own", "other"] | None: ...
    def reply_age(self, address: Address) -> float | None: ...


class Gate:
    """The rules in force, the bans and the connections. `ruleset` is replaced as a whole when the policy changes.

    shadow   a candidate policy that is also asked and changes nothing; None: no candidate
    folding  None: one whose clocks do not advance
    allows   None: allowed requests are not recorded
    guesses  None: no answer to a login is delayed
    """

    def __init__(
        self,
        ruleset: Ruleset,
        ledger: UsageLedger,
        emit: Emit,
        shadow: Shadow | None = None,
        bans: BanSet | None = None,
        folding: Folding | None = None,
        guesses: Guesses | None = None,
        allows: Allows | None = None,
    ) -> None:
        self.ruleset = ruleset
        self.ledger = ledger
        self.emit = emit
        self.shadow = shadow
        self.folding = folding if folding is not None else Folding(emit)
        self.recorder = Recorder(ledger, emit, self.folding)
        self.bans = BanGate(bans if bans is not None else BanSet(), self.recorder)
        self.guesses = guesses if guesses is not None else nobody_guesses()
        self.breakoffs = Breakoffs(emit)
        self.allows = allows
        self.entrance = Entrance(self.recorder, emit)
        # A connection that a change concerns loses the grants of earlier epochs.
        self.epoch = 0
        self.count_login: LoginCounts = count_nothing
        self.began_at = 0.0
        self.occasion: Occasion = "policy_change"
        self.ended: Counter[str] = Counter()  # connections, sessions and links that were denied in this epoch
        self._concerns: list[Callable[[Admission], bool]] = []

    def begin_epoch(self, occasion: Occasion, concerns: "Callable[[Admission], bool]", now: float) -> None:
        """Begins an epoch: open connections are decided again before they get anything new.

        concerns  selects these connections. Those that an unfinished earlier epoch concerns stay selected
        now       seconds since 1970 UTC: the time used for the decisions
        """
        self.epoch += 1
        self.began_at = now
        self.occasion = occasion
        self._concerns.append(concerns)

    def forget(self, connection_id: int) -> None:
        """Writes the sums of a connection that has ended."""
        self.folding.forget(connection_id)
        if self.allows is not None:
            self.allows.folding.forget(connection_id)

    def end_epoch(self) -> None:
        """Ends the epoch: every open connection has been decided again."""
        self._concerns.clear()
        self.ended.clear()

    def is_concerned(self, connection: "Admission") -> bool:
        return any(concerns(connection) for concerns in self._concerns)

    def accept(self, *, connection_id: int, remote_host: str, connection_name: str, listener: str) -> bool:
        """Decides about an accepted socket and counts it, with or without vhost policy (§3.2).

        Returns True if it may stay.
        """
        open_connections = self.ledger.open_connections
        decision = decide_accept(self.ruleset, open_connections)
        if decision.is_allowed:
            self.ledger.count_accept(True)
            text = f"ALLOW Connection '{remote_host}' based on global connection count. nConnections= "
            log(self.emit, "POLICY", "trace", f"{text}{self.ledger.open_connections}")
            return True
        connection: ConnectionMembers = {
            "connection": connection_id,
            "connection_name": connection_name,
            "listener": listener,
            "remote_host": remote_host,
            "ruleset_digest": self.ruleset.digest,
        }
        denied = accept_denied(decision, remote_host, open_connections, self.ruleset.max_connections)
        self.recorder.record(denied, connection)
        return False

    def take_in(self, connection: "Admission") -> bool:
        """Decides about a connection that was not counted at accept, and counts it. Returns True if it may stay."""
        connection.has_place = self.accept(
            connection_id=connection.connection_id,
            remote_host=connection.remote_host,
            connection_name=connection.connection_name,
            listener=connection.listener,
        )
        return connection.has_place


class Admission(Party):
    """Decides whether one connection may exist, and by which settings.

    shadow     the connection as the candidate policy would decide; None if there is no candidate
    addresses  None before the Open was admitted
    has_place  True if it counts against maxConnections
    refusal    set if the connection is decided again and denied. Its owner then closes it
    """

    __slots__ = (
        "_allowed_targets",
        "_allowed_targets_bytes",
        "_epoch",
        "_is_counted",
        "_judged_as",
        "_redecided_in",
        "addresses",
        "gate",
        "has_place",
        "is_accepted",
        "is_governed",
        "open_receivers",
        "open_senders",
        "open_sessions",
        "refusal",
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
        is_counted: bool = True,
    ) -> None:
        """Starts before the Open.

        is_accepted, is_counted  False for a connection that the router makes, or has not counted: it has no place
        """
        super().__init__(
            connection_id=connection_id, connection_name=connection_name, remote_host=remote_host, listener=listener
        )
        self.gate = gate
        self.is_accepted = is_accepted
        self.has_place = is_accepted and is_counted
        self.is_governed = is_governed
        self.shadow: ConnectionShadow | None = None
        self.addresses: KnownAddresses | None = None
        self.open_sessions = self.open_senders = self.open_receivers = 0
        self._allowed_targets: dict[str, Address] = {}  # targets of messages that are remembered as allowed
        self._allowed_targets_bytes = 0
        self.refusal: Refusal | None = None
        self._epoch = self._redecided_in = 0
        self._is_counted = False  # in the ledger, under the vhost of its settings
        self._judged_as: Literal["client", "connector"] | None = None

    # Open

    def admit(
        self, identity: Identity, *, hostname: str | None, policy_vhost: str | None, is_encrypted: bool, now: float
    ) -> Refusal | None:
        """Decides about the Open. None: it may stay, counted until `close`. `now` is in seconds since 1970 UTC."""
        gate = self.gate
        self.identity = identity
        self.is_encrypted = is_encrypted
        self.hostname = hostname
        self.requested_vhost = policy_vhost or hostname or ""
        self._epoch = gate.epoch
        ban = gate.bans.ban_of(self.remote_host, identity.user)
        if ban is not None:
            gate.bans.record_refusal(ban, self.facts(), stage="open")
            self.count_failure()
            return CONNECTION_REFUSED
        if not self.is_governed or (not gate.ruleset.is_enabled and gate.shadow is None and identity.grants is None):
            self._admitted(None, now)
            return None
        user = identity.user or ""
        selected = gate.ruleset.select_vhost(self.requested_vhost) if gate.ruleset.is_enabled else None
        usage = gate.ledger.usage(selected.name, user, self.remote_host) if selected is not None else Usage()
        facts = self.connection_facts(now)
        judged = decide_connection(gate.ruleset, facts, usage)
        if gate.shadow is not None:
            self.shadow = gate.shadow.opened(facts, judged, self._facts_in_force)
        if not gate.ruleset.is_enabled:
            self.settings = judged.settings
            self._admitted(None, now)
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
            self._admitted(usage, now)
            return None
        if decision.reason in _COUNTED_AS_FAILURES:
            self.count_failure()
        return self._deny(open_denied(self, judged, usage, now), judged)

    def _admitted(self, usage: Usage | None, now: float) -> None:
        """Records an allowed Open. `usage` is what the decision used; None: policy was not asked."""
        if (allows := self.gate.allows) is not None:
            allows.opened(self._facts_in_force(), usage, now)

    def _log_selection(self, judged: ConnectionDecision) -> None:
        """Logs the vhost that applies, if it is not simply the requested one (§2.7)."""
        requested, ruleset = self.requested_vhost, self.gate.ruleset
        if ruleset.tree is not None:
            found = ruleset.find_pattern(requested)
            shown = found if found is not None else "null"
            self._log("trace", f"vhost hostname pattern '{requested}' lookup returned '{shown}'")
        if judged.vhost is not None and judged.vhost != requested:
            who = f"user '{self.identity.user or ''}', rhost '{self.remote_host}', vhost '{requested}'"
            self._log("debug", f"AMQP Open for {who}: proceeds using vhost '{judged.vhost}' ruleset")

    def count_failure(self) -> None:
        """Counts invalid or insufficient credentials of the peer towards an automatic ban of its host."""
        if self.is_accepted:
            self.gate.emit(AdmissionFailed(remote_host=self.remote_host))

    def adopt_connector(
        self, identity: Identity, *, policy_vhost: str, is_encrypted: bool, now: float
    ) -> Refusal | None:
        """Applies settings to an outgoing connection whose connector has a policyVhost (§3.5).

        `now` is as for `admit`.
        """
        gate = self.gate
        self.identity = identity
        self.is_encrypted = is_encrypted
        self.requested_vhost = policy_vhost
        self._epoch = gate.epoch
        judged = decide_connector(gate.ruleset, policy_vhost, identity.user, now)
        if gate.shadow is not None:
            facts = self.connection_facts(now)
            self.shadow = gate.shadow.opened(facts, judged, self._facts_in_force, is_connector=True)
        if judged.decision.is_allowed:
            self.settings = judged.settings
            self._judged_as = "connector"
            return None
        return self._deny(connector_denied(self, judged, now), judged)

    # Once more

    @property
    def is_denied(self) -> bool:
        """True if the connection must get nothing new, also before it has caught up: it may have lost its grants.

        `keep_within_limits` applies limits on the number of connections, to the newest ones.
        """
        return self.refusal is not None or self._epoch != self.gate.epoch

    def catch_up(self) -> None:
        """Decides about the connection again if rules or time have changed. Call before it gets anything new."""
        epoch = self.gate.epoch
        if self._epoch == epoch:
            return
        if self.gate.is_concerned(self):
            self._redecide()
            self._redecided_in = epoch
        self._epoch = epoch  # this is last, so that a fault before it leaves the connection undecided

    def is_over_at(self, now: float) -> bool:
        """Returns True if the group that gives the connection its settings has expired."""
        return self.settings is not None and not self.settings.origin.window.contains(now)

    @property
    def is_redecided(self) -> bool:
        """True if the connection was decided again in this epoch."""
        return self._redecided_in == self.gate.epoch

    def _redecide(self) -> None:
        """Decides by the rules in force and the facts of the Open. Refuses, or applies new settings at once."""
        gate, now = self.gate, self.gate.began_at
        if self._judged_as is None or self.refusal is not None:
            return
        if self._judged_as == "connector":
            judged = decide_connector(gate.ruleset, self.requested_vhost, self.identity.user, now)
        else:
            judged = decide_connection(gate.ruleset, self.connection_facts(now), Usage())
        if judged.decision.is_allowed:
            self._take(judged.settings)
            return
        if self._judged_as == "connector":
            denied = connector_denied(self, judged, now, gate.occasion)
        else:
            denied = open_denied(self, judged, Usage(), now, gate.occasion)
        self._end(self._deny(denied, judged))

    def _take(self, settings: Settings | None) -> None:
        before = self.settings.vhost if self.settings is not None else None
        is_elsewhere = before != (settings.vhost if settings is not None else None)
        if is_elsewhere:
            self._uncount()
        self.settings = settings
        self._allowed_targets.clear()
        self._allowed_targets_bytes = 0
        if is_elsewhere and self.is_accepted:
            self._count()

    def _end(self, refusal: Refusal) -> None:
        """Ends the connection for all counts; its owner closes it."""
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
        """INVARIANT: runs as often as `_count`, with the same arguments, whatever happens to the connection."""
        settings = self.settings
        if self._is_counted and settings is not None:
            self._is_counted = False
            user = self.identity.user or ""
            self.gate.ledger.release(settings.vhost, user, self.remote_host, self.connection_name)

    def keep_within_limits(self) -> bool:
        """Denies an open connection for which there is no room, the newest first. Returns True if it may stay."""
        settings, now = self.settings, self.gate.began_at
        if self.refusal is not None or not self.is_redecided or settings is None or not self._is_counted:
            return self.refusal is None
        counted = self.gate.ledger.usage(settings.vhost, settings.user, self.remote_host)
        others = Usage(total=counted.total - 1, of_user=counted.of_user - 1, of_host=counted.of_host - 1)
        judged = decide_connection(self.gate.ruleset, self.connection_facts(now), others)
        if not judged.decision.is_allowed:
            self._end(self._deny(open_denied(self, judged, others, now, self.gate.occasion), judged))
        return self.refusal is None

    def refuse_move(self) -> None:
        """Denies a connection whose addresses are in the space of a vhost that no longer applies to it."""
        told: RequestMembers = {"condition": MOVED.condition, "detail": MOVED.description}
        request: RequestMembers = {"redecision": self.gate.occasion, **told}
        self.gate.emit(Audit(event=audit_event("open", "deny", "vhost_changed", self._facts_in_force(), request)))
        self._end(MOVED)

    def close(self) -> None:
        """Removes a connection that ended from all counts. Call once for every connection."""
        self.gate.forget(self.connection_id)
        if self.shadow is not None:
            self.shadow.close()
            self.shadow = None
        ledger = self.gate.ledger
        settings = self.settings
        if not self.is_accepted:
            return
        if self.has_place:
            ledger.count_accept_closed()
        if settings is None or not settings.is_of_vhost:
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

    # Records

    def _log(self, level: LogLevel, text: str) -> None:
        log(self.gate.emit, "POLICY", level, text)

    def _facts_in_force(self) -> ConnectionMembers:
        """Returns the members of an event that depends on the policy in force."""
        return {**self.facts(), "ruleset_digest": self.gate.ruleset.digest}

    def _deny(self, denied: Denied, judged: ConnectionDecision | None = None) -> Refusal:
        """Records a denial. Returns the error for the peer.

        judged  the decision about an Open; None: the connection's own settings decided
        """
        connection = self._facts_in_force()
        if judged is not None:
            connection = {**connection, "vhost": judged.vhost, "group": judged.group}
        return self.gate.recorder.record(denied, connection)
