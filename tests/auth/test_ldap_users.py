"""What an LDAP directory's answers mean: who is let in, with which groups, and when an open connection ends.

The directory is made up here, entry by entry; a real one: tests/interop/test_ldap_directory.py.
"""

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from auth.credentials import (
    MAX_PASSWORD_BYTES,
    MAX_USER_BYTES,
    UNKNOWN_USER,
    WRONG_PASSWORD,
    CheckPassword,
    CheckToken,
    FetchGroups,
    Recheck,
    VerifyResult,
    unavailable,
)
from auth.identity import Proof
from auth.secrets import Secret
from auth.verifiers.ldap import DISABLED, NOT_AS_WRITTEN, LdapVerifier, ldap_warnings, make_ldap_verifier
from auth.verifiers.ldap_groups import CHAIN_RULE, MAX_DEPTH, MAX_GROUPS
from auth.verifiers.ldap_settings import escape, read_settings
from auth.verifiers.ldap_wire import Entry, LdapError, Limits, ServerAddress

PEOPLE, GROUPS = "ou=people", "ou=groups"
GIVEN: dict[str, Any] = {"name": "staff", "urls": "ldaps://a.example", "userBase": PEOPLE, "groupBase": GROUPS}
TEMPLATE: dict[str, Any] = {**GIVEN, "userBase": None, "userDn": f"uid={{user}},{PEOPLE}"}
SERVICE: dict[str, Any] = {"bindDn": "cn=router", "bindPassword": "literal:sesame"}
NOW_S = 1_800_000_000.0
LIMITS = Limits(1.0, 2.0)


def entry(dn: str, **values: str | Iterable[str]) -> Entry:
    texts = {name: (value,) if isinstance(value, str) else tuple(value) for name, value in values.items()}
    return Entry(dn=dn, values={name.lower(): tuple(each.encode() for each in all_) for name, all_ in texts.items()})


ALICE = entry(f"uid=alice,{PEOPLE}", uid="alice", entryUUID="1")


class Connection:
    """Answers of a directory: the codes of binds by DN, and what searches find by their condition."""

    def __init__(self) -> None:
        self.address = ServerAddress(host="a.example", port=636, is_tls=True)
        self.codes: dict[str, int] = {ALICE.dn: 0}
        self.found: dict[str, list[Entry]] = {}
        self.binds: list[tuple[str, str]] = []
        self.searches: list[tuple[Any, ...]] = []

    def bind(self, dn: str, password: Secret, limits: Limits) -> int:
        assert limits is LIMITS
        self.binds.append((dn, password.reveal()))
        return self.codes.get(dn, 32) if password.reveal() == "wonderland" else 49

    def search(
        self,
        base: str,
        scope: str,
        condition: str,
        attributes: Iterable[str],
        limits: Limits,
        *,
        nothing: frozenset[int] = frozenset(),
    ) -> list[Entry]:
        assert limits is LIMITS
        self.searches.append((base, scope, condition, tuple(attributes), sorted(nothing)))
        return self.found.get(condition, [])


class Session:
    """Two connections, as of a server's session. One that may not be used is None."""

    def __init__(self) -> None:
        self.limits = LIMITS
        self.service: Any = Connection()
        self.user: Any = Connection()
        self.has_chain_rule: bool | None = None


class Directory:
    def __init__(self) -> None:
        self.session = Session()
        self.say: Any = None
        self.fault: LdapError | None = None
        self.is_closed = False

    def ask(self, question: Callable[[Any], VerifyResult]) -> VerifyResult:
        if self.fault is not None:
            raise self.fault
        return question(self.session)

    def close(self) -> None:
        self.is_closed = True


Asked = tuple[LdapVerifier, Directory]


def made(attributes: dict[str, Any] = GIVEN, **changes: Any) -> Asked:
    verifier = LdapVerifier(read_settings({**attributes, **changes}), lambda: NOW_S)
    directory = Directory()
    verifier._directory = directory  # type: ignore[assignment]
    for connection in (directory.session.service, directory.session.user):
        connection.found["(&(objectClass=*)(uid=alice))"] = [ALICE]
    return verifier, directory


def login(asked: Asked, user: str = "alice", password: str = "wonderland") -> VerifyResult:
    result = asked[0].verify(CheckPassword(user=user, password=Secret(password)))
    assert isinstance(result, VerifyResult)
    return result


