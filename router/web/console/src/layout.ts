// Where the nodes of the graph stand.
import { forceCollide, forceLink, forceManyBody, forceSimulation, forceX, forceY, type SimulationNodeDatum } from 'd3-force';
import type { Graph } from './topology';

export interface Place {
    x: number;
    y: number;
}

const TICKS = 250;

interface Body extends SimulationNodeDatum {
    id: string;
}

/** Places for all nodes. Those that have one keep it, so that a look at the network stays the same look. */
export function laidOut(graph: Graph, known: ReadonlyMap<string, Place>): Map<string, Place> {
    const bodies: Body[] = graph.nodes.map(({ id }, at) => {
        const place = known.get(id);
        if (place) return { id, x: place.x, y: place.y, fx: place.x, fy: place.y };
        // New ones begin beside what they are connected to.
        const edge = graph.edges.find((each) => each.to === id || each.from === id);
        const beside = edge && (known.get(edge.from) ?? known.get(edge.to));
        const angle = at * 2.4;
        return { id, x: (beside?.x ?? 0) + 60 * Math.cos(angle), y: (beside?.y ?? 0) + 60 * Math.sin(angle) };
    });
    if (bodies.some((each) => each.fx === undefined)) {
        const radius = new Map(graph.nodes.map(({ id, kind }) => [id, kind === 'clients' ? 46 : 56]));
        const isTrunk = new Set(graph.nodes.filter((each) => each.kind !== 'clients').map((each) => each.id));
        forceSimulation(bodies)
            .force('links', forceLink<Body, { source: string; target: string }>(graph.edges.map(({ from, to }) => ({ source: from, target: to }))).id(({ id }) => id).distance(({ target }) => (isTrunk.has((target as unknown as Body).id) ? 190 : 110)))
            .force('apart', forceManyBody().strength(-420))
            .force('room', forceCollide<Body>(({ id }) => radius.get(id) ?? 50))
            .force('x', forceX(0).strength(0.04))
            .force('y', forceY(0).strength(0.07))
            .stop()
            .tick(TICKS);
    }
    return new Map(bodies.map(({ id, x, y }) => [id, { x: Math.round(x ?? 0), y: Math.round(y ?? 0) }]));
}
