"""Rulesets in which only the relevant vhosts are compiled; the other vhosts have a name but no groups.

A question about one of a thousand vhosts, or a change of one, needs only the rules of that vhost. The others are still
checked as the router checks them, so that everything the router refuses is refused here too.
Pure. Source: docs/spec/policy-and-auth.md §2.7.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from policy.analysis.effort import Effort
from policy.analysis.request_classes import vhost_classes
from policy.attributes import SourceLocation
from policy.hosts import Resolve
from policy.ruleset import Ruleset, assemble_ruleset
from policy.vhosts import Vhost, check_vhost, compile_vhost, hostname_of

Written = tuple[Mapping[str, object], SourceLocation | None]
_Compiled = tuple[Vhost, tuple[str, ...]]

_NAMES = ("hostname", "id", "name", "aliases")


@dataclass(frozen=True, slots=True, kw_only=True)
class Outline:
    """A policy in which every vhost is checked and none is compiled.

    policy   attributes of the `policy` entity
    vhosts   as they are written
    ruleset  of the names alone; its digest is not that of the policy
    """

    policy: Mapping[str, object]
    vhosts: Sequence[Written]
    resolve: Resolve
    ruleset: Ruleset

    def around(self, requested: str) -> Ruleset:
        """Returns the same as compile_ruleset for connections that ask for the vhost `requested`."""
        found = self.ruleset.select_vhost(requested)
        return self.compiled((found.name,) if found is not None else ())

    def compiled(self, names: Collection[str]) -> Ruleset:
        """Returns the ruleset with the vhosts of these names compiled. Its digest is not that of the policy."""
        return assemble_ruleset(
            self.policy,
            (
                compile_vhost(*written, resolve=self.resolve)
                if hostname_of(written[0]) in names
                else _names_only(*written, self.resolve)
                for written in self.vhosts
            ),
        )


def outline(
    policy: Mapping[str, object],
    vhosts: Sequence[Written],
    *,
    resolve: Resolve,
    watch: Callable[[Sequence[Written]], Iterable[Written]] = iter,
) -> Outline:
    """Checks a policy. Raises PolicyError, as compile_ruleset does.

    watch  passes the vhosts on, one by one
    """

    def checked() -> Iterator[_Compiled]:
        for attributes, source in watch(vhosts):
            check_vhost(attributes, source, resolve=resolve)
            yield _names_only(attributes, source, resolve)

    return Outline(policy=policy, vhosts=vhosts, resolve=resolve, ruleset=assemble_ruleset(policy, checked()))


def rulesets_to_compare(
    old: Outline, new: Outline, plainly: Callable[[Mapping[str, object]], Mapping[str, object]] = dict
) -> tuple[Ruleset, Ruleset]:
    """Returns two rulesets in which every vhost is compiled that may make a difference. Raises TooComplexError.

    Their digests are equal only if those of compile_ruleset are.

    plainly  attributes that are equal in this form mean the same
    """
    one, other = old.ruleset, new.ruleset
    if (one.is_enabled, one.max_message_size) != (other.is_enabled, other.max_message_size):
        return old.compiled(one.vhosts.keys()), new.compiled(other.vhosts.keys())
    written = {hostname_of(attributes): attributes for attributes, _ in old.vhosts}
    alike = {
        name
        for attributes, _ in new.vhosts
        if (same := written.get(name := hostname_of(attributes))) is not None and plainly(same) == plainly(attributes)
    }
    needed: set[str] = (one.vhosts.keys() | other.vhosts.keys()) - alike
    # If another vhost now governs a name, an unchanged vhost is compared with a different one.
    for _, before, after in vhost_classes(one, other, Effort()):
        names = {vhost.name for vhost in (before, after) if vhost is not None}
        if before is None or after is None or len(names) > 1:
            needed |= names
    return old.compiled(needed), new.compiled(needed)


def _names_only(attributes: Mapping[str, object], source: SourceLocation | None, resolve: Resolve) -> _Compiled:
    return compile_vhost({key: value for key, value in attributes.items() if key in _NAMES}, source, resolve=resolve)
