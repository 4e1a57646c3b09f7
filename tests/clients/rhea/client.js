// rhea as one of the clients of tests/clients; programs.py has the requests and replies.
'use strict';
const fs = require('fs');
const readline = require('readline');
const rhea = require('rhea');

const LIMIT_MS = 20000;
const SENDER_MODES = ['unsettled', 'settled', 'mixed'];
const RECEIVER_MODES = ['first', 'second'];
const things = new Map(); // name -> connection or link, each with what waits for it

class Refused extends Error {
    constructor(error) {
        super(error.description || error.message || String(error));
        this.condition = error.condition || null;
    }
}

// Values that arrive one by one, and those who wait for them.
class Queue {
    constructor() { this.values = []; this.waiting = []; this.error = null; }
    put(value) {
        const next = this.waiting.shift();
        if (next) next.resolve(value); else this.values.push(value);
    }
    fail(error) {
        this.error = error;
        for (const next of this.waiting.splice(0)) next.reject(error);
    }
    get(limit_ms = LIMIT_MS) {
        if (this.values.length) return Promise.resolve(this.values.shift());
        if (this.error) return Promise.reject(this.error);
        return new Promise((resolve, reject) => {
            const timer = setTimeout(() => {
                this.waiting = this.waiting.filter((each) => each !== next);
                reject(new Error('nothing came in time'));
            }, limit_ms);
            const next = { resolve: (value) => { clearTimeout(timer); resolve(value); },
                           reject: (error) => { clearTimeout(timer); reject(error); } };
            this.waiting.push(next);
        });
    }
}

function asked(mode, settles) {
    const options = {};
    if (mode) options.snd_settle_mode = SENDER_MODES.indexOf(mode);
    if (settles) options.rcv_settle_mode = RECEIVER_MODES.indexOf(settles);
    return options;
}

function modes(link) {
    const reply = link.remote.attach;
    return { mode: SENDER_MODES[reply.snd_settle_mode ?? 2], settles: RECEIVER_MODES[reply.rcv_settle_mode ?? 0] };
}

function details(state) {
    const { condition, description } = state.error || {};
    return { condition, description, failed: Boolean(state.delivery_failed),
             elsewhere: Boolean(state.undeliverable_here) };
}

function opened(link, kind) {
    const opening = new Queue();
    const refuse = (context) => opening.fail(new Refused(context[kind].error));
    link.on(`${kind}_error`, refuse);
    // A refused link is opened without a terminus first; its detach says why.
    link.on(`${kind}_open`, () => {
        const terminus = kind === 'sender' ? link.target : link.source;
        if (terminus && (terminus.address || link.may_be_anonymous)) opening.put(null);
    });
    return opening.get();
}

