"""`qdsend`: send messages to an address."""

import argparse
import sys
from collections.abc import Iterator, Sequence

from router.amqp.codec import encode_message
from router.tools.command import Parser, read_text, run
from router.tools.connection_options import connection_options
from router.tools.messages import MessageConnection, address_of, message_parser

_EPILOG = """examples:
  qdsend -a closest                          one message, through the router on this host
  qdsend -a orders -c 5 --body order         `order 1` to `order 5`
  qdsend -b amqps://router.example.com/orders --ssl-trustfile ca.pem \\
         --sasl-username anna --sasl-password-file password.txt --stdin < lines.txt

It waits for a receiver, up to --timeout.

exit status: 0 where every message was accepted; 1 for any failure, with one
line that says which; 2 for a wrong command line
"""


def parser() -> Parser:
    made = message_parser("qdsend", "Send messages to an address.", _EPILOG, "so many messages; default 1")
    made.add_argument("--body", metavar="TEXT", default="message", help="their text, with a number where N is not 1")
    made.add_argument("--stdin", action="store_true", help="each line of standard input is a message; N is not used")
    made.add_argument("--subject", metavar="TEXT", help="their subject")
    made.add_argument("--durable", action="store_true", help="mark them as durable")
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the tool. Returns the exit status; raises SystemExit(2) for a wrong command line."""
    made = parser()
    given, unknown = made.parse_all(arguments)
    made.refuse_unknown(unknown)

    def act() -> None:
        options = connection_options(given, read_text)
        address = address_of(made, given, options)
        connection = MessageConnection(options)
        try:
            accepted = connection.send(address, _messages(given))
        finally:
            connection.close()
        print(f"{accepted} message{'s' if accepted != 1 else ''} to {address} accepted")

    return run(act)


def _messages(given: argparse.Namespace) -> Iterator[bytes]:
    for text in _texts(given):
        yield encode_message(durable=given.durable, subject=given.subject, body=text)


def _texts(given: argparse.Namespace) -> Iterator[str]:
    if given.stdin:
        yield from (line.removesuffix("\n") for line in sys.stdin)
    elif given.count == 1:
        yield given.body
    else:
        yield from (f"{given.body} {number + 1}" for number in range(given.count))


if __name__ == "__main__":
    sys.exit(main())
