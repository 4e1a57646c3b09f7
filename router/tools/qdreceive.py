"""`qdreceive`: receive messages from an address."""

import argparse
import math
import sys
from collections.abc import Sequence
from itertools import islice

from policy.printing import printable
from router.amqp.client_session import Receiver
from router.amqp.codec import Message
from router.management.client import Timeout
from router.tools.command import Parser, read_text, run
from router.tools.connection_options import connection_options
from router.tools.messages import MessageConnection, address_of, message_parser, text_of

_EPILOG = """examples:
  qdreceive -a closest                       wait for one message, and print its body
  qdreceive -a orders -c 0 --wait 60 -v      all, with their properties, until none comes for a minute
  qdreceive -b amqps://router.example.com/orders --ssl-trustfile ca.pem \\
         --sasl-username anna --sasl-password-file password.txt -c 5

Each message is accepted when it comes. Bodies are printed one a line, as text.

exit status: 0 where N messages came, or with -c 0 none came for so long as --wait says; 1 for any failure, with one
line that says which; 2 for a wrong command line
"""


def parser() -> Parser:
    count_help = "end after so many messages; 0: go on; default 1"
    made = message_parser("qdreceive", "Receive messages from an address.", _EPILOG, count_help)
    made.add_argument("--wait", metavar="SECS", type=float, help="for each message; default: until it comes")
    made.add_argument("-v", "--verbose", action="store_true", help="print subject and application properties too")
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the tool. Returns the exit status; raises SystemExit(2) for a wrong command line."""
    made = parser()
    given, unknown = made.parse_all(arguments)
    made.refuse_unknown(unknown)
    if given.wait is not None and not given.wait > 0:
        made.error(f"--wait wants a positive number of seconds, not {given.wait:g}")

    def act() -> None:
        options = connection_options(given, read_text)
        receiver = Receiver(address=address_of(made, given, options), limit=given.count or None)
        connection = MessageConnection(options, receiver)
        try:
            for message in islice(connection.receive(given.wait or math.inf), given.count or None):
                print(printable(_line(message, given)), flush=True)
        except Timeout:
            if given.count:
                raise
        finally:
            connection.close()

    return run(act)


def _line(message: Message, given: argparse.Namespace) -> str:
    text = text_of(message.body)
    if not given.verbose:
        return text
    parts = [f"subject={message.subject}"] if message.subject is not None else []
    parts += [f"{name}={value}" for name, value in message.application_properties.items()]
    return " ".join([*parts, text])


if __name__ == "__main__":
    sys.exit(main())
