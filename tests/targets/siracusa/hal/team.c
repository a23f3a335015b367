/* Forks of every size, and barriers that hold back every core. */
#include "check.h"

enum { CORES = 8, PHASES = 40 };

static volatile uint32_t calls[CORES];
static volatile uint32_t phase[CORES];
static volatile uint32_t too_early;
static uint32_t team_cores;

static void count(void *argument) {
    calls[rt_core()] += *(uint32_t *)argument;
}

static int is_forked(int cores) {
    uint32_t step = 3;
    for (int i = 0; i < CORES; i++) calls[i] = 0;
    rt_fork(cores, count, &step);
    for (int i = 0; i < CORES; i++) {
        if (calls[i] != (i < cores ? 3u : 0u)) return 0;
    }
    return 1;
}

static void nothing(void *argument) {
    (void)argument;
}

static void one_barrier(void *argument) {
    (void)argument;
    rt_barrier();
}

/* Cores are late in turns. None may leave a barrier before all have come, nor come to the next one before all have
 * left. */
static void phases(void *argument) {
    (void)argument;
    const uint32_t core = (uint32_t)rt_core();
    for (uint32_t p = 1; p <= PHASES; p++) {
        for (volatile uint32_t i = 0; i < (core * 7 + p * 5) % 11 * 20; i++) continue;
        phase[core] = p;
        rt_barrier();
        for (uint32_t i = 0; i < team_cores; i++) too_early += phase[i] < p;
        rt_barrier();
        for (uint32_t i = 0; i < team_cores; i++) too_early += phase[i] > p + 1;
    }
}

static uint32_t time_fork(int cores, void (*body)(void *)) {
    rt_fork(cores, body, 0);
    const uint32_t begin = rt_cycles();
    rt_fork(cores, body, 0);
    return rt_cycles() - begin;
}

void test_team(void) {
    int is_right = 1;
    for (int cores = 1; cores <= CORES; cores++) is_right &= is_forked(cores);
    check("rt_fork on 1 to 8 cores", is_right);
    for (int i = 0; i < 60; i++) is_right &= is_forked(1 + i * 5 % CORES);
    check("rt_fork in any order of sizes", is_right);

    for (int cores = 1; cores <= CORES; cores++) {
        team_cores = (uint32_t)cores;
        for (int i = 0; i < CORES; i++) phase[i] = 0;
        rt_fork(cores, phases, 0);
    }
    check("rt_barrier holds back every core", too_early == 0 && phase[CORES - 1] == PHASES);

    const uint32_t begin = rt_cycles();
    report("nothing", rt_cycles() - begin);
    report("fork 8 cores and join", time_fork(CORES, nothing));
    report("fork 8 cores, barrier and join", time_fork(CORES, one_barrier));
    report("fork 1 core", time_fork(1, nothing));
}
