import { useEffect, useState } from 'preact/hooks';
import type { PageProps } from '../app';
import { csv, download } from '../csv';
import { link, POLL_MS, usePolled } from '../hooks';
import { Dialog } from '../parts/dialog';
import { Form } from '../parts/form';
import { matching, Table } from '../parts/table';
import type { EntityType } from '../schema';
import { MOST_ROWS, type Session } from '../session';
import { text, type Row } from '../values';

const SIZES = [50, 100, MOST_ROWS];
const MOST_LOADED = 10_000; // rows that are filtered, sorted and exported together
const FEW = 8; // columns of a type that is not named here
const COLUMNS: Record<string, string[]> = {
    connection: ['container', 'host', 'user', 'role', 'dir', 'sasl', 'sslProto', 'tenant', 'uptimeSeconds', 'lastDlvSeconds'],
    'router.link': ['linkName', 'linkType', 'linkDir', 'owningAddr', 'operStatus', 'deliveryCount', 'undeliveredCount', 'unsettledCount', 'acceptedCount', 'creditAvailable', 'zeroCreditSeconds', 'settleRate'],
    'router.address': ['name', 'distribution', 'inProcess', 'subscriberCount', 'remoteCount', 'deliveriesIngress', 'deliveriesEgress', 'deliveriesTransit'],
    listener: ['name', 'host', 'port', 'role', 'http', 'sslProfile', 'saslMechanisms', 'requireSsl', 'authenticatePeer'],
    connector: ['name', 'host', 'port', 'role', 'connectionStatus', 'connectionMsg', 'cost'],
};

function columnsOf(type: EntityType): string[] {
    return COLUMNS[type.name] ?? type.attributes.map((each) => each.name).filter((each) => each !== 'type' && each !== 'identity').slice(0, FEW);
}

export function EntitiesPage({ session, types, parts, parameters }: PageProps) {
    const name = parts[0] ?? 'connection';
    const type = types.find((each) => each.name === name);
    const choice = (
        <label>Type
            <select value={name} onChange={(event) => (location.hash = link('entities', [event.currentTarget.value]))}>
                {types.map((each) => <option key={each.name} value={each.name}>{each.name}</option>)}
            </select>
        </label>
    );
    if (!type) return <><div class="tools">{choice}</div><p class="failure">This router has no type {name}.</p></>;
    return <Listing key={type.name} session={session} type={type} choice={choice} parameters={parameters} />;
}

function Listing({ session, type, choice, parameters }: { session: Session; type: EntityType; choice: preact.JSX.Element; parameters: URLSearchParams }) {
    const [offset, setOffset] = useState(0);
    const [size, setSize] = useState(100);
    const [filter, setFilter] = useState(parameters.get('filter') ?? '');
    const [open, setOpen] = useState<string | null>(parameters.get('id'));
    const [isCreating, setIsCreating] = useState(false);
    const isWhole = filter.trim() !== '';
    const columns = columnsOf(type);
    useEffect(() => setOpen(parameters.get('id')), [parameters.get('id')]);
    const asked = [...new Set([...columns, 'name', 'identity'])];
    // A filter looks at all rows: they are asked for once, page by page, and not again and again.
    const { found, error, again } = usePolled(
        `${session.url} ${isWhole ? 'all' : `${offset} ${size}`}`,
        () => (isWhole ? session.all(type.name, asked, MOST_LOADED) : session.query(type.name, asked, offset, size)),
        isWhole ? 0 : POLL_MS,
    );
    const rows = found ? matching(found.rows, filter) : [];
    const choose = (id: string | null): void => {
        history.replaceState(null, '', link('entities', [type.name], { ...(filter ? { filter } : {}), ...(id ? { id } : {}) }));
        setOpen(id);
    };
    const exported = async (): Promise<void> => {
        const names = type.attributes.filter((each) => !each.isSecret).map((each) => each.name);
        const all = await session.all(type.name, names, MOST_LOADED);
        download(`${type.name}.csv`, csv(all.names, matching(all.rows, filter)));
    };
    return (
        <>
            <div class="tools">
                {choice}
                <label>Filter<input type="search" value={filter} onInput={(event) => setFilter(event.currentTarget.value)} /></label>
                <label>Rows a page<select value={size} onChange={(event) => { setSize(Number(event.currentTarget.value)); setOffset(0); }}>{SIZES.map((each) => <option key={each}>{each}</option>)}</select></label>
                <button type="button" onClick={again}>Refresh</button>
                <button type="button" onClick={() => void exported()}>Export CSV</button>
                {type.operations.includes('CREATE') && <button type="button" onClick={() => setIsCreating(true)}>Create …</button>}
            </div>
            <p class="hint">{type.description}</p>
            {error && <p class="failure" role="alert">{error}</p>}
            {!found && !error && <p role="status">Asking the router …</p>}
            {found && <Table caption={type.name} columns={columns.map((name) => ({ name }))} rows={rows} open={(row) => choose(text(row['identity']))} />}
            {found && (
                <p class="pages">
                    {isWhole ? `${rows.length} of ${found.rows.length} rows${found.rows.length >= MOST_LOADED ? ', and there are more' : ''}` : (
                        <>
                            <button type="button" disabled={offset === 0} onClick={() => setOffset(Math.max(0, offset - size))}>Previous</button>
                            <span data-figure="rows">rows {found.rows.length ? offset + 1 : 0} to {offset + found.rows.length}</span>
                            <button type="button" disabled={found.rows.length < size} onClick={() => setOffset(offset + size)}>Next</button>
                        </>
                    )}
                </p>
            )}
            {open !== null && <Details session={session} type={type} identity={open} close={() => choose(null)} changed={again} />}
            {isCreating && <Dialog title={`Create ${type.name}`} close={() => setIsCreating(false)}><Form session={session} type={type} done={() => { setIsCreating(false); again(); }} /></Dialog>}
        </>
    );
}

