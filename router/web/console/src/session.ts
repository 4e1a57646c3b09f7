// One AMQP connection to a router's $management, over a WebSocket.
import './shims/globals';
import rhea, { type Connection, type EventContext, type Receiver, type Sender } from 'rhea';
import { Failure, loginFailure, unreachable } from './failures';
import { Refused } from './refused';
import { plain, type Row, type Value } from './values';

export interface Login {
    url: string;
    user: string;
    password: string;
}

export interface Reply {
    body: Value;
    count: number | null;
}

export interface Rows {
    names: string[];
    rows: Row[];
}

export const MOST_ROWS = 500; // of one request: the router answers others meanwhile
const REPLY_TIMEOUT_MS = 20_000;
const OPEN_TIMEOUT_MS = 20_000;
const MOST_WAITING = 64; // requests at a time

interface Waiting {
    resolve(reply: Reply): void;
    reject(error: Error): void;
    timer: ReturnType<typeof setTimeout>;
}

/** isLost is called once, when the connection ends by other means than close(). */
export class Session {
    readonly user: string;
    readonly url: string;
    private readonly waiting = new Map<string, Waiting>();
    private readonly senders = new Map<string, Promise<Sender>>();
    private readonly refused = new Set<string>();
    private replyTo = '';
    private next = 0;
    private isOver = false;

    private constructor(private readonly connection: Connection, login: Login, private readonly isLost: (why: Failure) => void) {
        this.user = login.user;
        this.url = login.url;
    }

    static open(login: Login, isLost: (why: Failure) => void): Promise<Session> {
        return new Promise((resolve, reject) => {
            let isOpened = false; // the WebSocket
            let isReady = false;
            const container = rhea.create_container();
            class Socket extends WebSocket {
                constructor(url: string, protocols: string[]) {
                    super(url, protocols);
                    this.addEventListener('open', () => (isOpened = true));
                }

                /** rhea has more to say when it hears that the other side is gone. */
                override send(data: Parameters<WebSocket['send']>[0]): void {
                    if (this.readyState === WebSocket.OPEN) super.send(data);
                }
            }
            const connect = rhea.websocket_connect(Socket as never);
            const connection = container.create_connection({
                host: new URL(login.url).hostname,
                hostname: new URL(login.url).hostname,
                container_id: `console-${crypto.getRandomValues(new Uint32Array(2)).join('-')}`,
                username: login.user || 'anonymous',
                password: login.password || undefined,
                reconnect: false,
                idle_time_out: 30_000,
                connection_details: connect(login.url, ['amqp'], {} as never),
            } as never);
            const session = new Session(connection, login, isLost);
            const timer = setTimeout(() => failed(new Failure('The router did not answer in time.', false)), OPEN_TIMEOUT_MS);
            const failed = (why: Failure): void => {
                clearTimeout(timer);
                session.end(why);
                if (isReady) return;
                isReady = true;
                connection.close();
                reject(why);
            };
            connection.on('connection_open', () => {
                const receiver = connection.open_receiver({ source: { dynamic: true } as never, credit_window: 100, autoaccept: true });
                receiver.on('receiver_open', (context: EventContext) => {
                    const address = (context.receiver as Receiver).source?.address;
                    if (!address) return; // refused; the error follows
                    session.replyTo = address;
                    session.sender('$management').then(
                        () => {
                            clearTimeout(timer);
                            isReady = true;
                            resolve(session);
                        },
                        (error: Error) => failed(new Failure(error.message, true)),
                    );
                });
                receiver.on('receiver_error', (context: EventContext) => failed(new Failure(`${login.user || 'anonymous'} is logged in, but may not receive answers: ${described(context.receiver?.error)}`, true)));
                receiver.on('message', (context: EventContext) => session.answered(context));
            });
            connection.on('connection_error', (context: EventContext) => {
                const error = (context.error ?? context.connection.error) as { condition?: unknown; description?: unknown } | undefined;
                const words = String(error?.description ?? '');
                if (/Failed to authenticate|mechanism/.test(words)) failed(loginFailure(words, !login.password));
                else failed(new Failure(`The router closed the connection: ${described(error)}`, /unauthorized|not-allowed/.test(String(error?.condition))));
            });
            connection.on('connection_close', () => failed(new Failure('The router closed the connection.', false)));
            connection.on('error', () => undefined);
            connection.on('disconnected', () => {
                if (isOpened) failed(new Failure('The connection to the router was lost.', false));
                else void why(login.url).then(failed);
            });
            connection.on('protocol_error', () => undefined);
            try {
                connection.connect();
            } catch {
                failed(new Failure(`${login.url} is no address of a WebSocket.`, true));
            }
        });
    }

