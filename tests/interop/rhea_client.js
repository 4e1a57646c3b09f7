// One client of rhea's, told by a JSON object on stdin what to do; writes one JSON object of what came of it.
//
// port (or ws: the address of a WebSocket, and origin), tls {ca, cert?, key?}?, user?, password?, is_external?, hostname
// token    for XOAUTH2, beside the user; bearer: for OAUTHBEARER
// send     {address?, to: [address ...]?, count, size}   without `address` an anonymous sender, a message per `to`
// receive  {address?, outcome}                           without `address` a dynamic source, which is then sent to
// Result: received (bodies' sizes by order of arrival), ids, outcomes {name: count}, errors [{where, condition,
// description}], dynamic (the address given). It ends when every message has its outcome, or with the first error.
'use strict';
const fs = require('fs');
const rhea = require('rhea');

const LIMIT_MS = 25000;
const task = JSON.parse(fs.readFileSync(0, 'utf8'));
const result = { received: [], ids: [], outcomes: {}, refusals: {}, errors: [], dynamic: null };
const waiting = new Map(); // delivery id -> address
let sent = 0;
let settled = 0;
let connection;

const limit = setTimeout(() => end('limit'), LIMIT_MS);

function end(why) {
    if (result.ended) return;
    clearTimeout(limit);
    result.ended = why;
    process.stdout.write(JSON.stringify(result), () => process.exit(0));
}

function note(where, error) {
    result.errors.push({ where, condition: error ? error.condition || error.name || null : null,
                         description: error ? error.description || error.message || String(error) : null });
}

function addresses() {
    if (task.send.to) return task.send.to.map((to) => (to === 'dynamic' ? result.dynamic : to));
    return Array(task.send.count || 1).fill(task.send.address);
}

function sendSome(sender) {
    const all = addresses();
    while (sender.sendable() && sent < all.length) {
        const to = all[sent];
        const body = rhea.message.data_section(Buffer.alloc(task.send.size || 0, 'x'));
        const message = { message_id: sent, body };
        if (task.send.to) message.to = to;
        waiting.set(sender.send(message).id, to);
        sent++;
    }
}

function outcome(name, context) {
    result.outcomes[name] = (result.outcomes[name] || 0) + 1;
    const error = context.delivery.remote_state && context.delivery.remote_state.error;
    if (error) result.refusals[waiting.get(context.delivery.id)] = `${error.condition}: ${error.description}`;
}

function openSender() {
    const target = task.send.to ? {} : { address: task.send.address };
    connection.open_sender({ target });
}

rhea.on('connection_open', () => {
    if (task.receive) {
        const source = task.receive.address ? { address: task.receive.address } : { dynamic: true };
        connection.open_receiver({ source, autoaccept: false, credit_window: 100 });
    } else if (task.send) openSender();
    else connection.close();
});
rhea.on('receiver_open', (context) => {
    const source = context.receiver.source;
    if (!source || (!source.address && !source.dynamic)) return; // refused; the error follows
    if (source.dynamic) result.dynamic = source.address;
    if (task.send) openSender();
    else connection.close();
});
rhea.on('message', (context) => {
    const content = context.message.body.content || context.message.body;
    result.received.push(content.length);
    result.ids.push(context.message.message_id);
    const how = task.receive.outcome || 'accept';
    if (how === 'modify') context.delivery.modified({ delivery_failed: true });
    else if (how === 'release') context.delivery.release();
    else context.delivery[how]();
});
rhea.on('sendable', (context) => sendSome(context.sender));
// Not by rhea's events of the outcomes' names: of a modified delivery it says that it was released as well.
rhea.on('settled', (context) => {
    outcome(context.delivery.remote_state.constructor.composite_type, context);
    settled++;
    if (settled === addresses().length) connection.close();
});
for (const what of ['sender', 'receiver', 'session', 'connection']) {
    rhea.on(`${what}_error`, (context) => {
        note(what, context.error || context[what].error);
        if (what !== 'connection') connection.close();
    });
}
rhea.on('connection_close', () => end('closed'));
rhea.on('disconnected', (context) => {
    if (context.error) note('transport', context.error);
    end('disconnected');
});
rhea.on('error', (error) => note('error', error));

const options = { host: '127.0.0.1', port: task.port, hostname: task.hostname, reconnect: false, idle_time_out: 8000 };
if (task.tls) {
    options.transport = 'tls';
    options.servername = 'localhost';
    for (const name of ['ca', 'cert', 'key']) if (task.tls[name]) options[name] = fs.readFileSync(task.tls[name]);
    options.rejectUnauthorized = true;
}
if (task.user) Object.assign(options, { username: task.user, password: task.password });
if (task.token) Object.assign(options, { username: task.user, token: task.token }); // XOAUTH2
if (task.bearer) {
    const say = (text) => Buffer.from(text, 'latin1');
    options.sasl_mechanisms = { // rhea has none of its own; the exchange is its own
        OAUTHBEARER: () => ({
            start: (callback) => callback(undefined, say(`n,,\x01auth=Bearer ${task.bearer}\x01\x01`)),
            step: (challenge, callback) => {
                note('challenge', { description: challenge.toString() });
                callback(undefined, say('\x01'));
            },
        }),
    };
}
if (task.is_external) options.enable_sasl_external = true;
if (task.ws) { // AMQP over WebSocket, at this address
    const WebSocket = require('ws');
    const given = task.origin ? { origin: task.origin } : {};
    if (task.tls) given.ca = options.ca;
    class Peer extends WebSocket { constructor(url, protocols) { super(url, protocols, given); } }
    options.connection_details = rhea.websocket_connect(Peer)(task.ws, ['amqp']);
}
connection = rhea.connect(options);