def people(asked: Asked, *entries: Entry, user: str = "alice") -> None:
    for connection in (asked[1].session.service, asked[1].session.user):
        connection.found[f"(&(objectClass=*)(uid={escape(user)}))"] = list(entries)


def groups(asked: Asked, member: str, *entries: Entry, attribute: str = "member") -> None:
    found = asked[1].session.service.found
    found[f"(&(objectClass=*)(|({attribute}={escape(member)})))"] = list(entries)


def group(name: str) -> Entry:
    return entry(f"cn={name},{GROUPS}", cn=name)


# Logins


def test_a_user_is_looked_for_and_then_bound() -> None:
    asked = made()
    groups(asked, ALICE.dn, group("staff"))
    result = login(asked)
    assert (result.is_valid, result.groups, result.detail) == (True, ("staff",), "")
    session = asked[1].session
    assert session.user.binds == [(ALICE.dn, "wonderland")]
    assert session.service.binds == []
    assert session.service.searches[0][:3] == (PEOPLE, "SUBTREE", "(&(objectClass=*)(uid=alice))")
    assert session.service.searches[0][3][0] == "uid"
    assert session.service.searches[0][4] == [18, 21, 34], "a name that the attribute cannot have is nobody's"
    assert session.user.searches == [], "whoever has bound last is not asked about groups"


def test_a_user_whose_dn_is_known_is_bound_and_then_looked_at_by_the_service() -> None:
    asked = made(TEMPLATE, **SERVICE)
    groups(asked, ALICE.dn, group("staff"))
    result = login(asked)
    assert (result.is_valid, result.groups) == (True, ("staff",))
    session = asked[1].session
    assert session.user.binds == [(ALICE.dn, "wonderland")]
    assert session.service.searches[0][:3] == (ALICE.dn, "BASE", "(&(objectClass=*)(uid=alice))")
    assert session.service.searches[0][4] == [18, 21, 32, 34]
    assert session.user.searches == []


def test_without_a_service_the_user_looks_at_itself_and_has_no_proof() -> None:
    asked = made(TEMPLATE)
    asked[1].session.service = None
    result = login(asked)
    assert (result.is_valid, result.proof) == (True, None)
    assert asked[1].session.user.searches[0][0] == ALICE.dn


@pytest.mark.parametrize("attributes", [GIVEN, {**TEMPLATE, **SERVICE}, TEMPLATE])
def test_a_wrong_password_lets_nobody_in(attributes: dict[str, Any]) -> None:
    result = login(made(attributes), password="Wonderland")
    assert result == VerifyResult(is_valid=False, detail=f"{WRONG_PASSWORD} (LDAP result 49)")


@pytest.mark.parametrize("code", [19, 32, 34, 48, 49, 50, 53])
def test_what_a_bind_is_refused_with_is_a_refusal(code: int) -> None:
    asked = made()
    asked[1].session.user.codes[ALICE.dn] = code
    assert login(asked) == VerifyResult(is_valid=False, detail=f"{WRONG_PASSWORD} (LDAP result {code})")


@pytest.mark.parametrize("code", [1, 2, 8, 14, 51, 52, 80])
def test_any_other_answer_to_a_bind_is_a_fault_of_the_server(code: int) -> None:
    asked = made()
    asked[1].session.user.codes[ALICE.dn] = code
    assert login(asked) == unavailable(f"ldaps://a.example:636: bind refused with LDAP result {code}")


def test_who_is_not_found_is_tried_all_the_same() -> None:
    """Attack: to tell by the time of the answer which users there are. Never under a name that somebody may have."""
    asked = made()
    for _ in range(2):
        assert login(asked, "mallory") == VerifyResult(is_valid=False, detail=UNKNOWN_USER)
    (first, password), (second, _) = asked[1].session.user.binds
    assert password == "wonderland"
    assert first != second
    for dn in (first, second):
        name, _, base = dn.partition(",")
        assert base == PEOPLE
        assert name.startswith("cn=")
        assert len(name) == 3 + 32