    /** Properties that are null are left out. Errors: Refused, Failure. `router` is the id of another router of the network. */
    async request(operation: string, properties: Record<string, unknown>, body: unknown = null, router?: string): Promise<Reply> {
        const sender = await this.sender(router ? `_topo/0/${router}/$management` : '$management');
        if (this.isOver) throw new Failure('The connection to the router was lost.', false);
        if (this.waiting.size >= MOST_WAITING) throw new Failure('Too many requests wait for an answer.', false);
        const named = { name: 'self', type: 'org.amqp.management', operation, ...properties };
        const given = Object.fromEntries(Object.entries(named).filter(([, value]) => value !== null));
        const id = String((this.next += 1));
        return new Promise<Reply>((resolve, reject) => {
            const timer = setTimeout(() => {
                this.waiting.delete(id);
                reject(new Failure('The router did not answer in time.', false));
            }, REPLY_TIMEOUT_MS);
            this.waiting.set(id, { resolve, reject, timer });
            sender.send({
                reply_to: this.replyTo,
                correlation_id: id,
                application_properties: given,
                body: body ?? {},
            } as never);
        });
    }

    /** At most MOST_ROWS rows of a type from `offset` on. Without names: all attributes. */
    async query(type: string, names: readonly string[], offset = 0, count = MOST_ROWS, router?: string): Promise<Rows> {
        const { body } = await this.request('QUERY', { entityType: type, offset, count: Math.min(count, MOST_ROWS) }, { attributeNames: names }, router);
        return unfolded(body);
    }

    /**
     * The rows of a type, as far as the user may read it and the router has it; else none. What was refused once is not
     * asked again: each time would be a line in the router's log, and a denial in its audit log.
     */
    async readable(type: string, names: readonly string[], most = MOST_ROWS, router?: string): Promise<Row[]> {
        const key = `${router ?? ''} ${type}`;
        if (this.refused.has(key)) return [];
        try {
            return (await this.all(type, names, most, router)).rows;
        } catch (error) {
            if (!(error instanceof Refused)) throw error;
            this.refused.add(key);
            return [];
        }
    }

    /** All rows up to `most`, page by page. */
    async all(type: string, names: readonly string[], most: number, router?: string): Promise<Rows> {
        let found: Rows = { names: [], rows: [] };
        while (found.rows.length < most) {
            const count = Math.min(MOST_ROWS, most - found.rows.length);
            const page = await this.query(type, names, found.rows.length, count, router);
            found = { names: page.names, rows: [...found.rows, ...page.rows] };
            if (page.rows.length < count) break;
        }
        return found;
    }

    close(): void {
        this.isOver = true;
        this.connection.close();
    }

    private end(why: Failure): void {
        if (this.isOver) return;
        this.isOver = true;
        for (const { reject, timer } of this.waiting.values()) {
            clearTimeout(timer);
            reject(why);
        }
        this.waiting.clear();
        this.isLost(why);
    }

    private sender(address: string): Promise<Sender> {
        let found = this.senders.get(address);
        if (found === undefined) {
            found = new Promise<Sender>((resolve, reject) => {
                const sender = this.connection.open_sender({ target: { address } });
                const timer = setTimeout(() => reject(new Failure(`${address} does not answer.`, false)), REPLY_TIMEOUT_MS);
                sender.once('sendable', () => {
                    clearTimeout(timer);
                    resolve(sender);
                });
                sender.on('sender_error', (context: EventContext) => {
                    clearTimeout(timer);
                    this.senders.delete(address);
                    reject(new Failure(`${this.user || 'anonymous'} is logged in, but may not use ${address}: ${described(context.sender?.error)}`, true));
                });
                sender.on('sender_close', () => this.senders.delete(address));
            });
            this.senders.set(address, found);
            found.catch(() => this.senders.delete(address));
        }
        return found;
    }

    private answered(context: EventContext): void {
        const message = context.message;
        const id = String(message?.correlation_id);
        const waiting = this.waiting.get(id);
        if (!message || !waiting) return;
        this.waiting.delete(id);
        clearTimeout(waiting.timer);
        const properties = plain(message.application_properties) as Row | null;
        const status = Number(properties?.['statusCode'] ?? 0);
        if (status < 200 || status > 299) waiting.reject(new Refused(status, String(properties?.['statusDescription'] ?? status)));
        else waiting.resolve({ body: plain(message.body), count: typeof properties?.['count'] === 'number' ? properties['count'] : null });
    }
}

/** The rows of a QUERY's answer. */
export function unfolded(body: Value): Rows {
    const folded = body as { attributeNames?: string[]; results?: Value[][] } | null;
    const names = folded?.attributeNames ?? [];
    const rows = (folded?.results ?? []).map((values) => {
        const row = Object.create(null) as Row;
        names.forEach((name, at) => (row[name] = values[at] ?? null));
        return row;
    });
    return { names, rows };
}

function described(error: unknown): string {
    const { condition, description } = (error ?? {}) as { condition?: unknown; description?: unknown };
    return [description, condition && `(${String(condition)})`].filter(Boolean).map(String).join(' ') || 'it does not say why';
}

/** Why a WebSocket was not opened, as far as can be found out: only the page's own host may be asked. */
async function why(url: string): Promise<Failure> {
    let answers: boolean | null = null;
    if (new URL(url).host === location.host) {
        answers = await fetch('/healthz', { cache: 'no-store' }).then(() => true, () => false);
    }
    return unreachable(url, location, answers);
}
