"""A client with a durable subscription, as JMS has them: known by the names of its container and its link."""

from proton import Terminus, symbol
from proton.reactor import Container, LinkOption
from proton.utils import BlockingConnection, BlockingReceiver

PATIENCE_S = 30.0


class _Durable(LinkOption):
    def apply(self, link: object) -> None:
        source = link.source  # type: ignore[attr-defined]
        source.durability = Terminus.DELIVERIES
        source.expiry_policy = Terminus.EXPIRE_NEVER
        source.capabilities.put_object(symbol("topic"))


def subscribe(url: str) -> tuple[BlockingConnection, BlockingReceiver]:
    """To the address `news`, always under the same names."""
    container = Container()
    container.container_id = "reader"
    connection = BlockingConnection(url, timeout=PATIENCE_S, container=container)
    return connection, connection.create_receiver("news", credit=1, name="sub", options=_Durable())
