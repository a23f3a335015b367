/* Enters the cluster and forks its cores; fibres.c or threads.c implement the cores. */
#define _POSIX_C_SOURCE 200809L
#include <time.h>

#include "model.h"

static int is_entered, is_forked;

int rt_enter(int (*entry)(void *), void *argument) {
    if (is_entered) host_violation("Only the controller enters the cluster.", "rt_enter inside of rt_enter");
    is_entered = 1;
    const int result = entry(argument);
    is_entered = 0;
    return result;
}

void rt_fork(int cores, void (*body)(void *), void *argument) {
    if (!is_entered) host_violation("Only the cluster forks, so rt_enter comes first.", "rt_fork outside of rt_enter");
    if (is_forked) host_violation("A team cannot fork another.", "rt_fork inside of rt_fork");
    if (cores < 1 || cores > rt_machine.cores) {
        host_violation("A team has between one core and all of them.", "rt_fork of %d cores, the machine has %d", cores,
                       rt_machine.cores);
    }
    is_forked = 1;
    host_counters.forks++;
    host_turn();
    host_run_team(cores, body, argument);
    host_turn();
    is_forked = 0;
}

void host_uneven_barriers(int waiting, int cores) {
    host_violation("Every core of a team calls rt_barrier equally often.",
                   "%d of %d cores wait at a barrier, the others have returned", waiting, cores);
}

uint32_t rt_cycles(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint32_t)((uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec);
}