@pytest.mark.parametrize(
    "found",
    [
        [],
        [ALICE, ALICE],
        [entry("", uid="alice")],
        [entry(ALICE.dn, uid="Alice")],
        [entry(ALICE.dn, uid="alice ")],
        [entry(ALICE.dn, cn="alice")],
        [entry(ALICE.dn, uid=["al", "ice"])],
    ],
)
@pytest.mark.parametrize("attributes", [GIVEN, {**TEMPLATE, **SERVICE}, TEMPLATE])
def test_an_entry_of_another_spelling_or_several_are_nobody(attributes: dict[str, Any], found: list[Entry]) -> None:
    """Directories find look-alikes: whoever chose the spelling would choose the groups of the policy."""
    asked = made(attributes)
    people(asked, *found)
    detail = NOT_AS_WRITTEN if "userDn" in attributes else UNKNOWN_USER
    assert login(asked) == VerifyResult(is_valid=False, detail=detail)


def test_one_of_several_names_of_an_entry_is_enough() -> None:
    asked = made()
    people(asked, entry(ALICE.dn, uid=["al", "alice"]))
    assert login(asked).is_valid


NOT_ASKED = ("", "a\n", "\0", "al\ud800", "x" * (MAX_USER_BYTES + 1), "é" * (MAX_USER_BYTES // 2) + "x")


@pytest.mark.parametrize("user", NOT_ASKED, ids=ascii)
def test_what_cannot_be_a_name_never_reaches_the_directory(user: str) -> None:
    asked = made()
    asked[1].fault = LdapError("asked")
    assert login(asked, user) == VerifyResult(is_valid=False, detail=WRONG_PASSWORD)
    assert asked[0].verify(FetchGroups(user=user)) == VerifyResult(is_valid=False, detail=UNKNOWN_USER)


@pytest.mark.parametrize("password", ["", "\ud800", "x" * (MAX_PASSWORD_BYTES + 1)], ids=len)
def test_what_cannot_be_a_password_never_reaches_the_directory(password: str) -> None:
    """Attack: an empty one, with which a bind succeeds as nobody."""
    asked = made()
    asked[1].fault = LdapError("asked")
    assert login(asked, password=password) == VerifyResult(is_valid=False, detail=WRONG_PASSWORD)


def test_the_longest_name_and_the_longest_password_are_asked_about() -> None:
    asked = made()
    user = "é" * (MAX_USER_BYTES // 2)
    assert login(asked, user, "é" * (MAX_PASSWORD_BYTES // 2)).detail == UNKNOWN_USER
    assert len(asked[1].session.user.binds) == 1
    assert login(asked, "x").detail == UNKNOWN_USER
    assert login(asked, "x", "y").detail == UNKNOWN_USER


def test_an_outage_says_nothing_of_the_user() -> None:
    asked = made()
    asked[1].fault = LdapError("all servers are down")
    assert login(asked) == unavailable("all servers are down")


def test_it_answers_what_it_can() -> None:
    assert made()[0].mechanisms == ("EXTERNAL", "PLAIN")
    alone, _ = made(TEMPLATE)
    assert alone.mechanisms == ("PLAIN",)
    recheck = Recheck(proof=Proof(verifier="staff", user="alice", value="x"))
    for question in (CheckToken(token=Secret("x")), FetchGroups(user="alice"), recheck):
        assert alone.verify(question) == unavailable("it answers no such question")
    assert made()[0].verify(CheckToken(token=Secret("x"))) == unavailable("it answers no such question")


def test_it_is_named_told_and_closed_as_an_authenticator_is() -> None:
    verifier, directory = made(threads=7)
    said: list[str] = []
    assert (verifier.name, verifier.threads) == ("staff", 7)
    verifier.announce_by(said.append)
    directory.say("down")
    assert said == ["down"]
    verifier.close()
    assert directory.is_closed


# Accounts


TICKS_1601_TO_1970 = 11_644_473_600 * 10_000_000


@pytest.mark.parametrize(
    ("state", "is_let_in"),
    [
        ({"userAccountControl": "512"}, True),
        ({"userAccountControl": "514"}, False),
        ({"userAccountControl": "2"}, False),
        ({"userAccountControl": "65537"}, True),
        ({"nsAccountLock": "true"}, False),
        ({"nsAccountLock": "TRUE"}, False),
        ({"nsAccountLock": "false"}, True),
        ({"loginDisabled": "True"}, False),
        ({"loginDisabled": "FALSE"}, True),
        ({"loginDisabled": ["false", "true"]}, False),
        ({"pwdAccountLockedTime": "000001010000Z"}, False),
        ({"pwdAccountLockedTime": "20261122183000Z"}, True),  # for a time: the server itself refuses the bind
        ({"accountExpires": "0"}, True),
        ({"accountExpires": str(2**63 - 1)}, True),
        ({"accountExpires": str(TICKS_1601_TO_1970 + int(NOW_S) * 10_000_000)}, False),
        ({"accountExpires": str(TICKS_1601_TO_1970 + int(NOW_S) * 10_000_000 + 10_000_000)}, True),
        ({"accountExpires": str(TICKS_1601_TO_1970 + int(NOW_S) * 10_000_000 - 10_000_000)}, False),
        ({"accountExpires": "1"}, False),
    ],
)
def test_a_disabled_account_lets_nobody_in(state: dict[str, Any], is_let_in: bool) -> None:
    """By password, by certificate, and of those who are connected already."""
    asked = made()
    proven = login(asked)
    assert proven.proof is not None
    people(asked, entry(ALICE.dn, uid="alice", entryUUID="1", **state))
    refusal = VerifyResult(is_valid=False, detail=DISABLED)
    for answer in (
        login(asked),
        asked[0].verify(FetchGroups(user="alice")),
        asked[0].verify(Recheck(proof=proven.proof)),
    ):
        assert isinstance(answer, VerifyResult)
        assert answer.is_valid if is_let_in else answer == refusal


@pytest.mark.parametrize("name", ["userAccountControl", "accountExpires"])
def test_a_state_that_cannot_be_read_lets_nobody_in(name: str) -> None:
    asked = made()
    people(asked, entry(ALICE.dn, uid="alice", **{name: "soon"}))
    assert login(asked) == unavailable("an account's state that is no number")


def test_the_state_of_an_account_is_asked_for() -> None:
    asked = made()
    login(asked)
    assert set(asked[1].session.service.searches[0][3]) == {
        *("uid", "entryUUID", "nsUniqueId", "objectGUID", "pwdChangedTime", "pwdLastSet"),
        *("userAccountControl", "accountExpires", "nsAccountLock", "pwdAccountLockedTime", "loginDisabled"),
    }


# Open connections


def test_a_connection_stays_as_long_as_nothing_has_changed() -> None:
    asked = made()
    groups(asked, ALICE.dn, group("staff"), group("night"))
    proven = login(asked)
    assert proven.proof is not None
    assert (proven.proof.verifier, proven.proof.user) == ("staff", "alice")
    assert proven.groups == ("night", "staff")
    fetched = asked[0].verify(FetchGroups(user="alice"))
    assert fetched == proven
    asked[1].session.user = None  # the password is not there to be tried
    for known in (proven.groups, ("staff", "night")):
        answer = asked[0].verify(Recheck(proof=proven.proof, groups=known))
        assert isinstance(answer, VerifyResult)
        assert answer.is_valid
    changed = VerifyResult(is_valid=False, detail="the user or the groups changed")
    others: list[tuple[str, ...]] = [(), ("staff",), ("night", "staff", "root")]
    for other in others:
        assert asked[0].verify(Recheck(proof=proven.proof, groups=other)) == changed


@pytest.mark.parametrize("name", ["entryUUID", "nsUniqueId", "objectGUID", "pwdChangedTime", "pwdLastSet"])
def test_another_user_or_password_ends_a_connection(name: str) -> None:
    """Another entry of the same name, too: who was deleted and made anew is somebody else."""
    asked = made()
    people(asked, entry(ALICE.dn, uid="alice", **{name: "1"}))
    proof = login(asked).proof
    assert proof is not None
    people(asked, entry(ALICE.dn, uid="alice", **{name: "2"}))
    changed = VerifyResult(is_valid=False, detail="the user or the groups changed")
    assert asked[0].verify(Recheck(proof=proof)) == changed
    people(asked, entry(f"uid=alice,ou=left,{PEOPLE}", uid="alice", **{name: "1"}))
    assert asked[0].verify(Recheck(proof=proof)) == changed
    people(asked)
    assert asked[0].verify(Recheck(proof=proof)) == VerifyResult(is_valid=False, detail=UNKNOWN_USER)


def test_the_order_of_values_is_no_change() -> None:
    asked = made()
    people(asked, entry(ALICE.dn, uid="alice", pwdChangedTime=["1", "2"]))
    proof = login(asked).proof
    assert proof is not None
    people(asked, entry(ALICE.dn, uid="alice", pwdChangedTime=["2", "1"], cn="new"))
    assert asked[0].verify(Recheck(proof=proof)).is_valid  # type: ignore[union-attr]


# Groups


def test_groups_are_looked_for_below_their_base() -> None:
    asked = made(groupFilter="(objectClass=team)", groupAttribute="name", memberAttribute="uniqueMember")
    found = asked[1].session.service.found
    found[f"(&(objectClass=team)(|(uniqueMember={escape(ALICE.dn)})))"] = [
        entry("cn=a", name=["one", "two"], cn="three"),
        entry("cn=b", name="un\nprintable"),
    ]
    assert login(asked).groups == ("one", "two")
    assert asked[1].session.service.searches[-1][0:2] == (GROUPS, "SUBTREE")
    assert asked[1].session.service.searches[-1][3] == ("name",)


def test_without_a_base_there_are_no_groups() -> None:
    asked = made(groupBase=None)
    groups(asked, ALICE.dn, group("staff"))
    assert login(asked).groups == ()
    assert len(asked[1].session.service.searches) == 1


def test_groups_that_hold_names() -> None:
    asked = made(memberIs="name")
    groups(asked, "alice", group("posix"), attribute="memberUid")
    groups(asked, ALICE.dn, group("by dn"), attribute="memberUid")
    assert login(asked).groups == ("posix",)


def nest(asked: Asked, *names: str) -> None:
    """Each is a member of the next, alice of the first."""
    member = ALICE.dn
    for name in names:
        groups(asked, member, group(name))
        member = group(name).dn


def test_members_of_members_count_only_where_that_is_wanted() -> None:
    for is_nested, found in ((False, ("a",)), (True, ("a", "b", "c"))):
        asked = made(nestedGroups=is_nested)
        nest(asked, "a", "b", "c")
        assert login(asked).groups == found
    searched = made()
    nest(searched, "a", "b", "c")
    login(searched)
    assert len(searched[1].session.service.searches) == 2


def test_groups_that_are_members_of_each_other_end() -> None:
    """By any spelling of their names, which directories compare without regard to case."""
    asked = made(nestedGroups=True)
    nest(asked, "a", "b")
    groups(asked, group("b").dn, entry(f"CN=A,{GROUPS}", cn="a"), entry(ALICE.dn.upper(), cn="odd"))
    assert login(asked).groups == ("a", "b", "odd")
    assert len(asked[1].session.service.searches) == 5  # the user; the capabilities; what she, a and b are members of


def test_groups_may_be_nested_so_deep() -> None:
    names = [f"g{number:02}" for number in range(MAX_DEPTH)]
    asked = made(nestedGroups=True)
    nest(asked, *names[:-1])
    assert login(asked).groups == tuple(names[:-1])
    nest(asked, *names)
    assert login(asked) == unavailable(f"groups nested more than {MAX_DEPTH} deep")


@pytest.mark.parametrize("changes", [{}, {"nestedGroups": True}, {"memberIs": "name"}])
def test_a_user_in_too_many_groups_is_not_decided_on(changes: dict[str, Any]) -> None:
    """To leave some out could leave out one that is denied."""
    member, attribute = ("alice", "memberUid") if "memberIs" in changes else (ALICE.dn, "member")
    asked = made(**changes)
    many = [group(f"g{number:04}") for number in range(MAX_GROUPS)]
    groups(asked, member, *many, attribute=attribute)
    assert len(login(asked).groups) == MAX_GROUPS
    groups(asked, member, *many, group("one more"), attribute=attribute)
    assert login(asked) == unavailable(f"a user in more than {MAX_GROUPS} groups")


def test_too_many_names_of_few_groups_are_not_decided_on() -> None:
    asked = made()
    groups(asked, ALICE.dn, entry(f"cn=a,{GROUPS}", cn=[str(number) for number in range(MAX_GROUPS + 1)]))
    assert login(asked) == unavailable(f"a user in more than {MAX_GROUPS} groups")


def test_too_many_groups_without_a_name_end_the_search() -> None:
    """Attack: groups of groups that have no name for the policy, to keep the directory and this thread busy."""
    asked = made(nestedGroups=True)
    groups(asked, ALICE.dn, *(entry(f"ou={number}") for number in range(MAX_GROUPS + 1)))
    assert login(asked) == unavailable(f"a user in more than {MAX_GROUPS} groups")
    assert len(asked[1].session.service.searches) == 3, "nothing is asked about so many"


def test_members_are_asked_for_fifty_at_once() -> None:
    asked = made(nestedGroups=True)
    many = [group(f"g{number:02}") for number in range(51)]
    groups(asked, ALICE.dn, *many)
    conditions = [
        f"(&(objectClass=*)(|{''.join(f'(member={escape(each.dn)})' for each in batch)}))"
        for batch in (many[:50], many[50:])
    ]
    service = asked[1].session.service
    service.found |= {conditions[0]: [group("of the first")], conditions[1]: [group("of the last")]}
    nested = [f"(member={escape(group(name).dn)})" for name in ("of the first", "of the last")]
    service.found[f"(&(objectClass=*)(|{''.join(nested)}))"] = [group("top")]
    assert set(login(asked).groups) == {each.dn[3:6] for each in many} | {"of the first", "of the last", "top"}
    assert [search[2] for search in service.searches[3:5]] == conditions


AD_RULE = f"(&(objectClass=*)(|(member:{CHAIN_RULE}:={escape(ALICE.dn)})))"


@pytest.mark.parametrize(
    ("capabilities", "found"),
    [
        ("1.2.840.113556.1.4.800", ("all",)),
        (["1.2.3", "1.2.840.113556.1.4.800"], ("all",)),
        ("1.2.840.113556.1.4.8000", ("a", "b")),
        ([], ("a", "b")),
    ],
)
def test_active_directorys_rule_is_used_where_the_server_has_it(capabilities: Any, found: tuple[str, ...]) -> None:
    asked = made(nestedGroups=True)
    service = asked[1].session.service
    service.found["(objectClass=*)"] = [entry("", supportedCapabilities=capabilities)]
    service.found[AD_RULE] = [group("all")]
    nest(asked, "a", "b")
    for _ in range(2):
        assert login(asked).groups == found
    roots = [search for search in service.searches if search[2] == "(objectClass=*)"]
    assert roots == [("", "BASE", "(objectClass=*)", ("supportedCapabilities",), [])], "asked once"
    assert asked[1].session.has_chain_rule is (found == ("all",))


def test_active_directorys_rule_is_not_asked_for_where_groups_do_not_nest() -> None:
    asked = made()
    asked[1].session.has_chain_rule = True
    asked[1].session.service.found[AD_RULE] = [group("all")]
    nest(asked, "a")
    assert login(asked).groups == ("a",)


# Making


def test_answers_are_remembered_as_long_as_the_attributes_say() -> None:
    for good_s, bad_s in ((3600, 0), (0, 3600)):
        made_one: Any = make_ldap_verifier({**GIVEN, "cacheSeconds": good_s, "negativeCacheSeconds": bad_s})
        verifier, directory = made()
        made_one._verifier._directory = verifier._directory
        for _ in range(2):
            login((made_one, directory))
            login((made_one, directory), "mallory")
        asked = [dn.split(",")[0][:3] for dn, _ in directory.session.user.binds]
        assert asked == ["uid", "cn=", *(["cn="] if good_s else ["uid"])]
        made_one.close()
    for key, text in (("cacheSeconds", "cacheSeconds"), ("negativeCacheSeconds", "negativeCacheSeconds")):
        with pytest.raises(ValueError, match=f"^{text}: expected 0 to 86400, not 86401$"):
            make_ldap_verifier({**GIVEN, key: 86_401})
    assert list(ldap_warnings({**GIVEN, "verifyHostname": False})) == [
        "verifyHostname is off: any certificate of the same authority is good enough"
    ]


def test_each_answer_names_its_groups_by_the_same_text() -> None:
    """Thousands of answers are remembered."""
    asked = made()
    groups(asked, ALICE.dn, group("".join(("st", "aff"))))
    first, second = login(asked).groups[0], login(asked).groups[0]
    assert first is second
