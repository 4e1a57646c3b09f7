import { useMemo, useRef, useState } from 'preact/hooks';
import type { PageProps } from '../app';
import { link, memory, usePolled } from '../hooks';
import { laidOut, type Place } from '../layout';
import { Table } from '../parts/table';
import { Rates } from '../rates';
import { MOST_ROWS, type Session } from '../session';
import { graph, type Graph, type Kind, type Node, type Seen } from '../topology';
import { numeric, text, type Row } from '../values';

const COUNTERS = ['deliveriesIngress', 'deliveriesEgress', 'deliveriesTransit'];
const ROUTER = ['id', 'mode', 'version', 'connectionCount', 'linkCount', 'addrCount', 'blockedLinkCount', 'deliveriesStuck', 'deliveriesDelayed1Sec', 'deliveriesDelayed10Sec', ...COUNTERS];
const CONNECTION = ['identity', 'container', 'host', 'user', 'role', 'dir', 'sasl', 'sslProto', 'opened'];
const MOST_ROUTERS = 40; // that are asked, beside this one
const MOST_CONNECTIONS = 4000; // of one router
const PAUSE_MS = 10_000;
const KINDS: Record<Kind, string> = { router: 'router', edge: 'edge router', broker: 'broker', clients: 'clients' };

interface Found {
    own: string;
    graph: Graph;
}

/** What one router says of itself; `router` is null where it does not answer, or may not be asked. */
async function see(session: Session, id: string, isOwn: boolean, rates: Rates): Promise<Seen> {
    const at = isOwn ? undefined : id;
    try {
        const router = (await session.query('router', ROUTER, 0, 1, at)).rows[0] ?? {};
        const counted = rates.look(new Map(COUNTERS.map((name) => [name, numeric(router[name])])), performance.now());
        const connections = await session.readable('connection', CONNECTION, MOST_CONNECTIONS, at);
        const nodes = await session.readable('router.node', ['id', 'cost'], MOST_ROWS, at);
        return { id, router, connections, rates: counted, costs: new Map(nodes.map((each) => [text(each['id']), numeric(each['cost'])])) };
    } catch {
        return { id, router: null, connections: [], rates: new Map(), costs: new Map() };
    }
}

async function look(session: Session, rates: Map<string, Rates>): Promise<Found> {
    const own = text((await session.query('router', ['id'], 0, 1)).rows[0]?.['id']);
    const nodes: Row[] = await session.readable('router.node', ['id', 'linkState', 'cost']);
    const others = nodes.map((each) => text(each['id'])).filter((each) => each !== own).slice(0, MOST_ROUTERS);
    const ask = (id: string): Promise<Seen> => {
        const known = rates.get(id) ?? new Rates();
        rates.set(id, known);
        return see(session, id, id === own, known);
    };
    return { own, graph: graph(own, nodes, await Promise.all([own, ...others].map(ask))) };
}

function rememberedPlaces(own: string): Map<string, Place> {
    try {
        return new Map(JSON.parse(memory.get(`layout.${own}`) ?? '[]') as [string, Place][]);
    } catch {
        return new Map();
    }
}

export function TopologyPage({ session }: PageProps) {
    const rates = useRef(new Map<string, Rates>());
    const { found, error } = usePolled(session.url, () => look(session, rates.current), PAUSE_MS);
    if (!found) return <p role="status">{error || 'Asking the routers …'}</p>;
    return (
        <>
            {error && <p class="failure" role="alert">{error}</p>}
            <Drawing key={found.own} found={found} />
        </>
    );
}

