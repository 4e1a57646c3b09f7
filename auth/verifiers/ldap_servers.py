"""The servers of one directory: which one to ask, and the connections kept open. Blocking; used by several threads.

The first server that is up is asked. A server that fails is not asked for some time, and no question waits for it.
Then one question tries it. If it answers, all questions go to it again.
"""

import threading
import time
from collections.abc import Callable
from typing import Final, TypeVar

from auth.verifiers.ldap_settings import LdapSettings, LdapSettingsError
from auth.verifiers.ldap_wire import SUCCESS, LdapConnection, LdapError, Limits, ServerAddress, ServerFault

# A firewall on the way drops connections that are idle for minutes, without notice.
MAX_IDLE_S: Final = 60.0

# A whole question, with several answers and perhaps several servers, may take this many times as long as one answer.
QUESTION_FACTOR: Final = 4

_T = TypeVar("_T")


class _Server:
    """One server of a directory.

    retry_at  end of the time in which it is not asked, monotonic seconds; 0: it has not failed
    """

    def __init__(self, address: ServerAddress) -> None:
        self.address = address
        self.retry_at = 0.0
        self.is_down = False
        self.fault = ""
        self.has_chain_rule: bool | None = None  # None: not known
        self.services: list[tuple[float, LdapConnection]] = []  # idle since
        self.users: list[tuple[float, LdapConnection]] = []


class Session:
    """One server during one question. Connections are taken when they are needed."""

    def __init__(self, directory: "Directory", server: _Server, limits: Limits, *, is_fresh: bool) -> None:
        self.limits = limits
        self.has_reused = False
        self._directory = directory
        self._server = server
        self._is_fresh = is_fresh
        self._service: LdapConnection | None = None
        self._user: LdapConnection | None = None

    @property
    def service(self) -> LdapConnection:
        """Returns a connection that is bound as the service. Errors: LdapError."""
        if self._service is None:
            self._service = self._take(self._server.services)
            if self._service is None:
                self._service = self._directory.connect(self._server.address, self.limits)
                self._directory.bind_service(self._service, self.limits)
        return self._service

    @property
    def user(self) -> LdapConnection:
        """Returns a connection for binds of users; it has the identity of the last bind. Errors: LdapError."""
        if self._user is None:
            self._user = self._take(self._server.users)
            if self._user is None:
                self._user = self._directory.connect(self._server.address, self.limits)
        return self._user

    @property
    def has_chain_rule(self) -> bool | None:
        """Returns whether the server has the rule that finds members of members. None: not known yet."""
        return self._server.has_chain_rule

    @has_chain_rule.setter
    def has_chain_rule(self, has: bool) -> None:
        self._server.has_chain_rule = has

    def release(self) -> None:
        """Keeps the connections for the next question."""
        server = self._server
        for connection, idle in ((self._service, server.services), (self._user, server.users)):
            if connection is not None:
                self._directory.keep(connection, idle)

    def discard(self) -> None:
        for connection in (self._service, self._user):
            if connection is not None:
                self._directory.drop(connection)

    def _take(self, idle: list[tuple[float, LdapConnection]]) -> LdapConnection | None:
        found = None if self._is_fresh else self._directory.take(idle)
        self.has_reused |= found is not None
        return found


