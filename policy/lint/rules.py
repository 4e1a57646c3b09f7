"""The rules, in the order of their ids. An id is never used again for something else."""

from collections.abc import Collection

from policy.lint import (
    anonymous_sender_without_targets,
    broad_default,
    conflicting_lists,
    deprecated_name,
    host_names,
    ignored_entity,
    management_for_everybody,
    no_links_allowed,
    powerful_from_anywhere,
    refused_vhost,
    similar_user_names,
    unknown_key,
    unused_group,
    user_id_proxy,
    user_in_two_groups,
    wildcard_without_effect,
)
from policy.lint.findings import Finding, LintRule, PolicyText
from policy.loader import Entity

RULES: tuple[LintRule, ...] = (
    refused_vhost,
    conflicting_lists,
    user_in_two_groups,
    unknown_key,
    deprecated_name,
    broad_default,
    powerful_from_anywhere,
    unused_group,
    anonymous_sender_without_targets,
    user_id_proxy,
    no_links_allowed,
    management_for_everybody,
    similar_user_names,
    ignored_entity,
    wildcard_without_effect,
    host_names,
)


def check_all(entities: tuple[Entity, ...], ignored: Collection[str] = ()) -> tuple[Finding, ...]:
    """The findings of all rules but those whose ids are `ignored`, by file, line and id.

    entities  of all files a router would load together; they have passed the schema
    """
    policy = PolicyText(entities=entities)
    findings = (finding for rule in RULES if rule.ID not in ignored for finding in rule.check(policy))
    return tuple(sorted(findings, key=lambda finding: (finding.file, finding.line, finding.rule, finding.text)))
