/* Who wrote what: between two barriers no two cores of a team write the same byte, also where both write one value.
 *
 * While a core runs, the bytes that others have written since the last barrier hold the complement of their values. A
 * core that writes one of them leaves something else there, and one that reads it computes something else. What a core
 * changed is found when it hands over to another one: it is compared with a copy, in words of eight bytes. Only the
 * blocks are looked at that are alive when the team starts or meets at a barrier, in levels that generated code reaches
 * itself.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "model.h"

enum { WORD = 8, LARGEST = 64 /* words that are compared in one piece */ };

/* A part of an arena: first and last word, whether any core has written there. */
struct part {
    const struct host_space *space;
    uint32_t first, end;
    int is_written;
};

static struct {
    struct part *part;
    int count, room;
    int core; /* the core that runs, or -1 */
    int is_hiding;
} team = {.core = -1};

/* Per level: what the arena holds, who wrote it (core + 1), and which bits are turned around while a core runs. */
static uint64_t **values, **writers, **hidden;

/* The thread sanitizer sees these writes by itself, and the address sanitizer would find nothing here. */
#define PLAIN __attribute__((no_sanitize_address, no_sanitize_thread))

static uint64_t *words(const struct host_space *space) {
    return (uint64_t *)(void *)space->memory;
}

static uint64_t *allocate(uint32_t bytes) {
    uint64_t *const found = calloc((size_t)bytes / WORD + 2, WORD);
    if (!found) abort();
    return found;
}

static void open_levels(void) {
    if (values) return;
    const size_t levels = (size_t)rt_machine.levels;
    values = calloc(levels, sizeof *values), writers = calloc(levels, sizeof *writers);
    hidden = calloc(levels, sizeof *hidden);
    if (!values || !writers || !hidden) abort();
    for (int level = 0; level < rt_machine.levels; level++) {
        const uint32_t bytes = rt_machine.level[level].is_far ? 0 : rt_machine.level[level].capacity;
        values[level] = allocate(bytes), writers[level] = allocate(bytes), hidden[level] = allocate(bytes);
    }
}

/* Adds a block to the parts; blocks come in ascending order, and some share a word. */
static void add_block(const struct rt_block *block) {
    const uint32_t first = block->offset / WORD, end = (block->offset + block->bytes + WORD - 1) / WORD;
    const struct host_space *space = host_arena(block->level);
    struct part *last = team.count ? &team.part[team.count - 1] : NULL;
    if (rt_machine.level[block->level].is_far || first == end) return;
    if (last && last->space == space && first <= last->end) {
        if (end > last->end) last->end = end;
        return;
    }
    if (team.count == team.room) {
        team.room = 2 * team.room + 8;
        team.part = realloc(team.part, sizeof *team.part * (size_t)team.room);
        if (!team.part) abort();
    }
    team.part[team.count++] = (struct part){space, first, end, 0};
}

/* A team starts, or all of its cores have come to a barrier: nobody has written anything since. */
void host_begin_writes(void) {
    open_levels();
    team.count = 0;
    host_visit_alive(add_block);
    for (int i = 0; i < team.count; i++) {
        const struct part *p = &team.part[i];
        const size_t bytes = (size_t)(p->end - p->first) * WORD;
        memcpy(values[p->space->level] + p->first, words(p->space) + p->first, bytes);
        memset(writers[p->space->level] + p->first, 0, bytes);
        memset(hidden[p->space->level] + p->first, 0, bytes);
    }
}

void host_end_writes(void) {
    team.count = 0;
    team.core = -1;
}

