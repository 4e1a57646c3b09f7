"""The reply-to of a message that comes from, or goes to, another router.

Only the router where the sender of a message is connected knows what that sender may do. It judges the reply-to there.
Then it writes an annotation into the message: the address that the sender means, or that the sender may not name it.
Each router on the way passes the annotation only to routers whose Open says that they understand it. It accepts the
annotation only from such routers: a client of an older router could write the annotation itself. Source:
docs/spec/network.md §10.1; docs/spec/policy-and-auth.md §3.16.
"""

from collections.abc import Callable
from typing import Final

from policy.addressing.address import Address, Unclear
from router.admission.connection_gate import ConnectionGate
from router.amqp import sections
from router.amqp.engine import MESSAGE
from router.amqp.sections import MessageFault
from router.core.core import Core
from router.core.in_links import InLink

# The annotation for a reply-to that its sender may not name.
REFUSED: Final = ""
# Stops a long reply-to from making the annotation longer than routers read. No real reply queue has so long an address.
MAX_CHARACTERS: Final = 1024

Resolve = Callable[[str], Address | Unclear]


def reply_to_of(size: int) -> str | None:
    """Returns the reply-to of the message in the buffer; None if it has none or cannot be read."""
    if sections.is_plain(MESSAGE, size):
        return None
    try:
        properties_at = sections.find_properties(MESSAGE, size)
        if properties_at == sections.LOOK_CLOSER:
            properties_at = sections.find(MESSAGE, size).properties_at
        return sections.reply_to(MESSAGE, size, properties_at) or None
    except MessageFault:
        return None  # its receiver cannot read it either


def vouched(link: InLink | None, size: int) -> str | None:
    """Returns the annotation of the message in the buffer, as it leaves for another router; None if it has none.

    link  the link that the message came on; None: this router made the message, and it needs no reply
    """
    if link is None:
        return None
    if link.vouch is None:
        taken = link.annotations
        return taken.reply_to if taken is not None and link.attachment.vouches else None
    text = reply_to_of(size)
    return link.vouch(text) if text is not None else None


def vouch_for_client(link: InLink, core: Core, gate: ConnectionGate, resolve: Resolve) -> Callable[[str], str]:
    """Returns the `vouch` function of a client's link: (its reply-to) → the annotation."""

    def vouch(text: str) -> str:
        address = resolve(text)
        if isinstance(address, Unclear) or len(address.full) > MAX_CHARACTERS:
            return REFUSED
        live = core.table.addresses.get(core.table.key(address, is_ingress=True))
        if live is not None and live.made_by is not None and live.made_by.attachment is link.attachment:
            # `_local/temp.…` is a different address at each router.
            return address.full if address.is_mobile or not address.plain.startswith("_local/") else REFUSED
        gate.catch_up()
        return address.full if _is_plain_mobile(address) and gate.may_name(address) else REFUSED

    return vouch


def vouch_for_edge(link: InLink, core: Core, gate: ConnectionGate, resolve: Resolve) -> Callable[[str], str]:
    """Returns the `vouch` function of an edge's link.

    The edge's annotation counts as far as its vhost group permits.
    """

    def vouch(text: str) -> str:
        taken = link.annotations
        said = taken.reply_to if taken is not None and link.attachment.vouches else None
        address = resolve(text if said is None else said)
        if said == REFUSED or isinstance(address, Unclear) or len(address.full) > MAX_CHARACTERS:
            return REFUSED
        if is_of_edge(core, link, address):
            return address.full
        gate.catch_up()
        return address.full if said and _is_plain_mobile(address) and gate.may_name(address) else REFUSED

    return vouch


def _is_plain_mobile(address: Address) -> bool:
    """Returns True if no router made up the address, and if it does not begin like routers' own addresses."""
    return address.is_mobile and not address.is_dynamic and not address.name.startswith(("$", "_$"))


def is_of_edge(core: Core, link: InLink, address: Address) -> bool:
    """Returns True if the dynamic address was made on the edge that the link leads to."""
    if address.key[0] != "H" or not address.is_dynamic:
        return False
    live = core.table.find(address)
    return live is not None and link.attachment.connection_id in live.edges


def reply_address(core: Core, link: InLink, text: str, resolve: Resolve) -> Address | None:
    """Returns the address that a reply to a message from another router may go to; None if the reply may go nowhere.

    A router that does not judge reply-tos has still said where the message entered the network. The addresses that this
    entry router makes up cannot be guessed: its client has one of them, or another peer told it the address.

    link     the link that the message came on, from another router
    text     the message's reply-to
    resolve  returns the address that the replying peer means by a text
    """
    address = resolve(text)
    if isinstance(address, Unclear):
        return None
    taken = link.annotations
    if link.vouch is not None:
        said: str | None = link.vouch(text)
    else:
        said = taken.reply_to if taken is not None and link.attachment.vouches else None
    if said is None:
        is_ingress = taken is not None and taken.ingress is not None and address.key == f"R{taken.ingress[2:]}"
        return address if is_ingress and address.is_dynamic else None
    meant = core.resolve(said) if said else None
    if not isinstance(meant, Address) or exact_key(core, meant) != exact_key(core, address):
        return None
    live = core.table.find(address)
    is_own = live is not None and bool(live.subscribers)
    is_made = address.is_dynamic and (address.is_mobile or address.key[0] in "RH")
    return address if is_made or (_is_plain_mobile(address) and not is_own) else None


def exact_key(core: Core, address: Address) -> str:
    """Returns the table's key for senders.

    All addresses of another router share one key there; then the full name counts.
    """
    return address.names[0] if address.key[0] in "RH" else core.table.key(address, is_ingress=True)
