/* Checks that every receiver of a message finds the same sections that the router finds.
 *
 * A message is walked once from its beginning to its end, down to the last element of every list, map and array. Sizes
 * and counts must agree, and sections must be in their order. Only the contents of binary and text are skipped. If all
 * this is true, no reader can continue at another place than the router, so none finds another user-id.
 * tests/amqp/twins has the same in Python, and tests compare the two.
 *
 * A message that streams is walked piece by piece: a value that is cut at the end of a piece is kept for the next
 * piece.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { HEADER = 0x70, MESSAGE_ANNOTATIONS = 0x72, PROPERTIES, APPLICATION_PROPERTIES, VALUE = 0x77, FOOTER };
enum { MAX_DEPTH = 32 };             /* as in decoding.py. Attack: nesting bombs. */
enum { LONGEST_NAME = 31, KEPT = 6 + LONGEST_NAME }; /* of a section; fewer bytes are kept than its longest beginning */
enum { MALFORMED = -1, NOTHING, SOMETHING };         /* the contents of a message, as in walk.py */
enum { BAD = -1, CUT = 0 };                          /* returned instead of a number of bytes taken */

/* The form of the values of a level. SIZED: each has a constructor, up to the end of a list or map. OPEN: each has a
 * constructor, for descriptor and value, where the end is not known before. UNTYPED: an array, whose constructor comes
 * next. Any other form is the constructor of an array's elements. */
enum { SIZED = 0, OPEN, UNTYPED };

typedef struct {
  uint64_t end;  /* nothing in it goes beyond this */
  uint32_t left; /* values still to come */
  uint8_t form;
} level_t;

typedef struct {
  int64_t user_id_at, annotations_at, annotations_end; /* with their descriptor; -1: there are none */
  uint32_t user_id_size;
  uint64_t at;      /* the current place in the message */
  uint64_t skip_to; /* bytes before this are skipped */
  uint8_t section;  /* the latest; 0 before the first */
  uint8_t fields;   /* how many of the first two properties have been read */
  uint8_t kept_size;
  bool is_late;   /* the first piece of a stream has been read */
  bool is_early; /* the footer comes before the body, as rhea writes it */
  uint8_t kept[KEPT];
  uint32_t depth;
  level_t levels[MAX_DEPTH + 1]; /* the first contains only the section's value */
} walk_t;

