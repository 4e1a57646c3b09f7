"""A router whose clients log in with passwords, and whose only vhost the test defines."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from daemon_process import Daemon, audit_events, eventually, start, write_users

from auth.secrets import Secret
from router.management.client import ManagementClient

CONFIGURATION = """
router {{
    id: governed
    saslConfigDir: {sasl}
    auditDir: {folder}/audit
    {settings}
}}
policy {{
    enableVhostPolicy: yes
    policyDir: {folder}/policy
    {policy}
}}
listener {{
    name: login
    host: 127.0.0.1
    port: 0
    authenticatePeer: yes
    saslMechanisms: PLAIN
}}
"""
# As 1.20 has them: who reaches $management may do everything there.
GROUP: Mapping[str, Any] = {
    "remoteHosts": "127.0.0.1",
    "sources": "*",
    "targets": "*",
    "allowDynamicSource": True,
    "allowAnonymousSender": True,
}


@contextmanager
def governed(
    folder: Path,
    groups: Mapping[str, Mapping[str, Any]],
    *,
    settings: str = "",
    policy: str = "",
    extra: str = "",
    **options: Any,
) -> Iterator[Daemon]:
    """Every group has one user, of its name.

    groups    what each has besides GROUP
    settings  of the router's section; policy  of the policy's; extra  sections
    """
    sasl = write_users(folder, {name: f"{name}'s password" for name in groups})
    (folder / "policy").mkdir()
    written = {name: {**GROUP, "users": name, **given} for name, given in groups.items()}
    vhost = {"hostname": "$default", "groups": written}
    (folder / "policy" / "policy.json").write_text(json.dumps([["vhost", vhost]]))
    text = CONFIGURATION.format(sasl=sasl, folder=folder, settings=settings, policy=policy) + extra
    router = start(folder, text, **options)
    try:
        router.wait_for_log(r"Listening on \S+ \(login\)")
        yield router
    finally:
        router.end()


def login(router: Daemon, user: str) -> ManagementClient:
    return router.client("login", username=user, password=Secret(f"{user}'s password"))


def recorded(router: Daemon, **members: object) -> dict[str, Any]:
    """The first audit event with these members, which may be of its `management`; fails when none comes."""

    def found() -> dict[str, Any] | None:
        for event in audit_events(router.folder / "audit"):
            flat = {**event, **event.get("management", {})}
            if all(flat.get(name) == value for name, value in members.items()):
                return event
        return None

    event: dict[str, Any] | None = eventually(found)
    assert event is not None, audit_events(router.folder / "audit")
    return event
