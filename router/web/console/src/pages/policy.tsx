import { useState } from 'preact/hooks';
import type { PageProps } from '../app';
import { link, usePolled } from '../hooks';
import { Dialog } from '../parts/dialog';
import { Form } from '../parts/form';
import { Table } from '../parts/table';
import { quoted, uses } from '../policy';
import { figure, numeric, text, type Row } from '../values';
import { LogLines, readLog } from './logs';

const POLICY = ['policyDir', 'enableVhostPolicy', 'maxConnections', 'connectionsProcessed', 'connectionsDenied', 'connectionsCurrent', 'linksDenied', 'maxMessageSizeDenied', 'totalDenials', 'policyChanges', 'policyChangeFailures'];
const STATS = ['identity', 'hostname', 'connectionsApproved', 'connectionsDenied', 'connectionsCurrent', 'sessionDenied', 'senderDenied', 'receiverDenied', 'maxMessageSizeDenied'];
const BANS = ['identity', 'name', 'remoteHost', 'user', 'reason', 'origin', 'expires', 'hits'];
const LINES = 1000;
const SHOWN = 50;

export function PolicyPage({ session, types }: PageProps) {
    const [isBanning, setIsBanning] = useState(false);
    const [lifted, setLifted] = useState<Row | null>(null);
    const [failure, setFailure] = useState('');
    // The users of each vhost are as many as there are: they are asked for once a look, and seldom.
    const groups = usePolled(`${session.url} groups`, async () => uses(await session.readable('vhost', ['hostname', 'maxConnectionsPerUser', 'groups']), await session.readable('vhostStats', ['hostname', 'perUserState'])), 15_000);
    const { found, error, again } = usePolled(session.url, async () => {
        const shadow = (await session.readable('shadowPolicy', ['folder', 'state', 'error', 'vhostCount', 'decisions', 'wouldDeny', 'wouldAllow'], 1))[0] ?? null;
        return {
            policy: (await session.readable('policy', POLICY, 1))[0] ?? null,
            vhosts: await session.readable('vhost', ['hostname', 'maxConnections']),
            stats: await session.readable('vhostStats', STATS),
            bans: await session.readable('ban', BANS),
            shadow,
            disagreements: shadow === null ? [] : await session.readable('shadowDisagreement', ['identity', 'outcome', 'vhost', 'requestedVhost', 'reason', 'candidateReason', 'count']),
        };
    });
    const denials = usePolled(`${session.url} denials`, async () => (await readLog(session, LINES)).filter((each) => each.module === 'POLICY' && /DENY|denied/i.test(each.text)).slice(0, SHOWN), 4000);
    const ban = types.find((each) => each.name === 'ban');
    const lift = async (): Promise<void> => {
        try {
            await session.request('DELETE', { name: null, type: 'ban', identity: text(lifted?.['identity']) });
            setLifted(null);
            again();
        } catch (error) {
            setFailure(error instanceof Error ? error.message : String(error));
        }
    };
    if (!found) return <p role="status">{error || 'Asking the router …'}</p>;
    const { policy, stats, bans, shadow, disagreements } = found;
    const vhosts = found.vhosts.map((each) => ({ ...stats.find((one) => one['hostname'] === each['hostname']), ...each }) as Row);
    const count = (name: string): string => figure(numeric(policy?.[name]));
    return (
        <>
            {error && <p class="failure" role="alert">{error}</p>}
            {policy ? (
                <section aria-label="Totals" class="cards">
                    {[['Denials', 'totalDenials'], ['Connections now', 'connectionsCurrent'], ['Connections denied', 'connectionsDenied'], ['Links denied', 'linksDenied'], ['Too large', 'maxMessageSizeDenied'], ['Changes', 'policyChanges']].map(([name, attribute]) => (
                        <div class="card" key={name}><span class="name">{name}</span><span class="value" data-figure={name}>{count(attribute as string)}</span></div>
                    ))}
                </section>
            ) : <p>You may not read the policy.</p>}
            {policy && policy['enableVhostPolicy'] === false && <p class="failure">enableVhostPolicy is no: the vhosts below are not enforced.</p>}
            <h2>Denials</h2>
            {denials.error && <p class="failure">{denials.error}</p>}
            <LogLines lines={denials.found ?? []} />
            <h2>Vhosts</h2>
            <Table caption="Vhosts" rows={vhosts} columns={[{ name: 'hostname', shown: (row) => <a href={link('entities', ['vhost'], { filter: text(row['hostname']) })}>{text(row['hostname'])}</a> }, { name: 'connectionsCurrent', label: 'now' }, { name: 'maxConnections', label: 'at most' }, { name: 'connectionsApproved', label: 'approved' }, { name: 'connectionsDenied', label: 'denied' }, { name: 'sessionDenied', label: 'sessions denied' }, { name: 'senderDenied', label: 'senders denied' }, { name: 'receiverDenied', label: 'receivers denied' }, { name: 'maxMessageSizeDenied', label: 'too large' }]} />
            <h2>Groups</h2>
            {groups.found && <Table caption="Groups" rows={groups.found as unknown as Row[]} columns={[{ name: 'vhost' }, { name: 'group' }, { name: 'users' }, { name: 'hosts' }, { name: 'busiest', label: 'busiest user: connections' }, { name: 'most', label: 'at most for a user' }, { name: 'senders', label: 'senders at most' }, { name: 'receivers', label: 'receivers at most' }, { name: 'management' }]} />}
            <h2>Bans</h2>
            <Table caption="Bans" rows={bans} columns={[{ name: 'name' }, { name: 'remoteHost' }, { name: 'user' }, { name: 'reason' }, { name: 'origin' }, { name: 'expires' }, { name: 'hits' }, { name: 'identity', label: 'lift', shown: (row) => <button type="button" onClick={() => setLifted(row)} aria-label={`Lift ban ${text(row['name'])}`}>Lift …</button> }]} />
            {ban && <p><button type="button" onClick={() => setIsBanning(true)}>Ban …</button></p>}
            <h2>Candidate policy</h2>
            {shadow ? (
                <>
                    <p>{text(shadow['folder'])} is {text(shadow['state'])}{shadow['error'] ? `: ${text(shadow['error'])}` : ''}. Of {text(shadow['decisions'])} decisions it would have denied {text(shadow['wouldDeny'])} that were allowed, and allowed {text(shadow['wouldAllow'])} that were denied.</p>
                    <Table caption="Disagreements" rows={disagreements} columns={[{ name: 'outcome' }, { name: 'vhost' }, { name: 'requestedVhost', label: 'asked for' }, { name: 'reason', label: 'in force' }, { name: 'candidateReason', label: 'candidate' }, { name: 'count' }]} />
                </>
            ) : <p class="none">None: shadowPolicyDir is not set, or you may not read it.</p>}
            <Explain folder={text(policy?.['policyDir'])} />
            {isBanning && ban && <Dialog title="Ban" close={() => setIsBanning(false)}><Form session={session} type={ban} done={() => { setIsBanning(false); again(); }} /></Dialog>}
            {lifted && (
                <Dialog title={`Lift ban ${text(lifted['name'])}`} close={() => { setLifted(null); setFailure(''); }}>
                    <p>{[text(lifted['remoteHost']), text(lifted['user'])].filter(Boolean).join(', ')} may connect again at once, where the policy admits it.</p>
                    <button type="button" class="danger" onClick={() => void lift()}>Lift</button>
                    <div role="alert">{failure && <p class="failure">{failure}</p>}</div>
                </Dialog>
            )}
        </>
    );
}

