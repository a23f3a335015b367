/* What generated code asks of a machine whose memories software manages: transfers, a team of cores, time.
 *
 * Levels and transfer engines are numbered as the project's machine table (`rt_machine`) lists them. Every call orders
 * memory: stores made before a call are visible to whatever the call starts, and what a wait waited for is visible
 * after it. Core 0 alone starts transfers and jobs, waits for them and forks. Nothing here allocates.
 */
#ifndef DEEPLOY_RT_H
#define DEEPLOY_RT_H

#include <stdint.h>

/* A place in some level. In a far level it is a handle that only transfers understand: it is never dereferenced. */
typedef uintptr_t rt_address;

/* `rows` runs of `bytes`; a pitch is the distance in bytes between the beginnings of two rows. */
struct rt_transfer {
    rt_address to, from;
    uint32_t bytes, rows;
    uint32_t to_pitch, from_pitch;
};

/* Begins a transfer on an engine. Several transfers may be begun under one ticket; tickets are numbered from 0. From
 * here to the wait nobody touches the destination, and nobody writes the source. */
void rt_start(int engine, int ticket, const struct rt_transfer *transfer);

/* Returns when every transfer begun under the ticket is complete; at once when there is none. */
void rt_wait(int engine, int ticket);

/* Begins a job on an accelerator: its registers are written in its own order, then it is started. An address in a
 * register is the low half of an rt_address. Jobs are done one after the other. From here to the wait nobody touches
 * what the job writes, and nobody writes what it reads. */
void rt_job(int accelerator, const uint32_t *registers, int count);

/* Returns when the oldest job that nobody has waited for is done; at once when there is none. */
void rt_job_wait(int accelerator);

/* Where the arena of a level begins. */
rt_address rt_arena(int level);

/* Where the constants that live in a far level begin; they are there before the network is initialised. */
rt_address rt_constants(int level);

/* Runs `body(argument)` on the cores 0 to cores - 1 and returns when all have returned. The argument may lie on the
 * stack of the calling core, which the others read. */
void rt_fork(int cores, void (*body)(void *), void *argument);

/* The number of the calling core within its team. */
int rt_core(void);

/* Returns when every core of the team has called it. */
void rt_barrier(void);

/* Called by the controller: runs `entry(argument)` on core 0 of the cluster and returns its result. */
int rt_enter(int (*entry)(void *), void *argument);

/* Cycles since some moment, modulo 2^32. */
uint32_t rt_cycles(void);

#ifdef RT_HEADER
#include RT_HEADER /* definitions that a runtime wants to be inlined */
#endif

/* The machine, as the generated file machine.c states it. */
struct rt_level {
    const char *name;
    uint32_t capacity;  /* bytes of the arena, as the plan uses it */
    uint32_t alignment; /* of every buffer, in bytes */
    uint32_t constants; /* bytes of constants stored beside the arena (far levels only) */
    int is_far;         /* 1: handles, not pointers */
};

struct rt_engine {
    const char *name;
    int near, far;      /* the levels it connects */
    uint32_t max_bytes; /* of one row */
    uint32_t max_rows;  /* of one transfer; 1: the engine knows no rows */
    uint32_t max_total; /* bytes of one transfer */
    uint32_t max_pitch; /* bytes */
    uint32_t alignment; /* of addresses, lengths and pitches, in bytes */
    int near_pitch;     /* 1: rows may be apart on the near side too; 0: they lie one after the other there */
    int tickets;        /* tickets that may be open at once */
    int commands;       /* transfers that may be outstanding at once; a further start blocks until one completes */
};

struct rt_accelerator {
    const char *name; /* which says what its registers mean */
    int near;         /* the level of its operands */
    int weights;      /* a level that may hold its weights instead, or -1 */
    int jobs;         /* jobs that may be under way at once; a further one blocks until the oldest is done */
};

struct rt_machine {
    const char *name;
    int cores, levels, engines;
    const struct rt_level *level;
    const struct rt_engine *engine;
    int accelerators;
    const struct rt_accelerator *accelerator;
};

extern const struct rt_machine rt_machine;

/* A buffer of a plan: alive from the beginning of step `first` to the end of step `last`. */
struct rt_block {
    const char *name;
    int level;
    uint32_t offset, bytes;
    int first, last;
};

#ifdef RT_CHECKED
/* The host machine model is told when a step begins, and poisons what is not alive in it; step -1 begins an inference,
 * and a step beyond the last one ends it. */
void rt_step(const struct rt_block *blocks, int count, int step);
/* The same, of a step that begins when all cores of the team have come to the next barrier. */
void rt_step_at_barrier(const struct rt_block *blocks, int count, int step);
/* Memory outside the arenas that transfers may use until the network returns: a caller's array, or a constant. */
void rt_region(int level, const void *begin, uint32_t bytes, int is_writable);
#define RT_STEP(blocks, count, step) rt_step(blocks, count, step)
#define RT_STEP_AT_BARRIER(blocks, count, step) rt_step_at_barrier(blocks, count, step)
#define RT_REGION(level, begin, bytes, is_writable) rt_region(level, begin, bytes, is_writable)
#else
#define RT_STEP(blocks, count, step) ((void)0)
#define RT_STEP_AT_BARRIER(blocks, count, step) ((void)0)
#define RT_REGION(level, begin, bytes, is_writable) ((void)0)
#endif

#endif
