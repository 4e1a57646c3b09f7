"""`qdstat`: shows the state of a router.

Source: docs/spec/management.md section 9.
"""

import argparse
import contextlib
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial

from policy.printing import printable
from router.management.client import ManagementClient
from router.tools.command import FailedError, Parser, read_text, run, utc_now
from router.tools.connection_options import (
    ConnectionOptions,
    add_connection_arguments,
    connection_options,
    router_address,
    seconds,
)
from router.tools.displays import ALL_ENTITIES, DISPLAYS, WITHOUT_HEADER
from router.tools.displays.network import dot
from router.tools.displays.source import Source
from router.tools.formats import RenderLine, csv_line, render, render_classic, render_csv
from router.tools.health import DEFAULT_DAYS, health
from router.tools.transport import connect
from schemas.versions import add_version_option

Connect = Callable[[ConnectionOptions, str], ManagementClient]

_DISPLAY_OPTIONS = (
    ("general", ("-g", "--general"), "counters of the router as a whole (the default)"),
    ("connections", ("-c", "--connections"), "connections, who is on them and how they are secured"),
    ("links", ("-l", "--links"), "AMQP links and their counters"),
    ("nodes", ("-n", "--nodes"), "routers in the network"),
    ("edge", ("-e", "--edge"), "connections of edge routers"),
    ("address", ("-a", "--address"), "addresses and their counters"),
    ("memory", ("-m", "--memory"), "memory by object type"),
    ("policy", ("-p", "--policy"), "policy in force and its denials"),
    ("autolinks", ("--autolinks",), "auto links"),
    ("linkroutes", ("--linkroutes",), "link routes"),
    ("vhosts", ("--vhosts",), "vhost policies"),
    ("vhostgroups", ("--vhostgroups",), "user groups of the vhost policies, in full"),
    ("vhoststats", ("--vhoststats",), "what the vhost policies admitted and denied"),
    ("bans", ("--bans",), "who is banned, until when, and how often that was met"),
    ("budgets", ("--budgets",), "bytes held for each connection, user and host, and their limits"),
    ("log", ("--log",), "latest log entries"),
    ("all", ("--all-entities",), "most of the above, one after the other"),
)

_EPILOG = """examples:
  qdstat                                     the router on this host
  qdstat -b amqps://router.example.com -c --ssl-trustfile ca.pem \\
         --sasl-username admin --sasl-password-file password.txt
  qdstat -a --limit 20 --csv                 twenty addresses, for a spreadsheet
  qdstat -l --all-routers                    the links of every router in the network
  qdstat -c | less -S                        in full, where the terminal is too narrow
  qdstat --check                             for a monitor: one line that begins with OK or FAILED
  qdstat -n --dot | dot -Tsvg > network.svg  a picture of the network

exit status: 0; 1 for any failure, with one line that says which, and where --check finds something; 2 for a wrong
command line
"""


