/* The team of cores as fibres: one runs at a time, and every call of the interface may hand over to another. */
#define _GNU_SOURCE
#include "model.h"

#ifndef RT_THREADS
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <ucontext.h>

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define HOST_ASAN 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__)
#define HOST_ASAN 1
#endif
#ifdef HOST_ASAN
#include <sanitizer/common_interface_defs.h>
#endif

enum { STACK = 1 << 20, GUARD = 1 << 16 };

enum state { READY, WAITING, RETURNED };

struct fibre {
    ucontext_t context;
    void *stack;
    void *shadow; /* the address sanitizer's record of the stack */
    enum state state;
};

static struct {
    struct fibre *fibre;
    ucontext_t scheduler;
    void *shadow;
    const void *stack; /* of the scheduler */
    size_t stack_bytes;
    void (*body)(void *);
    void *argument;
    int cores; /* of the team that runs, or 0 */
    int core, last;
} team;

static int is_entered;

int host_team_core(void) {
    return team.cores ? team.core : -1;
}

void host_lock(void) {}

void host_unlock(void) {}

/* Leaves the stack that runs; with `shadow` NULL for ever. */
static void announce_switch(void **shadow, const void *stack, size_t bytes) {
#ifdef HOST_ASAN
    __sanitizer_start_switch_fiber(shadow, stack, bytes);
#else
    (void)shadow, (void)stack, (void)bytes;
#endif
}

static void announce_arrival(void *shadow, const void **stack, size_t *bytes) {
#ifdef HOST_ASAN
    __sanitizer_finish_switch_fiber(shadow, stack, bytes);
#else
    (void)shadow, (void)stack, (void)bytes;
#endif
}

static void to_scheduler(void) {
    struct fibre *self = &team.fibre[team.core];
    announce_switch(self->state == RETURNED ? NULL : &self->shadow, team.stack, team.stack_bytes);
    swapcontext(&self->context, &team.scheduler);
    announce_arrival(self->shadow, &team.stack, &team.stack_bytes);
}

static void to_core(int core) {
    team.core = core;
    announce_switch(&team.shadow, team.fibre[core].stack, STACK);
    swapcontext(&team.scheduler, &team.fibre[core].context);
    announce_arrival(team.shadow, NULL, NULL);
}

static void run_core(void) {
    announce_arrival(NULL, &team.stack, &team.stack_bytes);
    team.body(team.argument);
    team.fibre[team.core].state = RETURNED;
    to_scheduler();
}

/* Every call of the interface: transfers go on, and another core may come first. */
void host_turn(void) {
    host_progress();
    if (team.cores && host_below(2)) to_scheduler();
}

static void prepare(struct fibre *f) {
    if (!f->stack) {
        unsigned char *memory = mmap(NULL, STACK + GUARD, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED || mprotect(memory + GUARD, STACK, PROT_READ | PROT_WRITE)) abort();
        f->stack = memory + GUARD; /* a core that needs more faults */
    }
    getcontext(&f->context);
    f->context.uc_stack.ss_sp = f->stack;
    f->context.uc_stack.ss_size = STACK;
    f->context.uc_link = NULL;
    f->state = READY;
    makecontext(&f->context, run_core, 0);
}

static int count_of(enum state state) {
    int count = 0;
    for (int core = 0; core < team.cores; core++) count += team.fibre[core].state == state;
    return count;
}

/* When all cores wait, all go on; a core that has returned will never come. */
static void settle_barrier(void) {
    const int waiting = count_of(WAITING), returned = count_of(RETURNED);
    if (waiting + returned < team.cores || !waiting) return;
    if (returned)
        host_violation("Every core of a team calls rt_barrier equally often.",
                       "%d of %d cores wait at a barrier, the others have returned", waiting, team.cores);
    for (int core = 0; core < team.cores; core++) team.fibre[core].state = READY;
}

void rt_fork(int cores, void (*body)(void *), void *argument) {
    if (!is_entered)
        host_violation("Only the cluster forks: call it inside of rt_enter.", "rt_fork outside of rt_enter");
    if (team.cores) host_violation("A team cannot fork another.", "rt_fork inside of rt_fork");
    if (cores < 1 || cores > rt_machine.cores)
        host_violation("A team has between one core and all of them.", "rt_fork of %d cores, the machine has %d", cores,
                       rt_machine.cores);
    host_progress();
    host_counters.forks++;
    team.cores = cores, team.body = body, team.argument = argument;
    if (!team.fibre) team.fibre = calloc((size_t)rt_machine.cores, sizeof *team.fibre);
    if (!team.fibre) abort();
    for (int core = 0; core < cores; core++) prepare(&team.fibre[core]);
    while (count_of(RETURNED) < cores) {
        int core = (int)host_below((uint32_t)cores);
        while (team.fibre[core].state != READY) core = (core + 1) % cores;
        to_core(core);
        settle_barrier();
    }
    team.cores = 0;
    host_progress();
}

int rt_core(void) {
    host_turn();
    return team.cores ? team.core : 0;
}

void rt_barrier(void) {
    host_progress();
    if (!team.cores) return;
    host_counters.barriers++;
    team.fibre[team.core].state = WAITING;
    to_scheduler();
}

int rt_enter(int (*entry)(void *), void *argument) {
    if (is_entered) host_violation("Only the controller enters the cluster.", "rt_enter inside of rt_enter");
    is_entered = 1;
    const int result = entry(argument);
    is_entered = 0;
    return result;
}

uint32_t rt_cycles(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint32_t)((uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec);
}
#endif
