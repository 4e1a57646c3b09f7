import { describe, expect, it } from 'vitest';
import { laidOut } from '../src/layout';
import { quoted, uses } from '../src/policy';
import { Refused } from '../src/refused';
import { Charts, joined, MOST_POINTS, MOST_SERIES } from '../src/series';
import type { Session } from '../src/session';
import { graph, neighbours, stem, type Seen } from '../src/topology';
import type { Row } from '../src/values';

const seen = (id: string, connections: Row[], router: Row | null = { mode: 'interior' }): Seen => ({ id, router, connections, rates: new Map(), costs: new Map([['B', 7]]) });

describe('the graph', () => {
    it('has each pair of routers once, with the cost', () => {
        const found = graph('A', [{ id: 'A', linkState: ['B'] }, { id: 'B', linkState: ['A'] }], [seen('A', [])]);
        expect(found.edges).toEqual([{ from: 'router A', to: 'router B', label: 'cost 7', isBusy: false }]);
    });
    it('moves the edge between two routers that both have work', () => {
        const busy = (id: string, rates: [string, number][]): Seen => ({ ...seen(id, []), rates: new Map(rates) });
        const routers = ['A', 'B', 'C'].map((id) => ({ id, linkState: ['A', 'B', 'C'].filter((each) => each !== id) }));
        const found = graph('A', routers, [busy('A', [['deliveriesTransit', 40]]), busy('B', [['deliveriesEgress', 40]]), busy('C', [])]);
        expect(found.edges.filter((each) => each.isBusy)).toMatchObject([{ from: 'router A', to: 'router B' }]);
    });
    it('groups clients by container and user', () => {
        const connections = Array.from({ length: 3000 }, (_, at) => ({ identity: String(at), container: `shop-${at}`, role: 'normal', user: at % 2 ? 'ann' : 'ben' }));
        const found = graph('A', [], [seen('A', connections)]);
        expect(found.nodes.filter((each) => each.kind === 'clients').map((each) => [each.label, each.count])).toEqual([['shop', 1500], ['shop', 1500]]);
    });
    it('stays small, whatever names clients choose', () => {
        const connections = Array.from({ length: 500 }, (_, at) => ({ identity: String(at), container: `${'x'.repeat(at + 1)}y`, role: 'normal', user: null }));
        expect(graph('A', [], [seen('A', connections)]).nodes.length).toBe(32);
    });
    it('tells brokers of one name apart by their connections', () => {
        const brokers = [1, 2].map((identity) => ({ identity, container: 'artemis', role: 'route-container', host: `h${identity}`, dir: 'out' }));
        expect(graph('A', [], [seen('A', brokers)]).nodes.filter((each) => each.kind === 'broker')).toHaveLength(2);
    });
    it('shows edges, and routers that do not answer', () => {
        const found = graph('A', [{ id: 'A', linkState: ['B'] }, { id: 'B', linkState: ['A'] }], [seen('A', [{ container: 'E1', role: 'edge', dir: 'in' }]), seen('B', [], null)]);
        expect(found.nodes.map((each) => [each.label, each.kind, each.isTroubled])).toEqual([['A', 'router', false], ['B', 'router', true], ['E1', 'edge', false]]);
    });
    it.each([['shop-12', 'shop'], ['app.7f1c2d3e-aaaa-bbbb-cccc-0123456789ab', 'app'], ['12345', '(numbers)'], ['', '(no name)'], ['plain', 'plain']])('calls %j %j', (given, wanted) => expect(stem(given)).toBe(wanted));
    it('reads a linkState of both forms', () => expect([neighbours(['A', 'B']), neighbours("['A', 'B']"), neighbours(null)]).toEqual([['A', 'B'], ['A', 'B'], []]));
    it('leaves what stands where it stands', () => {
        const drawn = graph('A', [], [seen('A', [{ identity: '1', container: 'c', role: 'normal' }])]);
        const places = laidOut(drawn, new Map([['router A', { x: 5, y: 6 }]]));
        expect(places.get('router A')).toEqual({ x: 5, y: 6 });
        expect(places.size).toBe(2);
    });
});

describe('the policy in use', () => {
    it('has the busiest user of each group', () => {
        const vhosts = [{ hostname: 'h', maxConnectionsPerUser: 9, groups: { g: { users: 'ann, ben' }, all: { users: '*', maxConnectionsPerUser: 2 } } }];
        const found = uses(vhosts, [{ hostname: 'h', perUserState: { ann: ['1'], ben: ['2', '3'], cat: ['4', '5', '6'] } }]);
        expect(found.map((each) => [each.group, each.busiest, each.most])).toEqual([['g', 'ben: 2', '9'], ['all', 'cat: 3', '2']]);
    });
    it('quotes what goes to a shell', () => expect([quoted('a.b'), quoted("x'; rm -rf /"), quoted('')]).toEqual(['a.b', "'x'\\''; rm -rf /'", "''"]));
});

describe('charts', () => {
    const session = (value: () => number): Session => ({ request: () => Promise.resolve({ body: { n: value() }, count: null }) }) as unknown as Session;
    it('keep values and rates, bounded', async () => {
        const charts = new Charts();
        let value = 0;
        for (const isRate of [true, false, true]) charts.add({ type: 't', identity: '1', attribute: 'n', isRate });
        for (let at = 0; at < MOST_POINTS + 5; at += 1) await charts.sample(session(() => (value += 4)), at * 2000);
        expect(charts.series).toHaveLength(2);
        expect(charts.series.map((each) => [each.values.length, each.values.at(-1)])).toEqual([[MOST_POINTS, 2], [MOST_POINTS, value]]);
        for (let at = 0; at < 50; at += 1) charts.add({ type: 't', identity: String(at), attribute: 'n', isRate: true });
        expect(charts.series).toHaveLength(MOST_SERIES);
    });
    it('ask no more for what is refused', async () => {
        const charts = new Charts();
        charts.add({ type: 't', identity: '1', attribute: 'n', isRate: false });
        let asked = 0;
        const refusing = { request: () => Promise.reject(new Refused((asked += 1), 'no')) } as unknown as Session;
        for (let at = 0; at < 5; at += 1) await charts.sample(refusing);
        expect([asked, charts.series[0]?.error]).toEqual([1, 'no']);
    });
    it('share one axis', () => {
        const one = { type: 't', identity: '1', attribute: 'a', isRate: false, error: '', isOver: false };
        expect(joined([{ ...one, at: [1, 2], values: [5, 6] }, { ...one, at: [2], values: [7] }])).toEqual([[1, 2], [5, 6], [null, 7]]);
    });
});
