"""Finds out whether a peer is banned, and records what a ban refuses and closes.

Pure. An attempt that costs the peer an authentication has its own event. For sockets closed at accept, only the first
has its own event, and later ones are counted. Source: docs/spec/policy-and-auth.md §3.15.
"""

from collections.abc import Iterator

from policy.ban_set import MAX_AUTOMATIC, MAX_MANUAL, Ban, BanSet
from policy.decision import Decision, Reason, Rule
from router.admission.denials import Denied, Recorder, line
from router.admission.refusals import CONNECTION_REFUSED
from router.admission.repeats import Repeats
from router.effects import AuditStage, ConnectionMembers, RequestMembers


class BanGate:
    """The bans in force, and the records of their effects.

    bans  in force. The owner of the clock adds and removes them
    """

    def __init__(self, bans: BanSet, recorder: Recorder) -> None:
        self.bans = bans
        self._recorder = recorder
        self._repeats: Repeats[str] = Repeats(MAX_MANUAL + MAX_AUTOMATIC)  # by the name of the ban

    def ban_of(self, remote_host: str, user: str | None = None) -> Ban | None:
        """Returns the ban of all users at a host, or of one user there, or None.

        user  authenticated, not only claimed; None: unknown, or the peer has none
        """
        return self.bans.of_user(remote_host, user)

    def record_accept(
        self, ban: Ban, *, connection_id: int, remote_host: str, connection_name: str, listener: str
    ) -> None:
        """Records an accepted socket that is closed at once.

        Attack: a banned host that connects endlessly. A line and an event for each attempt would let it fill the disk.
        They would also fill the audit log's queue, so that other events are lost. So the first attempt has an event,
        and then each round of `reports` has one with a number.
        """
        self._recorder.count("accept")
        self.bans.count_hit(ban)
        if self._repeats.count(ban.name, ban.name):
            connection: ConnectionMembers = {
                "connection": connection_id,
                "connection_name": connection_name,
                "listener": listener,
                "remote_host": remote_host,
            }
            self._record(ban, f"DENY Connection '{remote_host}'", "accept", connection, is_silent=True)

    def reports(self) -> Iterator[None]:
        """Reports the refusals that have no event yet, one ban in each step. Call at equal intervals."""
        for name, attempts in self._repeats.take():
            if (ban := self.bans.get(name)) is not None:
                self._report(ban, attempts)
            yield

    def remove(self, name: str) -> None:
        """Lifts a ban, after a report of its refusals. Does nothing for a ban that no longer exists."""
        ban = self.bans.remove(name)
        attempts = self._repeats.forget(name)
        if ban is not None and attempts:
            self._report(ban, attempts)

    def record_refusal(self, ban: Ban, connection: ConnectionMembers, *, stage: AuditStage) -> None:
        """Records a peer that is refused before its connection is open.

        stage  how far the connection had come. Before `open` its user is only a claim
        """
        is_known = stage == "open"
        self.bans.count_hit(ban)
        what = f"DENY {'AMQP Open' if is_known else 'login'} for user '{connection['user'] or ''}'"
        text = f"{what}, rhost '{connection['remote_host']}'"
        self._record(ban, text, stage, connection, is_silent=not is_known)

    def record_closing(self, ban: Ban, connection: ConnectionMembers, *, stage: AuditStage) -> None:
        """Records the closing of a connection that was open when the ban came.

        stage  how far the connection had come
        """
        self.bans.count_hit(ban)
        text = f"[C{connection['connection']}] Connection '{connection['connection_name']}' is closed"
        self._record(ban, text, stage, connection, is_ending=True)

    def _report(self, ban: Ban, attempts: int) -> None:
        self._record(ban, f"DENY {attempts} more connections", "accept", {}, attempts=attempts, is_silent=True)

    def _record(
        self,
        ban: Ban,
        what: str,
        stage: AuditStage,
        connection: ConnectionMembers,
        *,
        attempts: int | None = None,
        is_silent: bool = False,
        is_ending: bool = False,
    ) -> None:
        whom = ", ".join(str(each) for each in (ban.network, ban.user) if each is not None)
        request: RequestMembers = {"detail": ban.reason}
        if attempts is not None:
            request["attempts"] = attempts
        denied = Denied(
            stage=stage,
            decision=Decision(is_allowed=False, reason=Reason.BANNED, rule=Rule(item=f"ban {ban.name}: {whom}")),
            refusal=CONNECTION_REFUSED,
            lines=(line("info", f"{what} based on ban '{ban.name}': {ban.reason or 'no reason given'}"),),
            request=request,
            is_silent=is_silent,
            is_ending=is_ending,
        )
        self._recorder.record(denied, connection)
