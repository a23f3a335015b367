/* N-EUREKA, the convolution engine: two sets of registers, so that a job can be prepared while another one runs.
 *
 * A set is taken by reading ACQUIRE and handed over by writing TRIGGER. The end of a job raises an event on every core;
 * the ends of two jobs may be one event, so what counts is how many sets are still taken. */
#include "cluster.h"
#include "console.h"
#include "pulp.h"

#define TRIGGER (NEUREKA + 0x00)
#define ACQUIRE (NEUREKA + 0x04) /* negative: both sets are taken */
#define TAKEN (NEUREKA + 0x0C)   /* bits 0 and 8: a set whose job is not done */
#define REGISTER (NEUREKA + 0x20)

/* The engine's clock, and its priority over the cores in L1 for at most 8 cycles at a time. */
#define ENGINE_CONTROL (CLUSTER_CONTROL + 0x18)
enum { ENGINE_CLOCK = 1 << 11, ENGINE_FIRST = 1 << 8, STALL_CYCLES = 8 };

enum { REGISTERS = 24, WEIGHTS = 0, CONFIG = 23, IN_WEIGHT_MEMORY = 1 << 9 };

static IN_L1 uint32_t begun, waited;

void neureka_power_up(void) {
    store(ENGINE_CONTROL, ENGINE_CLOCK | ENGINE_FIRST | STALL_CYCLES);
}

static uint32_t done(void) {
    const uint32_t taken = load(TAKEN);
    return begun - (taken & 1) - (taken >> 8 & 1);
}

void rt_job(int accelerator, const uint32_t *registers, int count) {
    (void)accelerator;
    if (count != REGISTERS) bare_fail("a job of N-EUREKA has 24 registers");
    order_memory();
    while ((int32_t)load(ACQUIRE) < 0) cluster_sleep(EVENT_ENGINE);
    for (uint32_t i = 0; i < REGISTERS; i += 4) {
        const uint32_t a = registers[i], b = registers[i + 1], c = registers[i + 2], d = registers[i + 3];
        store(REGISTER + 4 * i, a);
        store(REGISTER + 4 * i + 4, b);
        store(REGISTER + 4 * i + 8, c);
        store(REGISTER + 4 * i + 12, d);
    }
    /* The engine adds the address of the weight memory to that of the weights. */
    if (registers[CONFIG] & IN_WEIGHT_MEMORY) store(REGISTER, registers[WEIGHTS] - WEIGHT_MEMORY);
    begun++;
    store(TRIGGER, 0);
}

void rt_job_wait(int accelerator) {
    (void)accelerator;
    if (waited == begun) return;
    while (done() == waited) cluster_sleep(EVENT_ENGINE);
    waited++;
    order_memory();
}
