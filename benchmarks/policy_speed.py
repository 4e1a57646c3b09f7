"""The cost of a decision, of compiling and of checking: 10,000 users in 1,000 vhosts, a link against 1,000 sources.

Also a socket accepted, and a failed login, against 10,000 bans.

    python -m benchmarks.policy_speed

Medians of several rounds, in seconds of processor time, so that other work of the machine does not count. The limits
beside the numbers are the project's aims.
"""

import functools
import gc
import itertools
import json
import random
import statistics
import sys
import time
import tracemalloc
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from policy.addressing.address import resolve
from policy.ban_set import BanSet, parse_ban
from policy.cli.main import main as qdpolicy
from policy.decide import decide_connection, decide_link
from policy.facts import ConnectionFacts, LinkFacts, Usage
from policy.failures import MAX_HOSTS, FailureCounter, FailureRule
from policy.files.conf_layout import vhost_section
from policy.files.layout import Comments
from policy.hosts import parse_hosts
from policy.ruleset import Ruleset, compile_ruleset

VHOSTS, USERS_PER_VHOST, ROUNDS = 1000, 10, 7


def vhosts(group_count: int, item_count: int, users: int) -> list[dict[str, Any]]:
    """Returns the vhosts, each with `users` users in its groups; half of the groups have patterns."""
    found = []
    for number in range(VHOSTS):
        groups = {
            f"g{group}": {
                "users": [f"user-{number}-{user}" for user in range(group, users, group_count)]
                or [f"only-{number}-{group}"],
                "remoteHosts": f"10.{number % 250}.{group}.0-10.{number % 250}.{group}.255",
                ("sources" if group % 2 else "sourcePattern"): [
                    f"orders.{number}.{group}.{item}{'.*' if item % 3 == 0 else ''}" for item in range(item_count)
                ],
                "maxSenders": 10,
            }
            for group in range(group_count)
        }
        found.append({"hostname": f"h{number}.example", "maxConnections": 1000, "groups": groups})
    return found


def compiled(entities: list[dict[str, Any]]) -> Ruleset:
    return compile_ruleset({"enableVhostPolicy": True}, [(entity, None) for entity in entities], resolve=lambda _: ())


def seconds_per_call(call: Callable[[], object], count: int) -> float:
    """Returns the median of several rounds."""
    rounds = []
    for _ in range(ROUNDS):
        began = time.process_time()
        for _ in range(count):
            call()
        rounds.append((time.process_time() - began) / count)
    return statistics.median(rounds)


def show(what: str, value: float, unit: str, aim: float) -> bool:
    print(f"{what:44} {value:8.2f} {unit:3} (aim {aim:g} {unit})")
    return value <= aim


def ban_results() -> list[bool]:
    """Measures 10,000 bans: networks of eight lengths, IPv4 and IPv6 addresses."""
    bans = BanSet()
    for number in range(10_000):
        high, low = divmod(number, 250)
        length = 24 + number // 3 % 8
        hosts = f"10.{high}.{low}.0/{length}", f"10.{high}.{low}.7", f"2001:db8:{number:x}::7"
        bans.add(parse_ban(str(number), hosts[number % 3], None, None, 0.0))
    results = []
    for what, host, is_banned in (
        ("none holds", "192.0.2.1", False),
        ("one holds", "10.0.1.7", True),
        ("IPv6", "2001:db8:ffff::1", False),
    ):
        assert (bans.of_host(host) is not None) is is_banned
        cost = seconds_per_call(functools.partial(bans.of_host, host), 20_000)
        results.append(show(f"accept against 10,000 bans, {what}", cost * 1e6, "µs", 10))
    allowed = parse_hosts(["127.0.0.0/8", "::1"], lambda _: ())
    rule = FailureRule(limit=5, window_s=60, ban_s=600, allowed=allowed)
    failures = FailureCounter(rule, random.Random(1).randrange)
    numbers = itertools.count()

    def fail() -> None:
        number = next(numbers)
        failures.note(f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}", number / 1000)

    for _ in range(MAX_HOSTS):
        fail()
    results.append(show("a failure, with every place taken", seconds_per_call(fail, 20_000) * 1e6, "µs", 50))
    return results


def main() -> int:
    entities = vhosts(2, 20, USERS_PER_VHOST)
    gc.collect()
    began = time.process_time()
    ruleset = compiled(entities)
    compile_seconds = time.process_time() - began
    tracemalloc.start()
    kept = compiled(entities)
    megabytes = tracemalloc.get_traced_memory()[0] / 1e6
    tracemalloc.stop()
    del kept
    facts = ConnectionFacts(
        user="user-500-3", remote_host="10.0.1.7", requested_vhost="h500.example", connection_name="c"
    )
    usage = Usage(total=5, of_user=1, of_host=1)
    assert decide_connection(ruleset, facts, usage).decision.is_allowed
    connection_seconds = seconds_per_call(lambda: decide_connection(ruleset, facts, usage), 20_000)
    results = [
        show("compile, 10,000 users in 1,000 vhosts", compile_seconds, "s", 2),
        show("memory of it", megabytes, "MB", 150),
        show("decide_connection", connection_seconds * 1e6, "µs", 20),
    ]
    for key in ("sources", "sourcePattern"):
        items = [f"orders.{item}.new{'.*' if item % 2 else ''}" for item in range(1000)]
        group = {"users": "*", "remoteHosts": "*", key: items}
        one = compiled([{"hostname": "h", "groups": {"g": group}}])
        settings = decide_connection(
            one, ConnectionFacts(user="u", remote_host="10.0.0.1", requested_vhost="h", connection_name="c"), Usage()
        ).settings
        assert settings is not None
        for address, is_allowed in (("orders.998.new", True), ("orders.999.new.x", True), ("orders.999.old", False)):
            link = LinkFacts(direction="receive", address=resolve(address, router_id=""))
            assert decide_link(settings, link).is_allowed == is_allowed
            cost = seconds_per_call(lambda settings=settings, link=link: decide_link(settings, link), 20_000)  # type: ignore[misc]
            verdict = "allowed" if is_allowed else "denied"
            results.append(show(f"decide_link, 1,000 {key}, {verdict}", cost * 1e6, "µs", 5))
    with TemporaryDirectory() as folder:
        kinds: tuple[tuple[str, str, dict[str, Any]], ...] = (
            ("nothing found", "json", {}),
            ("2,000 findings", "json", {"allowUserIdProxy": True, "users": "a b"}),
            ("a .conf", "conf", {}),
        )
        for what, suffix, finding in kinds:
            checked = vhosts(20, 20, 20)
            for entity in checked:
                entity["groups"]["g7"] |= finding
            file = Path(folder) / f"policy.{suffix}"
            text = json.dumps([["vhost", entity] for entity in checked], indent=1)
            if suffix == "conf":
                sections = (vhost_section(entity, Comments(), is_compact=False) for entity in checked)
                text = "policy {\n enableVhostPolicy: yes\n\n}\n" + "\n".join(chain(*sections))
            file.write_text(text, "utf-8")
            report = str(Path(folder) / "report")
            began = time.process_time()
            status = qdpolicy(["lint", str(file), "--output", report])
            results.append(show(f"lint, 1,000 x 20 x 20, {what}", time.process_time() - began, "s", 5))
            assert status == bool(finding)
    results += ban_results()
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
