"""`qdpolicy explain` says whether a user may do something, and by which rules."""

import argparse
import json
import time
from collections.abc import Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from policy.addressing.address import Address, resolve_named
from policy.analysis.explain import (
    Explanation,
    explain_connection,
    explain_link,
    explain_management,
    is_numeric_host,
)
from policy.attributes import InvalidValue
from policy.cli.arguments import add_router_option, count
from policy.cli.collector import without_collector
from policy.cli.instants import add_at_option
from policy.cli.progress import progress
from policy.cli.sources import CLEAN, FINDINGS, UNREADABLE, UnusableError, outline_of, print_lines, usable
from policy.decision import Rule
from policy.facts import ConnectionFacts, LinkFacts, ManagementFacts, Usage
from policy.printing import printable
from policy.rights import read_request

DESCRIPTION = """\
Show what a policy decides, and every step to it with the place of the rule.

Without an address or a management request only the connection is judged.
"""
EPILOG = """\
examples:
  qdpolicy explain policies/ --user alice --host 10.0.0.1 --send orders.new
  qdpolicy explain qdrouterd.conf --user bob --host ::1 --vhost shop --receive-dynamic --json
  qdpolicy explain policies/ --user service --host ::1 --send amqp:/_topo/0/R/temp.abcdefghijklmno --reply-age 20
  qdpolicy explain policies/ --user clerk --host 10.0.0.1 --manage 'update vhost'

exit status:
  0  allowed
  1  denied
  2  the command line is wrong
  3  the policy could not be read, or a router would refuse it
"""


def add_parser(verbs: Any) -> None:
    parser: argparse.ArgumentParser = verbs.add_parser(
        "explain",
        help="show a decision and every step to it",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("path", metavar="PATH", type=Path, help="a policy file, a folder of them, or a router's .conf")
    parser.add_argument("--user", metavar="NAME", help="as authenticated; without it, a peer without a name")
    parser.add_argument("--host", metavar="IP", type=_host, required=True, help="numeric address of the peer")
    parser.add_argument("--vhost", metavar="NAME", default="", help="hostname of the client's Open, or the policyVhost")
    parser.add_argument("--mechanism", metavar="NAME", help="SASL mechanism, such as PLAIN")
    parser.add_argument(
        "--group", metavar="NAME", action="append", default=[], help="of the authenticator; several times"
    )
    parser.add_argument("--tls", action="store_true", help="the connection is encrypted")
    add_router_option(parser)
    parser.add_argument("--multi-tenant", action="store_true", help="the listener has multiTenant: yes")
    link = parser.add_mutually_exclusive_group()
    link.add_argument("--send", metavar="ADDRESS", help="judge a sender to this address; '' is an anonymous one")
    link.add_argument("--receive", metavar="ADDRESS", help="judge a receiver from this address")
    link.add_argument("--receive-dynamic", action="store_true", help="judge a receiver from a dynamic source")
    link.add_argument(
        "--manage",
        metavar="REQUEST",
        type=_request,
        help="judge a management request, once it has come to $management: 'create ban', "
        "'update connection(adminStatus)'",
    )
    parser.add_argument(
        "--reply-age",
        metavar="SECONDS",
        type=count,
        help="with --send: the connection received a message with this reply-to so long ago (allowReplies)",
    )
    parser.add_argument(
        "--own", action="store_true", help="the router made the dynamic address for this connection, not for another"
    )
    parser.add_argument("--capability", metavar="SYMBOL", action="append", default=[], help="of the link's terminus")
    for name in ("connections", "connections-of-user", "connections-of-host", "links"):
        help_ = f"open {name.replace('-', ' ')} before this one (default: 0)"
        parser.add_argument(f"--{name}", metavar="N", type=count, default=0, help=help_)
    add_at_option(parser, "judge what is asked at this instant (default: now)")
    parser.add_argument("--resolve", action="store_true", help="look up host names in remoteHosts")
    parser.add_argument("--json", action="store_true", help="for programs")
    parser.set_defaults(run=run)


@without_collector
def run(options: argparse.Namespace) -> int:
    try:
        with progress() as watch:
            loaded = usable(options.path, partial(watch, "reading files"))
            checking = partial(watch, "vhosts checked")
            outline = outline_of(options.path, loaded, resolves=options.resolve, watch=checking)
            ruleset = outline.around(options.vhost)
    except UnusableError as error:
        print_lines(json.dumps({"version": 1, "problem": str(error)}) if options.json else str(error))
        return UNREADABLE
    facts = ConnectionFacts(
        user=options.user,
        remote_host=options.host,
        requested_vhost=options.vhost,
        connection_name=f"{options.host}:0",
        mechanism=options.mechanism,
        is_encrypted=options.tls,
        groups=tuple(options.group),
        now=time.time() if options.at is None else options.at,
    )
    usage = Usage(total=options.connections, of_user=options.connections_of_user, of_host=options.connections_of_host)
    explained = [explain_connection(ruleset, facts, usage)]
    tenant = (explained[0].vhost or options.vhost or None) if options.multi_tenant else None
    link = _link(options, options.router_id or loaded.router_id, tenant)
    if explained[0].decision.is_allowed and link is not None:
        explained.append(explain_link(explained[0].settings, link))
    if explained[0].decision.is_allowed and options.manage is not None:
        explained.append(explain_management(explained[0].settings, options.manage))
    if options.json:
        print(json.dumps(_report(explained), indent=2))
    else:
        print("\n".join(_lines(explained)))
    return CLEAN if explained[-1].decision.is_allowed else FINDINGS


def _host(text: str) -> str:
    if not is_numeric_host(text):
        raise argparse.ArgumentTypeError(f"{text!r} is no numeric address, such as 10.0.0.1 or ::1")
    return text


def _request(text: str) -> ManagementFacts:
    try:
        return read_request(text)
    except InvalidValue as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _link(options: argparse.Namespace, router_id: str, tenant: str | None) -> LinkFacts | None:
    if options.send is None and options.receive is None and not options.receive_dynamic:
        return None
    text = options.receive if options.send is None else options.send
    address = resolve_named(text, router_id=router_id, tenant=tenant)
    return LinkFacts(
        direction="receive" if options.send is None else "send",
        address=address,
        is_dynamic=options.receive_dynamic,
        capabilities=tuple(options.capability),
        open_links=options.links,
        dynamic_address="own" if options.own and isinstance(address, Address) and address.is_dynamic else None,
        reply_age_s=options.reply_age if options.send is not None else None,
    )


def _report(explained: list[Explanation]) -> dict[str, object]:
    last = explained[-1]
    decision = {**asdict(last.decision), "reason": last.decision.reason.value}
    return {
        "version": 1,
        "decision": decision,
        "vhost": last.vhost,
        "group": last.group,
        "steps": [asdict(step) for explanation in explained for step in explanation.steps],
    }


def _lines(explained: list[Explanation]) -> Iterator[str]:
    decision = explained[-1].decision
    verdict = "ALLOWED" if decision.is_allowed else "DENIED"
    yield f"{verdict}: {', '.join((decision.reason, *decision.also))}"
    for explanation in explained:
        for step in explanation.steps:
            mark = {True: "+", False: "-", None: " "}[step.is_passed]
            yield printable(f"  {mark} {step.about}: {step.text}{_place(step.rule)}")


def _place(rule: Rule | None) -> str:
    if rule is None or rule.line is None:
        return ""
    return f"  [{rule.file}:{rule.line}]"
