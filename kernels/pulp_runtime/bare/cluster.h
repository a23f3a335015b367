/* What the parts of the runtime know of each other. */
#ifndef CLUSTER_H
#define CLUSTER_H

#include <stdint.h>

#include "deeploy_rt.h"
#include "pulp.h"

/* Shared variables of controller and cluster lie in the reserved part of L1. */
#define IN_L1 __attribute__((section(".l1")))

/* Controller: lets the cores run, which then wait for work. Once. */
void cluster_power_up(void);

/* Core 0: sleeps until an event of the mask has happened since the last such sleep; it may also wake for nothing. */
static inline void cluster_sleep(uint32_t events) {
    store(EVENT_MASK, events);
    (void)wait_on(EVENT_WAIT_CLEAR);
    store(EVENT_MASK, EVENT_BARRIER);
}

enum { MOST_ENGINES = 8 };

/* Says that a transfer engine is the cluster DMA, which moves between L1 and anything else. */
void mchan_serve(int engine);

/* Controller: the clock of N-EUREKA, where the chip has one, before its first job. */
void neureka_power_up(void);

/* HyperRAM, to and from L2. Core 0 asks; the controller serves until nothing is left to do at the moment. */
void hyperram_start(int ticket, const struct rt_transfer *transfer, int is_read);
void hyperram_wait(int ticket);
void hyperram_power_up(void);
void hyperram_serve(void);

/* Messages to and from other chips, in programs of a chip that has some. Core 0 asks; the controller serves. */
void link_serve(void);

/* Controller: copies L2 to HyperRAM at once, before the cluster works. Addresses and length are multiples of 4. */
void hyperram_write(uint32_t to, const void *from, uint32_t bytes);

#endif
