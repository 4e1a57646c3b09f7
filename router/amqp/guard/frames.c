/* The channels and handles that a peer uses, and the fast check of plain frames against them.
 *
 * `scan` admits whole frames from the start of a read: empty ones, and Transfers, Flows and Dispositions in the plain
 * encodings that clients use. It stops at the first frame of another kind, or with a fault. machine.py decides about
 * that frame, so that all refusals and their texts are in one place. tests/amqp/twins has the same in Python, and tests
 * compare the two.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

/* A session: value is its next delivery-id. A link: value is its delivery-count, id of its latest delivery. */
typedef struct {
  uint64_t key; /* 0: this place is free */
  uint32_t value, id, flags;
} entry_t;

typedef struct {
  entry_t *entries;
  uint32_t mask, used;
  uint32_t max_frame; /* 0: admit nothing, the connection is not open */
  uint32_t span;      /* deliveries that the Dispositions of the latest scan named */
  uint64_t seed;
} tables_t;

enum { HAS_ID = 1, IS_SENDER = 2, HAS_MORE = 4 }; /* as in tables.py */
enum { FLOW = 0x13, TRANSFER = 0x14, DISPOSITION = 0x15 };
enum { HEADER_BYTES = 8, MAX_TAG_BYTES = 32, FEWEST_PLACES = 8 };
static const uint64_t SESSION = (uint64_t)1 << 48, LINK = (uint64_t)1 << 49; /* as in tables.py */

/* splitmix64. The seed is secret. Attack: a peer chooses handles that all fall into one place. */
static uint32_t place_of(const tables_t *t, uint64_t key) {
  uint64_t x = key ^ t->seed;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return (uint32_t)(x ^ (x >> 31)) & t->mask;
}

static tables_t *tables_new(uint64_t seed) {
  tables_t *t = calloc(1, sizeof *t);
  if (!t) return NULL;
  t->entries = calloc(FEWEST_PLACES, sizeof *t->entries);
  if (!t->entries) {
    free(t);
    return NULL;
  }
  t->mask = FEWEST_PLACES - 1;
  t->seed = seed;
  return t;
}

static void tables_free(tables_t *t) {
  free(t->entries);
  free(t);
}

/* Returns the entry, or the free place where it would be. There is always a free place. */
static entry_t *place(const tables_t *t, uint64_t key) {
  uint32_t at = place_of(t, key);
  while (t->entries[at].key && t->entries[at].key != key) at = (at + 1) & t->mask;
  return &t->entries[at];
}

/* Returns NULL if there is none. The entry is valid until the next `add` or `discard`. */
static entry_t *find(tables_t *t, uint64_t key) {
  entry_t *entry = place(t, key);
  return entry->key ? entry : NULL;
}

static bool resize(tables_t *t, uint32_t places) {
  entry_t *old = t->entries, *fresh = calloc(places, sizeof *fresh);
  uint32_t count = t->mask + 1;
  if (!fresh) return false;
  t->entries = fresh;
  t->mask = places - 1;
  for (uint32_t i = 0; i < count; i++)
    if (old[i].key) *place(t, old[i].key) = old[i];
  free(old);
  return true;
}

/* Returns a new entry, all zero except its key; NULL if memory is short. The key must not be 0 or exist already. */
static entry_t *add(tables_t *t, uint64_t key) {
  if (t->used >= (t->mask + 1) / 2 && !resize(t, (t->mask + 1) * 2)) return NULL;
  entry_t *entry = place(t, key);
  entry->key = key;
  t->used++;
  return entry;
}

static void discard(tables_t *t, uint64_t key) {
  entry_t *entry = find(t, key);
  if (!entry) return;
  t->used--;
  /* Entries after it whose home place is at or before the hole move forward. */
  uint32_t hole = (uint32_t)(entry - t->entries), at = hole;
  while (t->entries[at = (at + 1) & t->mask].key) {
    uint32_t home = place_of(t, t->entries[at].key);
    if (((at - home) & t->mask) < ((at - hole) & t->mask)) continue;
    t->entries[hole] = t->entries[at];
    hole = at;
  }
  t->entries[hole] = (entry_t){0};
  if (t->mask + 1 > FEWEST_PLACES && t->used < (t->mask + 1) / 8) resize(t, (t->mask + 1) / 2);
}

