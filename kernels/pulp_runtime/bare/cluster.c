/* The cluster as a team: power-up, work from the controller, fork and barrier. */
#include "cluster.h"

#include "bare.h"

void cluster_start(void); /* start.S */
_Noreturn void cluster_worker(void);
_Noreturn void cluster_master(void);

enum { EVERY_CORE = (1 << CLUSTER_CORES) - 1 };

/* Work for core 0, and what came of it. */
static IN_L1 struct {
    int (*entry)(void *);
    void *argument;
    int result;
    volatile int is_done;
} job;

/* Work for the team. */
static IN_L1 struct {
    void *argument;
    int cores;
} team;

void cluster_power_up(void) {
    bare_paint_stacks(0);
    store(FC_ICACHE, 1);
    store(CLUSTER_ICACHE, 1);
    store(CLUSTER_TIMER, 3); /* from zero, with the cluster's clock, also while cores sleep */
    for (uint32_t core = 0; core < CLUSTER_CORES; core++)
        store(CLUSTER_CONTROL + 0x40 + 4 * core, (uint32_t)cluster_start);
    store(CLUSTER_CONTROL + 0x08, EVERY_CORE);
}

/* Core 0. */
void cluster_master(void) {
    team.cores = 1;
    store(EVENT_MASK, EVENT_BARRIER);
    for (;;) {
        cluster_sleep(EVENT_SOFTWARE);
        if (job.is_done || !job.entry) continue;
        job.result = job.entry(job.argument);
        order_memory();
        job.is_done = 1;
        store(INTERRUPT_SET, INTERRUPT_CLUSTER);
    }
}

/* Every other core. */
void cluster_worker(void) {
    store(EVENT_MASK, EVENT_BARRIER | EVENT_DISPATCH);
    for (;;) {
        void (*const body)(void *) = (void (*)(void *))wait_on(DISPATCH_FIFO);
        body(team.argument);
        rt_barrier();
    }
}

int rt_enter(int (*entry)(void *), void *argument) {
    job.entry = entry;
    job.argument = argument;
    job.is_done = 0;
    order_memory();
    store(CLUSTER_EVENTS + 0x600, 1); /* software event 0, to core 0 */
    for (;;) {
        hyperram_serve();
#ifdef CHIP
        link_serve();
#endif
        if (job.is_done) break;
        __asm__ volatile("wfi" ::: "memory"); /* interrupts are off: it wakes, and nothing is called */
        /* Cleared before it is served: what comes meanwhile is pending again, and so is a FIFO with more in it. */
        const uint32_t pending = load(INTERRUPT_STATUS);
        store(INTERRUPT_CLEAR, pending);
        if (pending & INTERRUPT_PERIPHERAL) (void)load(INTERRUPT_FIFO);
    }
    return job.result;
}

void rt_fork(int cores, void (*body)(void *), void *argument) {
    order_memory();
    if (cores > 1) {
        const uint32_t members = (1u << cores) - 1;
        if (team.cores != cores) {
            team.cores = cores;
            store(BARRIER_MASK, members);
            store(BARRIER_TARGET, members);
            store(DISPATCH_TEAM, members & ~1u);
        }
        team.argument = argument;
        order_memory();
        store(DISPATCH_FIFO, (uint32_t)body);
        body(argument);
        rt_barrier();
    } else {
        team.cores = 1;
        body(argument);
    }
    order_memory();
}

static inline void meet(void) {
    order_memory();
    if (team.cores > 1) (void)wait_on(BARRIER_WAIT);
}

void rt_barrier(void) {
    meet();
#ifdef RT_CHECKED
    if (rt_core() == 0) snapshot_settle();
    meet();
#endif
}
