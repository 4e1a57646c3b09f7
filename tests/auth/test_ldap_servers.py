"""Which LDAP server is asked, which is left alone, and which connections are kept, with made-up connections."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from auth.secrets import Secret
from auth.verifiers import ldap_servers
from auth.verifiers.ldap_servers import MAX_IDLE_S, QUESTION_FACTOR, Directory, Session
from auth.verifiers.ldap_settings import read_settings
from auth.verifiers.ldap_wire import LdapError, Limits, ServerAddress, ServerFault

GIVEN: dict[str, Any] = {
    "name": "staff",
    "urls": "ldaps://a.example ldap://b.example",
    "userBase": "ou=people",
    "timeoutSeconds": 5,
    "retrySeconds": 30,
    "threads": 2,
}


class Network:
    """The connections that are made, by server; what goes wrong with them."""

    def __init__(self) -> None:
        self.made: list[Connection] = []
        self.down: set[str] = set()
        self.bind_code = 0

    def of(self, host: str) -> "list[Connection]":
        return [each for each in self.made if each.address.host == host]


class Connection:
    """In the place of an LdapConnection."""

    def __init__(self, network: Network, address: ServerAddress) -> None:
        self.network = network
        self.address = address
        self.is_idle = True
        self.is_open = False
        self.is_aborted = False
        self.tls: Any = None
        self.limits: Limits | None = None
        self.bound: list[Any] = []
        network.made.append(self)

    def open(self, limits: Limits, tls: Any) -> None:
        self.limits, self.tls = limits, tls
        if self.address.host in self.network.down:
            raise ServerFault(f"{self.address}: down")
        self.is_open = True

    def bind(self, dn: str, password: Secret, limits: Limits) -> int:
        assert limits is self.limits
        self.bound.append((dn, password.reveal()))
        return self.network.bind_code

    def bind_anonymously(self, limits: Limits) -> int:
        assert limits is self.limits
        self.bound.append("nobody")
        return self.network.bind_code

    def close(self) -> None:
        self.is_open = False

    def abort(self) -> None:
        self.is_aborted = True


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def network(monkeypatch: pytest.MonkeyPatch) -> Network:
    made = Network()
    monkeypatch.setattr(ldap_servers, "LdapConnection", lambda address: Connection(made, address))
    return made


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def said() -> list[str]:
    return []


Make = Callable[..., Directory]


@pytest.fixture
def make(network: Network, clock: Clock, said: list[str]) -> Iterator[Make]:
    made: list[Directory] = []

    def directory(**changes: Any) -> Directory:
        made.append(Directory(read_settings({**GIVEN, **changes}), clock))
        made[-1].say = said.append
        return made[-1]

    yield directory
    for each in made:
        each.close()


def user(session: Session) -> str:
    """A question that needs a connection for a user's bind. The host that answers."""
    return session.user.address.host


def service(session: Session) -> str:
    return session.service.address.host


def both(session: Session) -> str:
    assert session.service.address is session.user.address
    return session.user.address.host


def lost(session: Session) -> str:
    """The server has ended the connection."""
    raise ServerFault(f"{session.user.address}: closed the connection", is_lost=True)


# Which server


def test_the_first_server_is_asked_and_the_next_ones_only_where_it_fails(make: Make, network: Network) -> None:
    directory = make()
    assert directory.ask(user) == "a.example"
    assert network.of("b.example") == []
    network.down.add("a.example")
    network.made[0].is_idle = False  # it has closed what was kept
    assert directory.ask(user) == "b.example"


def test_a_server_that_fails_is_left_alone_for_a_while(
    make: Make, network: Network, clock: Clock, said: list[str]
) -> None:
    directory = make()
    network.down.add("a.example")
    for _ in range(3):
        assert directory.ask(user) == "b.example"
    assert len(network.of("a.example")) == 1
    assert said == ["ldaps://a.example:636: down. It is left alone, and tried every 30 s"]
    clock.now += 29.9
    directory.ask(user)
    assert len(network.of("a.example")) == 1
    clock.now += 0.1
    directory.ask(user)
    assert len(network.of("a.example")) == 2, "one question tries it"
    directory.ask(user)
    assert len(network.of("a.example")) == 2
    network.down.clear()
    clock.now += 30
    assert directory.ask(user) == "a.example"
    assert said[1:] == ["ldaps://a.example:636 answers again"]
    network.down.add("a.example")
    for each in network.made:
        each.is_idle = False
    assert directory.ask(user) == "b.example"
    assert len(said) == 3, "said anew"


