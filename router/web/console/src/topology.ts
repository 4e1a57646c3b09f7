// The network as a graph, from what its routers say. Pure.
import { numeric, text, type Row, type Value } from './values';

export type Kind = 'router' | 'edge' | 'broker' | 'clients';

export interface Node {
    id: string;
    kind: Kind;
    label: string;
    note: string;
    count: number; // of connections, for clients
    facts: [string, string][];
    isTroubled: boolean;
}

export interface Edge {
    from: string;
    to: string;
    label: string;
    isBusy: boolean; // messages go between its routers
}

export interface Graph {
    nodes: Node[];
    edges: Edge[];
}

/** What one router said; null: it did not answer. */
export interface Seen {
    id: string;
    router: Row | null;
    connections: Row[];
    rates: ReadonlyMap<string, number>;
    costs: ReadonlyMap<string, number>; // to other routers, as it reckons
}

const OWN_RATE = 2; // messages a second: what this page itself makes flow
const MOST_GROUPS = 30; // of clients of one router: a graph of thousands shows nothing
const MOST_BROKERS = 60; // of one router

/** A container id without what makes each client's unique: trailing numbers, UUIDs and hexadecimal digits. */
export function stem(container: string): string {
    const shortened = container.replace(/([-_.:@/#]?(?:[0-9a-f]{8}(?:-?[0-9a-f]{4}){3}-?[0-9a-f]{12}|[0-9a-f]{8,}|\d+))+$/i, '');
    return shortened || (container ? '(numbers)' : '(no name)');
}

/** The neighbours' ids in a linkState, which is a list, or its text. */
export function neighbours(linkState: Value | undefined): string[] {
    if (Array.isArray(linkState)) return linkState.map(text);
    return text(linkState).replace(/[[\]'"]/g, '').split(/\s*,\s*/).filter((each) => each);
}

export function graph(own: string, nodes: readonly Row[], seen: readonly Seen[]): Graph {
    const found: Graph = { nodes: [], edges: [] };
    const ids = new Set([own, ...nodes.map((each) => text(each['id']))].filter((each) => each));
    const isEdge = text(seen.find((each) => each.id === own)?.router?.['mode']) === 'edge';
    for (const id of ids) found.nodes.push(routerNode(id, id === own && isEdge, seen.find((each) => each.id === id), id === own));
    const drawn = new Set<string>();
    for (const row of nodes) {
        for (const other of neighbours(row['linkState'])) {
            const [a, b] = [text(row['id']), other].sort() as [string, string];
            if (!ids.has(other) || drawn.has(`${a}\n${b}`)) continue;
            drawn.add(`${a}\n${b}`);
            const cost = seen.find((each) => each.id === a)?.costs.get(b) ?? seen.find((each) => each.id === b)?.costs.get(a);
            found.edges.push({ from: `router ${a}`, to: `router ${b}`, label: cost ? `cost ${cost}` : '', isBusy: isBusy(a, b, seen) });
        }
    }
    for (const each of seen) peers(each, found, ids);
    return found;
}

/** Messages go between the two, as far as their counters tell: both have work, and one passes on to routers. */
function isBusy(a: string, b: string, seen: readonly Seen[]): boolean {
    const rate = (id: string, names: readonly string[]): number => {
        const rates = seen.find((each) => each.id === id)?.rates;
        return names.reduce((sum, name) => sum + (rates?.get(name) ?? 0), 0);
    };
    const all = ['deliveriesIngress', 'deliveriesEgress', 'deliveriesTransit'];
    return Math.min(rate(a, all), rate(b, all)) > OWN_RATE && rate(a, ['deliveriesTransit']) + rate(b, ['deliveriesTransit']) > OWN_RATE;
}

function routerNode(id: string, isEdge: boolean, seen: Seen | undefined, isOwn: boolean): Node {
    const router = seen?.router;
    const rate = (name: string): string => (seen?.rates.has(name) ? String(Math.round(seen.rates.get(name) ?? 0)) : '–');
    const blocked = numeric(router?.['blockedLinkCount']);
    const stuck = numeric(router?.['deliveriesStuck']);
    const names = ['mode', 'version', 'connectionCount', 'linkCount', 'addrCount', 'blockedLinkCount', 'deliveriesStuck', 'deliveriesDelayed1Sec', 'deliveriesDelayed10Sec'];
    return {
        id: `router ${id}`,
        kind: isEdge ? 'edge' : 'router',
        label: id,
        note: !router ? (isOwn ? '' : 'no answer') : blocked || stuck ? `${blocked} blocked, ${stuck} stuck` : `${rate('deliveriesIngress')}/s in, ${rate('deliveriesEgress')}/s out`,
        count: 1,
        facts: router ? names.map((name) => [name, text(router[name])]) : [],
        isTroubled: blocked > 0 || stuck > 0 || (!router && !isOwn),
    };
}

/** Edge routers, brokers and groups of clients of one router. */
function peers(seen: Seen, found: Graph, routers: ReadonlySet<string>): void {
    const home = `router ${seen.id}`;
    const groups = new Map<string, Row[]>();
    let brokers = 0;
    for (const row of seen.connections) {
        const role = text(row['role']);
        const container = text(row['container']);
        if (role === 'inter-router') continue;
        if (role === 'edge') {
            const id = `router ${container}`;
            const isUp = text(row['dir']) === 'out';
            if (!routers.has(container) && !found.nodes.some((each) => each.id === id)) {
                found.nodes.push({ id, kind: isUp ? 'router' : 'edge', label: container, note: isUp ? 'interior router' : 'edge router', count: 1, facts: connectionFacts(row), isTroubled: false });
            }
            if (!found.edges.some((each) => each.from === home && each.to === id)) found.edges.push({ from: home, to: id, label: '', isBusy: false });
        } else if (role === 'route-container' && brokers < MOST_BROKERS) {
            // By connection: two brokers may have one container id.
            brokers += 1;
            const id = `broker ${seen.id} ${text(row['identity'])}`;
            found.nodes.push({ id, kind: 'broker', label: container || text(row['host']), note: text(row['host']), count: 1, facts: connectionFacts(row), isTroubled: text(row['opened']) === 'no' });
            found.edges.push({ from: home, to: id, label: '', isBusy: false });
        } else {
            const key = `${stem(container)}\n${text(row['user'])}`;
            groups.set(key, [...(groups.get(key) ?? []), row]);
        }
    }
    const largest = [...groups].sort(([, a], [, b]) => b.length - a.length);
    const shown = largest.slice(0, MOST_GROUPS);
    const rest = largest.slice(MOST_GROUPS).flatMap(([, rows]) => rows);
    if (rest.length > 0) shown.push([`${largest.length - MOST_GROUPS} more groups\n`, rest]);
    for (const [key, rows] of shown) {
        const [label = '', user = ''] = key.split('\n');
        const id = `clients ${seen.id} ${key}`;
        const first = rows[0] ?? {};
        const facts: [string, string][] = rows.length === 1 ? connectionFacts(first) : [['connections', String(rows.length)], ['user', user || 'none'], ['hosts', [...new Set(rows.map((row) => text(row['host']).replace(/:\d+$/, '')))].slice(0, 20).join(', ')]];
        found.nodes.push({ id, kind: 'clients', label, note: [user, rows.length > 1 && `× ${rows.length}`].filter(Boolean).join(' '), count: rows.length, facts, isTroubled: false });
        found.edges.push({ from: home, to: id, label: '', isBusy: false });
    }
}

function connectionFacts(row: Row): [string, string][] {
    return ['container', 'host', 'user', 'role', 'dir', 'sasl', 'sslProto', 'identity'].map((name) => [name, text(row[name])]);
}
