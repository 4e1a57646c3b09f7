/* AMQP 1.0 load client for benchmarks: senders or receivers, one link on a connection of its own each.
 *
 *   load send|recv --port P [--host H] [--address A] [--connections N] [--distinct] [--count N] [--size BYTES]
 *        [--inflight N] [--settled] [--stream] [--credit N] [--stall] [--pause-us N]
 *        [--user U --password-env VARIABLE]
 *
 * send: COUNT messages per connection whose body is one binary section of SIZE octets; waits for every outcome.
 * recv: grants credit in a window and accepts every message; COUNT messages per connection.
 * --connections N, --distinct: N connections; with --distinct the i-th uses the address A.i, else all use A.
 * --inflight 1: the sender waits for each outcome, so that the reply times are round trips.
 * --stream: a message is made and handed over in pieces, so that its size may exceed the memory.
 * --stall: the receiver grants credit, says ready, and never reads again; SIGTERM ends it.
 * --pause-us N: the receiver sleeps N microseconds after each message.
 * "ready" on stderr once every link is attached. Then one JSON line: messages, seconds, rate, outcomes, own CPU seconds,
 * round-trip percentiles (us). SIGINT: report what has come so far (presettled messages may be lost on the way).
 * Exit status 1 when the peer refused something; the reason is on stderr.
 *
 * Built by benchmarks/load.py. A C client, so that the client is never what is measured.
 */
#include <proton/condition.h>
#include <proton/connection.h>
#include <proton/delivery.h>
#include <proton/link.h>
#include <proton/message.h>
#include <proton/proactor.h>
#include <proton/sasl.h>
#include <proton/session.h>
#include <proton/transport.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

/* What one connection has done. `left` octets of the message under way are not yet handed over (--stream). */
typedef struct {
    int index, is_attached, is_over;
    long sent, done;
    long left;
    int is_under_way;
} client_t;

enum { STREAM_PIECE = 64 * 1024, STREAM_AHEAD = 512 * 1024 };

static int sending, settled, stream, stall, distinct, failed, interrupted;
static const char *host = "127.0.0.1", *port = "5672", *address = "bench", *user, *password;
static long count = 100000, size = 100, inflight, credit_window = 1000, connections = 1, pause_us;
static long attached, over, total_sent, total_done, accepted, other;
static double started, ended;
static float *round_trips;
static double *sent_at;
static char *encoded, *buffer;
static pn_proactor_t *proactor;
static size_t encoded_size, buffer_size;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

static void on_interrupt(int signal_number) {
    (void)signal_number;
    pn_proactor_interrupt(proactor);
}

static int by_value(const void *a, const void *b) {
    float x = *(const float *)a, y = *(const float *)b;
    return x < y ? -1 : x > y;
}

static void complain(const char *what, pn_condition_t *c) {
    if (!pn_condition_is_set(c)) return;
    fprintf(stderr, "%s: %s: %s\n", what, pn_condition_get_name(c), pn_condition_get_description(c));
    failed = 1;
}

static client_t *client_of(pn_link_t *link) {
    return pn_connection_get_context(pn_session_connection(pn_link_session(link)));
}

static void finish(client_t *client, pn_link_t *link) {
    if (client->is_over) return;
    client->is_over = 1;
    ended = now();
    pn_connection_close(pn_session_connection(pn_link_session(link)));
}

static pn_delivery_t *begin_delivery(client_t *client, pn_link_t *link) {
    long number = total_sent++;
    sent_at[number] = now();
    client->sent++;
    return pn_delivery(link, pn_dtag((const char *)&number, sizeof number));
}

static void end_delivery(client_t *client, pn_link_t *link, pn_delivery_t *d) {
    pn_link_advance(link);
    if (!settled) return;
    pn_delivery_settle(d);
    client->done++;
    total_done++;
}

/* A piece at a time, and never far ahead of what has left: memory stays small however large the message. */
static void stream_some(client_t *client, pn_link_t *link) {
    while (pn_session_outgoing_bytes(pn_link_session(link)) < STREAM_AHEAD) {
        if (!client->is_under_way) {
            if (client->sent >= count || pn_link_credit(link) <= 0) return;
            begin_delivery(client, link);
            unsigned char start[8] = {0x00, 0x53, 0x75, 0xb0, size >> 24, size >> 16, size >> 8, size};
            pn_link_send(link, (const char *)start, sizeof start);
            client->left = size;
            client->is_under_way = 1;
        }
        size_t piece = client->left < STREAM_PIECE ? client->left : STREAM_PIECE;
        pn_link_send(link, encoded, piece);
        client->left -= piece;
        if (!client->left) {
            client->is_under_way = 0;
            end_delivery(client, link, pn_link_current(link));
        }
    }
}

