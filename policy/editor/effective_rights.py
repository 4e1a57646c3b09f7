"""The rights of one user or group, as a page in Markdown.

Pure. The rights are those of `policy.analysis.grants`: those that the router would compile from the vhost as written.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from policy.analysis.explain import shown_ranges
from policy.analysis.grants import SWITCHES, AddressList, Grant, grant_of
from policy.attributes import InvalidValue, PolicyError, read_items
from policy.files.sections import Section
from policy.lint.host_names import has_host_name
from policy.printing import printable
from policy.ruleset import Ruleset, compile_ruleset
from policy.vhosts import ANY_USER, CONNECTOR_GROUP, DEFAULT_GROUP

MAX_SHOWN_ITEMS = 12
_MAX_CHARACTERS = 80
_NOBODY = "\0"  # a user name that no file can contain


def rights_of_user(vhost: Section, policy: Mapping[str, object], user: str, now: float) -> str:
    """Returns the rights of `user` at a vhost; "" if the router would refuse it.

    policy  attributes of the `policy` section
    now     seconds since 1970 UTC
    """
    ruleset = _compiled(vhost, policy)
    if ruleset is None:
        return ""
    name = next(iter(ruleset.vhosts))
    name_of_any = _NOBODY if user == ANY_USER else user
    grant = grant_of(ruleset, name, name_of_any, at=now)
    who = "any user that no group lists" if user == ANY_USER else code(user)
    group = f", group {code(grant.group.name)}" if grant.group is not None else ""
    heading = f"**Rights of {who}** at vhost {code(name)}{group}"
    return "\n".join((heading, *_notes(policy), "", *_lines(grant, vhost, None if user == ANY_USER else user)))


def rights_of_group(vhost: Section, policy: Mapping[str, object], group: str, now: float) -> str:
    """Returns the rights of the members of a group; "" if the router would refuse the vhost."""
    ruleset = _compiled(vhost, policy)
    if ruleset is None:
        return ""
    (compiled,) = ruleset.vhosts.values()
    found = compiled.groups.get(group)
    if found is None:
        return ""
    members = [*map(code, found.users[:MAX_SHOWN_ITEMS]), *_more(found.users)]
    members += [f"who the authenticator says is in {code(name)}" for name in found.authenticator_groups[:3]]
    if group == DEFAULT_GROUP and compiled.allow_unknown_user:
        members.append("users in no group")
    is_connector = group == CONNECTOR_GROUP and not found.users
    if is_connector:
        members.append("the peers of connectors")
    heading = f"**Rights of group** {code(group)} at vhost {code(compiled.name)}"
    lines = [heading, *_notes(policy), "", f"- members: {', '.join(members) or 'nobody'}"]
    user = next((name for name in found.users if name != ANY_USER), _NOBODY)
    joined = () if found.users else found.authenticator_groups[:1]
    grant = grant_of(ruleset, compiled.name, user, joined, at=now, is_connector=is_connector)
    if grant.group is not None and grant.group.name != group:
        return "\n".join(lines)
    if grant.group is None and found.window.is_always:
        return "\n".join(lines)
    return "\n".join((*lines, *_lines(grant, vhost, None)))


def code(text: str) -> str:
    """Returns a text from a file as Markdown code, so that nothing in it acts as markup or a link."""
    shown = printable(text).replace("`", "'")
    return f"`{shown[:_MAX_CHARACTERS]}{'…' if len(shown) > _MAX_CHARACTERS else ''}`" if shown else "`''`"


def _compiled(vhost: Section, policy: Mapping[str, object]) -> Ruleset | None:
    """Returns the ruleset of only this vhost, enabled. None if the router refuses it; lint says why."""
    settings = {key: policy[key] for key in ("maxMessageSize",) if policy.get(key) is not None}
    settings["enableVhostPolicy"] = True
    try:
        return compile_ruleset(settings, [(_with_numeric_hosts(vhost.attributes), vhost.source)], resolve=_refuse)
    except (PolicyError, InvalidValue):
        return None


def _with_numeric_hosts(attributes: Mapping[str, object]) -> Mapping[str, object]:
    """Returns the attributes without host names in `remoteHosts`: no name is looked up while a user types."""
    groups = attributes.get("groups")
    if not isinstance(groups, Mapping):
        return attributes
    changed = {}
    for name, group in groups.items():
        if isinstance(group, Mapping) and _host_names(group):
            numeric = [item for item in _hosts(group) if not has_host_name(item)]
            changed[name] = {**group, "remoteHosts": numeric}
    return {**attributes, "groups": {**groups, **changed}} if changed else attributes


def _host_names(group: Mapping[str, object]) -> tuple[str, ...]:
    return tuple(item for item in _hosts(group) if has_host_name(item))


def _hosts(group: Mapping[str, object]) -> tuple[str, ...]:
    value = group.get("remoteHosts")
    try:
        return read_items(value) if value is not None else ()
    except InvalidValue:
        return ()


def _refuse(name: str) -> Sequence[str]:
    raise OSError(f"'{name}' is not looked up")


def _notes(policy: Mapping[str, object]) -> Iterator[str]:
    if policy and str(policy.get("enableVhostPolicy", "no")).lower() not in ("yes", "true", "on"):
        yield ""
        yield "The configuration's enableVhostPolicy is off: nothing is restricted. With it on:"


def _lines(grant: Grant, vhost: Section, user: str | None) -> Iterator[str]:
    if grant.group is None:
        rule = f": {grant.host_rule.item}" if grant.host_rule is not None and grant.host_rule.item else ""
        yield f"- may not connect{printable(rule)}"
        return
    hosts = shown_ranges(grant.group.hosts) if grant.hosts else ()
    groups = vhost.attributes.get("groups")
    written = groups.get(grant.group.name) if isinstance(groups, Mapping) else None
    if isinstance(written, Mapping):
        hosts = (*hosts, *_host_names(written))
    yield f"- may connect from: {_listed(hosts, 'nowhere')}"
    yield f"- may receive from: {_addresses(grant.sources, user)}"
    yield f"- may send to: {_addresses(grant.targets, user)}"
    allowed = [key for key in SWITCHES if grant.switches[key]]
    yield f"- has: {_listed(allowed, 'none of the switches')}"
    limits = [f"{key} {number}" for key, number in grant.numbers.items() if number is not None]
    yield f"- limits: {', '.join(limits) or 'none'}"
    yield f"- management, where it reaches `$management`: {code(str(grant.management))}"


def _addresses(addresses: AddressList, user: str | None) -> str:
    items = addresses.items if user is None else addresses.items_for(user)
    shown = _listed(items, "nothing")
    return f"{shown}, but not {_listed(addresses.denied, '')}" if addresses.denied and items else shown


def _listed(items: Sequence[str], nothing: str) -> str:
    return ", ".join((*map(code, items[:MAX_SHOWN_ITEMS]), *_more(items))) or nothing


def _more(items: Sequence[str]) -> Iterable[str]:
    return (f"{len(items) - MAX_SHOWN_ITEMS} more",) if len(items) > MAX_SHOWN_ITEMS else ()
