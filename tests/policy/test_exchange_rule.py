"""PAL140: what exchanges open that the lists of groups close."""

import pytest

from policy.files.conf import conf_sections
from policy.lint import exchange_past_targets
from policy.lint.findings import Level, PolicyText

ENFORCED = "policy {\n enableVhostPolicy: yes\n}\n"
EXCHANGE = "exchange {\n name: e\n address: in\n alternateAddress: rest\n}\n"
BINDING = "binding {\n exchangeName: e\n nextHopAddress: out\n}\n"
NOTE, WARNING = Level.NOTE, Level.WARNING


def levels(group: str, *, vhost: str = "v", start: str = ENFORCED, rest: str = EXCHANGE + BINDING) -> list[Level]:
    lists = ", ".join(
        f'"{key.strip()}": "{value.strip()}"' for key, _, value in (x.partition(":") for x in group.split(";"))
    )
    text = f'{start}vhost {{\n hostname: {vhost}\n groups: {{ "g": {{ "users": "u", {lists} }} }}\n}}\n{rest}'
    return [
        found.level for found in exchange_past_targets.check(PolicyText(entities=tuple(conf_sections(text, "r.conf"))))
    ]


@pytest.mark.parametrize(
    ("group", "found"),
    [
        ("targets: in", [NOTE, NOTE]),
        ("targets: in, out", [NOTE]),
        ("targets: in, out, rest", []),
        ("targets: *", []),
        ("targetPattern: #", []),
        ("targets: *; denyTargets: out", [WARNING]),
        ("targets: in; denyTargets: rest", [WARNING, NOTE]),
        ("targets: out, rest", []),
        ("targets: *; denyTargets: in", []),
        ("sources: in", []),
    ],
)
def test_who_reaches_more_than_his_targets_is_named(group: str, found: list[Level]) -> None:
    assert levels(group) == found


def test_nothing_is_said_where_no_vhost_closes_anything() -> None:
    assert levels("targets: in", start="policy {\n enableVhostPolicy: no\n}\n") == []
    assert levels("targets: in", rest=BINDING) == []


def test_members_of_a_tenant_write_addresses_without_its_name() -> None:
    tenants = ENFORCED + "listener {\n port: 1\n multiTenant: yes\n}\n"
    rest = EXCHANGE.replace(": in", ": v/in").replace("rest", "v/rest") + BINDING.replace("out", "v/out")
    assert levels("targets: in, out, rest", start=tenants, rest=rest) == []
    assert levels("targets: in, out", start=tenants, rest=rest) == [NOTE]
