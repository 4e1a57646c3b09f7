import type { ComponentType } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import { Failure } from './failures';
import { link, memory, useRoute } from './hooks';
import { LoginPage, ownAddress } from './login';
import { listed, readSchema, type EntityType } from './schema';
import { Session, type Login } from './session';
import { clearCharts, ChartsPage } from './pages/charts';
import { EntitiesPage } from './pages/entities';
import { LogsPage } from './pages/logs';
import { OverviewPage } from './pages/overview';
import { PolicyPage } from './pages/policy';
import { SchemaPage } from './pages/schema';
import { TopologyPage } from './pages/topology';

export interface PageProps {
    session: Session;
    types: EntityType[];
    parts: string[];
    parameters: URLSearchParams;
}

const PAGES: [string, string, ComponentType<PageProps>][] = [
    ['overview', 'Overview', OverviewPage],
    ['topology', 'Topology', TopologyPage],
    ['entities', 'Entities', EntitiesPage],
    ['charts', 'Charts', ChartsPage],
    ['policy', 'Policy', PolicyPage],
    ['logs', 'Logs', LogsPage],
    ['schema', 'Schema', SchemaPage],
];
const FIRST_PAUSE_S = 1;
const LONGEST_PAUSE_S = 15;

interface Ready {
    session: Session;
    types: EntityType[];
    router: string;
}

async function opened(login: Login, isLost: (why: Failure) => void): Promise<Ready> {
    const session = await Session.open(login, isLost);
    try {
        const types = readSchema((await session.request('GET-SCHEMA', {})).body);
        const { rows } = await session.query('router', ['id'], 0, 1);
        return { session, types, router: String(rows[0]?.['id'] ?? '') };
    } catch (error) {
        session.close();
        const text = error instanceof Error ? error.message : String(error);
        throw error instanceof Failure ? error : new Failure(`${login.user || 'anonymous'} is logged in, but may not use the management of this router: ${text}`, true);
    }
}

export function App() {
    const [ready, setReady] = useState<Ready | null>(null);
    const [lost, setLost] = useState(''); // why the connection is not there, while it is tried again
    const [failure, setFailure] = useState('');
    const [isTrying, setIsTrying] = useState(true); // the first connection, by itself
    const login = useRef<Login | null>(null);
    const timer = useRef<ReturnType<typeof setTimeout>>();

    /** isAgain: it stood, and whoever looks at the pages keeps them meanwhile. */
    const connect = async (given: Login, isAgain: boolean, pause = FIRST_PAUSE_S): Promise<void> => {
        login.current = given;
        try {
            let isStanding = false;
            const made = await opened(given, (why) => {
                if (isStanding && login.current === given) retry(why.message, FIRST_PAUSE_S);
            });
            if (login.current !== given) return made.session.close(); // given up meanwhile
            isStanding = true;
            setReady(made);
            setLost('');
            setFailure('');
        } catch (error) {
            if (login.current !== given) return;
            const why = error instanceof Failure ? error : new Failure(String(error), false);
            if (isAgain && !why.isFinal) return retry(why.message, Math.min(pause * 2, LONGEST_PAUSE_S));
            login.current = null;
            setReady(null);
            setLost('');
            setFailure(why.message);
        }
    };
    const retry = (why: string, pause: number): void => {
        setLost(`${why} Trying again every few seconds.`);
        clearTimeout(timer.current);
        timer.current = setTimeout(() => login.current && void connect(login.current, true, pause), pause * 1000);
    };
    const leave = (): void => {
        login.current = null;
        clearTimeout(timer.current);
        ready?.session.close();
        clearCharts();
        setReady(null);
        setLost('');
        setFailure('');
    };
    useEffect(() => {
        // Of the page's own host, without a name: where anonymous users may look, nobody has to log in.
        const given = { url: ownAddress(), user: '', password: '' };
        if (!given.url) return setIsTrying(false);
        login.current = given;
        opened(given, (why) => login.current === given && retry(why.message, FIRST_PAUSE_S)).then(
            (made) => {
                if (login.current !== given) return made.session.close();
                setReady(made);
                setIsTrying(false);
            },
            (error: unknown) => {
                clearTimeout(timer.current);
                setLost('');
                if (login.current === given) login.current = null;
                setIsTrying(false);
                if (!(error instanceof Failure && error.wantsLogin)) setFailure(error instanceof Error ? error.message : String(error));
            },
        );
    }, []);

    if (isTrying) return <p class="waiting" role="status">Connecting …</p>;
    if (!ready) return <LoginPage failure={failure} connect={(given) => connect(given, false)} />;
    return <Frame ready={ready} lost={lost} leave={leave} />;
}

function Frame({ ready, lost, leave }: { ready: Ready; lost: string; leave(): void }) {
    const { page, parts, parameters } = useRoute();
    const main = useRef<HTMLElement>(null);
    const [, title, Page] = PAGES.find(([name]) => name === page) ?? (PAGES[0] as (typeof PAGES)[number]);
    const isFirst = useRef(true);
    useEffect(() => {
        document.title = `${title} · ${ready.router} · Palisade Router`;
        // Whoever reads by ear is told that another page is there.
        if (!isFirst.current) main.current?.focus();
        isFirst.current = false;
    }, [title]);
    return (
        <>
            <a class="skip" href="#main" onClick={(event) => { event.preventDefault(); main.current?.focus(); }}>Skip to the page</a>
            <header>
                <strong class="brand">Palisade Router</strong>
                <span class="where" title={ready.session.url}>{ready.router}</span>
                <nav aria-label="Pages">
                    {PAGES.map(([name, label]) => (
                        <a key={name} href={link(name)} aria-current={label === title ? 'page' : undefined}>{label}</a>
                    ))}
                </nav>
                <span class="who">{ready.session.user || 'anonymous'}</span>
                <ThemeButton />
                <button type="button" onClick={leave}>Log out</button>
            </header>
            <div role="alert">{lost && <p class="lost">{lost}</p>}</div>
            <main id="main" ref={main} tabIndex={-1}>
                <h1>{title}</h1>
                <Page key={`${title} ${ready.session.url}`} session={ready.session} types={listed(ready.types)} parts={parts} parameters={parameters} />
            </main>
        </>
    );
}

const THEMES = ['system', 'light', 'dark'] as const;

export function ThemeButton() {
    const [theme, setTheme] = useState(memory.get('theme') ?? 'system');
    useEffect(() => {
        if (theme === 'light' || theme === 'dark') document.documentElement.dataset['theme'] = theme;
        else delete document.documentElement.dataset['theme'];
        memory.set('theme', theme);
    }, [theme]);
    return (
        <label class="theme">
            <span class="hidden">Colours</span>
            <select value={theme} onChange={(event) => setTheme(event.currentTarget.value)}>
                {THEMES.map((each) => <option key={each} value={each}>{each === 'system' ? 'as the system' : each}</option>)}
            </select>
        </label>
    );
}
