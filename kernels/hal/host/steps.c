/* Lifetimes of blocks: checks that only blocks which are alive in a step are written. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "model.h"

static struct {
    const struct rt_block *blocks;
    const struct rt_block **order; /* by level, then by offset */
    int count, last_block; /* the highest step in which a block is alive that was not alive from the beginning */
    int step;
    int last_step; /* the last step of the previous inference */
} now = {.step = HOST_NO_STEP, .last_step = HOST_NO_STEP};

static struct {
    FILE *file;
    void *const *outputs;
    const size_t *output_bytes;
    int count;
    uint32_t *level_bytes;
} snapshots;

int host_step(void) {
    return now.step;
}

static int is_alive(const struct rt_block *block, int step) {
    return step != HOST_NO_STEP && block->first <= step && step <= block->last;
}

/* A block whose contents outlive an inference: it is alive before the first step and after the last one. */
static int is_kept(const struct rt_block *block) {
    return block->first < 0 && (now.last_step == HOST_NO_STEP || block->last >= now.last_step);
}

static int is_first_block(const struct rt_block *a, const struct rt_block *b) {
    return a->level != b->level ? a->level < b->level : a->offset < b->offset;
}

static int compare(const void *a, const void *b) {
    const struct rt_block *x = *(const struct rt_block *const *)a, *y = *(const struct rt_block *const *)b;
    return is_first_block(x, y) ? -1 : is_first_block(y, x);
}

static void check_table(void) {
    for (int i = 0; i < now.count; i++) {
        const struct rt_block *b = &now.blocks[i];
        if (b->level < 0 || b->level >= rt_machine.levels || b->first > b->last || b->first < -1) {
            host_violation("Blocks lie in a level of rt_machine and live from step first, -1 or later, to step last.",
                           "block %s: level %d, steps %d to %d", b->name, b->level, b->first, b->last);
        }
        const struct rt_level *l = &rt_machine.level[b->level];
        if (b->bytes > l->capacity || b->offset > l->capacity - b->bytes) {
            host_violation("A plan stays within the capacity of every level.",
                           "block %s: %" PRIu32 " bytes at %s+0x%" PRIx32 ", which holds %" PRIu32, b->name, b->bytes,
                           l->name, b->offset, l->capacity);
        }
        if (b->offset % l->alignment) {
            host_violation("Offsets are multiples of the level's alignment.",
                           "block %s at %s+0x%" PRIx32 " is not aligned to %" PRIu32 " bytes", b->name, l->name,
                           b->offset, l->alignment);
        }
    }
}

static void take_table(const struct rt_block *blocks, int count) {
    now.order = realloc(now.order, sizeof(struct rt_block *) * ((size_t)count + 1));
    if (!now.order) abort();
    now.blocks = blocks, now.count = count, now.last_block = HOST_NO_STEP;
    check_table();
    uint32_t *const peaks = calloc((size_t)rt_machine.levels, sizeof *peaks);
    if (!peaks) abort();
    for (int i = 0; i < count; i++) {
        now.order[i] = &blocks[i];
        if (blocks[i].first >= 0 && blocks[i].last > now.last_block) now.last_block = blocks[i].last;
        const uint32_t end = blocks[i].offset + blocks[i].bytes;
        if (end > peaks[blocks[i].level]) peaks[blocks[i].level] = end;
    }
    qsort(now.order, (size_t)count, sizeof(struct rt_block *), compare);
    if (snapshots.file && !snapshots.level_bytes) {
        uint32_t outputs = 0;
        for (int i = 0; i < snapshots.count; i++) outputs += (uint32_t)snapshots.output_bytes[i];
        host_snapshot_header(snapshots.file, peaks, outputs);
        snapshots.level_bytes = peaks;
    } else {
        free(peaks);
    }
}

static const struct rt_block *block_at(const struct host_place *place, int step) {
    for (int i = 0; i < now.count; i++) {
        const struct rt_block *b = &now.blocks[i];
        if (b->level != place->space.level || (step != HOST_NO_STEP && !is_alive(b, step))) continue;
        if (place->offset >= b->offset && place->offset - b->offset < b->bytes) return b;
    }
    return NULL;
}

void host_describe(const struct host_place *place, char text[HOST_TEXT]) {
    const char *level = host_level_name(place->space.level);
    const struct rt_block *block = place->block;
    if (!block && now.step != HOST_NO_STEP) block = block_at(place, now.step);
    if (place->space.kind == HOST_CONSTANTS) {
        snprintf(text, HOST_TEXT, "0x%" PRIx32 " of the constants in %s", place->offset, level);
    } else if (place->space.kind == HOST_REGION) {
        snprintf(text, HOST_TEXT, "0x%" PRIx32 " of an array of %" PRIu32 " bytes in %s", place->offset,
                 place->space.bytes, level);
    } else if (place->offset >= place->space.bytes) {
        const int32_t at = (int32_t)place->offset;
        snprintf(text, HOST_TEXT, "%s%c0x%" PRIx32 ", outside its %" PRIu32 " bytes", level, at < 0 ? '-' : '+',
                 (uint32_t)(at < 0 ? -at : at), place->space.bytes);
    } else {
        const char *name = block ? block->name : now.step == HOST_NO_STEP ? "no step is under way" : "no living block";
        snprintf(text, HOST_TEXT, "%s+0x%" PRIx32 " (%s)", level, place->offset, name);
    }
}

