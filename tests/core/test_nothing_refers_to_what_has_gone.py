"""Links that have gone are freed at once, not when Python looks for cycles.

Attack: links with long names and addresses, on connections that come and go. What was left of them was four times the
budget of their user, and charged to nobody.
"""

import gc
from collections import Counter
from collections.abc import Iterator

import pytest
from memory_net import Net

KINDS = ("OutgoingWire", "IncomingWire", "OutLink", "InLink", "Terminus")


@pytest.fixture
def without_collection() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def there() -> Counter[str]:
    return Counter(kind for each in gc.get_objects() if (kind := type(each).__name__) in KINDS)


def filled(net: Net) -> Counter[str]:
    """What there is beside a client with links, which has gone when this returns."""
    before = there()
    client = net.client()
    ends = [client.receiver(f"a{number}") for number in range(5)] + [client.sender(f"a{number}") for number in range(5)]
    net.pump()
    ends[0].link.close()
    net.pump()
    assert (there() - before)["Terminus"] == 18
    client.kill()
    net.pump()
    net.clients.remove(client)
    return before


@pytest.mark.usefixtures("without_collection")
def test_nothing_is_left_of_a_lost_connections_links() -> None:
    net = Net()
    filled(net)  # what is made once
    before = filled(net)
    assert there() - before == Counter()
