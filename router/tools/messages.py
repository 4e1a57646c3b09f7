"""The messages of `qdsend` and `qdreceive` over their connection, and the options that both have."""

import argparse
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from router.amqp.client_session import ProtocolError, Receiver
from router.amqp.codec import CodecError, Message, decode_message
from router.management.client import ConnectionException
from router.tools.command import Parser
from router.tools.connection_options import ConnectionOptions, add_connection_arguments
from router.tools.transport import MAX_REPLY_VALUES, RouterConnection
from schemas.versions import add_version_option

# The maximum of messages that are under way at once, so that the lines of a large file do not wait in memory.
MAX_UNANSWERED: Final = 100


class MessageConnection(RouterConnection):
    """Sends to addresses, and receives from one."""

    def __init__(self, options: ConnectionOptions, receiver: Receiver | None = None) -> None:
        super().__init__(options, receiver=receiver)

    def send(self, address: str, messages: Iterable[bytes]) -> int:
        """Sends encoded messages. Returns their number when the router has accepted all of them.

        Errors: ConnectionException, Timeout, LinkDetached.
        """
        awaited = f"credit for {address} or an outcome: is there a receiver?"
        with self._faults():
            for message in messages:
                self._session.send_message(address, message)
                self._flush()
                while self._session.unanswered >= MAX_UNANSWERED:
                    self._await(awaited, self._options.timeout_s)
            while self._session.unanswered:
                self._await(awaited, self._options.timeout_s)
        return self._session.accepted

    def receive(self, wait_s: float) -> Iterator[Message]:
        """Iterates over the messages, without end. Each is accepted when it arrives.

        wait_s  for each
        Errors  ConnectionException, Timeout, LinkDetached.
        """
        with self._faults():
            while True:
                while (message := self._session.take_message()) is None:
                    self._await("a message", wait_s)
                yield decode_message(message, max_values=MAX_REPLY_VALUES)

    def _await(self, awaited: str, seconds: float) -> None:
        self._allow(seconds)
        self._exchange(awaited)

    @contextmanager
    def _faults(self) -> Iterator[None]:
        try:
            yield
        except (ProtocolError, CodecError) as error:
            raise ConnectionException(f"Connection to {self._where} failed: {error}") from None


def message_parser(name: str, description: str, epilog: str, count_help: str) -> Parser:
    made = Parser(
        prog=name, description=description, epilog=epilog, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_version_option(made)
    made.add_argument("-a", "--address", metavar="ADDRESS", help="the address; that in the URL, where it has one")
    made.add_argument("-c", "--count", metavar="N", type=whole_number, default=1, help=count_help)
    add_connection_arguments(made)
    return made


def whole_number(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise argparse.ArgumentTypeError(f"wants a whole number, not '{text}'")
    return int(text)


def address_of(made: Parser, given: argparse.Namespace, options: ConnectionOptions) -> str:
    """Returns the address that the command line names. Reports a usage error if there is none."""
    address = given.address or options.address
    if not address:
        made.error("which address? Give --address, or -b HOST/ADDRESS")
    return str(address)


def text_of(body: Any) -> str:
    """Returns the body of a message as one text."""
    if isinstance(body, bytes):
        return body.decode("utf-8", "backslashreplace")
    return "" if body is None else str(body)