class Directory:
    """All servers that hold the same entries."""

    def __init__(self, settings: LdapSettings, clock: Callable[[], float] = time.monotonic) -> None:
        self._settings = settings
        self._clock = clock
        self._lock = threading.Lock()
        self._servers = [_Server(address) for address in settings.servers]
        self._open: set[LdapConnection] = set()
        self._is_closed = False
        self.say: Callable[[str], None] = lambda _text: None

    def ask(self, question: Callable[[Session], _T]) -> _T:
        """Asks the servers in turn, until one does not fail.

        question  may be asked again, to another server or over another connection
        Errors    LdapError.
        """
        timeout_s = self._settings.timeout_s
        limits = Limits(timeout_s, time.monotonic() + QUESTION_FACTOR * timeout_s)
        faults: list[str] = []
        for server in self._servers:
            if not self._may_ask(server):
                faults.append(f"{server.fault}, left alone for now")
                continue
            try:
                answer = self._ask_one(server, question, limits)
            except ServerFault as fault:
                self._failed(server, fault)
                faults.append(str(fault))
            except BaseException:
                self._free(server)
                raise
            else:
                self._answered(server)
                return answer
            if time.monotonic() >= limits.ends_at:
                break
        raise LdapError("; ".join(faults))

    def close(self) -> None:
        """Ends all connections. Threads that wait for a server wake up."""
        with self._lock:
            self._is_closed = True
            found = list(self._open)
            for server in self._servers:
                server.services.clear()
                server.users.clear()
        for connection in found:
            connection.abort()

    def _ask_one(self, server: _Server, question: Callable[[Session], _T], limits: Limits) -> _T:
        session = Session(self, server, limits, is_fresh=False)
        try:
            answer = question(session)
        except ServerFault as fault:
            session.discard()
            if not (fault.is_lost and session.has_reused):
                raise
        except BaseException:
            session.discard()
            raise
        else:
            session.release()
            return answer
        # The failure of a kept connection, which the server may have closed, says nothing about the server.
        session = Session(self, server, limits, is_fresh=True)
        try:
            answer = question(session)
        except BaseException:
            session.discard()
            raise
        session.release()
        return answer

    # Servers

    def _may_ask(self, server: _Server) -> bool:
        with self._lock:
            now = self._clock()
            if server.retry_at > now:
                return False
            if server.retry_at:
                # This question tries it. Other questions do not wait for a server that may still be down.
                server.retry_at = now + max(self._settings.retry_s, QUESTION_FACTOR * self._settings.timeout_s)
            return True

    def _free(self, server: _Server) -> None:
        """Lets the next question try the server, since it did not fail, or that is not known."""
        with self._lock:
            server.retry_at = 0.0

    def _failed(self, server: _Server, fault: ServerFault) -> None:
        with self._lock:
            is_news = not server.is_down and not self._is_closed
            server.is_down = True
            server.retry_at = self._clock() + self._settings.retry_s
            server.fault = str(fault)
            server.has_chain_rule = None
            stale = [*server.services, *server.users]
            server.services.clear()
            server.users.clear()
        for _, connection in stale:
            self.drop(connection)
        if is_news:
            self.say(f"{fault}. It is left alone, and tried every {self._settings.retry_s:g} s")

    def _answered(self, server: _Server) -> None:
        with self._lock:
            is_news, server.is_down = server.is_down, False
            server.retry_at = 0.0
        if is_news:
            self.say(f"{server.address} answers again")

    # Connections

    def connect(self, address: ServerAddress, limits: Limits) -> LdapConnection:
        """Opens a connection. Errors: LdapError."""
        connection = LdapConnection(address)
        with self._lock:
            if self._is_closed:
                raise LdapError("the authenticator is being deleted")
            self._open.add(connection)
        settings = self._settings
        try:
            connection.open(limits, settings.tls.context if address.is_tls or settings.starts_tls else None)
        except BaseException:
            self.drop(connection)
            raise
        return connection

    def bind_service(self, connection: LdapConnection, limits: Limits) -> None:
        """Binds as the service. Errors: LdapError, after which the connection is unusable."""
        settings = self._settings
        try:
            if settings.bind_password is None:
                code = connection.bind_anonymously(limits)
            else:
                code = connection.bind(settings.bind_dn, settings.bind_password.read(), limits)
        except LdapSettingsError as error:
            raise LdapError(str(error)) from None
        if code != SUCCESS:
            who = "bindDn" if settings.bind_dn else "an anonymous bind"
            raise ServerFault(f"{connection.address}: {who} refused with LDAP result {code}")

    def take(self, idle: list[tuple[float, LdapConnection]]) -> LdapConnection | None:
        """Returns the connection that was used last, if one is still usable. Else None."""
        while True:
            with self._lock:
                if not idle:
                    return None
                since, connection = idle.pop()
            if self._clock() - since < MAX_IDLE_S and connection.is_idle:
                return connection
            self.drop(connection)

    def keep(self, connection: LdapConnection, idle: list[tuple[float, LdapConnection]]) -> None:
        with self._lock:
            if not self._is_closed and len(idle) < self._settings.threads:
                idle.append((self._clock(), connection))
                return
        self.drop(connection)

    def drop(self, connection: LdapConnection) -> None:
        with self._lock:
            self._open.discard(connection)
        connection.close()