static void send_some(pn_link_t *link) {
    client_t *client = client_of(link);
    if (attached < connections) return; /* all start together */
    if (!started && pn_link_credit(link) <= 0) return; /* another router's receiver may not be known yet */
    if (!started) started = now();
    if (stream) stream_some(client, link);
    else while (pn_link_credit(link) > 0 && client->sent < count && (!inflight || client->sent - client->done < inflight)) {
        pn_delivery_t *d = begin_delivery(client, link);
        pn_link_send(link, encoded, encoded_size);
        end_delivery(client, link, d);
    }
    if (settled && client->done >= count) finish(client, link);
}

static void on_outcome(client_t *client, pn_link_t *link, pn_delivery_t *d) {
    uint64_t state = pn_delivery_remote_state(d);
    if (!state && !pn_delivery_settled(d)) return;
    long number;
    memcpy(&number, pn_delivery_tag(d).start, sizeof number);
    round_trips[total_done++] = (float)((now() - sent_at[number]) * 1e6);
    state == PN_ACCEPTED ? accepted++ : other++;
    pn_delivery_settle(d);
    if (++client->done >= count) finish(client, link);
    else send_some(link);
}

static void on_delivery(pn_delivery_t *d) {
    pn_link_t *link = pn_delivery_link(d);
    client_t *client = client_of(link);
    if (sending) {
        on_outcome(client, link, d);
        return;
    }
    if (!pn_delivery_readable(d)) return;
    if (!started) started = now();
    while (pn_link_recv(link, buffer, buffer_size) > 0) {}
    if (pn_delivery_partial(d)) return;
    pn_link_advance(link);
    pn_delivery_update(d, PN_ACCEPTED);
    pn_delivery_settle(d);
    accepted++;
    total_done++;
    if (pause_us) usleep(pause_us);
    if (++client->done >= count) finish(client, link);
    else if (pn_link_credit(link) < credit_window / 2) pn_link_flow(link, credit_window - pn_link_credit(link));
}

static void open_link(pn_connection_t *connection) {
    client_t *client = pn_connection_get_context(connection);
    pn_connection_open(connection);
    pn_session_t *session = pn_session(connection);
    pn_session_open(session);
    pn_link_t *link = sending ? pn_sender(session, "load-sender") : pn_receiver(session, "load-receiver");
    char own[300];
    snprintf(own, sizeof own, distinct ? "%s.%d" : "%s", address, client->index);
    pn_terminus_set_address(sending ? pn_link_target(link) : pn_link_source(link), own);
    if (settled) pn_link_set_snd_settle_mode(link, PN_SND_SETTLED);
    pn_link_open(link);
    if (!sending) pn_link_flow(link, credit_window);
}

static void on_attached(pn_link_t *link) {
    client_t *client = client_of(link);
    const pn_terminus_t *peer = sending ? pn_link_remote_target(link) : pn_link_remote_source(link);
    if (client->is_attached || pn_terminus_get_type((pn_terminus_t *)peer) == PN_UNSPECIFIED) return; /* refused */
    client->is_attached = 1;
    if (++attached == connections) fprintf(stderr, "ready\n");
}

static void on_closed(pn_connection_t *connection) {
    client_t *client = pn_connection_get_context(connection);
    client->is_over = 1;
    over++;
}

static void handle(pn_connection_t *connection, pn_event_t *e) {
    switch (pn_event_type(e)) {
    case PN_CONNECTION_INIT: open_link(connection); break;
    case PN_LINK_REMOTE_OPEN: on_attached(pn_event_link(e)); break;
    case PN_LINK_FLOW: if (sending) send_some(pn_event_link(e)); break;
    case PN_CONNECTION_WAKE: if (sending) send_some(pn_link_head(connection, 0)); break;
    case PN_DELIVERY: on_delivery(pn_event_delivery(e)); break;
    case PN_TRANSPORT_ERROR: complain("transport", pn_transport_condition(pn_event_transport(e))); break;
    case PN_CONNECTION_REMOTE_CLOSE: complain("connection", pn_connection_remote_condition(connection)); pn_connection_close(connection); break;
    case PN_SESSION_REMOTE_CLOSE: complain("session", pn_session_remote_condition(pn_event_session(e))); pn_connection_close(connection); break;
    case PN_LINK_REMOTE_CLOSE:
    case PN_LINK_REMOTE_DETACH: complain("link", pn_link_remote_condition(pn_event_link(e))); pn_connection_close(connection); break;
    case PN_TRANSPORT_CLOSED: on_closed(connection); break;
    case PN_PROACTOR_INTERRUPT: interrupted = 1; break;
    default: break;
    }
}

