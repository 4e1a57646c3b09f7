import { useState } from 'preact/hooks';
import type { PageProps } from '../app';
import { usePolled } from '../hooks';
import { Dialog } from '../parts/dialog';
import { Table } from '../parts/table';
import type { Session } from '../session';
import { numeric, text, type Row, type Value } from '../values';

const LEVELS = ['trace', 'debug', 'info', 'notice', 'warning', 'error', 'critical'];
const ENTRIES = 300;

export interface Entry {
    module: string;
    level: string;
    text: string;
    at: Date;
}

/** The entries of GET-LOG, the newest first. */
export function entries(body: Value): Entry[] {
    const rows = Array.isArray(body) ? (body as Value[][]) : [];
    return rows.map((each) => ({ module: text(each[0]), level: text(each[1]), text: text(each[2]), at: new Date(numeric(each[5]) * 1000) })).reverse();
}

export async function readLog(session: Session, limit = ENTRIES): Promise<Entry[]> {
    return entries((await session.request('GET-LOG', { limit })).body);
}

export function LogLines({ lines }: { lines: Entry[] }) {
    if (lines.length === 0) return <p class="none">No entries.</p>;
    return (
        <div class="scrolls log" role="region" aria-label="Entries" tabIndex={0}>
            <table>
                <thead><tr><th scope="col">Time</th><th scope="col">Module</th><th scope="col">Level</th><th scope="col">Text</th></tr></thead>
                <tbody>
                    {lines.map((each, at) => (
                        <tr key={at} class={`level-${LEVELS.indexOf(each.level) >= 4 ? 'bad' : 'plain'}`}>
                            <td><time dateTime={each.at.toISOString()}>{each.at.toLocaleTimeString('en-GB')}</time></td><td>{each.module}</td><td>{each.level}</td><td class="long">{each.text}</td>
                        </tr>
                    ))}
                </tbody>
            </table>
        </div>
    );
}

export function LogsPage({ session }: PageProps) {
    const [filter, setFilter] = useState('');
    const [least, setLeast] = useState('trace');
    const [isHeld, setIsHeld] = useState(false);
    const [chosen, setChosen] = useState<Row | null>(null);
    const lines = usePolled(`${session.url} ${isHeld}`, () => readLog(session), isHeld ? 0 : 3000);
    const logs = usePolled(session.url, () => session.query('log', ['identity', 'module', 'enable', 'outputFile']), 0);
    const wanted = filter.trim().toLowerCase();
    const shown = (lines.found ?? []).filter((each) => LEVELS.indexOf(each.level) >= LEVELS.indexOf(least) && `${each.module} ${each.text}`.toLowerCase().includes(wanted));
    return (
        <>
            <div class="tools">
                <label>Filter<input type="search" value={filter} onInput={(event) => setFilter(event.currentTarget.value)} /></label>
                <label>From level<select value={least} onChange={(event) => setLeast(event.currentTarget.value)}>{LEVELS.map((each) => <option key={each}>{each}</option>)}</select></label>
                <button type="button" aria-pressed={isHeld} onClick={() => setIsHeld(!isHeld)}>{isHeld ? 'Continue' : 'Hold'}</button>
            </div>
            {lines.error && <p class="failure" role="alert">{lines.error}</p>}
            <LogLines lines={shown} />
            <h2>Levels</h2>
            {logs.error && <p class="failure" role="alert">{logs.error}</p>}
            {logs.found && <Table caption="Modules" rows={logs.found.rows} open={setChosen} columns={[{ name: 'module' }, { name: 'enable' }, { name: 'outputFile' }]} />}
            {chosen && <Dialog title={`Level of ${text(chosen['module'])}`} close={() => setChosen(null)}><Level session={session} row={chosen} done={() => { setChosen(null); logs.again(); }} /></Dialog>}
        </>
    );
}

function Level({ session, row, done }: { session: Session; row: Row; done(): void }) {
    const [enable, setEnable] = useState(text(row['enable']));
    const [failure, setFailure] = useState('');
    const save = async (event: Event): Promise<void> => {
        event.preventDefault();
        try {
            await session.request('UPDATE', { name: null, type: 'log', identity: text(row['identity']) }, { enable });
            done();
        } catch (error) {
            setFailure(error instanceof Error ? error.message : String(error));
        }
    };
    return (
        <form onSubmit={(event) => void save(event)}>
            <label>Levels to log<input value={enable} list="levels" spellcheck={false} onInput={(event) => setEnable(event.currentTarget.value)} /></label>
            <datalist id="levels">{['default', 'none', ...LEVELS.map((each) => `${each}+`)].map((each) => <option key={each} value={each} />)}</datalist>
            <p class="hint">A level with + and all above it, levels separated by commas, none, or default: as the module DEFAULT. It holds at once, until the router ends.</p>
            <button class="main" type="submit">Set</button>
            <div role="alert">{failure && <p class="failure">{failure}</p>}</div>
        </form>
    );
}