static uint32_t be32(const uint8_t *at) {
  return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

static bool is_constructor(uint8_t code) {
  /* One bit for each valid code of a nibble: 40 to 45, 50 to 56, 60, 61, ... */
  static const uint16_t CODES[16] = {[0x4] = 0x3f, [0x5] = 0x7f, [0x6] = 0x03, [0x7] = 0x1f, [0x8] = 0x1f,
                                     [0x9] = 0x110, [0xa] = 0x0b, [0xb] = 0x0b, [0xc] = 0x03, [0xd] = 0x03,
                                     [0xe] = 0x01, [0xf] = 0x01};
  return CODES[code >> 4] >> (code & 15) & 1;
}

static uint32_t fixed_width(uint8_t code) { return code < 0x50 ? 0 : 1u << ((code >> 4) - 5); }

static bool push(walk_t *w, uint64_t end, uint32_t left, uint8_t form) {
  if (w->depth > MAX_DEPTH) return false;
  w->levels[w->depth++] = (level_t){.end = end, .left = left, .form = form};
  return true;
}

/* Returns true if a section may come next. Bodies are data, or sequences, or one value. The footer may come before
 * them: the router reads nothing that follows it in either case. */
static bool may_follow(const walk_t *w, uint64_t code) {
  uint8_t last = w->section;
  if (code < HEADER || code > FOOTER) return false;
  if (code == FOOTER) return last != FOOTER && !w->is_early;
  if (last <= APPLICATION_PROPERTIES) return code > last;
  if (last == FOOTER) return w->is_early && code > APPLICATION_PROPERTIES;
  return code == last && code < VALUE;
}

static uint8_t code_of(const uint8_t *name, size_t size) {
  static const char *const NAMES[] = {
      "amqp:header:list",
      "amqp:delivery-annotations:map",
      "amqp:message-annotations:map",
      "amqp:properties:list",
      "amqp:application-properties:map",
      "amqp:data:binary",
      "amqp:amqp-sequence:list",
      "amqp:amqp-value:*",
      "amqp:footer:map",
  };
  for (uint8_t i = 0; i <= FOOTER - HEADER; i++)
    if (strlen(NAMES[i]) == size && !memcmp(NAMES[i], name, size)) return HEADER + i;
  return 0;
}

/* Reads a section's descriptor. `room` must be at least 1, here and below. Returns its number of bytes, CUT or BAD. */
static int begin_section(walk_t *w, const uint8_t *at, size_t room) {
  uint64_t code;
  uint32_t bytes;
  if (at[0]) return BAD;
  if (room < 2) return CUT;
  if (at[1] == 0x53) {
    bytes = 3;
    if (room < bytes) return CUT;
    code = at[2];
  } else if (at[1] == 0x80) {
    bytes = 10;
    if (room < bytes) return CUT;
    code = (uint64_t)be32(at + 2) << 32 | be32(at + 6);
  } else if (at[1] == 0xa3 || at[1] == 0xb3) {
    uint32_t start = at[1] == 0xa3 ? 3 : 6;
    if (room < start) return CUT;
    uint32_t size = start == 3 ? at[2] : be32(at + 2);
    if (size > LONGEST_NAME) return BAD;
    bytes = start + size;
    if (room < bytes) return CUT;
    code = code_of(at + start, size);
  } else {
    return BAD;
  }
  if (!may_follow(w, code) || (w->is_late && code < APPLICATION_PROPERTIES)) return BAD;
  if (code == FOOTER) w->is_early = w->section <= APPLICATION_PROPERTIES;
  w->section = (uint8_t)code;
  if (code == MESSAGE_ANNOTATIONS) w->annotations_at = (int64_t)w->at;
  return push(w, UINT64_MAX, 1, OPEN) ? (int)bytes : BAD;
}

/* Reads the constructor of an array's elements. Skips all elements if they have the same length. */
static int begin_array(walk_t *w, uint8_t code) {
  level_t *level = &w->levels[w->depth - 1];
  if (!code) return push(w, level->end, 1, OPEN) ? 1 : BAD; /* the descriptor, then the constructor */
  if (!is_constructor(code)) return BAD;
  level->form = code;
  if (code >= 0xa0) return 1;
  if ((uint64_t)level->left * fixed_width(code) != level->end - w->at - 1) return BAD;
  level->left = 0;
  w->skip_to = level->end;
  return 1;
}

/* Returns true if a value with this constructor may be at this place. Checks only sections that the router reads. */
static bool is_in_place(const walk_t *w, uint8_t code) {
  if (w->section >= APPLICATION_PROPERTIES) return true;
  if (w->depth == 1) {
    if (w->section == HEADER || w->section == PROPERTIES) return code == 0x45 || code == 0xc0 || code == 0xd0;
    return code == 0xc1 || code == 0xd1;
  }
  if (w->section != PROPERTIES || w->depth != 2) return true;
  if (w->fields == 0) return code >= 0x40 && code < 0xc0; /* message-id */
  return w->fields > 1 || code == 0x40 || code == 0xa0 || code == 0xb0;
}

static bool begin_compound(walk_t *w, uint8_t code, uint64_t first, uint64_t end, uint32_t count) {
  if (first > end) return false;
  if (code >= 0xe0) return push(w, end, count, UNTYPED);
  if ((code & 1) && (count & 1)) return false; /* a map has a value for each key */
  return count ? push(w, end, count, SIZED) : first == end;
}

/* Reads the next value of the innermost level: all of it, or up to its first element. Returns the same as
 * begin_section. */
static int begin_value(walk_t *w, const uint8_t *at, size_t room) {
  level_t *level = &w->levels[w->depth - 1];
  if (w->at >= level->end) return BAD;
  if (level->form == UNTYPED) return begin_array(w, at[0]);
  uint32_t own = level->form > UNTYPED ? 0 : 1; /* the bytes of its own constructor */
  uint8_t code = own ? at[0] : level->form;
  if (!is_in_place(w, code)) return BAD;
  if (!code) {
    level->left--;
    return push(w, level->end, 2, OPEN) ? 1 : BAD;
  }
  if (!is_constructor(code)) return BAD;
  bool is_field = w->section == PROPERTIES && w->depth == 2 && w->fields < 2;
  if (code < 0xa0) {
    w->skip_to = w->at + 1 + fixed_width(code);
    if (w->skip_to > level->end) return BAD;
    level->left--;
    w->fields += is_field;
    return 1;
  }
  uint32_t width = (code >> 4) % 2 ? 4 : 1;
  uint32_t bytes = own + (code < 0xc0 ? width : 2 * width);
  if (bytes > level->end - w->at) return BAD;
  if (room < bytes) return CUT;
  uint32_t size = width == 1 ? at[own] : be32(at + own);
  uint64_t end = w->at + own + width + size;
  if (end > level->end) return BAD;
  level->left--;
  if (code < 0xc0) {
    w->skip_to = end;
    if (is_field && w->fields == 1) {
      w->user_id_at = (int64_t)(w->at + bytes);
      w->user_id_size = size;
    }
    w->fields += is_field;
    return (int)bytes;
  }
  uint32_t count = width == 1 ? at[own + 1] : be32(at + own + 4);
  return begin_compound(w, code, w->at + bytes, end, count) ? (int)bytes : BAD;
}

/* Returns true if any value may come next, in one of the sections that the router reads. */
static bool is_free(const walk_t *w) {
  return w->depth > 2 || (w->depth == 2 && (w->section != PROPERTIES || w->fields > 1));
}

/* Skips the next values of the innermost level that have arrived completely. Returns the bytes taken, 0 if none. */
static size_t pass_over_plain_values(walk_t *w, const uint8_t *data, size_t room) {
  level_t *level = &w->levels[w->depth - 1];
  if (level->form > OPEN || (w->section < APPLICATION_PROPERTIES && !is_free(w))) return 0;
  if (room > level->end - w->at) room = (size_t)(level->end - w->at);
  size_t at = 0;
  while (level->left && at < room) {
    uint8_t code = data[at];
    size_t rest = room - at;
    uint64_t size;
    if (!is_constructor(code) || code >= 0xc0) break;
    if (code < 0xa0) {
      size = 1 + fixed_width(code);
    } else if (code < 0xb0) {
      if (rest < 2) break;
      size = 2 + data[at + 1];
    } else {
      if (rest < 5) break;
      size = 5 + (uint64_t)be32(data + at + 1);
    }
    if (size > rest) break;
    at += (size_t)size;
    level->left--;
  }
  return at;
}

/* Leaves levels that have no more values to come. Returns false if a level does not end here. */
static bool leave(walk_t *w) {
  while (w->depth) {
    const level_t *level = &w->levels[w->depth - 1];
    if (level->left || level->form == UNTYPED) return true;
    if (level->form != OPEN && w->at != level->end) return false;
    if (!--w->depth && w->section == MESSAGE_ANNOTATIONS) w->annotations_end = (int64_t)w->at;
  }
  return true;
}

static int begin_next(walk_t *w, const uint8_t *at, size_t room) {
  return w->depth ? begin_value(w, at, room) : begin_section(w, at, room);
}

/* Walks on through a piece. Returns false if it is malformed. */
static bool walk(walk_t *w, const uint8_t *data, size_t size) {
  const uint8_t *end = data + size;
  while (w->kept_size && data < end) { /* byte by byte, until the value is complete */
    w->kept[w->kept_size++] = *data++;
    int taken = begin_next(w, w->kept, w->kept_size);
    if (taken == BAD) return false;
    if (taken == CUT) continue;
    w->at += (uint32_t)taken;
    w->kept_size = 0;
  }
  if (w->kept_size) return true;
  for (;;) {
    if (w->at < w->skip_to) {
      uint64_t rest = w->skip_to - w->at, room = (uint64_t)(end - data);
      if (rest > room) {
        w->at += room;
        return true;
      }
      w->at += rest;
      data += rest;
    }
    if (!leave(w)) return false;
    if (data == end) return true;
    if (w->depth) {
      size_t passed = pass_over_plain_values(w, data, (size_t)(end - data));
      w->at += passed;
      data += passed;
      if (passed) continue;
    }
    int taken = begin_next(w, data, (size_t)(end - data));
    if (taken == BAD) return false;
    if (taken == CUT) break;
    w->at += (uint32_t)taken;
    data += taken;
  }
  w->kept_size = (uint8_t)(end - data);
  memcpy(w->kept, data, w->kept_size);
  return true;
}

/* Returns true if everything that has begun has arrived completely. */
static bool is_over(const walk_t *w) { return w->section && !w->depth && !w->kept_size; }

static void start(walk_t *w) {
  w->user_id_at = w->annotations_at = w->annotations_end = -1;
  w->user_id_size = w->depth = 0;
  w->at = w->skip_to = 0;
  w->section = w->fields = w->kept_size = 0;
  w->is_late = w->is_early = false;
}

static int what(const walk_t *w) { return w->user_id_at >= 0 || w->annotations_at >= 0 ? SOMETHING : NOTHING; }

/* Walks a message that has arrived completely. */
static int whole(walk_t *w, const uint8_t *data, uint32_t size) {
  start(w);
  return walk(w, data, size) && is_over(w) ? what(w) : MALFORMED;
}

/* Walks the first piece of a message. Everything before the application-properties must be complete in it. */
static int first(walk_t *w, const uint8_t *data, uint32_t size) {
  start(w);
  if (!walk(w, data, size) || (w->section < APPLICATION_PROPERTIES && w->depth)) return MALFORMED;
  w->is_late = true;
  return what(w);
}

/* Walks any other piece. Returns MALFORMED or NOTHING. */
static int next(walk_t *w, const uint8_t *data, uint32_t size) { return walk(w, data, size) ? NOTHING : MALFORMED; }
