/* The team of cores as threads, for the thread sanitizer: it sees what two cores touch without a barrier between them.
 */
#define _POSIX_C_SOURCE 200809L
#include "model.h"

#ifdef RT_THREADS
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define HOST_TSAN 1
#endif
#endif
#if defined(__SANITIZE_THREAD__)
#define HOST_TSAN 1
#endif
#ifdef HOST_TSAN
void __tsan_read_range(void *address, unsigned long bytes);
void __tsan_write_range(void *address, unsigned long bytes);
#endif

static pthread_mutex_t model_lock = PTHREAD_MUTEX_INITIALIZER;

static struct {
    pthread_mutex_t lock;
    pthread_cond_t all_here;
    void (*body)(void *);
    void *argument;
    int cores, waiting, returned;
    unsigned round; /* barriers passed */
} team = {.lock = PTHREAD_MUTEX_INITIALIZER, .all_here = PTHREAD_COND_INITIALIZER};

static _Thread_local int own_core = -1;

int host_team_core(void) {
    return own_core;
}

void host_lock(void) {
    pthread_mutex_lock(&model_lock);
}

void host_unlock(void) {
    pthread_mutex_unlock(&model_lock);
}

void host_turn(void) {
    host_lock();
    host_progress();
    host_unlock();
}

/* No lock here: it would order the cores more strictly than any machine does, and hide races. */
int rt_core(void) {
    return own_core < 0 ? 0 : own_core;
}

static void settle_barrier(void) {
    if (!team.waiting || team.waiting + team.returned < team.cores) return;
    if (team.returned) host_uneven_barriers(team.waiting, team.cores);
    host_settle_step();
    team.waiting = 0;
    team.round++;
    pthread_cond_broadcast(&team.all_here);
}

void rt_barrier(void) {
    if (own_core < 0) return;
    pthread_mutex_lock(&team.lock);
    host_counters.barriers++;
    const unsigned round = team.round;
    team.waiting++;
    settle_barrier();
    while (team.round == round) pthread_cond_wait(&team.all_here, &team.lock);
    pthread_mutex_unlock(&team.lock);
}

static void *run_core(void *number) {
    own_core = *(const int *)number;
    team.body(team.argument);
    pthread_mutex_lock(&team.lock);
    team.returned++;
    settle_barrier();
    pthread_mutex_unlock(&team.lock);
    return NULL;
}

void host_run_team(int cores, void (*body)(void *), void *argument) {
    pthread_t *threads = calloc((size_t)cores, sizeof *threads);
    int *numbers = calloc((size_t)cores, sizeof *numbers);
    if (!threads || !numbers) abort();
    team.body = body, team.argument = argument;
    team.cores = cores, team.waiting = team.returned = 0;
    for (int core = 0; core < cores; core++) {
        numbers[core] = core;
        if (pthread_create(&threads[core], NULL, run_core, &numbers[core])) abort();
    }
    for (int core = 0; core < cores; core++) pthread_join(threads[core], NULL);
    free(threads);
    free(numbers);
}

/* The thread sanitizer sees a transfer as loads of the source and stores to the destination by the caller. */
void host_report_access(const void *address, uint32_t bytes, int is_write) {
#ifdef HOST_TSAN
    void *const at = (void *)(uintptr_t)address;
    if (is_write)
        __tsan_write_range(at, bytes);
    else
        __tsan_read_range(at, bytes);
#else
    (void)address, (void)bytes, (void)is_write;
#endif
}
#endif