def test_while_one_question_tries_a_server_the_others_do_not_wait_for_it(
    make: Make, network: Network, clock: Clock
) -> None:
    directory = make(retrySeconds=1)
    network.down.add("a.example")
    directory.ask(user)
    network.down.clear()
    clock.now += 1
    asked: list[str] = []

    def tries(session: Session) -> str:
        if session._server.address.host == "a.example":
            asked.append(directory.ask(user))
            clock.now += QUESTION_FACTOR * 5 - 0.1  # as long as the question may take
            asked.append(directory.ask(user))
        return user(session)

    assert directory.ask(tries) == "a.example"
    assert asked == ["b.example", "b.example"]
    assert directory.ask(user) == "a.example"


def test_while_it_is_tried_it_is_left_alone_for_at_least_as_long_as_it_was(
    make: Make, network: Network, clock: Clock
) -> None:
    directory = make(retrySeconds=60)
    network.down.add("a.example")
    directory.ask(user)
    network.down.clear()
    clock.now += 60
    asked: list[str] = []

    def tries(session: Session) -> str:
        if session._server.address.host == "a.example":
            for seconds in (59.9, 0.1):
                clock.now += seconds
                asked.append(directory.ask(user))
        return user(session)

    directory.ask(tries)
    assert asked == ["b.example", "a.example"]


def test_where_all_fail_each_is_named(make: Make, network: Network) -> None:
    directory = make()
    network.down |= {"a.example", "b.example"}
    with pytest.raises(LdapError) as caught:
        directory.ask(user)
    assert str(caught.value) == "ldaps://a.example:636: down; ldap://b.example:389: down"
    with pytest.raises(LdapError) as caught:
        directory.ask(user)
    assert str(caught.value) == (
        "ldaps://a.example:636: down, left alone for now; ldap://b.example:389: down, left alone for now"
    )
    assert len(network.made) == 2


