"""The router refuses this vhost.

At start-up it ends with this message; over management the request fails. Two mistakes have rules of their own, PAL002
and PAL003, and are not reported twice. Host names in `remoteHosts` are not looked up here (PAL016), and whether two
vhost names collide as patterns depends on the router's configuration, which is not looked at.
"""

from collections.abc import Iterator, Mapping, Sequence

from policy.attributes import PolicyError, SourceLocation
from policy.lint.findings import NAMES, Family, Finding, Level, PolicyText, VhostText
from policy.lint.host_names import has_host_name
from policy.ruleset import compile_ruleset
from policy.vhosts import check_vhost

ID = "PAL001"
TITLE = "refused by the router"
FAMILY = Family.CORRECTNESS

_EXPLAINED_ELSEWHERE = ("specifies conflicting", "is in multiple user groups")


def check(policy: PolicyText) -> Iterator[Finding]:
    accepted: list[tuple[Mapping[str, object], SourceLocation]] = []
    for vhost in policy.vhosts:
        written = (_without_names(vhost), vhost.source)
        try:
            check_vhost(*written, resolve=_refuse_name)
            accepted.append((_names_only(vhost.attributes), vhost.source))
        except PolicyError as error:
            if not any(text in str(error) for text in _EXPLAINED_ELSEWHERE):
                yield _finding(error, vhost.source)
    # Vhosts refused only because of another vhost: one name for two of them.
    try:
        compile_ruleset({}, accepted, resolve=_refuse_name)
    except PolicyError as error:
        yield _finding(error, SourceLocation())


def _names_only(attributes: Mapping[str, object]) -> Mapping[str, object]:
    return {key: value for key, value in attributes.items() if key in (*NAMES, "aliases")}


def _without_names(vhost: VhostText) -> Mapping[str, object]:
    """The vhost's attributes, without the items of remoteHosts that are host names."""
    groups = {}
    for group in vhost.groups:
        written = group.items("remoteHosts")
        numeric = [item for item in written if not has_host_name(item)]
        groups[group.name] = (
            group.settings if len(numeric) == len(written) else {**group.settings, "remoteHosts": numeric}
        )
    return {**vhost.attributes, "groups": groups}


def _refuse_name(name: str) -> Sequence[str]:
    raise OSError(f"'{name}' is not looked up")


def _finding(error: PolicyError, source: SourceLocation) -> Finding:
    file, line = error.file or source.file or "", error.line or source.line or 1
    return Finding(rule=ID, level=Level.ERROR, file=file, line=line, text=str(error))
