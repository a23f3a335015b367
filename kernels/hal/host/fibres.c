/* Simulates the cores as fibres (coroutines): one runs at a time, and calls of the interface may switch to another. */
#define _GNU_SOURCE
#include "model.h"

#ifndef RT_THREADS
#include <stdlib.h>
#include <sys/mman.h>
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
    volatile int is_back; /* set when the context was resumed rather than just saved */
};

static struct {
    struct fibre *fibre;
    ucontext_t scheduler;
    volatile int is_back;
    void *shadow;
    const void *stack; /* of the scheduler */
    size_t stack_bytes;
    void (*body)(void *);
    void *argument;
    int cores; /* number of cores in the running team, or 0 */
    int core, last;
} team;

int host_team_core(void) {
    return team.cores ? team.core : -1;
}

void host_lock(void) {
    host_show_writes();
}

void host_unlock(void) {}

/* Tells the address sanitizer that the current stack is left; for good if `shadow` is NULL. */
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

/* Does what swapcontext does. The address sanitizer would warn about swapcontext although every switch is announced. */
static void switch_context(ucontext_t *from, const ucontext_t *to, volatile int *is_back) {
    *is_back = 0;
    getcontext(from);
    if (*is_back) return;
    *is_back = 1;
    setcontext(to);
}

static void to_scheduler(void) {
    struct fibre *self = &team.fibre[team.core];
    announce_switch(self->state == RETURNED ? NULL : &self->shadow, team.stack, team.stack_bytes);
    switch_context(&self->context, &team.scheduler, &self->is_back);
    announce_arrival(self->shadow, &team.stack, &team.stack_bytes);
}

static void to_core(int core) {
    team.core = core;
    host_enter_core(core);
    announce_switch(&team.shadow, team.fibre[core].stack, STACK);
    switch_context(&team.scheduler, &team.fibre[core].context, &team.is_back);
    announce_arrival(team.shadow, NULL, NULL);
    host_leave_core();
}

static void run_core(void) {
    announce_arrival(NULL, &team.stack, &team.stack_bytes);
    team.body(team.argument);
    team.fibre[team.core].state = RETURNED;
    to_scheduler();
}

/* Called by every function of the interface: transfers make progress, and another core may be scheduled. */
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

/* When all cores have arrived, all continue. A core that has already returned can never arrive. */
static void settle_barrier(void) {
    const int waiting = count_of(WAITING), returned = count_of(RETURNED);
    if (waiting + returned < team.cores || !waiting) return;
    if (returned) host_uneven_barriers(waiting, team.cores);
    host_settle_step();
    host_begin_writes();
    for (int core = 0; core < team.cores; core++) team.fibre[core].state = READY;
}

void host_run_team(int cores, void (*body)(void *), void *argument) {
    team.cores = cores, team.body = body, team.argument = argument;
    if (!team.fibre) team.fibre = calloc((size_t)rt_machine.cores, sizeof *team.fibre);
    if (!team.fibre) abort();
    for (int core = 0; core < cores; core++) prepare(&team.fibre[core]);
    host_begin_writes();
    while (count_of(RETURNED) < cores) {
        int core = (int)host_below((uint32_t)cores);
        while (team.fibre[core].state != READY) core = (core + 1) % cores;
        to_core(core);
        settle_barrier();
    }
    host_end_writes();
    team.cores = 0;
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

void host_report_access(const void *address, uint32_t bytes, int is_write) {
    (void)address, (void)bytes, (void)is_write; /* nothing to do: only one core runs at a time */
}
#endif