const operations = {
    async connect({ as, port, ca, user, password, mechanism, certificate, key, reconnect }) {
        const logins = {
            PLAIN: () => ({ username: user, password }),
            EXTERNAL: () => ({ enable_sasl_external: true, cert: fs.readFileSync(certificate), key: fs.readFileSync(key) }),
            XOAUTH2: () => ({ username: user, token: password }),
        };
        const opening = new Queue();
        const connection = rhea.create_container().connect({
            host: 'localhost', hostname: 'localhost', port, transport: 'tls', ca: fs.readFileSync(ca), servername: 'localhost',
            ...logins[mechanism](), reconnect: Boolean(reconnect), initial_reconnect_delay: 20,
        });
        connection.closings = new Queue();
        connection.openings = opening;
        connection.on('connection_open', () => opening.put(null));
        connection.on('connection_error', (context) => {
            const error = new Refused(context.connection.error);
            connection.closings.put(error);
            if (!reconnect) opening.fail(error);
        });
        connection.on('connection_close', () => {});
        connection.on('error', (error) => opening.fail(error));
        connection.on('disconnected', ({ error }) => {
            const why = new Refused(error || { message: 'disconnected' });
            connection.closings.put(why);
            if (!reconnect) opening.fail(why);
        });
        await opening.get();
        // A denied client gets Open and Close at once.
        await new Promise((resolve) => setTimeout(resolve, 50));
        if (opening.error) throw opening.error;
        things.set(as, connection);
        return {};
    },
    async sender({ as, on, address, mode, settles }) {
        const link = things.get(on).open_sender({
            target: address === null ? {} : { address },
            ...asked(mode, settles),
        });
        link.may_be_anonymous = address === null;
        link.outcomes = new Queue();
        // Of a modified delivery rhea says that it was released as well; and what settles repeats the state.
        for (const name of ['accepted', 'rejected', 'released', 'modified']) {
            link.on(name, ({ delivery }) => {
                const state = delivery.remote_state;
                if (delivery.is_reported || state.constructor.composite_type !== name) return;
                delivery.is_reported = true;
                // A receiver that settles last has not, until we have.
                if (!delivery.remote_settled) delivery.update(true);
                link.outcomes.put({ outcome: name, ...details(state) });
            });
        }
        await opened(link, 'sender');
        things.set(as, link);
        return modes(link);
    },
    async receiver({ as, on, address, mode, settles }) {
        const link = things.get(on).open_receiver({
            source: address === null ? { dynamic: true } : { address }, credit_window: 0, autoaccept: false,
            ...asked(mode, settles),
        });
        link.messages = new Queue();
        link.drains = new Queue();
        link.settlements = new Queue();
        link.on('message', (context) => link.messages.put(context));
        link.on('receiver_drained', () => link.drains.put(null));
        link.on('settled', () => link.settlements.put(null));
        await opened(link, 'receiver');
        things.set(as, link);
        return { address: link.source.address, ...modes(link) };
    },
    async credit({ on, count }) {
        things.get(on).add_credit(count);
        return {};
    },
    async drain({ on }) {
        const link = things.get(on);
        link.drain_credit();
        await link.drains.get();
        link.drain = false;
        return {};
    },
    async send({ on, id, size, to, reply_to, settled }) {
        const link = things.get(on);
        if (!link.sendable()) await new Promise((resolve) => link.once('sendable', resolve));
        const message = { message_id: id, body: rhea.message.data_section(Buffer.alloc(size, 'x')) };
        if (to) message.to = to;
        if (reply_to) message.reply_to = reply_to;
        // Of a mixed link each message says whether it is settled.
        const delivery = link.send(message);
        if (settled) {
            delivery.settled = true;
            link.outcomes.put({ outcome: 'settled' });
        }
        return {};
    },
    async outcome({ on }) {
        return things.get(on).outcomes.get();
    },
    async receive({ on, limit_ms }) {
        const link = things.get(on);
        const context = await link.messages.get(limit_ms);
        link.last = context.delivery;
        const { message_id, reply_to, body } = context.message;
        const content = body.content || body;
        return {
            id: message_id, size: content.length, is_whole: content.every((byte) => byte === 120),
            reply_to: reply_to || null,
        };
    },
    async settle({ on, outcome, condition, description }) {
        const link = things.get(on);
        const is_second = link.local.attach.rcv_settle_mode === 1;
        if (outcome === 'accepted') link.last.accept();
        else if (outcome === 'rejected') link.last.reject({ condition, description });
        else if (outcome === 'released') link.last.release();
        else link.last.modified({ delivery_failed: true, undeliverable_here: true });
        if (is_second) await link.settlements.get();
        return {};
    },
    async close({ on }) {
        things.get(on).close();
        return {};
    },
    async closed({ on }) {
        return { condition: (await things.get(on).closings.get()).condition };
    },
    async restored({ on }) {
        await things.get(on).openings.get();
        return {};
    },
};

async function main() {
    for await (const line of readline.createInterface({ input: process.stdin })) {
        const request = JSON.parse(line);
        let reply;
        try {
            reply = await operations[request.op](request);
        } catch (error) {
            reply = { error: { condition: error.condition || null, description: error.message } };
        }
        process.stdout.write(`${JSON.stringify(reply)}\n`);
    }
    process.exit(0);
}

main();