/* The fields of a list, one after the other. Nothing is read at or past `end`. */
typedef struct {
  const uint8_t *at, *end;
  uint32_t left; /* fields not yet read */
} fields_t;

static uint32_t be32(const uint8_t *at) {
  return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

/* Opens the list that begins at `at`. Returns the end of it, or NULL if it is no list that ends by `end`. */
static const uint8_t *open_list(fields_t *fields, const uint8_t *at, const uint8_t *end) {
  size_t room = (size_t)(end - at), size;
  if (room < 3) return NULL;
  if (at[0] == 0xc0) {
    size = at[1];
    if (size < 1 || size > room - 2) return NULL;
    *fields = (fields_t){at + 3, at + 2 + size, at[2]};
  } else if (at[0] == 0xd0 && room >= 9) {
    size = be32(at + 1);
    if (size < 4 || size > room - 5) return NULL;
    *fields = (fields_t){at + 9, at + 5 + size, be32(at + 5)};
  } else {
    return NULL;
  }
  return fields->end;
}

typedef struct {
  uint32_t value;
  bool is_set;
} field_t;

/* Each function reads one field, which is null, left out or of the named type. Returns false for anything else. */

static bool read_uint(fields_t *f, field_t *field) {
  *field = (field_t){0, false};
  if (!f->left) return true;
  f->left--;
  size_t room = (size_t)(f->end - f->at);
  if (!room) return false;
  switch (f->at[0]) {
    case 0x40: f->at++; return true;
    case 0x43: f->at++; field->is_set = true; return true;
    case 0x52:
      if (room < 2) return false;
      *field = (field_t){f->at[1], true};
      f->at += 2;
      return true;
    case 0x70:
      if (room < 5) return false;
      *field = (field_t){be32(f->at + 1), true};
      f->at += 5;
      return true;
    default: return false;
  }
}

static bool read_bool(fields_t *f, field_t *field) {
  *field = (field_t){0, false};
  if (!f->left) return true;
  f->left--;
  size_t room = (size_t)(f->end - f->at);
  if (!room) return false;
  switch (f->at[0]) {
    case 0x40: f->at++; return true;
    case 0x41: f->at++; *field = (field_t){1, true}; return true;
    case 0x42: f->at++; *field = (field_t){0, true}; return true;
    case 0x56:
      if (room < 2 || f->at[1] > 1) return false;
      *field = (field_t){f->at[1], true};
      f->at += 2;
      return true;
    default: return false;
  }
}

static bool read_null(fields_t *f) {
  if (!f->left) return true;
  f->left--;
  return f->at < f->end && *f->at++ == 0x40;
}

static bool read_tag(fields_t *f, bool *is_set) {
  *is_set = false;
  if (!f->left) return true;
  f->left--;
  size_t room = (size_t)(f->end - f->at);
  if (room && f->at[0] == 0x40) {
    f->at++;
    return true;
  }
  if (room < 2 || f->at[0] != 0xa0 || f->at[1] > MAX_TAG_BYTES || f->at[1] > room - 2) return false;
  f->at += 2 + f->at[1];
  *is_set = true;
  return true;
}

/* Reads null or `accepted`, in the encoding of clients. */
static bool read_accepted(fields_t *f) {
  static const uint8_t ACCEPTED[] = {0x00, 0x53, 0x24, 0x45};
  if (f->left && f->end - f->at >= 4 && f->at[0] == 0x00) {
    for (int i = 0; i < 4; i++)
      if (f->at[i] != ACCEPTED[i]) return false;
    f->left--;
    f->at += 4;
    return true;
  }
  return read_null(f);
}

static bool is_at_end(const fields_t *f) { return !f->left && f->at == f->end; }

static uint64_t session_key(uint16_t channel) { return SESSION | channel; }
static uint64_t link_key(uint16_t channel, uint32_t handle) { return LINK | (uint64_t)channel << 32 | handle; }

static bool admit_transfer(tables_t *t, uint16_t channel, const uint8_t *at, const uint8_t *end) {
  fields_t f;
  field_t handle, id, format, settled, more, aborted, batchable;
  bool has_tag;
  if (!open_list(&f, at, end) || !read_uint(&f, &handle) || !handle.is_set || !read_uint(&f, &id) ||
      !read_tag(&f, &has_tag) || !read_uint(&f, &format) || !read_bool(&f, &settled) || !read_bool(&f, &more) ||
      !read_null(&f) /* rcv-settle-mode */ || !read_null(&f) /* state */ || !read_null(&f) /* resume */ ||
      !read_bool(&f, &aborted) || !read_bool(&f, &batchable) || !is_at_end(&f))
    return false;
  entry_t *session = find(t, session_key(channel)), *link = find(t, link_key(channel, handle.value));
  if (!session || !link || !(link->flags & IS_SENDER)) return false;
  bool goes_on = more.value && !aborted.value;
  if (link->flags & HAS_MORE) {
    if (id.is_set && id.value != link->id) return false;
  } else {
    if (!id.is_set || !has_tag || ((session->flags & HAS_ID) && id.value != session->value)) return false;
    session->value = id.value + 1;
    session->flags |= HAS_ID;
    link->id = id.value;
    link->value++;
  }
  link->flags = goes_on ? link->flags | HAS_MORE : link->flags & ~(uint32_t)HAS_MORE;
  return true;
}

static bool admit_flow(tables_t *t, uint16_t channel, const uint8_t *at, const uint8_t *end) {
  fields_t f;
  field_t next_incoming, incoming, next_outgoing, outgoing, handle, count, credit, available, drain, echo;
  if (open_list(&f, at, end) != end || !read_uint(&f, &next_incoming) || !read_uint(&f, &incoming) ||
      !read_uint(&f, &next_outgoing) || !read_uint(&f, &outgoing) || !read_uint(&f, &handle) ||
      !read_uint(&f, &count) || !read_uint(&f, &credit) || !read_uint(&f, &available) || !read_bool(&f, &drain) ||
      !read_bool(&f, &echo) || !read_null(&f) /* properties */ || !is_at_end(&f) || !incoming.is_set ||
      !next_outgoing.is_set || !outgoing.is_set || !find(t, session_key(channel)))
    return false;
  if (!handle.is_set) return true;
  entry_t *link = find(t, link_key(channel, handle.value));
  return link && !(link->flags & IS_SENDER) && credit.value <= INT32_MAX && !drain.value; /* machine.py notes a drain */
}

static bool admit_disposition(tables_t *t, uint16_t channel, const uint8_t *at, const uint8_t *end, uint32_t max_span) {
  fields_t f;
  field_t role, first, last, settled, batchable;
  if (open_list(&f, at, end) != end || !read_bool(&f, &role) || !read_uint(&f, &first) || !read_uint(&f, &last) ||
      !read_bool(&f, &settled) || !read_accepted(&f) || !read_bool(&f, &batchable) || !is_at_end(&f) ||
      !role.is_set || !first.is_set || !find(t, session_key(channel)))
    return false;
  uint32_t span = last.is_set ? last.value - first.value : 0;
  if (span >= max_span || t->span >= max_span - span) return false;
  t->span += span + 1;
  return true;
}

/* Returns how many of the `size` bytes are whole admitted frames. Their Dispositions may name at most `max_span`
 * deliveries in total. */
static size_t scan(tables_t *t, const uint8_t *data, size_t size, uint32_t max_span) {
  size_t at = 0;
  t->span = 0;
  while (size - at >= HEADER_BYTES) {
    const uint8_t *frame = data + at;
    uint32_t bytes = be32(frame);
    if (bytes < HEADER_BYTES || bytes > t->max_frame || bytes > size - at) break;
    if (frame[4] != 2 || frame[5] != 0) break; /* no extended header; type AMQP */
    if (bytes > HEADER_BYTES) {
      uint16_t channel = (uint16_t)(frame[6] << 8 | frame[7]);
      const uint8_t *end = frame + bytes;
      if (bytes < HEADER_BYTES + 4 || frame[8] != 0x00 || frame[9] != 0x53) break;
      bool is_admitted = frame[10] == TRANSFER      ? admit_transfer(t, channel, frame + 11, end)
                         : frame[10] == FLOW        ? admit_flow(t, channel, frame + 11, end)
                         : frame[10] == DISPOSITION ? admit_disposition(t, channel, frame + 11, end, max_span)
                                                    : false;
      if (!is_admitted) break;
    }
    at += bytes;
  }
  return at;
}