/* Refuses a range, which `what` names, that leaves its space or the living block in which it begins. */
void host_check_block(struct host_place *place, uint64_t bytes, const char *what) {
    char text[HOST_TEXT];
    host_describe(place, text);
    if (bytes > place->space.bytes - place->offset) {
        host_violation("Transfers stay within one arena, one array or the constants.",
                       "%s: %" PRIu64 " bytes at %s, of which %" PRIu32 " are left there", what, bytes, text,
                       place->space.bytes - place->offset);
    }
    if (place->space.kind != HOST_ARENA || now.step == HOST_NO_STEP) return;
    const struct rt_block *block = block_at(place, now.step), *other = block_at(place, HOST_NO_STEP);
    if (!block && other) {
        host_violation("Lifetimes cover the steps of all transfers.", "%s: %s belongs to %s in the steps %d to %d only",
                       what, text, other->name, other->first, other->last);
    }
    if (!block) host_violation("Transfers read and write living blocks.", "%s: %s", what, text);
    if (place->offset - block->offset + bytes > block->bytes) {
        host_violation("Transfers stay within one block.", "%s: %" PRIu64 " bytes at %s, of which %" PRIu32 " are left",
                       what, bytes, text, block->bytes - (place->offset - block->offset));
    }
    place->block = block;
}

/* Whether the block found at an address is still alive in this step. */
int host_is_alive(const struct host_place *place) {
    return !place->block || is_alive(place->block, now.step);
}

/* Calls `visit` on every part of a level's arena, margins included, where none of the blocks lies that `is_in` accepts.
 */
static void visit_gaps(int level, int (*is_in)(const struct rt_block *),
                       void (*visit)(const struct host_space *, int64_t, uint64_t, const struct rt_block *)) {
    const struct host_space *space = host_arena(level);
    int64_t at = -(int64_t)space->before;
    const struct rt_block *before = NULL;
    for (int i = 0; i < now.count; i++) {
        const struct rt_block *b = now.order[i];
        if (b->level != level || !is_in(b)) continue;
        if (b->offset > at) visit(space, at, (uint64_t)(b->offset - at), before);
        if ((int64_t)b->offset + b->bytes > at) at = (int64_t)b->offset + b->bytes, before = b;
    }
    const int64_t end = (int64_t)space->bytes + space->after;
    if (end > at) visit(space, at, (uint64_t)(end - at), before);
}

static int is_alive_now(const struct rt_block *block) {
    return is_alive(block, now.step);
}

void host_visit_alive(void (*visit)(const struct rt_block *)) {
    for (int i = 0; i < now.count; i++) {
        if (is_alive_now(now.order[i])) visit(now.order[i]);
    }
}

static void check_gap(const struct host_space *space, int64_t offset, uint64_t bytes, const struct rt_block *before) {
    const uint64_t intact = host_intact(space, offset, bytes);
    if (intact == bytes) return;
    const int64_t at = offset + (int64_t)intact;
    host_violation("Code writes only into blocks that are alive in the step.",
                   "%s%c0x%" PRIx64 " was written, where no block is alive, %" PRIu64 " bytes behind the end of %s",
                   host_level_name(space->level), at < 0 ? '-' : '+', (uint64_t)(at < 0 ? -at : at), intact,
                   before ? before->name : "what lies before the arena");
}

static void poison_gap(const struct host_space *space, int64_t offset, uint64_t bytes, const struct rt_block *before) {
    (void)before;
    host_poison(space, offset, bytes);
}

/* Two blocks that are alive in the same step lie apart. */
static void check_apart(void) {
    const struct rt_block *before = NULL;
    for (int i = 0; i < now.count; i++) {
        const struct rt_block *b = now.order[i];
        if (!is_alive_now(b) || !b->bytes) continue;
        if (before && before->level == b->level && before->offset + before->bytes > b->offset) {
            host_violation("Blocks that are alive in the same step share no byte.",
                           "the blocks %s and %s overlap at %s+0x%" PRIx32, before->name, b->name,
                           host_level_name(b->level), b->offset);
        }
        if (!before || before->level != b->level || b->offset + b->bytes > before->offset + before->bytes) before = b;
    }
}

