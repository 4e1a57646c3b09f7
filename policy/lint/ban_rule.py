"""The rule that bans hosts for their failures bans nobody, or keeps its terms and is off.

Without `banAfterFailures` the other three attributes say nothing. A `banAllowList` that covers every address of IPv4 or
IPv6 takes all that come by it out of the rule: name the hosts that many people share, and the monitors, not the world.
"""

from collections.abc import Iterator

from policy.analysis.host_sets import ALL_HOSTS, Hosts, hosts_of, subtract
from policy.ban_set import BanError
from policy.failures import FAILURE_KEYS, LIMIT_KEY, read_allow_list
from policy.lint.findings import Family, Finding, Level, PolicyText

ID = "PAL057"
TITLE = "ban rule without effect"
FAMILY = Family.SECURITY


def check(policy: PolicyText) -> Iterator[Finding]:
    for section in policy.sections("policy"):
        if section.text(LIMIT_KEY) in ("", "0"):
            for key in FAILURE_KEYS:
                if key != LIMIT_KEY and section.text(key):
                    text = f"'{key}' has no effect: {LIMIT_KEY} is not set, so that no failure leads to a ban"
                    yield section.finding(ID, Level.WARNING, text, key)
            continue
        try:
            allowed = hosts_of(read_allow_list(section.attributes))
        except BanError:  # the router refuses to start with it, and says why
            continue
        spared = [name for name, family in (("IPv4", 4), ("IPv6", 6)) if not _left(allowed, family)]
        if spared:
            text = f"banAllowList holds every address of {' and '.join(spared)}: failures ban none of them"
            yield section.finding(ID, Level.WARNING, text, "banAllowList")


def _left(allowed: Hosts, family: int) -> Hosts:
    return subtract(tuple(each for each in ALL_HOSTS if each[0] == family), allowed)