/* The model itself changed a part of an arena. */
void host_note_write(const struct host_space *space, int64_t offset, uint64_t bytes) {
    if (team.core < 0 || rt_machine.level[space->level].is_far) return;
    if (space->kind != HOST_ARENA || space->memory != host_arena(space->level)->memory) return;
    const int64_t low = offset < 0 ? 0 : offset, end = offset + (int64_t)bytes;
    const int64_t high = end > space->bytes ? space->bytes : end;
    if (high <= low) return;
    memcpy((unsigned char *)values[space->level] + low, space->memory + low, (size_t)(high - low));
    memset((unsigned char *)writers[space->level] + low, 0, (size_t)(high - low));
    memset((unsigned char *)hidden[space->level] + low, 0, (size_t)(high - low));
}

/* The bits of a word that other cores than `core` have written. */
static uint64_t written_by_others(uint64_t writer, int core) {
    const uint64_t own = UINT64_C(0x0101010101010101) * (uint64_t)(core + 1);
    uint64_t found = 0;
    if (!writer || writer == own) return 0;
    for (int byte = 0; byte < WORD; byte++) {
        const uint64_t mask = UINT64_C(255) << 8 * byte;
        if ((writer & mask) && (writer & mask) != (own & mask)) found |= mask;
    }
    return found;
}

/* A core begins or continues: hides what others have written. */
PLAIN void host_enter_core(int core) {
    team.core = core;
    team.is_hiding = 1;
    for (int i = 0; i < team.count; i++) {
        const struct part *p = &team.part[i];
        if (!p->is_written) continue;
        uint64_t *const memory = words(p->space), *const mask = hidden[p->space->level];
        const uint64_t *const writer = writers[p->space->level];
        for (uint32_t at = p->first; at < p->end; at++) {
            mask[at] = written_by_others(writer[at], core);
            memory[at] ^= mask[at];
        }
    }
}

static _Noreturn void complain(const struct part *part, uint32_t at, uint64_t changed) {
    struct host_place place = {.space = *part->space, .offset = at * WORD};
    unsigned char bytes[WORD], writer[WORD];
    char text[HOST_TEXT];
    int byte = 0;
    memcpy(bytes, &changed, WORD), memcpy(writer, &writers[part->space->level][at], WORD);
    while (!bytes[byte]) byte++;
    place.offset += (uint32_t)byte;
    host_describe(&place, text);
    host_violation("Between two barriers no two cores of a team write the same byte.",
                   "cores %d and %d have both written %s", writer[byte] - 1, team.core, text);
}

/* Looks what the core has changed in a word, and shows again what was hidden there. */
PLAIN static void settle(struct part *part, uint32_t at) {
    const int level = part->space->level;
    uint64_t *const memory = words(part->space) + at, *const mask = hidden[level] + at;
    const uint64_t before = values[level][at], changed = *memory ^ before ^ *mask;
    if (changed & *mask) complain(part, at, changed & *mask);
    *memory ^= *mask;
    *mask = 0;
    if (!changed) return;
    unsigned char bytes[WORD], *const writer = (unsigned char *)&writers[level][at];
    memcpy(bytes, &changed, WORD);
    for (int byte = 0; byte < WORD; byte++) {
        if (bytes[byte]) writer[byte] = (unsigned char)(team.core + 1);
    }
    values[level][at] = *memory;
    part->is_written = 1;
}

PLAIN static void settle_all(void) {
    for (int i = 0; i < team.count; i++) {
        struct part *const p = &team.part[i];
        const uint64_t *const memory = words(p->space), *const before = values[p->space->level];
        for (uint32_t at = p->first; at < p->end;) {
            const uint32_t count = p->end - at < LARGEST ? p->end - at : LARGEST, end = at + count;
            if (!p->is_written && !memcmp(memory + at, before + at, (size_t)count * WORD)) {
                at = end;
                continue;
            }
            for (; at < end; at++) settle(p, at);
        }
    }
    team.is_hiding = 0;
}

/* The model is about to look at memory: everything is there again. */
void host_show_writes(void) {
    if (team.core >= 0 && team.is_hiding) settle_all();
}

/* A core hands over to another one, or returns. */
void host_leave_core(void) {
    settle_all();
}