static void count_touched(const struct rt_block *block) {
    const struct host_space *space = host_arena(block->level);
    uint32_t end = block->offset + block->bytes, *planned = &host_counters.planned[block->level];
    if (end > *planned) *planned = end;
    while (end > block->offset && host_intact(space, (int64_t)end - 1, 1) == 1) end--;
    if (end > block->offset && end > host_counters.touched[block->level]) host_counters.touched[block->level] = end;
}

/* Far levels are left out: only transfers write there, and those are checked when they start. */
static void check_gaps(void) {
    for (int level = 0; level < rt_machine.levels; level++) {
        if (!rt_machine.level[level].is_far) visit_gaps(level, is_alive_now, check_gap);
    }
}

static void take_snapshot(void) {
    if (!snapshots.file || !snapshots.level_bytes || now.step < 0) return;
    const uint32_t number = (uint32_t)now.step;
    fwrite(&number, sizeof number, 1, snapshots.file);
    for (int level = 0; level < rt_machine.levels; level++)
        fwrite(host_arena(level)->memory, 1, snapshots.level_bytes[level], snapshots.file);
    for (int i = 0; i < snapshots.count; i++)
        fwrite(snapshots.outputs[i], 1, snapshots.output_bytes[i], snapshots.file);
}

/* Ends a step: memory outside live blocks must be unchanged; blocks that are not alive in step `next` become garbage.
 */
static void leave_step(int next) {
    check_gaps();
    take_snapshot();
    for (int i = 0; i < now.count; i++) {
        const struct rt_block *b = &now.blocks[i];
        if (!is_alive_now(b) || is_alive(b, next)) continue;
        count_touched(b);
        host_poison(host_arena(b->level), b->offset, b->bytes);
        host_hide(host_arena(b->level), b->offset, b->bytes);
    }
}

static void begin_steps(void) {
    for (int level = 0; level < rt_machine.levels; level++) {
        visit_gaps(level, is_kept, poison_gap);
        host_hide(host_arena(level), 0, host_arena(level)->bytes);
    }
}

static void begin_step(const struct rt_block *blocks, int count, int step) {
    if (step == -1 && now.step != HOST_NO_STEP && now.last_block >= 0 && now.step > now.last_block) {
        host_end_inference(); /* the previous inference has ended, and the caller starts another */
        host_begin_inference();
    }
    if (step == -1 && now.step == -1) host_end_initialisation(); /* of one network, before that of the next */
    host_lock();
    if (now.step == HOST_NO_STEP ? step != -1 : step <= now.step) {
        host_violation("Steps are announced in ascending order, -1 first.", "step %d was announced out of order", step);
    }
    if (step == -1) {
        take_table(blocks, count);
        begin_steps();
    } else if (blocks != now.blocks || count != now.count) {
        host_violation("An inference has one table of blocks.", "step %d comes with another table", step);
    } else {
        leave_step(step);
    }
    const int before = now.step;
    now.step = step;
    for (int i = 0; i < count; i++) {
        if (is_alive(&blocks[i], step) && !is_alive(&blocks[i], before))
            host_show(host_arena(blocks[i].level), blocks[i].offset, blocks[i].bytes);
    }
    check_apart();
    host_check_lifetimes();
    if (now.last_block >= 0 && step > now.last_block) host_check_all_waited("the inference ended");
    host_unlock();
}

void rt_step(const struct rt_block *blocks, int count, int step) {
    host_turn();
    begin_step(blocks, count, step);
}

static struct {
    const struct rt_block *blocks;
    int count, step;
} at_barrier;

void rt_step_at_barrier(const struct rt_block *blocks, int count, int step) {
    host_turn();
    at_barrier.blocks = blocks, at_barrier.count = count, at_barrier.step = step;
}

void host_settle_step(void) {
    if (!at_barrier.blocks) return;
    const struct rt_block *const blocks = at_barrier.blocks;
    at_barrier.blocks = NULL;
    begin_step(blocks, at_barrier.count, at_barrier.step);
}

void host_begin_inference(void) {
    host_new_poison();
    host_forget_regions();
    host_reset_counters();
}

void host_end_initialisation(void) {
    host_check_all_waited("the initialisation ended");
    if (now.step == HOST_NO_STEP) return;
    check_gaps();
    now.step = HOST_NO_STEP;
}

void host_end_inference(void) {
    host_check_all_waited("the network returned");
    if (now.step == HOST_NO_STEP) return;
    check_gaps();
    if (now.step <= now.last_block) take_snapshot(); /* otherwise this step only ended the inference */
    for (int i = 0; i < now.count; i++) {
        if (is_alive_now(&now.blocks[i])) count_touched(&now.blocks[i]);
    }
    now.last_step = now.step;
    now.step = HOST_NO_STEP;
    if (snapshots.level_bytes) snapshots.file = NULL;
}

void host_take_snapshots(FILE *file, void *const *outputs, const size_t *output_bytes, int count) {
    snapshots.file = file, snapshots.outputs = outputs, snapshots.output_bytes = output_bytes, snapshots.count = count;
}
