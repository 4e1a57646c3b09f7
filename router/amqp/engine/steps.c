/* The steps that every message takes through proton, each as one call from Python instead of up to six.
 *
 * The code makes no decisions. tests/amqp/twins has the same in Python, and tests compare the two. `bind` gets proton's
 * functions from the library that Python has loaded. So nothing is linked, and no header of proton is needed.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/types.h>
#include <time.h>

typedef struct {
  void *link;
  void *delivery;
  bool is_late;
  size_t left;
} step_t;

typedef struct {
  size_t size;
  const char *start;
} tag_t; /* pn_bytes_t */

/* In the order of PROTOTYPES in steps.py, which checks the types. */
static struct {
  void *(*collector_peek)(void *);
  bool (*collector_pop)(void *);
  int (*event_type)(void *);
  void *(*event_delivery)(void *);
  void *(*event_link)(void *);
  void *(*delivery_link)(void *);
  bool (*link_is_receiver)(void *);
  bool (*delivery_readable)(void *);
  bool (*delivery_partial)(void *);
  bool (*delivery_aborted)(void *);
  size_t (*delivery_pending)(void *);
  bool (*delivery_settled)(void *);
  uint64_t (*delivery_remote_state)(void *);
  void (*delivery_update)(void *, uint64_t);
  void (*delivery_settle)(void *);
  ssize_t (*link_recv)(void *, char *, size_t);
  ssize_t (*link_send)(void *, const char *, size_t);
  bool (*link_advance)(void *);
  void *(*delivery)(void *, tag_t);
  ssize_t (*transport_pending)(void *);
  ssize_t (*transport_peek)(void *, char *, size_t);
  void (*transport_pop)(void *, size_t);
  tag_t (*delivery_tag)(void *);
} pn;

static step_t step;
static int DELIVERY, LINK_FLOW;
static uint64_t heard; /* the other events that have an effect: one bit each */
static uint64_t ACCEPTED;
static int64_t slice_ns; /* the time for the events from `first_event` on; 0: no limit */
static int64_t deadline_ns;
static char *message, *output;
static size_t message_bytes, output_bytes;

enum { NOTHING = 0, MESSAGE = -1, OUTCOME = -2, TRANSFER = -3, FLOW = -4 };

/* Returns NULL, and binds nothing, if `count` is not the expected number of functions. */
static step_t *bind(void **functions, size_t count, int delivery, int link_flow, uint64_t heard_kinds, uint64_t accepted,
                    char *message_buffer, size_t message_size, char *output_buffer, size_t output_size) {
  if (count * sizeof *functions != sizeof pn) return NULL;
  memcpy(&pn, functions, sizeof pn);
  DELIVERY = delivery;
  LINK_FLOW = link_flow;
  heard = heard_kinds;
  ACCEPTED = accepted;
  message = message_buffer;
  message_bytes = message_size;
  output = output_buffer;
  output_bytes = output_size;
  return &step;
}

#ifdef CLOCK_MONOTONIC_COARSE
#define CLOCK CLOCK_MONOTONIC_COARSE /* exact to some milliseconds, at a fraction of the cost */
#else
#define CLOCK CLOCK_MONOTONIC
#endif

static int64_t now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static void set_slice(int64_t nanoseconds) { slice_ns = nanoseconds; }

static int look(void *events) {
  void *event;
  int kind;
  for (;; pn.collector_pop(events)) {
    if (!(event = pn.collector_peek(events))) return NOTHING;
    kind = pn.event_type(event);
    if (kind == DELIVERY || kind == LINK_FLOW) break;
    if (kind > 0 && kind < 64 && heard >> kind & 1) return kind;
  }
  if (kind == DELIVERY) {
    void *delivery = step.delivery = pn.event_delivery(event);
    void *link = step.link = pn.delivery_link(delivery);
    if (!pn.link_is_receiver(link)) {
      return pn.delivery_settled(delivery) && pn.delivery_remote_state(delivery) == ACCEPTED ? OUTCOME : TRANSFER;
    }
    if (pn.delivery_readable(delivery) && !pn.delivery_partial(delivery) && !pn.delivery_aborted(delivery)) {
      size_t size = pn.delivery_pending(delivery);
      if (size && size < message_bytes && !pn.delivery_remote_state(delivery))
        return MESSAGE;
    }
    return TRANSFER;
  }
  step.link = pn.event_link(event);
  return FLOW;
}

static int first_event(void *events) {
  step.is_late = false;
  if (slice_ns) deadline_ns = now_ns() + slice_ns;
  return look(events);
}

static int next_event(void *events) {
  pn.collector_pop(events);
  if (slice_ns && now_ns() >= deadline_ns) {
    step.is_late = pn.collector_peek(events) != NULL;
    return NOTHING;
  }
  return look(events);
}

static ssize_t take(void *link) {
  ssize_t taken = pn.link_recv(link, message, message_bytes);
  pn.link_advance(link);
  return taken;
}

