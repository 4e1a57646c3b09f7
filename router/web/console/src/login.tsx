import { useState } from 'preact/hooks';
import { ThemeButton } from './app';
import { memory } from './hooks';
import type { Login } from './session';

/** The address of the page's own host; "" where the page is a file. */
export function ownAddress(): string {
    if (location.protocol !== 'http:' && location.protocol !== 'https:') return '';
    return `${location.protocol === 'https:' ? 'wss' : 'ws'}://${location.host}/`;
}

interface Fields {
    isSecure: boolean;
    host: string;
    port: string;
}

/** The fields that were used last; else those of the page's own host. */
function remembered(): Fields {
    try {
        const url = new URL(memory.get('address') ?? ownAddress());
        return { isSecure: url.protocol === 'wss:', host: url.hostname, port: url.port || (url.protocol === 'wss:' ? '443' : '80') };
    } catch {
        return { isSecure: true, host: '', port: '443' };
    }
}

export function LoginPage({ failure, connect }: { failure: string; connect(login: Login): Promise<void> }) {
    const [fields, setFields] = useState(remembered);
    const [user, setUser] = useState(memory.get('user') ?? '');
    const [password, setPassword] = useState('');
    const [isBusy, setIsBusy] = useState(false);
    const [wrong, setWrong] = useState('');
    const submit = (event: Event): void => {
        event.preventDefault();
        const host = fields.host.includes(':') && !fields.host.startsWith('[') ? `[${fields.host}]` : fields.host.trim();
        const address = `${fields.isSecure ? 'wss' : 'ws'}://${host}:${fields.port}/`;
        if (!/^[^\s/?#@]+$/.test(host) || !URL.canParse(address)) return setWrong('The address is no host name, and no IP address.');
        if (user && !password) return setWrong('A password is wanted with the user name. Without both, the login is anonymous.');
        memory.set('address', address);
        memory.set('user', user);
        setWrong('');
        setIsBusy(true);
        void connect({ url: address, user, password }).finally(() => {
            setIsBusy(false);
            setPassword('');
        });
    };
    return (
        <main class="login">
            <form onSubmit={submit} aria-busy={isBusy}>
                <h1>Palisade Router</h1>
                <div class="address">
                    <label>Address<input value={fields.host} required autocomplete="off" spellcheck={false} onInput={(event) => setFields({ ...fields, host: event.currentTarget.value })} /></label>
                    <label>Port<input value={fields.port} required inputMode="numeric" pattern="[0-9]{1,5}" onInput={(event) => setFields({ ...fields, port: event.currentTarget.value })} /></label>
                </div>
                <label class="check"><input type="checkbox" checked={fields.isSecure} onChange={(event) => setFields({ ...fields, isSecure: event.currentTarget.checked })} />Encrypted (wss)</label>
                <label>User<input name="user" value={user} autocomplete="username" spellcheck={false} onInput={(event) => setUser(event.currentTarget.value)} /></label>
                <label>Password<input name="password" type="password" value={password} autocomplete="current-password" onInput={(event) => setPassword(event.currentTarget.value)} /></label>
                {!fields.isSecure && password && <p class="hint">The password goes over the network as it is: choose wss unless this is your own machine.</p>}
                <button class="main" type="submit" disabled={isBusy}>{isBusy ? 'Connecting …' : 'Log in'}</button>
                <div role="alert">{(wrong || failure) && !isBusy && <p class="failure">{wrong || failure}</p>}</div>
                <ThemeButton />
            </form>
        </main>
    );
}
