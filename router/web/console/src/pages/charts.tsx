import { useEffect, useRef, useState } from 'preact/hooks';
import uPlot from 'uplot';
import 'uplot/dist/uPlot.min.css';
import type { PageProps } from '../app';
import { link, usePolled } from '../hooks';
import type { EntityType } from '../schema';
import { Charts, joined, MOST_SERIES, PAUSE_MS, type Series, type Wanted } from '../series';
import { figure, text } from '../values';

// Kept while the page is open, also while another page of the console is shown.
const charts = new Charts();

export function clearCharts(): void {
    charts.clear();
}

const LEAST_S = 60;
const COLOURS = [['#1a5aa6', '#7db4f5'], ['#b3491b', '#ffab7d'], ['#1c6b35', '#7fd69a'], ['#6b3fa8', '#c4a3f0'], ['#7a5200', '#f2c462'], ['#a3195b', '#ff94c2']];

function isDark(): boolean {
    const theme = document.documentElement.dataset['theme'];
    return theme ? theme === 'dark' : matchMedia('(prefers-color-scheme: dark)').matches;
}

function named({ type, identity, attribute, isRate }: Wanted): string {
    return `${identity.startsWith(`${type}/`) ? '' : `${type} `}${identity}: ${attribute}${isRate ? ' /s' : ''}`;
}

/** What a link to this page wants to have charted. */
function linked(given: string | null, types: readonly EntityType[]): Wanted | null {
    try {
        const [type, identity, attribute] = JSON.parse(given ?? '') as string[];
        const found = types.find((each) => each.name === type)?.attributes.find((each) => each.name === attribute);
        return found && identity && type ? { type, identity, attribute: found.name, isRate: found.isStatistic && /deliver|count$|accepted|rejected|released|modified|denied|processed/i.test(found.name) && !/^(addr|link|node|connection|blockedLink|subscriber|remote|autoLink|linkRoute|undelivered|unsettled|handshake|fileDescriptor)Count$/.test(found.name) } : null;
    } catch {
        return null;
    }
}

export function ChartsPage({ session, types, parameters }: PageProps) {
    const [turn, setTurn] = useState(0);
    useEffect(() => {
        const wanted = linked(parameters.get('add'), types);
        if (wanted) {
            charts.add(wanted);
            history.replaceState(null, '', link('charts'));
            setTurn((each) => each + 1);
        }
    }, [parameters.get('add')]);
    const { error } = usePolled(session.url, async () => {
        await charts.sample(session);
        setTurn((each) => each + 1);
    }, PAUSE_MS);
    return (
        <>
            {error && <p class="failure" role="alert">{error}</p>}
            <Adder types={types} added={() => setTurn(turn + 1)} session={session} />
            {charts.series.length === 0 ? <p class="none">No attribute is chosen. Choose one here, or “chart” beside a number in the details of an entity.</p> : (
                <>
                    <Plot turn={turn} />
                    <ul class="series">
                        {charts.series.map((each, at) => (
                            <li key={named(each)}>
                                <span><span class="mark" style={{ background: COLOURS[at % COLOURS.length]?.[isDark() ? 1 : 0] }} />{named(each)}: <b>{figure(each.values.at(-1) ?? 0)}</b>{each.error && <span class="level-bad"> {each.error}</span>}</span>
                                <button type="button" onClick={() => { charts.remove(each); setTurn(turn + 1); }} aria-label={`Remove ${named(each)}`}>Remove</button>
                            </li>
                        ))}
                    </ul>
                </>
            )}
        </>
    );
}

