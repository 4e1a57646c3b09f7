"""A router in memory one of whose vhosts has rates, and clients that send as much as they are let."""

from memory_net import Client, Net, Receiver, Sender, Vhosts, ruleset_of

from router.core.in_links import InLink

STEP_S = 0.05
EVERYBODY = {"users": "*", "remoteHosts": "*", "sources": "*", "targets": "*", "allowAnonymousSender": True}
PIECE_BYTES = 256 * 1024  # what may be taken at once, however few bytes are left


def paced(capacity: int = 250, **group: object) -> Net:
    """Hostname `slow` has a group with these attributes; everybody else has no limits."""
    return Net(
        vhosts=Vhosts({"$default": {"groups": {"g": EVERYBODY}}, "slow": {"groups": {"g": {**EVERYBODY, **group}}}}),
        capacity=capacity,
        idle_timeout_s=0,
    )


class Load:
    """Clients that send as much as they are let, and how much of it was taken by when."""

    def __init__(self, net: Net, senders: list[Sender], *, is_settled: bool = False, size: int = 10) -> None:
        self.net = net
        self.senders = senders
        self.is_settled = is_settled
        self.body = bytes(size)
        self.sent = 0
        self.taken = [(net.now, self.count())]

    def count(self) -> int:
        return sum(link.delivery_count for link in self.links())

    def links(self) -> list[InLink]:
        names = {sender.link.name for sender in self.senders}
        return [link for link in self.net.peer(self.senders[0].client).attachment.in_links if link.name in names]

    def run(self, seconds: float, step: float = STEP_S) -> "Load":
        end = self.net.now + seconds
        while self.net.now < end - 1e-9:
            self.burst()
            self.net.advance(step, step=step)
            self.taken.append((self.net.now, self.count()))
        return self

    def burst(self) -> None:
        """Everything there is credit for, again and again until there is none or what is sent is not taken."""
        while True:
            before = self.sent
            for sender in self.senders:
                while sender.credit > 0 and sender.link.session.outgoing_bytes < 100_000:
                    sender.send(self.body, is_settled=self.is_settled)
                    self.sent += 1
            self.net.pump()
            self.taken.append((self.net.now, self.count()))
            if self.sent == before:
                return

    def check(self, rate: float, burst: float, each: float = 1.0) -> None:
        """In no stretch of time was more taken than rate x time + burst."""
        for index, (began, before) in enumerate(self.taken):
            for ended, after in self.taken[index:]:
                assert (after - before) * each <= rate * (ended - began) + burst + 1e-6


def attach(net: Net, count: int = 1, hostname: str = "slow", address: str | None = "a") -> tuple[Client, list[Sender]]:
    client = net.client(hostname=hostname)
    senders = [client.sender(address) for _ in range(count)]
    net.pump()
    return client, senders


def drain(net: Net, address: str = "a") -> Receiver:
    receiver = net.client().receiver(address, credit=1_000_000, accepts=True)
    net.pump()
    return receiver


def change(net: Net, client: Client, **group: object) -> None:
    """Other rules, and the open connection follows."""
    net.gate.ruleset = ruleset_of(Vhosts({"slow": {"groups": {"g": {**EVERYBODY, **group}}}}))
    net.gate.begin_epoch("policy_change", lambda _connection: True, net.wall_s)
    for _ in client.router.redecide():
        pass
    net.gate.end_epoch()
    net.work.finish()
    net.pump()


def taken_in(net: Net, senders: list[Sender], seconds: float) -> int:
    load = Load(net, senders)
    before = load.count()
    load.run(seconds)
    return load.count() - before
