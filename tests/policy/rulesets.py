"""Short ways to a compiled ruleset."""

from collections.abc import Mapping, Sequence

from policy.addressing.address import Address, Unclear, resolve_named
from policy.decide import ConnectionDecision, Settings, decide_connection
from policy.facts import ConnectionFacts, Usage
from policy.ruleset import Ruleset, SourceLocation, compile_ruleset

NAMES = {
    "one.example": ["192.0.2.1"],
    "two.example": ["192.0.2.1", "192.0.2.2"],
    "twice.example": ["192.0.2.1", "192.0.2.1"],
    "none.example": [],
    "six.example": ["2001:db8::1"],
}
HOST = "10.0.0.1"
ROUTER_ID = "QDR"


def resolve(name: str) -> Sequence[str]:
    if name not in NAMES:
        raise OSError(-2, "Name or service not known")
    return NAMES[name]


def at(text: str | None, tenant: str | None = None) -> Address | Unclear | None:
    """The address of a client's text at the router of this id; None and "" are no address."""
    return resolve_named(text, router_id=ROUTER_ID, tenant=tenant)


def present(attributes: Mapping[str, object]) -> dict[str, object]:
    """The attributes without those that are None: a null is refused, and tables want a word for "not given"."""
    return {key: value for key, value in attributes.items() if value is not None}


def ruleset(*vhosts: Mapping[str, object], source: SourceLocation | None = None, **policy: object) -> Ruleset:
    """A ruleset of these vhosts, with vhost policy on."""
    return compile_ruleset(
        {"enableVhostPolicy": True, **policy}, [(vhost, source) for vhost in vhosts], resolve=resolve
    )


def group_ruleset(**settings: object) -> Ruleset:
    """One vhost `h` with one group `g` for everybody from everywhere."""
    return ruleset({"hostname": "h", "groups": {"g": {"users": "*", "remoteHosts": "*", **settings}}})


def connect(
    rules: Ruleset, user: str | None = "bob", vhost: str = "h", host: str = HOST, **usage: int
) -> ConnectionDecision:
    facts = ConnectionFacts(user=user, remote_host=host, requested_vhost=vhost, connection_name=f"{host}:1")
    return decide_connection(rules, facts, Usage(**usage))


def settings(user: str | None = "bob", **group: object) -> Settings:
    """The settings of a user in a group like this."""
    decided = connect(group_ruleset(**group), user).settings
    assert decided is not None
    return decided
