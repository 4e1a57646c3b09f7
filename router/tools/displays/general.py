"""qdstat -g, -m and --log."""

from router.tools.displays.source import Source
from router.tools.formats import Block, Table, commas, ctime, kimigi, plain, time_long

_STATISTICS = (
    ("Version", "version", str),
    ("Mode", "mode", str),
    ("Router Id", "id", str),
    ("Worker Threads", "workerThreads", plain),
    ("Uptime", "uptimeSeconds", time_long),
    ("VmSize", "memoryUsage", kimigi),
    ("Area", "area", str),
    ("Link Routes", "linkRouteCount", plain),
    ("Auto Links", "autoLinkCount", plain),
    ("Links", "linkCount", plain),
    ("Nodes", "nodeCount", plain),
    ("Addresses", "addrCount", plain),
    ("Connections", "connectionCount", plain),
    ("Presettled Count", "presettledDeliveries", plain),
    ("Dropped Presettled Count", "droppedPresettledDeliveries", plain),
    ("Accepted Count", "acceptedDeliveries", plain),
    ("Rejected Count", "rejectedDeliveries", plain),
    ("Released Count", "releasedDeliveries", plain),
    ("Modified Count", "modifiedDeliveries", plain),
    ("Deliveries Delayed > 1sec", "deliveriesDelayed1Sec", plain),
    ("Deliveries Delayed > 10sec", "deliveriesDelayed10Sec", plain),
    ("Deliveries Stuck > 10sec", "deliveriesStuck", plain),
    ("Deliveries to Fallback", "deliveriesRedirectedToFallback", plain),
    ("Links Blocked", "linksBlocked", plain),
    ("Ingress Count", "deliveriesIngress", plain),
    ("Egress Count", "deliveriesEgress", plain),
    ("Transit Count", "deliveriesTransit", plain),
    ("Deliveries from Route Container", "deliveriesIngressRouteContainer", plain),
    ("Deliveries to Route Container", "deliveriesEgressRouteContainer", plain),
)


def general(source: Source) -> list[Block]:
    routers = source.all("router")
    if not routers:
        return [Table(title="Router Statistics", headers=("attr", "value"), rows=())]
    router = routers[0]
    rows = [
        (label, form(router[name]))
        for label, name, form in _STATISTICS
        # An older router lacks some counters. VmSize is 0 if the system does not report it.
        if router.get(name) is not None and not (name == "memoryUsage" and not router[name])
    ]
    return [Table(title="Router Statistics", headers=("attr", "value"), rows=tuple(rows))]


def memory(source: Source) -> list[Block]:
    pools = sorted(source.all("allocator"), key=lambda pool: str(pool.get("identity")))
    if not pools or any(pool.get("totalAllocFromHeap") is None for pool in pools):
        return [["No memory statistics available"]]
    rows = [
        (
            str(pool.get("identity")).removeprefix("allocator/"),
            commas(pool.get("typeSize")),
            plain(pool.get("transferBatchSize")),
            commas(pool.get("localFreeListMax")),
            commas(pool.get("totalAllocFromHeap")),
            commas(pool.get("heldByThreads")),
            commas(pool.get("batchesRebalancedToThreads")),
            commas(pool.get("batchesRebalancedToGlobal")),
        )
        for pool in pools
    ]
    headers = ("type", "size", "batch", "thread-max", "total", "in-threads", "rebal-in", "rebal-out")
    pooled_bytes = sum(int(pool.get("typeSize") or 0) * int(pool["totalAllocFromHeap"]) for pool in pools)
    routers = source.all("router")
    vm_size_bytes = routers[0].get("memoryUsage") if routers else None
    summary = (kimigi(vm_size_bytes) if vm_size_bytes else "-", kimigi(pooled_bytes))
    return [
        Table(title="Memory Pools", headers=headers, rows=tuple(rows)),
        Table(title="Memory Summary", headers=("VmSize", "Pooled"), rows=(summary,)),
    ]


def log(source: Source) -> list[Block]:
    limit = {"limit": source.limit} if source.limit else {}
    entries = source.client.node("GET-LOG", **limit)
    if not isinstance(entries, list):
        raise ValueError("the router's answer to GET-LOG is no list")
    lines = []
    for entry in entries:
        module, level, text, _file, _line, epoch_s = (
            [*entry, *[None] * 6][:6] if isinstance(entry, list) else [None] * 6
        )
        lines.append(f"{ctime(epoch_s)} {module} ({level}) {text}")
    return [lines]
