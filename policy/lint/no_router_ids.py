"""A peer that authenticates at a listener for routers may join under any router id.

A router is believed the id that it says. Who may log in and says the id of another router takes over the addresses that
are known of that one, and its messages. Write `routerIds`, such as `${user}`: the id must be the name that the peer
has proved. A `*` alone is as good as none.
"""

from collections.abc import Iterator

from policy.lint.findings import About, Family, Finding, Level, PolicyText
from policy.lint.network_roles import demands_login, limits_ids, network_sections
from policy.lint.shared_with_clients import client_listener_like

ID = "PAL103"
TITLE = "routers join under any id"
FAMILY = Family.SECURITY


def check(policy: PolicyText) -> Iterator[Finding]:
    for section in network_sections(policy, "listener"):
        # Nothing entitles a peer without a name, so that logins come first; where clients log in it is worse.
        if not demands_login(section) or limits_ids(section) or client_listener_like(policy, section) is not None:
            continue
        key = "routerIds" if section.text("routerIds") else "role"
        text = "a peer that authenticates may join the network under any router id"
        yield section.finding(ID, Level.WARNING, text, key, About(instead="routerIds: ${user}"))
