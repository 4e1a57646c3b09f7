/* Handles the front of a message that passes between routers: its header, and the annotations that routers write.
 *
 * This is compiled into the same module as walk.c, and uses its be32 and sections. These functions handle only the
 * encodings of routers and usual clients. For all others they return LOOK_CLOSER, and Python parses the message.
 * tests/amqp/twins has the same in Python, and tests compare the two.
 */

enum { LOOK_CLOSER = -1 };
enum { EMPTY_LIST = 0x45, LIST8 = 0xc0, MAP8, LIST32 = 0xd0, MAP32 };
enum { DEFAULT_PRIORITY = 4, MAX_PRIORITY = 9, ASKS = 16 };
enum { REPLY_TO = 4, NULL_VALUE = 0x40 };             /* the index among the properties; an absent field */
enum { FEWEST_BYTES = 8 };                            /* of a message, or of the rest of one, to be checked */
enum { MOST_BYTES = 1 << 20 };                        /* the result of `peel` has room for this number of bytes */
enum { PLACES = 256, LONGEST = 512 };                 /* the maximum of known sections, and of bytes of each */
enum { USUAL = 1 << 20, PLACE = 1 << 21 };            /* as in front.py */

typedef struct {
  uint32_t size; /* 0: this place is free */
  uint8_t bytes[LONGEST];
} section_t;

typedef struct {
  uint64_t seed;
  section_t sections[PLACES];
} known_t;

static known_t *known_new(uint64_t seed) {
  known_t *known = calloc(1, sizeof *known);
  if (known) known->seed = seed;
  return known;
}

static void known_free(known_t *known) { free(known); }

/* Returns the end of the header, 0 without one, -1: look closer. `size` must be at least FEWEST_BYTES. */
static int64_t header_end(const uint8_t *data, uint32_t size) {
  if (data[0] || data[1] != 0x53) return LOOK_CLOSER;
  if (data[2] != HEADER) return 0;
  uint64_t end;
  if (data[3] == EMPTY_LIST) end = 4;
  else if (data[3] == LIST8) end = 5 + (uint64_t)data[4];
  else if (data[3] == LIST32) end = 8 + (uint64_t)be32(data + 4);
  else return LOOK_CLOSER;
  return end <= size ? (int64_t)end : LOOK_CLOSER;
}

/* Returns the priority in a header that ends at `end`; -1: look closer. */
static int priority_in(const uint8_t *data, uint32_t end) {
  if (!end || data[3] == EMPTY_LIST) return DEFAULT_PRIORITY;
  uint32_t at = data[3] == LIST8 ? 6 : 12;
  if (at > end) return LOOK_CLOSER;
  uint32_t count = data[3] == LIST8 ? data[5] : be32(data + 8);
  if (count < 2) return DEFAULT_PRIORITY;
  if (at >= end) return LOOK_CLOSER;
  if (data[at] == 0x40 || data[at] == 0x41 || data[at] == 0x42) at += 1; /* durable */
  else if (data[at] == 0x56) at += 2;
  else return LOOK_CLOSER;
  if (at >= end) return LOOK_CLOSER;
  if (data[at] == 0x40) return DEFAULT_PRIORITY;
  if (data[at] != 0x50 || at + 1 >= end) return LOOK_CLOSER;
  return data[at + 1] < MAX_PRIORITY ? data[at + 1] : MAX_PRIORITY;
}

/* Returns the size of a property before the reply-to, at most `room`; 0: its form is unusual. */
static uint64_t property_size(const uint8_t *at, uint64_t room) {
  uint8_t kind = at[0] >> 4;
  uint64_t size = 0;
  if (kind >= 0x4 && kind <= 0x9) size = 1 + (uint64_t)fixed_width(at[0]);
  else if (kind == 0xa && room > 1) size = 2 + (uint64_t)at[1];
  else if (kind == 0xb && room > 4) size = 5 + (uint64_t)be32(at + 1);
  return size <= room ? size : 0;
}

/* Returns true if the message may have a reply-to. Reads the properties if they begin at `at`. If another section
 * begins there, returns false. Returns true for properties of an unusual form. */
static bool may_ask(const uint8_t *data, uint64_t at, uint32_t size) {
  if (data[at + 2] != PROPERTIES) return false;
  uint8_t form = data[at + 3];
  if (form == EMPTY_LIST) return false;
  uint64_t value = at + (form == LIST8 ? 6 : 12);
  if ((form != LIST8 && form != LIST32) || value > size) return true;
  uint32_t count = form == LIST8 ? data[at + 5] : be32(data + at + 8);
  if (count <= REPLY_TO) return false;
  for (int passed = 0; passed < REPLY_TO; passed++) {
    uint64_t bytes = value < size ? property_size(data + value, size - value) : 0;
    if (!bytes) return true;
    value += bytes;
  }
  return value >= size || data[value] != NULL_VALUE;
}