def test_a_question_takes_no_longer_than_it_may(make: Make, network: Network, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that is late is the last to be asked, whatever others there are."""
    now = [5000.0]
    monkeypatch.setattr("auth.verifiers.ldap_servers.time.monotonic", lambda: now[0])
    directory = make()
    limits: list[Limits] = []

    def late(seconds: float) -> Callable[[Session], str]:
        def ask(session: Session) -> str:
            limits.append(session.limits)
            if session._server.address.host == "a.example":
                now[0] += seconds
                raise ServerFault("late")
            return user(session)

        return ask

    assert directory.ask(late(QUESTION_FACTOR * 5 - 0.1)) == "b.example"
    assert limits[0] is limits[1]
    assert limits[0] == Limits(5, 5000.0 + QUESTION_FACTOR * 5)
    directory = make()
    with pytest.raises(LdapError, match=r"^late$"):
        directory.ask(late(QUESTION_FACTOR * 5))


def test_a_question_that_cannot_be_answered_is_no_fault_of_the_server(
    make: Make, network: Network, said: list[str]
) -> None:
    """A user in too many groups: the next server is not asked, and this one not left alone."""
    directory = make()
    session_connections: list[Any] = []

    def ask(session: Session) -> str:
        session_connections.extend((session.user, session.service))
        raise LdapError("too many groups")

    for _ in range(2):
        with pytest.raises(LdapError, match=r"^too many groups$"):
            directory.ask(ask)
    assert network.of("b.example") == []
    assert len(network.of("a.example")) == 4
    assert not any(each.is_open for each in session_connections), "what is under way on them is unknown"
    assert said == []


def test_a_server_that_is_tried_is_free_again_where_the_question_was_to_blame(
    make: Make, network: Network, clock: Clock
) -> None:
    directory = make()
    network.down.add("a.example")
    directory.ask(user)
    network.down.clear()
    clock.now += 30

    def fail(_session: Session) -> str:
        raise LdapError("too many groups")

    with pytest.raises(LdapError):
        directory.ask(fail)
    assert at_once(directory) == ["a.example", "a.example"]
    assert at_once(directory) == ["a.example", "a.example"]


def at_once(directory: Directory) -> list[str]:
    """Two questions at once: the hosts that answer."""
    return directory.ask(lambda session: [directory.ask(user), user(session)])


def test_a_server_that_answers_again_is_asked_by_all(make: Make, network: Network, clock: Clock) -> None:
    directory = make()
    network.down.add("a.example")
    directory.ask(user)
    network.down.clear()
    clock.now += 30
    assert at_once(directory) == ["b.example", "a.example"]
    assert at_once(directory) == ["a.example", "a.example"]


def test_what_is_said_need_not_be_heard(network: Network) -> None:
    network.down |= {"a.example", "b.example"}
    with pytest.raises(LdapError, match="down"):
        Directory(read_settings(GIVEN)).ask(user)


# Connections


def test_connections_are_kept_each_for_its_purpose(make: Make, network: Network) -> None:
    """One that a user has bound is never taken for the service's."""
    directory = make(bindDn="cn=router", bindPassword="literal:sesame")
    for _ in range(3):
        assert directory.ask(both) == "a.example"
    assert [each.bound for each in network.made] == [[("cn=router", "sesame")], []]
    assert all(each.is_open for each in network.made)
    first: list[Any] = [directory.ask(lambda session: session.service), directory.ask(lambda session: session.user)]
    assert first == network.made


def test_in_a_question_a_connection_stays_the_same(make: Make, network: Network) -> None:
    directory = make()
    assert directory.ask(lambda session: session.user is session.user)
    assert directory.ask(lambda session: session.service is session.service)
    assert len(network.made) == 2


def test_the_connection_that_was_used_last_is_taken(make: Make, network: Network) -> None:
    directory = make()

    def nested(_session: Session) -> Any:
        mine = _session.user
        directory.ask(user)
        return mine

    mine = directory.ask(nested)
    assert len(network.made) == 2
    assert directory.ask(lambda session: session.user) is mine


def test_no_more_connections_are_kept_than_there_are_threads(make: Make, network: Network) -> None:
    directory = make()

    def nested(session: Session, depth: int = 3) -> str:
        host = user(session)
        return directory.ask(lambda inner: nested(inner, depth - 1)) if depth else host

    directory.ask(nested)
    assert [each.is_open for each in network.made].count(True) == 2
    assert len(network.made) == 4
    assert len(directory._open) == 2


@pytest.mark.parametrize(("idle_s", "is_kept"), [(MAX_IDLE_S - 0.1, True), (MAX_IDLE_S, False)])
def test_a_connection_is_kept_for_so_long(
    make: Make, network: Network, clock: Clock, idle_s: float, is_kept: bool
) -> None:
    directory = make()
    directory.ask(user)
    clock.now += idle_s
    directory.ask(user)
    assert len(network.made) == (1 if is_kept else 2)
    assert network.made[0].is_open is is_kept


def test_a_connection_on_which_something_has_come_is_not_used(make: Make, network: Network) -> None:
    """Attack: an answer in advance, to be taken for that to the next question."""
    directory = make()
    directory.ask(user)
    network.made[0].is_idle = False
    directory.ask(user)
    assert [each.is_open for each in network.made] == [False, True]


def test_a_kept_connection_that_is_lost_says_nothing_of_the_server(
    make: Make, network: Network, said: list[str]
) -> None:
    directory = make()
    directory.ask(both)

    def ask(session: Session) -> str:
        mine: Any = session.user
        if mine in network.made[:2]:
            return lost(session)
        return both(session)

    assert directory.ask(ask) == "a.example"
    assert said == []
    assert [each.is_open for each in network.made] == [True, False, True, True]


def test_one_kept_connection_of_two_is_enough_to_ask_again(make: Make, network: Network, said: list[str]) -> None:
    directory = make()
    directory.ask(service)

    def ask(session: Session) -> str:
        used: Any = [session.service, session.user]
        if network.made[0] in used:
            raise ServerFault("closed the connection", is_lost=True)
        return user(session)

    assert directory.ask(ask) == "a.example"
    assert said == []
    assert all(isinstance(each.limits, Limits) for each in network.made)


def test_a_new_connection_that_is_lost_is_a_fault_of_the_server(make: Make, network: Network, said: list[str]) -> None:
    directory = make(urls="ldaps://a.example")
    with pytest.raises(LdapError, match="closed the connection"):
        directory.ask(lost)
    assert len(network.made) == 1
    assert not network.made[0].is_open
    assert len(said) == 1


def test_a_connection_that_is_lost_twice_is_a_fault_of_the_server(
    make: Make, network: Network, said: list[str]
) -> None:
    directory = make(urls="ldaps://a.example")
    directory.ask(user)
    with pytest.raises(LdapError, match="closed the connection"):
        directory.ask(lost)
    assert [each.is_open for each in network.made] == [False, False]
    assert len(said) == 1


def test_any_other_fault_of_a_kept_connection_is_the_servers(make: Make, network: Network, said: list[str]) -> None:
    directory = make(urls="ldaps://a.example")
    directory.ask(user)

    def fail(session: Session) -> str:
        raise ServerFault(f"{user(session)}: an answer that is no LDAP")

    with pytest.raises(LdapError, match="no LDAP"):
        directory.ask(fail)
    assert len(network.made) == 1
    assert len(said) == 1


def test_with_a_server_that_fails_its_kept_connections_go(make: Make, network: Network) -> None:
    """It may be another machine when it comes again, that has another rule for groups."""
    directory = make(urls="ldaps://a.example")

    def nested(session: Session) -> str:
        session.has_chain_rule = True
        host = both(session)
        directory.ask(both)
        return host

    directory.ask(nested)
    kept = [each for each in network.made if each.is_open]
    assert len(kept) == 4
    assert directory.ask(lambda session: session.has_chain_rule) is True

    def fail(session: Session) -> str:
        raise ServerFault(f"{user(session)}: gone")

    with pytest.raises(LdapError):
        directory.ask(fail)
    assert not any(each.is_open for each in kept)
    assert directory._open == set()


def test_what_a_server_can_is_asked_anew_after_it_failed(make: Make, network: Network, clock: Clock) -> None:
    directory = make(urls="ldaps://a.example")

    def learn(session: Session) -> None:
        assert session.has_chain_rule is None
        session.has_chain_rule = True

    directory.ask(learn)
    network.down.add("a.example")
    with pytest.raises(LdapError):
        directory.ask(user)
    network.down.clear()
    clock.now += 30
    directory.ask(learn)


# Binding


def test_tls_is_begun_wherever_it_is_not_turned_off(make: Make, network: Network) -> None:
    for starts_tls in (True, False):
        directory = make(startTls=starts_tls)
        for host in ("a.example", "b.example"):
            directory.ask(user)
            network.down.add(host)
            for each in network.made:
                each.is_idle = False
        network.down.clear()
        context = directory._settings.tls.context
        assert [each.tls for each in network.made if each.tls] == [context] * (3 if starts_tls else 2)
        network.made.clear()


def test_without_a_service_it_is_bound_as_nobody(make: Make, network: Network) -> None:
    make().ask(service)
    assert network.made[0].bound == ["nobody"]


@pytest.mark.parametrize(
    ("changes", "who"), [({}, "an anonymous bind"), ({"bindDn": "cn=x", "bindPassword": "literal:p"}, "bindDn")]
)
def test_a_service_that_is_refused_is_a_fault_that_names_it(
    make: Make, network: Network, changes: dict[str, str], who: str
) -> None:
    network.bind_code = 49
    with pytest.raises(LdapError) as caught:
        make(urls="ldaps://a.example", **changes).ask(service)
    assert str(caught.value) == f"ldaps://a.example:636: {who} refused with LDAP result 49"
    assert not network.made[0].is_open


def test_a_password_that_is_gone_is_no_fault_of_the_server(
    make: Make, network: Network, tmp_path: Path, said: list[str]
) -> None:
    file = tmp_path / "password"
    file.write_text("sesame")
    directory = make(urls="ldaps://a.example", bindDn="cn=x", bindPassword=f"file:{file}")
    file.unlink()
    with pytest.raises(LdapError, match=r"^bindPassword: "):
        directory.ask(service)
    assert said == []
    assert not network.made[0].is_open


# Closing


def test_a_closed_directory_opens_nothing_and_keeps_nothing(make: Make, network: Network, said: list[str]) -> None:
    directory = make()
    directory.ask(both)
    kept = list(network.made)

    def closes(session: Session) -> str:
        host = user(session)
        directory.close()
        return host

    directory.ask(closes)
    assert all(each.is_aborted for each in kept)
    assert not kept[1].is_open, "it is not kept"
    with pytest.raises(LdapError, match=r"^the authenticator is being deleted$"):
        directory.ask(user)
    assert network.made[2].limits is None, "it is not opened"


def test_what_fails_because_it_is_closed_is_not_said(make: Make, network: Network, said: list[str]) -> None:
    directory = make(urls="ldaps://a.example")

    def closes(session: Session) -> str:
        directory.close()
        return lost(session)

    with pytest.raises(LdapError):
        directory.ask(closes)
    network.down.add("a.example")
    assert said == []


def test_threads_share_a_directory(make: Make, network: Network) -> None:
    """Each connection is used by one of them at a time."""
    directory = make(threads=8)
    in_use: set[int] = set()
    faults: list[str] = []
    lock = threading.Lock()

    def ask(session: Session) -> str:
        connection = id(session.user)
        with lock:
            if connection in in_use:
                faults.append("shared")
            in_use.add(connection)
        with lock:
            in_use.discard(connection)
        return "done"

    threads = [threading.Thread(target=lambda: [directory.ask(ask) for _ in range(50)]) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert faults == []
    assert len(network.made) <= 8
