"""Whatever happens around exchanges and fallback destinations: who pays for what waits, and nothing is left over."""

import pytest
import test_budget_balance
from memory_net import Net
from proton import symbol
from test_budget_balance import LIMITS, World
from test_exchanges import hop

from router.core.budget import Limits
from router.core.exchanges import Binding, Exchange, Terms


class WorldWithExchanges(World):
    """`x` copies to a, b and m, and else to m2; a has a fallback destination. Both come and go."""

    def __init__(self, seed: int, limits: Limits) -> None:
        super().__init__(seed, limits)
        capacity = self.chance.choice((5, 250))
        distributions = {"m": "multicast", "m2": "multicast", "x": self.chance.choice(("balanced", "multicast"))}
        self.net = Net(distributions, limits=limits, capacity=capacity, fallbacks=frozenset({"a", "m"}))
        self.made: Exchange | None = None

    def step(self) -> None:
        what = self.chance.random()
        if what < 0.1:
            self.turn()
        elif what < 0.2 and self.live():
            client = self.chance.choice(self.live())
            source = {"capabilities": symbol("qd.fallback")}
            client.receiver(self.chance.choice("am"), credit=self.chance.choice((0, 3, 1000)), source=source)
            self.net.pump()
        else:
            super().step()

    def turn(self) -> None:
        """The exchange is made, or a binding of it goes, or all of it."""
        net = self.net
        if self.made is None:
            terms = Terms(at=hop(net, "x"), alternate=hop(net, "m2"), method="amqp")
            self.made = Exchange(net.core, terms, lambda _size: "s")
            self.made.open()
            for to in "abm":
                self.made.bind(Binding(pattern="#", hop=hop(net, to)))
        elif self.made.terms.bindings and self.chance.random() < 0.7:
            self.made.unbind(self.chance.choice(list(self.made.terms.bindings)))
        else:
            for binding in list(self.made.terms.bindings):
                self.made.unbind(binding)
            self.made.close()
            self.made = None
        net.work.finish()
        net.pump()


@pytest.mark.parametrize("limits", [Limits(), LIMITS], ids=["ample", "tight"])
@pytest.mark.parametrize("seed", range(12))
def test_accounts_hold_what_is_held_and_end_at_zero(seed: int, limits: Limits, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(test_budget_balance, "ADDRESSES", ("a", "b", "m", "m2", "x", "x"))
    world = WorldWithExchanges(seed, limits)
    for _ in range(150):
        world.step()
        world.check()
    for client in world.net.clients:
        client.kill()
    world.net.pump()
    world.check()
    assert world.net.core.budgets.router.held == 0
    if world.made is not None:
        world.made.close()
    assert not world.net.core.table.addresses
