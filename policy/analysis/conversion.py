"""Converts vhosts to another form: one that qdrouterd 1.20 reads with the same meaning, or one with our extensions.

Reads only attribute maps. `changed_meaning` checks that the result means the same: by the digest, and if that differs,
by the exact comparison of `difference`.
Pure. Source: docs/spec/policy-and-auth.md Part A, its REC notes; docs/qdpolicy.md, convert.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from ipaddress import IPv6Address, ip_address, ip_network, summarize_address_range
from typing import Final

from policy.addressing.lists import DEPRECATED_USER_TOKEN, ESCAPED_USER_TOKEN, USER_TOKEN, denied_items
from policy.addressing.patterns import ONE
from policy.analysis.c_router import group_extensions, vhost_extensions
from policy.analysis.changes import Change
from policy.analysis.denials import resolve_denials
from policy.analysis.difference import diff_rulesets
from policy.analysis.effort import TooComplexError
from policy.attributes import BLANKS, Path, read_items, read_names, split_items
from policy.groups import (
    ADDRESS_KEYS,
    AUTHENTICATOR_KEY,
    BOOLEAN_KEYS,
    DENY_KEYS,
    NUMBER_KEYS,
    REPLIES_KEY,
    REPLY_WINDOW_KEY,
    Group,
)
from policy.hosts import parse_address
from policy.rights import MANAGEMENT_KEY, UNSET, read_rights, shown_difference
from policy.ruleset import Ruleset
from policy.vhosts import DEFAULT_GROUP, DEPRECATED_ATTRIBUTES, LIMIT_KEYS

# AMQP's minimum frame size, whatever is configured.
MIN_FRAME_BYTES: Final = 512
_ALLOWED: Final = {"denySources": ("sources", "sourcePattern"), "denyTargets": ("targets", "targetPattern")}
_OPENED: Final = {
    "maxSenders": ("targets", "targetPattern", "allowAnonymousSender"),
    "maxReceivers": ("sources", "sourcePattern", "allowDynamicSource"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Obstacle:
    """A setting that the other form cannot express.

    path  inside the vhost's attributes
    """

    path: Path
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Converted:
    """The converted vhost.

    obstacles  the attributes are complete only if there are none
    """

    attributes: Mapping[str, object]
    obstacles: tuple[Obstacle, ...] = ()


def plain(attributes: Mapping[str, object]) -> dict[str, object]:
    """Returns the attributes with numbers and switches as JSON writes them, and without null values."""
    written = {key: value for key, value in attributes.items() if value is not None}
    for key in written:
        if DEPRECATED_ATTRIBUTES.get(key, key) in LIMIT_KEYS:
            written[key] = _number(written[key])
    groups = written.get("groups")
    if isinstance(groups, Mapping):
        written["groups"] = {name: _plain_group(settings) for name, settings in groups.items()}
    return written


def extended(attributes: Mapping[str, object]) -> Converted:
    """Returns the attributes as written for this router: current names, and networks in place of ranges."""
    written = _renamed(plain(attributes))
    for settings in _groups(written).values():
        _rewrite(settings, "remoteHosts", _as_network)
    return Converted(attributes=written)


def compatible(attributes: Mapping[str, object], *, narrows: bool = False) -> Converted:
    """Returns the attributes so that 1.20 gives them the same meaning as this router.

    narrows  drop a rule that 1.20 cannot express, if that can only remove permissions
    """
    conversion = _Compatible(_renamed(plain(attributes)), narrows=narrows)
    conversion.convert()
    return Converted(attributes=conversion.vhost, obstacles=tuple(conversion.obstacles))


@dataclass(slots=True)
class _Compatible:
    vhost: dict[str, object]
    narrows: bool
    obstacles: list[Obstacle] = field(default_factory=list)

    def convert(self) -> None:
        if not self.vhost.get("hostname"):
            text = "1.20 refuses clients that ask for no vhost, where a vhost with a blank name is defined"
            self._refuse(("hostname",), text)
        for key in sorted(vhost_extensions() & self.vhost.keys()):
            self._refuse((key,), f"'{key}' is unknown to 1.20")
        groups = _groups(self.vhost)
        without = [name for name, settings in groups.items() if not read_names(settings.get("users", ""))]
        if len(without) > 1:
            text = f"1.20 refuses a vhost with two groups that list no users, '{without[0]}' and '{without[1]}'"
            self._refuse(("groups", without[1]), f"{text}: give one of them a user that does not exist")
        for name, settings in groups.items():
            self._convert_group(name, settings)
            if name in without and not self._is_open(name, settings):
                # Here no user is in such a group; in 1.20 peers without a name are.
                settings.pop("remoteHosts", None)

    def _is_open(self, name: str, settings: Mapping[str, object]) -> bool:
        any_user = any("*" in read_names(other.get("users", "")) for other in _groups(self.vhost).values())
        is_default = name == DEFAULT_GROUP and self.vhost.get("allowUnknownUser") is True and not any_user
        return is_default or AUTHENTICATOR_KEY in settings

    def _convert_group(self, name: str, settings: dict[str, object]) -> None:
        path = ("groups", name)
        if "users" in settings:
            # Here a blank name matches no user; in 1.20 it matches a peer without a name.
            _put_items(settings, "users", read_names(settings["users"]))
        for key in ADDRESS_KEYS:
            if key in settings:
                _put_items(settings, key, read_items(settings[key]))
                if any(ESCAPED_USER_TOKEN in item for item in read_items(settings[key])):
                    self._refuse((*path, key), f"'{ESCAPED_USER_TOKEN}' is plain text in 1.20, the same for all users")
        if "remoteHosts" in settings:
            _rewrite(settings, "remoteHosts", _as_range)
            if not read_items(settings["remoteHosts"]):
                del settings["remoteHosts"]
        for key in ("sourcePattern", "targetPattern"):
            if ONE in read_items(settings.get(key, "")):
                self._refuse((*path, key), "the pattern '*' allows every address of one word, and nothing in 1.20")
        for key, uses in _OPENED.items():
            if settings.get(key) == 0 and any(settings.get(use) for use in uses):
                text = f"'{key}' 0 is none here, and no limit in 1.20: remove what it forbids, {' and '.join(uses)}"
                self._refuse((*path, key), text)
        frame, window = (settings.get(key) for key in ("maxFrameSize", "maxSessionWindow"))
        if isinstance(frame, int) and isinstance(window, int) and frame and 0 < window < max(frame, MIN_FRAME_BYTES):
            # 1.20 closes the connection if the window is smaller than one frame. Here it then has one frame.
            settings["maxSessionWindow"] = max(frame, MIN_FRAME_BYTES)
        for key in DENY_KEYS:
            if key in settings:
                self._resolve(path, settings, key)
        if self.narrows:
            settings.pop(AUTHENTICATOR_KEY, None)
        if self.narrows or settings.get(REPLIES_KEY) is not True:  # which only ever permits
            for key in (REPLIES_KEY, REPLY_WINDOW_KEY):
                settings.pop(key, None)
        if MANAGEMENT_KEY in settings:
            rights = read_rights(settings.pop(MANAGEMENT_KEY))
            if shown_difference(UNSET, rights) or shown_difference(rights, UNSET):
                text = f"'{MANAGEMENT_KEY}' would be lost: in 1.20 who reaches $management may do everything"
                self._refuse((*path, MANAGEMENT_KEY), text)
        for key in sorted(group_extensions() & settings.keys() - {*DENY_KEYS}):
            self._refuse((*path, key), f"'{key}' cannot be expressed: 1.20 passes over it")

    def _resolve(self, path: Path, settings: dict[str, object], key: str) -> None:
        denied = denied_items(read_items(settings[key]))
        literal, pattern = _ALLOWED[key]
        allowed = pattern if pattern in settings else literal
        items = read_items(settings.get(allowed, ""))
        try:
            found = resolve_denials(allowed, items, denied)
        except TooComplexError as error:
            self._refuse((*path, key), str(error))
            return
        for item, outside in () if self.narrows else found.partial:
            text = f"of '{item}' in '{allowed}' only a part is denied, '{outside}' is not: 1.20 has no exceptions"
            self._refuse((*path, key), text)
        for item in () if self.narrows else found.renamed:
            text = f"'{item}' in '{allowed}' reaches an address by another name, which '{key}' covers as well"
            self._refuse((*path, key), text)
        if allowed in settings:
            dropped = found.renamed if self.narrows else ()
            _put_items(settings, allowed, tuple(item for item in found.kept if item not in dropped))
        del settings[key]

    def _refuse(self, path: Path, text: str) -> None:
        self.obstacles.append(Obstacle(path=path, text=text))


def changed_meaning(old: Ruleset, new: Ruleset) -> tuple[Change, ...]:
    """Returns the decisions in which `new`, the result, differs from `old`. Raises TooComplexError."""
    return () if old.digest == new.digest else diff_rulesets(old, new)


def changed_frames(old: Ruleset, new: Ruleset) -> tuple[str, ...]:
    """Returns the groups with another frame size or session window. These permit nothing, so they are not a Change."""
    after = {(vhost.name, group.name): group for vhost in new.vhosts.values() for group in vhost.groups.values()}
    return tuple(
        f"vhost '{vhost.name}' group '{group.name}'"
        for vhost in old.vhosts.values()
        for group in vhost.groups.values()
        if (found := after.get((vhost.name, group.name))) is None or _frames(found) != _frames(group)
    )


def _frames(group: Group) -> tuple[int, int]:
    """Returns the frame size and the window. The window is in frames if the frame size is known."""
    if not group.max_frame_size or not group.max_session_window:
        return group.max_frame_size, group.max_session_window
    size = max(group.max_frame_size, MIN_FRAME_BYTES)
    return group.max_frame_size, max(1, group.max_session_window // size)


def opaque_addresses(name: str) -> tuple[str, ...]:
    """Returns an address for a host name, without a lookup.

    Equal names get equal addresses, and different names different ones.
    """
    return (str(IPv6Address(0xFD << 120 | int.from_bytes(sha256(name.encode()).digest()[:15], "big"))),)


def _plain_group(settings: object) -> object:
    if not isinstance(settings, Mapping):
        return settings
    written = {key: value for key, value in settings.items() if value is not None}
    for key in NUMBER_KEYS & written.keys():
        written[key] = _number(written[key])
    for key in BOOLEAN_KEYS & written.keys():
        written[key] = str(written[key]).lower() == "true"
    return written


def _number(value: object) -> object:
    return int(value) if isinstance(value, str | float) else value


def _renamed(vhost: Mapping[str, object]) -> dict[str, object]:
    """Returns the vhost with current attribute names, in the same order."""
    names = dict(DEPRECATED_ATTRIBUTES)
    if "hostname" not in vhost and "id" not in vhost:
        names["name"] = "hostname"
    renamed = {names.get(key, key): value for key, value in vhost.items()}
    for settings in _groups(renamed).values():
        for key in ADDRESS_KEYS:
            _rewrite(settings, key, _with_current_token)
    return renamed


def _groups(vhost: Mapping[str, object]) -> dict[str, dict[str, object]]:
    groups = vhost.get("groups")
    return groups if isinstance(groups, dict) else {}


def _rewrite(settings: dict[str, object], key: str, change: Callable[[str], str]) -> None:
    """Replaces every item by its `change`. Items that do not change stay as written."""
    if key not in settings:
        return
    written = split_items(settings[key])
    changed = [change(item) if item else item for item in written]
    if changed != written:
        _put_items(settings, key, tuple(changed))


def _put_items(settings: dict[str, object], key: str, items: tuple[str, ...]) -> None:
    value = settings[key]
    # It is unknown how 1.20 treats a tab next to an item.
    has_tab = isinstance(value, str) and any(item.strip(" ") != item.strip(BLANKS) for item in value.split(","))
    if has_tab or list(items) != split_items(value):
        settings[key] = ", ".join(items) if isinstance(value, str) or not items else list(items)


def _with_current_token(item: str) -> str:
    return item if USER_TOKEN in item else item.replace(DEPRECATED_USER_TOKEN, USER_TOKEN)


def _as_range(item: str) -> str:
    """Returns a network as the equivalent range. Addresses of IPv4 in IPv6 form become IPv4 addresses."""
    try:
        if "/" in item:
            network = ip_network(item)
            ends = [parse_address(str(end)) for end in (network[0], network[-1])]
            return str(ends[0]) if ends[0] == ends[1] else f"{ends[0]}-{ends[1]}"
        ends = [parse_address(end.strip()) for end in item.split("-")]
    except ValueError:
        return item  # a host name, or *
    is_mapped = ":" in item and all(end.version == 4 for end in ends)
    return "-".join(map(str, ends)) if is_mapped else item


def _as_network(item: str) -> str:
    """Returns a range as a network if it is exactly one network, else unchanged."""
    try:
        low, high = (ip_address(end.strip()) for end in item.split("-"))
        networks = list(summarize_address_range(low, high))
    except (ValueError, TypeError):
        return item  # one address, a host name, or *
    return str(networks[0]) if len(networks) == 1 else item