function Drawing({ found: { own, graph: drawn } }: { found: Found }) {
    const [moved, setMoved] = useState(() => rememberedPlaces(own));
    const [chosen, setChosen] = useState<string | null>(null);
    const [zoom, setZoom] = useState(1);
    const settled = useRef(new Map<string, Place>());
    const drag = useRef<{ id: string; x: number; y: number } | null>(null);
    const picture = useRef<SVGSVGElement>(null);
    const shape = drawn.nodes.map(({ id }) => id).join('\n');
    const places = useMemo(() => {
        const made = laidOut(drawn, new Map([...settled.current, ...moved]));
        settled.current = made;
        return made;
    }, [shape, moved]);
    const all = [...places.values()];
    const margin = 75;
    const [left, top] = [Math.min(...all.map(({ x }) => x)) - margin, Math.min(...all.map(({ y }) => y)) - margin];
    const [wide, high] = [Math.max(...all.map(({ x }) => x)) + margin - left, Math.max(...all.map(({ y }) => y)) + margin - top];
    const [shownWide, shownHigh] = [Math.max(wide, Math.min(760, innerWidth)) / zoom, Math.max(high, 420) / zoom];
    const box = `${left + wide / 2 - shownWide / 2} ${top + high / 2 - shownHigh / 2} ${shownWide} ${shownHigh}`;

    const save = (next: Map<string, Place>): void => {
        setMoved(next);
        memory.set(`layout.${own}`, JSON.stringify([...next].slice(-200)));
    };
    const move = (id: string, by: Place): void => {
        const place = places.get(id);
        if (place) save(new Map(moved).set(id, { x: place.x + by.x, y: place.y + by.y }));
    };
    const scale = (): number => {
        const matrix = picture.current?.getScreenCTM();
        return matrix ? 1 / matrix.a : 1;
    };
    const dragged = (event: PointerEvent): void => {
        if (!drag.current) return;
        const by = { x: (event.clientX - drag.current.x) * scale(), y: (event.clientY - drag.current.y) * scale() };
        if (Math.abs(by.x) + Math.abs(by.y) < 3) return;
        drag.current = { ...drag.current, x: event.clientX, y: event.clientY };
        move(drag.current.id, by);
    };
    const keys: Record<string, Place> = { ArrowLeft: { x: -20, y: 0 }, ArrowRight: { x: 20, y: 0 }, ArrowUp: { x: 0, y: -20 }, ArrowDown: { x: 0, y: 20 } };
    const pressed = (event: KeyboardEvent, id: string): void => {
        const by = keys[event.key];
        if (by && event.shiftKey) move(id, by);
        else if (event.key === 'Enter' || event.key === ' ') setChosen(id);
        else return;
        event.preventDefault();
    };
    const rows: Row[] = drawn.nodes.map((each) => ({ identity: each.id, name: each.label, kind: KINDS[each.kind], note: each.note, connections: each.count }));
    const node = drawn.nodes.find((each) => each.id === chosen);
    return (
        <>
            <div class="tools">
                <button type="button" onClick={() => setZoom(Math.min(zoom * 1.3, 8))} aria-label="Zoom in">+</button>
                <button type="button" onClick={() => setZoom(Math.max(zoom / 1.3, 0.3))} aria-label="Zoom out">−</button>
                <button type="button" onClick={() => { settled.current = new Map(); save(new Map()); setZoom(1); }}>Arrange anew</button>
                <span class="hint">Drag, or shift and the arrow keys, moves a node. Enter shows its details.</span>
            </div>
            <div class="topology">
                <svg
                    ref={picture} viewBox={box} role="group" aria-label="The network" data-nodes={drawn.nodes.length}
                    onPointerMove={dragged} onPointerUp={() => (drag.current = null)} onPointerLeave={() => (drag.current = null)}
                    onWheel={(event) => { if (event.ctrlKey || event.metaKey) { event.preventDefault(); setZoom(Math.min(8, Math.max(0.3, zoom * (event.deltaY < 0 ? 1.1 : 0.9)))); } }}
                >
                    {drawn.edges.map(({ from, to, label, isBusy }) => {
                        const [a, b] = [places.get(from), places.get(to)];
                        if (!a || !b) return null;
                        return (
                            <g key={`${from}\n${to}`}>
                                <line x1={a.x} y1={a.y} x2={b.x} y2={b.y} class={isBusy ? 'edge busy' : 'edge'} />
                                {label && <text x={(a.x + b.x) / 2} y={(a.y + b.y) / 2 - 5} class="cost">{label}</text>}
                            </g>
                        );
                    })}
                    {drawn.nodes.map((each) => {
                        const place = places.get(each.id);
                        if (!place) return null;
                        return (
                            <g
                                key={each.id} class={`node ${each.kind}${each.isTroubled ? ' troubled' : ''}${each.id === chosen ? ' chosen' : ''}`} transform={`translate(${place.x} ${place.y})`}
                                tabIndex={0} role="button" aria-description={KINDS[each.kind]}
                                onClick={() => setChosen(each.id)} onKeyDown={(event) => pressed(event, each.id)}
                                onPointerDown={(event) => (drag.current = { id: each.id, x: event.clientX, y: event.clientY })}
                            >
                                <Shape node={each} />
                                <text y={each.kind === 'clients' ? 30 : 38} class="label">{short(each.label)}</text>
                                {each.note && <text y={each.kind === 'clients' ? 43 : 52} class="note">{short(each.note)}</text>}
                            </g>
                        );
                    })}
                </svg>
                <aside aria-live="polite" aria-label="Details">
                    {node ? (
                        <>
                            <h2>{KINDS[node.kind]} {node.label}</h2>
                            <dl class="facts">{node.facts.map(([name, value]) => <><dt>{name}</dt><dd>{value}</dd></>)}</dl>
                            {node.kind !== 'router' && <p><a href={link('entities', ['connection'], { filter: node.label.startsWith('(') ? '' : node.label })}>Its connections</a></p>}
                        </>
                    ) : <p class="hint">Choose a node to see its details.</p>}
                </aside>
            </div>
            <h2>As a list</h2>
            <Table caption="Nodes" rows={rows} open={(row) => setChosen(text(row['identity']))} columns={[{ name: 'name' }, { name: 'kind' }, { name: 'note' }, { name: 'connections' }]} />
        </>
    );
}

function short(words: string): string {
    return words.length > 24 ? `${words.slice(0, 23)}…` : words;
}

function Shape({ node }: { node: Node }) {
    switch (node.kind) {
        case 'router': return <circle r={24} />;
        case 'edge': return <rect x={-20} y={-20} width={40} height={40} rx={8} />;
        case 'broker': return <path d="M-22 -16h44v32h-44z M-22 -4h44 M-22 6h44" />;
        case 'clients': return <circle r={Math.min(20, 10 + Math.log2(node.count) * 1.5)} />;
    }
}