static void *new_delivery(void *link) {
  static uint64_t number; /* proton copies the tag; unique in the process, so in each link too */
  number++;
  tag_t tag = {sizeof number, (const char *)&number};
  return pn.delivery(link, tag);
}

/* Returns NULL and sends nothing if there is no memory for a delivery: the bytes would go on another delivery. */
static void *send_whole(void *link, size_t size) {
  void *delivery = new_delivery(link);
  if (!delivery) return NULL;
  pn.link_send(link, message, size);
  pn.link_advance(link);
  return delivery;
}

/* Does the same as `send_whole`, with the tag of `origin`. */
static void *send_as(void *link, size_t size, void *origin) {
  void *delivery = pn.delivery(link, pn.delivery_tag(origin));
  if (!delivery) return NULL;
  pn.link_send(link, message, size);
  pn.link_advance(link);
  return delivery;
}

/* Does the same as `send_whole`, with `inserted` before the byte at `at`, which must be at most `size`. A short message
 * is put together first: that costs less than three calls. */
static void *send_with(void *link, size_t size, size_t at, const char *inserted, size_t inserted_size) {
  static char whole[1024];
  void *delivery = new_delivery(link);
  if (!delivery) return NULL;
  if (size <= sizeof whole && inserted_size <= sizeof whole - size) {
    memcpy(whole, message, at);
    memcpy(whole + at, inserted, inserted_size);
    memcpy(whole + at + inserted_size, message + at, size - at);
    pn.link_send(link, whole, size + inserted_size);
  } else {
    if (at) pn.link_send(link, message, at);
    pn.link_send(link, inserted, inserted_size);
    pn.link_send(link, message + at, size - at);
  }
  pn.link_advance(link);
  return delivery;
}

static void accept(void *delivery) {
  pn.delivery_update(delivery, ACCEPTED);
  pn.delivery_settle(delivery);
}

/* proton gives out at most one frame of the peer's maximum size at once. If it gives less than PULLS_ALL, there is no
 * more. */
enum { SHORTEST = 8, LONGEST_FLOW = 64, ROOM = 512, PULLS_ALL = 8 * 1024 };

static size_t size_at(const uint8_t *at) { return (size_t)at[0] << 24 | at[1] << 16 | at[2] << 8 | at[3]; }

/* Returns the size of the frame at `at`, of `size` bytes, in the form to be sent. Most frames stay unchanged. A Flow of
 * a link that is gone becomes a Flow of the session. A Flow of a session that is gone is left out. See steps.py. */
static size_t mended(uint8_t *at, size_t size) {
  size_t head, fields, field;
  if (size < 18 || at[8] || at[9] != 0x53 || at[10] != 0x13) return size;
  if (at[6] & 0x80) return 0;
  if (at[11] == 0xC0) head = 14;
  else if (at[11] == 0xD0) head = 20;
  else return size;
  for (fields = head, field = 0; field < 4; field++) {
    if (fields >= size) return size;
    fields += at[fields] >= 0x70 ? 5 : at[fields] >= 0x50 ? 2 : 1;
  }
  if (fields + 5 > size || at[fields] != 0x70 || size_at(at + fields + 1) != 0xFFFFFFFE) return size;
  at[2] = 0, at[3] = fields & 0xFF; /* a Flow is shorter than 256 bytes */
  if (head == 14) at[12] = (uint8_t)(fields - 13), at[13] = 4;
  else at[15] = (uint8_t)(fields - 16), at[19] = 4;
  return fields;
}

/* Takes the frames in data[:size]. The first `step.left` bytes belong to a frame that began earlier.
 *
 * Returns how many of the bytes stay, and in `used` how many were handled: a short beginning of a frame is not handled.
 */
static size_t tidy(uint8_t *data, size_t size, size_t *used) {
  size_t at = step.left < size ? step.left : size, to = at, frame, kept;
  for (step.left -= at; at < size; at += frame) {
    size_t rest = size - at;
    if (rest < 4 || (frame = size_at(data + at)) < SHORTEST || frame > rest) {
      if (rest < LONGEST_FLOW) break;
      step.left = frame < SHORTEST ? 0 : frame - rest;
      frame = kept = rest;
    } else {
      kept = mended(data + at, frame);
    }
    if (to != at) memmove(data + to, data + at, kept);
    to += kept;
  }
  *used = at;
  return to;
}

static ssize_t pull(void *transport, size_t left) {
  size_t size = 0;
  for (step.left = left;;) {
    size_t used, kept, room = output_bytes - size;
    ssize_t pending = pn.transport_pending(transport);
    if (pending <= 0) return size ? (ssize_t)size : pending;
    if ((size_t)pending < room) room = (size_t)pending;
    pn.transport_peek(transport, output + size, room);
    kept = tidy((uint8_t *)output + size, room, &used);
    if (!used) kept = used = room; /* proton has no more bytes of it, and is about to end */
    pn.transport_pop(transport, used);
    size += kept;
    if ((kept == room && used == room && room < PULLS_ALL) || output_bytes - size < ROOM) return (ssize_t)size;
  }
}