function Details({ session, type, identity, close, changed }: { session: Session; type: EntityType; identity: string; close(): void; changed(): void }) {
    const [mode, setMode] = useState<'look' | 'change' | 'delete'>('look');
    const [failure, setFailure] = useState('');
    const { found, error, again } = usePolled(`${session.url} ${identity}`, async () => (await session.request('READ', { name: null, type: type.name, identity })).body as Row, mode === 'look' ? POLL_MS : 0);
    const remove = async (): Promise<void> => {
        try {
            await session.request('DELETE', { name: null, type: type.name, identity });
            changed();
            close();
        } catch (error) {
            setFailure(error instanceof Error ? error.message : String(error));
        }
    };
    return (
        <Dialog title={`${type.name} ${text(found?.['name']) || identity}`} close={close}>
            {error && <p class="failure" role="alert">{error}</p>}
            {!found && !error && <p role="status">Asking the router …</p>}
            {found && mode === 'change' && <Form session={session} type={type} entity={found} done={() => { setMode('look'); again(); changed(); }} />}
            {found && mode !== 'change' && (
                <>
                    <p class="tools">
                        {(type.operations.includes('UPDATE') || type.name === 'connection') && <button type="button" onClick={() => setMode('change')}>{type.name === 'connection' ? 'Close or trace …' : 'Change …'}</button>}
                        {type.operations.includes('DELETE') && <button type="button" onClick={() => setMode('delete')}>Delete …</button>}
                    </p>
                    {mode === 'delete' && (
                        <div class="confirm" role="alertdialog" aria-label="Confirm">
                            <p>Delete {type.name} <b>{text(found['name']) || identity}</b>? The router does so at once.</p>
                            <button type="button" class="danger" onClick={() => void remove()}>Delete</button> <button type="button" onClick={() => setMode('look')}>Keep</button>
                            {failure && <p class="failure" role="alert">{failure}</p>}
                        </div>
                    )}
                    <dl class="facts">
                        {Object.keys(found).sort().map((name) => {
                            const attribute = type.attributes.find((each) => each.name === name);
                            return (
                                <>
                                    <dt title={attribute?.description}>{name}</dt>
                                    <dd>{text(found[name])}{attribute?.isStatistic && <> <a href={link('charts', [], { add: JSON.stringify([type.name, identity, name]) })}>chart</a></>}</dd>
                                </>
                            );
                        })}
                    </dl>
                </>
            )}
        </Dialog>
    );
}
