/* For applications that are compiled with -DRT_CHECKED: what memory holds at the end of every step of an inference, in
 * the form in which the host model writes it. Numbers are words of 32 bits: how many levels there are, the bytes of
 * each that blocks take, those of all outputs; then for every step its number, these bytes of every level, and the
 * outputs.
 *
 * Whoever includes this defines snapshot_write, calls snapshot_begin before the network runs, and has rt_barrier call
 * snapshot_settle on core 0, once all cores of the team have come to the barrier and before they go on. */
#ifndef SNAPSHOTS_H
#define SNAPSHOTS_H

#include "deeploy_network.h"
#include "deeploy_rt.h"

/* Takes some bytes, which come behind those of the call before. */
static void snapshot_write(const void *bytes, uint32_t count);

enum { SNAPSHOT_NONE = -1, SNAPSHOT_PIECE = 4096 };

static struct {
    const struct deeploy_network *net;
    void *const *outputs;
    unsigned char *piece; /* bytes of a far level come through this */
    const struct rt_block *blocks;
    int count, step, next; /* the step that runs, and the one that begins at the next barrier */
} snapshots;

/* `piece`: memory of SNAPSHOT_PIECE bytes in a level that far ones are connected with. */
static void snapshot_begin(const struct deeploy_network *net, void *const *outputs, void *piece) {
    snapshots.net = net;
    snapshots.outputs = outputs;
    snapshots.piece = piece;
    snapshots.step = snapshots.next = SNAPSHOT_NONE;
}

/* The bytes of a level that blocks take. */
static uint32_t snapshot_bytes(int level) {
    uint32_t most = 0;
    for (int i = 0; i < snapshots.count; i++) {
        const struct rt_block *const b = &snapshots.blocks[i];
        if (b->level == level && b->offset + b->bytes > most) most = b->offset + b->bytes;
    }
    return most;
}

static void snapshot_header(void) {
    const uint32_t levels = (uint32_t)rt_machine.levels;
    snapshot_write(&levels, sizeof levels);
    for (int level = 0; level < rt_machine.levels; level++) {
        const uint32_t bytes = snapshot_bytes(level);
        snapshot_write(&bytes, sizeof bytes);
    }
    uint32_t outputs = 0;
    for (int i = 0; i < snapshots.net->output_count; i++) outputs += (uint32_t)snapshots.net->outputs[i].bytes;
    snapshot_write(&outputs, sizeof outputs);
}

/* The engine that connects a far level with a nearer one. */
static int snapshot_engine(int level) {
    int engine = 0;
    while (rt_machine.engine[engine].far != level) engine++;
    return engine;
}

static void snapshot_level(int level, uint32_t bytes) {
    const rt_address begin = rt_arena(level);
    if (!rt_machine.level[level].is_far) {
        if (bytes) snapshot_write((const void *)begin, bytes);
        return;
    }
    for (uint32_t at = 0, n; at < bytes; at += n) {
        n = bytes - at < SNAPSHOT_PIECE ? bytes - at : SNAPSHOT_PIECE;
        const struct rt_transfer piece = {(rt_address)snapshots.piece, begin + at, n, 1, n, n};
        const int engine = snapshot_engine(level);
        rt_start(engine, 0, &piece);
        rt_wait(engine, 0);
        snapshot_write(snapshots.piece, n);
    }
}

/* What is still on its way at the end of a step belongs to it. */
static void snapshot_take(void) {
    const uint32_t number = (uint32_t)snapshots.step;
    for (int engine = 0; engine < rt_machine.engines; engine++) {
        for (int ticket = 0; ticket < rt_machine.engine[engine].tickets; ticket++) rt_wait(engine, ticket);
    }
    snapshot_write(&number, sizeof number);
    for (int level = 0; level < rt_machine.levels; level++) snapshot_level(level, snapshot_bytes(level));
    for (int i = 0; i < snapshots.net->output_count; i++)
        snapshot_write(snapshots.outputs[i], (uint32_t)snapshots.net->outputs[i].bytes);
}

void rt_step(const struct rt_block *blocks, int count, int step) {
    if (step < 0) {
        snapshots.blocks = blocks;
        snapshots.count = count;
        snapshot_header();
    } else if (snapshots.step != SNAPSHOT_NONE) {
        snapshot_take();
    }
    snapshots.step = step;
}

void rt_step_at_barrier(const struct rt_block *blocks, int count, int step) {
    (void)blocks, (void)count;
    snapshots.next = step;
}

void rt_region(int level, const void *begin, uint32_t bytes, int is_writable) {
    (void)level, (void)begin, (void)bytes, (void)is_writable;
}

void snapshot_settle(void) {
    const int step = snapshots.next;
    if (step == SNAPSHOT_NONE) return;
    snapshots.next = SNAPSHOT_NONE;
    rt_step(snapshots.blocks, snapshots.count, step);
}

#endif
