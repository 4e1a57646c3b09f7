"""Creates the server side of a mechanism by its name."""

from auth.bearer import BEARER, Bearer
from auth.gssapi import Gssapi
from auth.mechanisms import Anonymous, Channel, External, Plain, ServerMechanism
from auth.scram import Scram, hash_of


def create_server_mechanism(name: str, channel: Channel) -> ServerMechanism | None:
    """Returns a new mechanism for one exchange, by its upper-case name. None if there is no such mechanism."""
    match name:
        case "ANONYMOUS":
            return Anonymous()
        case "EXTERNAL":
            return External(channel.external_user, asks_groups=channel.asks_groups)
        case "PLAIN":
            return Plain()
        case _ if name in BEARER:
            return Bearer(name)
        case "GSSAPI":
            return Gssapi()
        case _ if hash_of(name) is not None:
            return Scram(name, channel)
        case _:
            return None
