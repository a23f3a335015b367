/* Interface between generated code and a machine with scratchpad memories instead of caches: transfers, cores, time.
 *
 * A level is a memory; levels and transfer engines are numbered as in the project's machine table (`rt_machine`). Every
 * call is a memory barrier: stores made before a call are visible to whatever the call starts, and the results of what
 * a wait waited for are visible after it. Only core 0 starts transfers and jobs, waits for them and forks. No function
 * allocates memory.
 */
#ifndef DEEPLOY_RT_H
#define DEEPLOY_RT_H

#include <stdint.h>

/* An address in some level. In a far level it is a handle for transfers only and is never dereferenced. */
typedef uintptr_t rt_address;

/* `rows` rows of `bytes` contiguous bytes; a pitch is the distance in bytes between the starts of two rows. */
struct rt_transfer {
    rt_address to, from;
    uint32_t bytes, rows;
    uint32_t to_pitch, from_pitch;
};

/* Starts a transfer on an engine. A ticket identifies the transfers to wait for; several may be started under one
 * ticket. Until the wait, the destination must be neither read nor written, and the source must not be written. */
void rt_start(int engine, int ticket, const struct rt_transfer *transfer);

/* Returns when all transfers started under the ticket are complete; at once if there are none. */
void rt_wait(int engine, int ticket);

/* Starts a job on an accelerator: writes the registers in the accelerator's own order, then triggers it. Registers hold
 * the low 32 bits of addresses. Jobs run one after the other. Until the wait, what the job writes must be neither read
 * nor written, and what it reads must not be written. */
void rt_job(int accelerator, const uint32_t *registers, int count);

/* Returns when the oldest job not yet waited for is done; at once if there is none. */
void rt_job_wait(int accelerator);

/* The address of the arena of a level. */
rt_address rt_arena(int level);

/* The address of the constants stored in a far level; they are loaded before the network is initialised. */
rt_address rt_constants(int level);

/* Runs `body(argument)` on cores 0 to `cores` - 1 and returns when all have returned. The argument may lie on the stack
 * of the calling core: the other cores must be able to read that memory. */
void rt_fork(int cores, void (*body)(void *), void *argument);

/* The number of the calling core within its team. */
int rt_core(void);

/* Returns when every core of the team has called it. */
void rt_barrier(void);

/* Called by the fabric controller: runs `entry(argument)` on core 0 of the cluster and returns its result. */
int rt_enter(int (*entry)(void *), void *argument);

/* A free-running cycle counter, modulo 2^32. */
uint32_t rt_cycles(void);

#ifdef RT_HEADER
#include RT_HEADER /* functions that the runtime defines inline */
#endif

/* The machine: the generated file machine.c defines it. */
struct rt_level {
    const char *name;
    uint32_t capacity;  /* bytes of the arena that the plan uses */
    uint32_t alignment; /* of every buffer's address, in bytes */
    uint32_t constants; /* bytes of constants stored beside the arena (far levels only) */
    int is_far;         /* 1: addresses are handles for transfers, not pointers */
};

struct rt_engine {
    const char *name;
    int near, far;       /* the levels that the engine connects */
    uint32_t max_bytes;  /* of one row */
    uint32_t max_rows;   /* of one transfer; 1: the engine moves single rows only */
    uint32_t max_total;  /* bytes of one transfer */
    uint32_t max_pitch;  /* bytes */
    uint32_t alignment;  /* of addresses, lengths and pitches, in bytes */
    int near_pitch;      /* 1: the near side may have a pitch too; 0: rows are contiguous there */
    int tickets;         /* tickets that may be in use at once */
    int max_outstanding; /* outstanding transfers at most; starting one more blocks until one completes */
};

struct rt_accelerator {
    const char *name; /* defines the meaning of its registers */
    int near;         /* the level that holds its operands */
    int weights;      /* another level that may hold its weights, or -1 */
    int jobs;         /* jobs queued or running at most; starting one more blocks until the oldest is done */
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
/* Tells the host model of the machine that a step (a layer) begins. The model then overwrites freed memory to expose
 * use-after-free. Step -1 begins the initialisation, and every inference; the step after the last layer ends it. */
void rt_step(const struct rt_block *blocks, int count, int step);
/* The same for a step that begins when all cores have reached the next barrier. */
void rt_step_at_barrier(const struct rt_block *blocks, int count, int step);
/* Declares memory outside the arenas that transfers may use until the network returns: an array or a constant. */
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