def parser() -> Parser:
    made = Parser(
        prog="qdstat",
        description="Show status and statistics of a router.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_version_option(made)
    made.add_argument("-v", "--verbose", action="count", default=0, help="more columns")
    displays = made.add_argument_group("display (one of)").add_mutually_exclusive_group()
    for name, flags, text in _DISPLAY_OPTIONS:
        displays.add_argument(*flags, dest="display", action="store_const", const=name, help=text)
    displays.add_argument(
        "--check",
        metavar="DAYS",
        nargs="?",
        type=_row_count,
        const=DEFAULT_DAYS,
        help="one line and the exit status: do all listeners listen, is each certificate good for so many days "
        f"(default {DEFAULT_DAYS}), do authenticators answer, is the audit log written, is nobody held back?",
    )
    targets = made.add_argument_group("target (one of)").add_mutually_exclusive_group()
    targets.add_argument("--all-routers", action="store_true", help="every router the asked one knows")
    targets.add_argument("-r", "--router", metavar="ID", help="this router of the network")
    targets.add_argument("-d", "--edge-router", metavar="ID", help="this edge router of the asked router")
    output = made.add_argument_group("output")
    output.add_argument("--limit", metavar="N", type=_row_count, default=0, help="at most N rows; 0 for all")
    output.add_argument("--csv", action="store_true", help="tables as comma-separated values")
    output.add_argument("--dot", action="store_true", help="with -n: the network as a graph for Graphviz")
    output.add_argument("--watch", metavar="SECS", type=seconds, help="show it anew every so many seconds")
    add_connection_arguments(made)
    return made


def main(arguments: Sequence[str] | None = None, connect: Connect = connect) -> int:
    """Runs the tool. Returns the exit status; raises SystemExit(2) for a wrong command line."""
    made = parser()
    given, unknown = made.parse_all(arguments)
    made.refuse_unknown(unknown)
    if given.dot and given.display != "nodes":
        made.error("--dot is for -n")
    if given.watch is not None and not 0 < given.watch < float("inf"):
        made.error(f"--watch wants a positive number of seconds, not {given.watch:g}")
    return run(lambda: _watch(given, connect) if given.watch else _show(given, connect))


def _watch(given: argparse.Namespace, connect: Connect) -> None:
    """Repeats the display until it fails.

    If the password has changed, further attempts every few seconds would look like guessing.
    """
    with contextlib.suppress(KeyboardInterrupt):
        while True:
            if _terminal_columns() is not None:
                print("\x1b[H\x1b[2J", end="")
            _show(given, connect)
            sys.stdout.flush()
            time.sleep(given.watch)


def _show(given: argparse.Namespace, connect: Connect) -> None:
    options = connection_options(given, read_text)
    address = router_address(given.router, given.edge_router)
    with connect(options, address) as client:
        if given.check is not None:
            _check(Source(client=client), given.check)
            return
        nodes = client.management_nodes() if given.all_routers else []
        if len(nodes) < 2:
            _print(_header(given, client) + _body(given, client))
            return
        _print([utc_now()])
        for node in nodes:
            node_address = node.removeprefix("amqp:/")
            node_id = node_address.removeprefix("_topo/0/").removesuffix("/$management")
            _print([_render_line(given)(f"Router  {node_id}"), "", *_body(given, client.at(node_address)), ""])


def _check(source: Source, days: int) -> None:
    is_well, text = health(source, days)
    print(printable(text))
    if not is_well:
        raise FailedError


def _header(given: argparse.Namespace, client: ManagementClient) -> list[str]:
    """Returns date, router id and an empty line, if the display has them."""
    if given.display in WITHOUT_HEADER or given.dot:
        return []
    found = client.query("org.apache.qpid.dispatch.router", ["id"]).rows
    return [utc_now(), _render_line(given)(str(found[0][0])) if found and found[0] else "", ""]


def _body(given: argparse.Namespace, client: ManagementClient) -> list[str]:
    source = Source(client=client, limit=given.limit, is_verbose=given.verbose > 0)
    render_table = render_csv if given.csv else partial(render_classic, columns=_terminal_columns())
    if given.dot:
        return dot(source)
    if given.display != "all":
        return render(DISPLAYS[given.display or "general"](source), render_table, _render_line(given))
    lines = []
    for name in ALL_ENTITIES:
        lines += [*render(DISPLAYS[name](source), render_table, _render_line(given)), ""]
    return lines


def _render_line(given: argparse.Namespace) -> RenderLine:
    return csv_line if given.csv else printable


def _terminal_columns() -> int | None:
    """Returns the width of the terminal for the output; None if it is no terminal, as for scripts."""
    return shutil.get_terminal_size().columns if sys.stdout is not None and sys.stdout.isatty() else None


def _print(lines: Sequence[str]) -> None:
    for line in lines:
        print(line)


def _row_count(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise argparse.ArgumentTypeError(f"wants a number of rows, or 0 for all, not '{text}'")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
