"""The rules, in the order of their ids. An id is never reused for another rule."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Final

from policy.files.sections import Section
from policy.lint import (
    accounts_locked,
    anonymous_listener,
    anonymous_sender_without_targets,
    anonymous_user,
    ban_rule,
    bare_groups,
    blank_hostname,
    blank_hosts,
    blank_in_item,
    blank_user,
    boolean_case,
    broad_default,
    broker_without_login,
    clients_as_brokers,
    conflicting_lists,
    connector_attribute,
    connector_in_the_clear,
    connector_mechanisms,
    connector_to_nobody,
    covered_host,
    covered_item,
    cut_value,
    denied_item,
    deprecated_name,
    duplicate_item,
    duplicate_router_id,
    enforcement_off,
    exchange_past_targets,
    extension,
    few_sessions,
    groups_without_users,
    half_tls,
    hidden_waypoint,
    host_names,
    host_of_another_kind,
    idle_denial,
    idle_group,
    idle_reply_window,
    ignore_comment,
    ignored_entity,
    item_read_otherwise,
    keys_over_http,
    ldap_in_the_clear,
    left_out_section,
    lone_star_pattern,
    management_by_connector,
    management_for_everybody,
    management_without_rights,
    mapped_address,
    missing_default_vhost,
    missing_policy_vhost,
    missing_ssl_profile,
    mute_responder,
    named_port,
    names_alike,
    names_within_each_other,
    nested_tenants,
    network_in_the_clear,
    network_without_login,
    never_asked_again,
    no_connections,
    no_links_allowed,
    no_messages_allowed,
    no_redundant_path,
    no_router_ids,
    no_timeout,
    no_trusted_authority,
    nobody_admitted,
    open_dynamic_addresses,
    other_separator,
    password_in_the_clear,
    peers_unauthenticated,
    placeholder,
    plugin_in_the_clear,
    powerful_from_anywhere,
    read_only_attribute,
    refused_section,
    refused_vhost,
    repeated_attribute,
    reserved_user,
    same_port,
    sasl_configuration,
    second_name_of_a_queue,
    secret_in_file,
    shared_with_clients,
    similar_user_names,
    size_limit_off,
    small_window,
    star_in_user_name,
    tenants_by_claim,
    token_in_the_clear,
    trusted_certificates,
    unenforced_router,
    unknown_attribute,
    unknown_key,
    unreachable_limit,
    unreached_way,
    unserved,
    unserved_mechanisms,
    unused_group,
    unused_ignore,
    unverified_router,
    unverified_server,
    user_id_proxy,
    user_in_two_groups,
    vhost_missing_on_router,
    way_to_nobody,
    weak_ciphers,
    weak_tls,
    wide_range,
    wildcard_behind_scheme,
    wildcard_without_effect,
    window_over,
    without_effect,
)
from policy.lint.findings import Finding, LintRule, PolicyText, SaslText
from policy.lint.ignoring import UNUSED_ID, without_ignored
from policy.lint.places import placed

# The rules that compare the configurations of several routers.
FLEET_RULES: tuple[LintRule, ...] = (
    duplicate_router_id,
    no_redundant_path,
    vhost_missing_on_router,
    unenforced_router,
    connector_to_nobody,
)

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
    star_in_user_name,
    mapped_address,
    blank_user,
    small_window,
    wildcard_behind_scheme,
    denied_item,
    idle_denial,
    open_dynamic_addresses,
    idle_reply_window,
    management_without_rights,
    management_by_connector,
    nested_tenants,
    other_separator,
    mute_responder,
    item_read_otherwise,
    names_within_each_other,
    unserved,
    unserved_mechanisms,
    without_effect,
    ldap_in_the_clear,
    trusted_certificates,
    token_in_the_clear,
    keys_over_http,
    network_in_the_clear,
    network_without_login,
    unverified_router,
    no_router_ids,
    shared_with_clients,
    few_sessions,
    *FLEET_RULES,
    plugin_in_the_clear,
    never_asked_again,
    broker_without_login,
    clients_as_brokers,
    second_name_of_a_queue,
    unreached_way,
    exchange_past_targets,
    refused_section,
    left_out_section,
    named_port,
    cut_value,
    placeholder,
    way_to_nobody,
    read_only_attribute,
    hidden_waypoint,
    connector_mechanisms,
    repeated_attribute,
    accounts_locked,
    sasl_configuration,
    half_tls,
    host_of_another_kind,
    reserved_user,
)

# Limit of further places that are shown for a finding which replaces several.
MAX_SHOWN_LINES: Final = 10

_IDS = frozenset(rule.ID for rule in RULES)


def check_all(
    entities: tuple[Section, ...],
    ignored: Collection[str] = (),
    texts: Mapping[str, str] | None = None,
    now: float | None = None,
    watch: Callable[[Iterable[LintRule]], Iterable[LintRule]] = iter,
    sasl: SaslText | None = None,
) -> tuple[Finding, ...]:
    """Returns the findings of all rules except those with `ignored` ids, by file, line and id.

    entities  of all files that a router would load together; they are valid by the schema
    texts     file -> its text; without it no item is looked up in its line, and comments have no effect
    now       the time, seconds since 1970 UTC, for rules that need it
    watch     passes the rules on, one by one
    sasl      as in PolicyText
    """
    known = {} if texts is None else texts
    rules = [rule for rule in RULES if rule not in FLEET_RULES]
    policy = PolicyText(entities=entities, texts=known, now=now, ids=_IDS, sasl=sasl)
    return _found(rules, policy, ignored, watch)


def check_fleet(
    routers: tuple[PolicyText, ...], ignored: Collection[str] = (), texts: Mapping[str, str] | None = None
) -> tuple[Finding, ...]:
    """Returns the findings of the rules that compare the routers of one network; otherwise like check_all."""
    policy = PolicyText(entities=(), texts={} if texts is None else texts, routers=routers)
    return _found(FLEET_RULES, policy, ignored, iter)


def _found(
    rules: Collection[LintRule],
    policy: PolicyText,
    ignored: Collection[str],
    watch: Callable[[Iterable[LintRule]], Iterable[LintRule]],
) -> tuple[Finding, ...]:
    findings = [finding for rule in watch(rules) if rule.ID not in ignored for finding in rule.check(policy)]
    sought = {*(rule.ID for rule in rules), UNUSED_ID} - {*ignored}
    kept = placed(without_ignored(findings, policy.texts, sought), policy.texts)
    ordered = sorted(kept, key=lambda each: (each.file, each.line, each.column, each.rule, each.text))
    return tuple(_folded(ordered, extension.ID))


def _folded(findings: Iterable[Finding], rule: str) -> Iterator[Finding]:
    """Yields the findings, but only one per file for the rule: it reports notes that users do not fix line by line."""
    found = list(findings)
    lines: dict[str, list[int]] = {}
    for each in found:
        if each.rule == rule:
            lines.setdefault(each.file, []).append(each.line)
    told: set[str] = set()
    for each in found:
        if each.rule != rule:
            yield each
        elif each.file not in told:
            told.add(each.file)
            others = [*dict.fromkeys(lines[each.file][1:])]
            shown = ", ".join(map(str, others[:MAX_SHOWN_LINES])) + (", …" if len(others) > MAX_SHOWN_LINES else "")
            count = len(lines[each.file]) - 1
            yield replace(each, text=f"{each.text}; {count} more in this file (line {shown})") if count else each