function Adder({ types, added, session }: { types: EntityType[]; added(): void; session: PageProps['session'] }) {
    const numbers = types.filter((type) => type.attributes.some((each) => each.isStatistic || each.type === 'integer'));
    const [typeName, setTypeName] = useState('router');
    const [identity, setIdentity] = useState('');
    const [attribute, setAttribute] = useState('');
    const [isRate, setIsRate] = useState(true);
    const type = numbers.find((each) => each.name === typeName);
    const { found } = usePolled(`${session.url} ${typeName}`, () => session.query(typeName, ['name', 'identity'], 0, 500), 0);
    const attributes = type?.attributes.filter((each) => each.isStatistic || each.type === 'integer').map((each) => each.name) ?? [];
    const identities = found?.rows.map((each) => text(each['identity'])) ?? [];
    const chosen = { type: typeName, identity: identities.includes(identity) ? identity : (identities[0] ?? ''), attribute: attributes.includes(attribute) ? attribute : (attributes.find((each) => each === 'deliveriesIngress') ?? attributes[0] ?? ''), isRate };
    return (
        <form class="tools" onSubmit={(event) => { event.preventDefault(); charts.add(chosen); added(); }}>
            <label>Type<select value={typeName} onChange={(event) => setTypeName(event.currentTarget.value)}>{numbers.map((each) => <option key={each.name}>{each.name}</option>)}</select></label>
            <label>Entity<select value={chosen.identity} onChange={(event) => setIdentity(event.currentTarget.value)}>{found?.rows.map((each) => <option key={text(each['identity'])} value={text(each['identity'])}>{text(each['name']) || text(each['identity'])}</option>)}</select></label>
            <label>Attribute<select value={chosen.attribute} onChange={(event) => setAttribute(event.currentTarget.value)}>{attributes.map((each) => <option key={each}>{each}</option>)}</select></label>
            <label>Shown<select value={isRate ? 'rate' : 'value'} onChange={(event) => setIsRate(event.currentTarget.value === 'rate')}><option value="rate">change a second</option><option value="value">value</option></select></label>
            <button type="submit" disabled={!chosen.identity || charts.series.length >= MOST_SERIES}>Add</button>
        </form>
    );
}

function Plot({ turn }: { turn: number }) {
    const place = useRef<HTMLDivElement>(null);
    const plot = useRef<uPlot | null>(null);
    const shape = charts.series.map(named).join('\n') + String(isDark());
    useEffect(() => {
        if (!place.current) return;
        const shade = isDark() ? 1 : 0;
        const [line, words] = shade ? ['#323c4a', '#a4b0c0'] : ['#d5dce5', '#4f5d70'];
        const axis = { stroke: words as string, grid: { stroke: line as string, width: 1 }, ticks: { stroke: line as string, width: 1 } };
        const size = (): { width: number; height: number } => ({ width: place.current?.clientWidth ?? 300, height: Math.max(260, Math.min(innerHeight * 0.55, 700)) });
        const made = new uPlot(
            {
                ...size(),
                legend: { show: false },
                series: [{}, ...charts.series.map((each: Series, at) => ({ label: named(each), stroke: COLOURS[at % COLOURS.length]?.[shade] as string, width: 2, dash: at >= COLOURS.length ? [6, 4] : [], spanGaps: true }))],
                axes: [{ ...axis, space: 90, values: (_: uPlot, all: number[]) => all.map((each) => new Date(each * 1000).toLocaleTimeString('en-GB')) }, { ...axis, size: 70, values: (_: uPlot, all: number[]) => all.map((each) => figure(each)) }],
                scales: {
                    // At least a minute, so that the first points are no wide line.
                    x: { range: (_: uPlot, low: number, high: number) => [Math.min(low, high - LEAST_S), high] },
                    y: { range: (_: uPlot, low: number, high: number) => [Math.min(0, low), high > 0 ? high * 1.1 : 1] } },
            } as uPlot.Options,
            joined(charts.series) as uPlot.AlignedData,
            place.current,
        );
        plot.current = made;
        const watcher = new ResizeObserver(() => made.setSize(size()));
        watcher.observe(place.current);
        return () => {
            watcher.disconnect();
            made.destroy();
            plot.current = null;
        };
    }, [shape]);
    useEffect(() => plot.current?.setData(joined(charts.series) as uPlot.AlignedData), [turn]);
    return <div class="plot" ref={place} role="img" aria-label={`Over time: ${charts.series.map(named).join(', ')}`} />;
}
