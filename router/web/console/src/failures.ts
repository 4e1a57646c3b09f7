// Why a connection was not made, in words that say what to do.

export class Failure extends Error {
    /** isFinal: trying again with the same user and password cannot help. */
    constructor(message: string, readonly isFinal: boolean, readonly wantsLogin = false) {
        super(message);
    }
}

/** The words for a failed SASL exchange, from rhea's. */
export function loginFailure(description: string, isAnonymous: boolean): Failure {
    const offered = /No suitable mechanism; server supports (.*)$/.exec(description)?.[1];
    if (offered === undefined) {
        if (/internal-error|Failed to authenticate: [234]/.test(description)) return new Failure('The router could not check the password now: its users’ database does not answer. Its log says why.', false);
        return new Failure('The user name or the password is wrong, or this user or host is not admitted now.', true, isAnonymous);
    }
    if (isAnonymous) return new Failure('This router wants a user name and a password.', true, true);
    const names = offered.split(/[\s,]+/).filter((each) => each);
    if (names.length === 0) return new Failure('This listener offers no mechanism to log in.', true);
    return new Failure(`This listener offers ${names.join(', ')}. The console logs in with PLAIN: add it to saslMechanisms of the listener, with an sslProfile.`, true);
}

export interface Page {
    protocol: string;
    host: string;
    origin: string;
}

/**
 * The words for a WebSocket that was not opened: browsers do not tell why.
 *
 * answers  whether the page's own host answered /healthz; null where the address is another one
 */
export function unreachable(url: string, page: Page, answers: boolean | null): Failure {
    const address = new URL(url);
    if (page.protocol === 'https:' && address.protocol === 'ws:') return new Failure('A page that came over https may only open a secure connection: choose wss.', true);
    if (answers === false) return new Failure(`${address.host} does not answer. Is the router running?`, false);
    if (answers === true)
        return new Failure(`${address.host} answers HTTP but opens no WebSocket. A proxy before it may not pass WebSockets on, or its listener has websockets: no, or httpOrigins lacks ${page.origin}.`, false);
    const reasons = [
        'the port is not that of a listener with http: yes',
        ...(address.protocol === 'wss:' ? [`the browser does not trust the certificate (open https://${address.host}/ to see)`] : ['the listener wants TLS (choose wss)']),
        `httpOrigins of the listener lacks ${page.origin}`,
        'a proxy on the way does not pass WebSockets on',
    ];
    return new Failure(`No connection to ${address.host}. One of these: ${reasons.join('; ')}.`, false);
}
