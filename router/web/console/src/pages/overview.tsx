import { useRef } from 'preact/hooks';
import type { PageProps } from '../app';
import { link, usePolled } from '../hooks';
import { problems, type Facts } from '../problems';
import { Rates } from '../rates';
import type { Session } from '../session';
import { bytes, duration, figure, numeric, text } from '../values';

const COUNTERS = ['deliveriesIngress', 'deliveriesEgress', 'deliveriesTransit', 'acceptedDeliveries', 'rejectedDeliveries', 'releasedDeliveries'];
const ROUTER = [
    'id', 'mode', 'version', 'hostName', 'uptimeSeconds', 'memoryUsage', 'nodeCount', 'connectionCount', 'linkCount', 'addrCount', 'blockedLinkCount',
    'deliveriesDelayed1Sec', 'deliveriesDelayed10Sec', 'deliveriesStuck', 'fileDescriptorCount', 'fileDescriptorLimit', 'auditState', 'auditPending', 'auditLost', ...COUNTERS,
];
const POLICY = ['enableVhostPolicy', 'connectionsDenied', 'linksDenied', 'maxMessageSizeDenied', 'totalDenials', 'policyChangeFailures'];

async function look(session: Session): Promise<Facts> {
    const [router, policy, connectors, autoLinks, linkRoutes, bans, shadow] = await Promise.all([
        session.query('router', ROUTER, 0, 1),
        session.readable('policy', POLICY, 1),
        session.readable('connector', ['name', 'host', 'port', 'role', 'connectionStatus', 'connectionMsg']),
        session.readable('router.config.autoLink', ['name', 'addr', 'operStatus', 'lastError']),
        session.readable('router.config.linkRoute', ['name', 'prefix', 'operStatus']),
        session.readable('ban', ['name']),
        session.readable('shadowPolicy', ['state', 'error', 'wouldDeny', 'wouldAllow'], 1),
    ]);
    return { router: router.rows[0] ?? {}, policy: policy[0] ?? null, connectors, autoLinks, linkRoutes, bans: bans.length, shadow: shadow[0] ?? null };
}

export function OverviewPage({ session }: PageProps) {
    const rates = useRef(new Rates());
    const denialRates = useRef(new Rates());
    const { found, error } = usePolled(session.url, async () => {
        const facts = await look(session);
        const at = performance.now();
        const counted = rates.current.look(new Map(COUNTERS.map((each) => [each, numeric(facts.router[each])])), at);
        const denied = denialRates.current.look(new Map([['denials', numeric(facts.policy?.['totalDenials'])]]), at);
        return { facts, counted, denied: denied.get('denials') ?? 0 };
    });
    if (!found) return <p role="status">{error || 'Asking the router …'}</p>;
    const { router, policy, bans } = found.facts;
    const wrong = problems(found.facts, found.denied);
    const count = (name: string): string => figure(numeric(router[name]));
    // Two looks are a rate.
    const speed = (name: string): string => (found.counted.has(name) ? `${figure(found.counted.get(name) ?? 0)}/s` : '–');
    return (
        <>
            {error && <p class="failure">{error}</p>}
            <section aria-labelledby="wrong">
                <h2 id="wrong">What is wrong</h2>
                {wrong.length === 0 ? <p class="well">Nothing that the router knows of.</p> : (
                    <ul class="problems">
                        {wrong.map(({ text: words, isBad, page, parts }) => <li key={words} class={isBad ? 'bad' : 'warn'}><a href={link(page, parts)}><b>{isBad ? 'Fault' : 'Look'}</b> {words}</a></li>)}
                    </ul>
                )}
            </section>
            <section aria-label="Counts" class="cards">
                <Card name="Routers" value={figure(numeric(router['nodeCount']) + 1)} to={link('topology')} />
                <Card name="Connections" value={count('connectionCount')} to={link('entities', ['connection'])} />
                <Card name="Links" value={count('linkCount')} to={link('entities', ['router.link'])} />
                <Card name="Addresses" value={count('addrCount')} to={link('entities', ['router.address'])} />
                <Card name="Denials" value={policy ? figure(numeric(policy['totalDenials'])) : '–'} note={`${figure(found.denied)}/s`} to={link('policy')} />
                <Card name="Bans" value={String(bans)} to={link('policy')} />
            </section>
            <section aria-label="Messages" class="cards">
                <Card name="Messages in" value={speed('deliveriesIngress')} note={count('deliveriesIngress')} />
                <Card name="Messages out" value={speed('deliveriesEgress')} note={count('deliveriesEgress')} />
                <Card name="Between routers" value={speed('deliveriesTransit')} note={count('deliveriesTransit')} />
                <Card name="Accepted" value={speed('acceptedDeliveries')} note={count('acceptedDeliveries')} />
                <Card name="Rejected" value={speed('rejectedDeliveries')} note={count('rejectedDeliveries')} />
                <Card name="Released" value={speed('releasedDeliveries')} note={count('releasedDeliveries')} />
                <Card name="Delayed 1 s" value={count('deliveriesDelayed1Sec')} />
                <Card name="Delayed 10 s" value={count('deliveriesDelayed10Sec')} />
            </section>
            <section aria-labelledby="this">
                <h2 id="this">This router</h2>
                <dl class="facts">
                    <dt>Id</dt><dd>{text(router['id'])}</dd>
                    <dt>Mode</dt><dd>{text(router['mode'])}</dd>
                    <dt>Version</dt><dd>{text(router['version'])}</dd>
                    {router['hostName'] && <><dt>Host</dt><dd>{text(router['hostName'])}</dd></>}
                    <dt>Up for</dt><dd>{duration(numeric(router['uptimeSeconds']))}</dd>
                    <dt>Memory</dt><dd>{bytes(numeric(router['memoryUsage']))}</dd>
                    <dt>File descriptors</dt><dd>{count('fileDescriptorCount')} of {count('fileDescriptorLimit')}</dd>
                    <dt>Audit log</dt><dd>{text(router['auditState'])}</dd>
                    <dt>Policy</dt><dd>{policy ? (policy['enableVhostPolicy'] ? 'vhosts are enforced' : 'no vhosts are enforced') : 'you may not read it'}</dd>
                </dl>
            </section>
        </>
    );
}

function Card({ name, value, note, to }: { name: string; value: string; note?: string; to?: string }) {
    const content = <><span class="name">{name}</span><span class="value" data-figure={name}>{value}</span>{note && <span class="note">{note}</span>}</>;
    return to ? <a class="card" href={to}>{content}</a> : <div class="card">{content}</div>;
}
