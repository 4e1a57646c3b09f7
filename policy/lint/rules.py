"""The rules, in the order of their ids. An id is never used again for something else."""

from collections.abc import Collection, Mapping

from policy.lint import (
    anonymous_listener,
    anonymous_sender_without_targets,
    anonymous_user,
    ban_rule,
    bare_groups,
    blank_hostname,
    blank_hosts,
    blank_in_item,
    boolean_case,
    broad_default,
    conflicting_lists,
    connector_attribute,
    connector_in_the_clear,
    covered_host,
    covered_item,
    deprecated_name,
    duplicate_item,
    enforcement_off,
    extension,
    groups_without_users,
    host_names,
    idle_group,
    ignore_comment,
    ignored_entity,
    lone_star_pattern,
    management_for_everybody,
    missing_default_vhost,
    missing_policy_vhost,
    missing_ssl_profile,
    names_alike,
    no_connections,
    no_links_allowed,
    no_messages_allowed,
    no_timeout,
    no_trusted_authority,
    nobody_admitted,
    password_in_the_clear,
    peers_unauthenticated,
    powerful_from_anywhere,
    refused_vhost,
    same_port,
    secret_in_file,
    similar_user_names,
    size_limit_off,
    tenants_by_claim,
    unknown_attribute,
    unknown_key,
    unreachable_limit,
    unused_group,
    unused_ignore,
    unverified_server,
    user_id_proxy,
    user_in_two_groups,
    weak_ciphers,
    weak_tls,
    wide_range,
    wildcard_without_effect,
    window_over,
)
from policy.lint.findings import Finding, LintRule, PolicyText
from policy.lint.ignoring import without_ignored
from policy.lint.places import placed
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
    covered_item,
    duplicate_item,
    covered_host,
    missing_default_vhost,
    unreachable_limit,
    idle_group,
    connector_attribute,
    no_connections,
    nobody_admitted,
    wide_range,
    anonymous_user,
    enforcement_off,
    size_limit_off,
    password_in_the_clear,
    anonymous_listener,
    peers_unauthenticated,
    weak_tls,
    weak_ciphers,
    secret_in_file,
    unverified_server,
    connector_in_the_clear,
    missing_ssl_profile,
    missing_policy_vhost,
    no_trusted_authority,
    tenants_by_claim,
    unknown_attribute,
    blank_in_item,
    blank_hosts,
    boolean_case,
    lone_star_pattern,
    groups_without_users,
    blank_hostname,
    bare_groups,
    names_alike,
    no_timeout,
    same_port,
    ignore_comment,
    unused_ignore,
    extension,
    window_over,
    ban_rule,
    no_messages_allowed,
)


def check_all(
    entities: tuple[Entity, ...],
    ignored: Collection[str] = (),
    texts: Mapping[str, str] | None = None,
    now: float | None = None,
) -> tuple[Finding, ...]:
    """The findings of all rules but those whose ids are `ignored`, by file, line and id.

    entities  of all files a router would load together; they have passed the schema
    texts     file -> its text; without it no item is looked up in its line, and no comment is followed
    now       what time it is, seconds since 1970 UTC, for rules that ask
    """
    known = {} if texts is None else texts
    ids = frozenset(rule.ID for rule in RULES)
    policy = PolicyText(entities=entities, texts=known, now=now, ids=ids)
    findings = [finding for rule in RULES if rule.ID not in ignored for finding in rule.check(policy)]
    kept = placed(without_ignored(findings, known, ids - {*ignored}), known)
    return tuple(sorted(kept, key=lambda each: (each.file, each.line, each.column, each.rule, each.text)))
