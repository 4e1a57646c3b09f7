"""`$management`: requests arrive as deliveries, replies leave as messages to their reply-to.

Sources: docs/spec/management.md §5.1, §7.1, §7.2.
"""

from collections.abc import Callable
from typing import Final

from router.amqp.codec import CodecError, decode_message, encode_message
from router.core.links import InLink
from router.core.router import Core
from router.effects import Emit, log
from router.management.agent import Agent, Request
from router.values import int_

ADDRESSES: Final = ("$management", "_local/$management", "_local/$_management_internal")




class ManagementService:
    """The in-process consumer behind the management addresses."""

    def __init__(
        self,
        core: Core,
        agent: Agent,
        may_update: Callable[[int], bool],
        may_reply: Callable[[InLink, str], bool],
        emit: Emit,
    ) -> None:
        """may_update  connection id → may it change adminStatus (policy allowAdminStatusUpdate)
        may_reply    (link of the request, its reply-to) → may this requester have messages sent there
        """
        self._may_reply = may_reply
        self._core = core
        self._agent = agent
        self._may_update = may_update
        self._emit = emit
        for address in ADDRESSES:
            core.subscribe(address, self.on_message)

    def on_message(self, payload: bytes, link: InLink) -> None:
        """One request. It has been accepted; without a reply-to there is nothing more to say (§7.1)."""
        try:
            message = decode_message(payload)
        except CodecError as error:
            log(self._emit, "AGENT", "error", f"Error performing request: {error}")
            return
        if not message.reply_to:
            return
        if not self._may_reply(link, message.reply_to):
            return
        connection_id = link.attachment.connection_id
        response = self._agent.handle(
            Request(
                properties=message.application_properties,
                body=message.body,
                connection_id=connection_id,
                is_admin_update_allowed=self._may_update(connection_id),
            )
        )
        reply = encode_message(
            to=message.reply_to,
            raw_correlation_id=message.raw_correlation_id,
            application_properties={
                "statusCode": int_(response.status),
                "statusDescription": response.description,
            },
            body=response.body,
        )
        self._core.send(message.reply_to, reply)