static pn_connection_t *connect_one(client_t *client) {
    pn_connection_t *connection = pn_connection();
    char name[64];
    snprintf(name, sizeof name, "load-%s-%d", sending ? "sender" : "receiver", client->index);
    pn_connection_set_context(connection, client);
    pn_connection_set_container(connection, name);
    pn_connection_set_hostname(connection, host);
    pn_transport_t *transport = pn_transport();
    if (user) { pn_connection_set_user(connection, user); pn_connection_set_password(connection, password); }
    pn_sasl_allowed_mechs(pn_sasl(transport), user ? "PLAIN" : "ANONYMOUS");
    if (user) pn_sasl_set_allow_insecure_mechs(pn_sasl(transport), true);
    char where[512];
    pn_proactor_addr(where, sizeof where, host, port);
    pn_proactor_connect2(proactor, connection, transport, where);
    return connection;
}

static void encode_message(void) {
    if (stream) {
        encoded = malloc(STREAM_PIECE);
        memset(encoded, 'x', STREAM_PIECE);
        return;
    }
    char *body = malloc(size);
    memset(body, 'x', size);
    encoded_size = size + 1024;
    encoded = malloc(encoded_size);
    pn_message_t *message = pn_message();
    pn_data_put_binary(pn_message_body(message), pn_bytes(size, body));
    pn_message_encode(message, encoded, &encoded_size);
    pn_message_free(message);
    free(body);
}

static void report(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    double cpu = usage.ru_utime.tv_sec + usage.ru_utime.tv_usec * 1e-6 + usage.ru_stime.tv_sec + usage.ru_stime.tv_usec * 1e-6;
    if (interrupted || !ended) ended = now();
    double seconds = started ? ended - started : 0;
    long timed = sending && !settled ? total_done : 0;
    qsort(round_trips, timed, sizeof *round_trips, by_value);
    printf("{\"messages\": %ld, \"seconds\": %.4f, \"rate\": %.0f, \"accepted\": %ld, \"other\": %ld, \"cpu_s\": %.3f, \"p50_us\": %.1f, \"p99_us\": %.1f}\n",
           total_done, seconds, seconds > 0 ? total_done / seconds : 0, accepted, other, cpu,
           timed ? round_trips[timed / 2] : 0, timed ? round_trips[timed * 99 / 100] : 0);
}

int main(int argc, char **argv) {
    if (argc < 2) { fprintf(stderr, "usage: load send|recv --port P ...\n"); return 2; }
    sending = !strcmp(argv[1], "send");
    for (int i = 2; i < argc; i++) {
        const char *name = argv[i];
        if (!strcmp(name, "--settled")) { settled = 1; continue; }
        if (!strcmp(name, "--stream")) { stream = 1; continue; }
        if (!strcmp(name, "--stall")) { stall = 1; continue; }
        if (!strcmp(name, "--distinct")) { distinct = 1; continue; }
        if (i + 1 >= argc) { fprintf(stderr, "%s needs a value\n", name); return 2; }
        const char *value = argv[++i];
        if (!strcmp(name, "--host")) host = value;
        else if (!strcmp(name, "--port")) port = value;
        else if (!strcmp(name, "--address")) address = value;
        else if (!strcmp(name, "--connections")) connections = atol(value);
        else if (!strcmp(name, "--count")) count = atol(value);
        else if (!strcmp(name, "--size")) size = atol(value);
        else if (!strcmp(name, "--inflight")) inflight = atol(value);
        else if (!strcmp(name, "--credit")) credit_window = atol(value);
        else if (!strcmp(name, "--pause-us")) pause_us = atol(value);
        else if (!strcmp(name, "--user")) user = value;
        else if (!strcmp(name, "--password-env")) password = getenv(value);
        else { fprintf(stderr, "unknown option %s\n", name); return 2; }
    }
    if (user && !password) { fprintf(stderr, "--user needs --password-env with a variable that is set\n"); return 2; }
    encode_message();
    buffer_size = 1 << 20;
    buffer = malloc(buffer_size);
    round_trips = calloc(count * connections + 1, sizeof *round_trips);
    sent_at = calloc(count * connections + 1, sizeof *sent_at);
    client_t *clients = calloc(connections, sizeof *clients);
    pn_connection_t **opened = calloc(connections, sizeof *opened);

    proactor = pn_proactor();
    signal(SIGINT, on_interrupt);
    for (int i = 0; i < connections; i++) {
        clients[i].index = i;
        opened[i] = connect_one(&clients[i]);
    }
    int were_woken = 0;
    while (over < connections && !interrupted) {
        pn_event_batch_t *batch = pn_proactor_wait(proactor);
        for (pn_event_t *e; (e = pn_event_batch_next(batch));) handle(pn_event_connection(e), e);
        pn_proactor_done(proactor, batch);
        if (attached == connections && !were_woken) {
            were_woken = 1;
            if (stall) for (;;) pause();
            if (sending) for (int i = 0; i < connections; i++) pn_connection_wake(opened[i]);
        }
    }
    report();
    return failed || total_done < count * connections;
}