/** The router explains no decision by management: the command that does, of the same engine and the same files. */
function Explain({ folder }: { folder: string }) {
    const [given, setGiven] = useState({ user: '', host: '', verb: '--send', address: '' });
    const set = (name: keyof typeof given) => (event: Event & { currentTarget: HTMLInputElement | HTMLSelectElement }) => setGiven({ ...given, [name]: event.currentTarget.value });
    const words = ['qdpolicy', 'explain', folder || 'POLICYDIR', `--user=${given.user || 'USER'}`, `--host=${given.host || 'HOST'}`, ...(given.address ? [`${given.verb}=${given.address}`] : [])];
    return (
        <>
            <h2>Why?</h2>
            <p class="hint">On the router’s host this command says how the policy decides, with file and line:</p>
            <div class="tools">
                <label>User<input value={given.user} spellcheck={false} onInput={set('user')} /></label>
                <label>Host<input value={given.host} spellcheck={false} onInput={set('host')} /></label>
                <label>To<select value={given.verb} onChange={set('verb')}><option value="--send">send to</option><option value="--receive">receive from</option></select></label>
                <label>Address<input value={given.address} spellcheck={false} onInput={set('address')} /></label>
            </div>
            <pre class="command" tabIndex={0}>{words.map(quoted).join(' ')}</pre>
        </>
    );
}
