// Two clients of rhea's: one asks, with a dynamic source for the replies, and one serves. Told by a JSON object on stdin;
// writes one JSON object of what came of it.
//
// port, ca, hostname, asker {user, password}, service {user, password}, address, count
// is_anonymous   the service replies through one sender without a target, instead of one for each reply-to
// Result: replies (bodies, in order), errors [{who, condition, description}]
'use strict';
const fs = require('fs');
const rhea = require('rhea');

const LIMIT_MS = 25000;
const task = JSON.parse(fs.readFileSync(0, 'utf8'));
const result = { replies: [], reply_to: null, errors: [] };
setTimeout(() => end('limit'), LIMIT_MS).unref();

function end(why) {
    result.ended = why;
    process.stdout.write(JSON.stringify(result), () => process.exit(0));
}

function connect(who) {
    const container = rhea.create_container();
    for (const what of ['sender', 'receiver', 'session', 'connection']) {
        container.on(`${what}_error`, (context) => {
            const error = context[what].error;
            result.errors.push({ who, condition: error.condition, description: error.description });
            end('error');
        });
    }
    container.on('rejected', (context) => {
        const error = context.delivery.remote_state.error;
        result.errors.push({ who, condition: error.condition, description: error.description });
        end('rejected');
    });
    container.on('disconnected', (context) => {
        result.errors.push({ who, condition: 'disconnected', description: String(context.error) });
        end('disconnected');
    });
    const { user, password } = task[who];
    return container.connect({
        host: '127.0.0.1', port: task.port, hostname: task.hostname, transport: 'tls', servername: 'localhost',
        ca: fs.readFileSync(task.ca), rejectUnauthorized: true, username: user, password, reconnect: false,
    });
}

function serve() {
    const connection = connect('service');
    const senders = new Map();
    const anonymous = task.is_anonymous ? connection.open_sender({ target: {} }) : null;
    connection.open_receiver({ source: { address: task.address } });
    connection.on('receiver_open', ask);
    connection.on('message', (context) => {
        const { reply_to, correlation_id, body } = context.message;
        if (anonymous === null && !senders.has(reply_to)) senders.set(reply_to, connection.open_sender(reply_to));
        const sender = anonymous || senders.get(reply_to);
        const reply = { to: reply_to, correlation_id, body: `${body}!` };
        if (sender.sendable()) sender.send(reply);
        else sender.once('sendable', () => sender.send(reply));
    });
}

let is_asking = false;
function ask() {
    if (is_asking) return;
    is_asking = true;
    const connection = connect('asker');
    const replies = connection.open_receiver({ source: { dynamic: true } });
    const sender = connection.open_sender(task.address);
    let sent = 0;
    const next = () => {
        if (!result.reply_to || !sender.sendable() || sent > result.replies.length) return;
        sender.send({ reply_to: result.reply_to, correlation_id: sent, body: `question ${sent}` });
        sent++;
    };
    replies.on('receiver_open', () => {
        result.reply_to = replies.source.address;
        next();
    });
    sender.on('sendable', next);
    replies.on('message', (context) => {
        result.replies.push(context.message.body);
        if (result.replies.length === task.count) end('done');
        else next();
    });
}

serve();
