/* The runtime of a machine with one core that moves data itself: a transfer is complete when its start returns. ARENAS
 * lists the addresses of the arenas by level; constants of a far level lie in `deeploy_constants`, in flash. */
#include <string.h>

#include "deeploy_rt.h"

extern const unsigned char deeploy_constants[];

static const rt_address arenas[] = {ARENAS};

void rt_start(int engine, int ticket, const struct rt_transfer *transfer) {
    (void)engine, (void)ticket;
    const unsigned char *from = (const unsigned char *)transfer->from;
    unsigned char *to = (unsigned char *)transfer->to;
    for (uint32_t row = 0; row < transfer->rows; row++, from += transfer->from_pitch, to += transfer->to_pitch)
        memcpy(to, from, transfer->bytes);
}

void rt_wait(int engine, int ticket) {
    (void)engine, (void)ticket;
}

void rt_job(int accelerator, const uint32_t *registers, int count) {
    (void)accelerator, (void)registers, (void)count;
}

void rt_job_wait(int accelerator) {
    (void)accelerator;
}

rt_address rt_arena(int level) {
    return arenas[level];
}

rt_address rt_constants(int level) {
    (void)level;
    return (rt_address)deeploy_constants;
}

void rt_fork(int cores, void (*body)(void *), void *argument) {
    (void)cores;
    body(argument);
}

int rt_core(void) {
    return 0;
}

#ifdef RT_CHECKED
void snapshot_settle(void); /* snapshots.h */
#endif

void rt_barrier(void) {
#ifdef RT_CHECKED
    snapshot_settle();
#endif
}

int rt_enter(int (*entry)(void *), void *argument) {
    return entry(argument);
}

uint32_t rt_cycles(void) {
#if defined(__riscv)
    uint32_t cycles;
    __asm__ volatile("rdcycle %0" : "=r"(cycles));
    return cycles;
#else
    return *(volatile uint32_t *)0xE0001004; /* DWT_CYCCNT, Armv7-M Architecture Reference Manual, C1.8.8 */
#endif
}
