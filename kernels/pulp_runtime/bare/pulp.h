/* The registers of chips of the PULP family that this runtime uses, and how their cores are told apart. What differs
 * from chip to chip is in soc.h: the bytes of L1 and of HyperRAM, and where the uDMA has HyperRAM.
 *
 * The controller ("fabric controller") is hart 31 << 5; the cluster's cores are harts 0 to 7. Both see one address map.
 */
#ifndef PULP_H
#define PULP_H

#include <stdint.h>

#include "soc.h"

enum { CLUSTER_CORES = 8 };

/* Memories. */
#define L1_BASE 0x10000000u

/* Cluster peripherals, seen by everybody. */
#define CLUSTER_CONTROL 0x10200000u /* +0x08 fetch enable, one bit a core; +0x40 + 4 * core: boot address */
#define CLUSTER_TIMER 0x10200400u   /* +0x00 configuration; +0x08 count */
#define CLUSTER_EVENTS 0x10200800u  /* +0x600 + 4 * event: raises a software event on the cores of the mask */
#define CLUSTER_ICACHE 0x10201400u  /* +0x00 enable; +0x04 flush */

/* The same, seen by a core of the cluster through its own port: one cycle, and registers of its own. */
#define EVENTS 0x10204000u /* this core's part of the event unit */
#define MCHAN 0x10204400u  /* this core's command queue of the cluster DMA */

/* The controller's side. */
#define UDMA 0x1A102000u
#define SOC_CONTROL 0x1A104000u /* +0xA0: end of the simulation, with a status */
#define SOC_EVENTS 0x1A106000u  /* +0x04 + 4 * n: events 32n to 32n + 31 that the controller does not see */
#define FC_ICACHE 0x1A108800u   /* +0x00 enable; +0x04 flush */
#define FC_INTERRUPTS 0x1A109800u
#define STDOUT 0x1A10F000u

/* FC_INTERRUPTS: mask, and status with its set and clear registers; the FIFO holds events of peripherals. */
#define INTERRUPT_MASK (FC_INTERRUPTS + 0x00)
#define INTERRUPT_STATUS (FC_INTERRUPTS + 0x0C)
#define INTERRUPT_SET (FC_INTERRUPTS + 0x10)
#define INTERRUPT_CLEAR (FC_INTERRUPTS + 0x14)
#define INTERRUPT_FIFO (FC_INTERRUPTS + 0x24)

/* Bits of the interrupt status. */
enum {
    INTERRUPT_CLUSTER = 1 << 0, /* software: a core of the cluster wants attention */
    INTERRUPT_PERIPHERAL = 1 << 26
};

/* A core's events: bits of EVENTS masks. */
enum {
    EVENT_SOFTWARE = 1 << 0, /* raised by the controller */
    EVENT_MCHAN = 1 << 8,
    EVENT_ENGINE = 1 << 12, /* the accelerator: a job is done */
    EVENT_BARRIER = 1 << 16,
    EVENT_DISPATCH = 1 << 18
};

/* Registers of EVENTS. A "waiting" register puts the core to sleep when read by `wait_on`. */
#define EVENT_MASK (EVENTS + 0x00)
#define EVENT_WAIT_CLEAR (EVENTS + 0x3C) /* waiting: until an event of the mask, which it clears */
#define DISPATCH_FIFO (EVENTS + 0x80)    /* waiting: the next word that core 0 wrote here for this core */
#define DISPATCH_TEAM (EVENTS + 0x84)    /* the cores that get the words written from now on */
#define BARRIER_MASK (EVENTS + 0x200)    /* of barrier 0: the cores that take part */
#define BARRIER_TARGET (EVENTS + 0x20C)  /* the cores that are woken */
#define BARRIER_WAIT (EVENTS + 0x21C)    /* waiting: arrives at the barrier, sleeps until all have */

static inline void store(uint32_t address, uint32_t value) {
    *(volatile uint32_t *)address = value;
}

static inline uint32_t load(uint32_t address) {
    return *(volatile uint32_t *)address;
}

/* Nothing moves across this; the cores themselves keep their accesses in order. */
static inline void order_memory(void) {
    __asm__ volatile("" ::: "memory");
}

/* Xpulp's p.elw: a load during which the event unit may stop the core's clock. */
static inline uint32_t wait_on(uint32_t address) {
    uint32_t value;
    __asm__ volatile(".insn i 0x03, 6, %0, %1, 0" : "=r"(value) : "r"(address) : "memory");
    return value;
}

static inline uint32_t hart(void) {
    uint32_t id;
    __asm__ volatile("csrr %0, mhartid" : "=r"(id));
    return id;
}

static inline int is_controller(void) {
    return hart() >> 5 != 0;
}

#endif