/* Returns the place for annotations in a message that has none, times 32; plus ASKS, if it may have a reply-to; plus
 * its priority. LOOK_CLOSER if its form is unusual. */
static int64_t look_ahead(const uint8_t *data, uint32_t size) {
  if (size < FEWEST_BYTES) return LOOK_CLOSER;
  int64_t at = header_end(data, size);
  if (at < 0 || at + 4 > size) return LOOK_CLOSER;
  int priority = priority_in(data, (uint32_t)at);
  const uint8_t *behind = data + at;
  if (priority < 0 || behind[0] || behind[1] != 0x53 || behind[2] < PROPERTIES || behind[2] > FOOTER) return LOOK_CLOSER;
  return at << 5 | (may_ask(data, (uint64_t)at, size) ? ASKS : 0) | priority;
}

/* splitmix64, over eight bytes at a time. The seed is secret. Attack: a peer chooses sections that all fall into one
 * place. */
static uint32_t place_for(const known_t *known, const uint8_t *section, uint32_t size) {
  uint64_t x = known->seed ^ size;
  for (uint32_t at = 0; at < size; at += 8) {
    uint64_t word = 0;
    memcpy(&word, section + at, size - at < 8 ? size - at : 8);
    x ^= word;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    x ^= x >> 31;
  }
  return (uint32_t)x % PLACES;
}

/* Returns true if a message without annotations has the usual form: sections.find_properties needs no closer look. */
static bool is_usual(const uint8_t *data, uint32_t size) {
  uint64_t at = 0;
  uint8_t last = 0;
  while (at + 4 <= size) {
    const uint8_t *section = data + at;
    if (section[0] || section[1] != 0x53) return false;
    uint8_t code = section[2], form = section[3];
    if (code > APPLICATION_PROPERTIES && code < FOOTER) return true;
    bool is_list = code == HEADER || code == PROPERTIES;
    if (code <= last || (!is_list && code != APPLICATION_PROPERTIES)) return false;
    if (is_list && form == EMPTY_LIST) {
      at += 4;
    } else if (form == (is_list ? LIST8 : MAP8)) {
      if (at + 5 > size) return false;
      at += 5 + (uint64_t)section[4];
    } else if (form == (is_list ? LIST32 : MAP32)) {
      if (at + 8 > size) return false;
      at += 8 + (uint64_t)be32(section + 4);
    } else {
      return false;
    }
    last = code;
  }
  return false;
}

/* Removes the annotations from the message in `data`, if they are known and at most a header comes before them.
 *
 * Returns the bytes that are left, plus USUAL if they have the usual form, plus PLACE times the place of the section.
 * Returns LOOK_CLOSER, and changes nothing, in all other cases.
 */
static int64_t peel(const known_t *known, uint8_t *data, uint32_t size) {
  if (size < FEWEST_BYTES || size >= MOST_BYTES) return LOOK_CLOSER;
  int64_t at = header_end(data, size);
  if (at < 0 || at + FEWEST_BYTES > size) return LOOK_CLOSER;
  uint8_t *section = data + at;
  uint64_t bytes;
  if (section[0] || section[1] != 0x53 || section[2] != MESSAGE_ANNOTATIONS) return LOOK_CLOSER;
  if (section[3] == MAP8) bytes = 5 + (uint64_t)section[4];
  else if (section[3] == MAP32) bytes = 8 + (uint64_t)be32(section + 4);
  else return LOOK_CLOSER;
  if (bytes > LONGEST || (uint64_t)at + bytes + FEWEST_BYTES > size) return LOOK_CLOSER;
  uint32_t place = place_for(known, section, (uint32_t)bytes);
  const section_t *found = &known->sections[place];
  if (found->size != bytes || memcmp(found->bytes, section, bytes)) return LOOK_CLOSER;
  uint32_t rest = size - (uint32_t)bytes;
  memmove(section, section + bytes, rest - (uint32_t)at);
  return (int64_t)place * PLACE | (is_usual(data, rest) ? USUAL : 0) | rest;
}

/* Makes `peel` remove this section from now on. Returns its place, which another section may have lost; -1: it is too
 * long. */
static int remember(known_t *known, const uint8_t *section, uint32_t size) {
  if (size < FEWEST_BYTES || size > LONGEST) return -1;
  uint32_t place = place_for(known, section, size);
  section_t *kept = &known->sections[place];
  memcpy(kept->bytes, section, size);
  kept->size = size;
  return (int)place;
}
