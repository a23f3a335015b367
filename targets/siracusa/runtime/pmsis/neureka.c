/* N-EUREKA, the convolution engine, by its registers: the SDK has no driver that takes a prepared job. Two sets of
 * registers, so that a job can be prepared while another one runs.
 *
 * A set is taken by reading ACQUIRE and handed over by writing TRIGGER. The end of a job raises an event on every core;
 * the ends of two jobs may be one event, so what counts is how many sets are still taken. */
#include "pmsis.h"
#include "sdk.h"

#define CONTROL 0x10200018u /* the engine's clock, and its priority over the cores in L1 */
#define ENGINE 0x10201000u
#define TRIGGER (ENGINE + 0x00)
#define ACQUIRE (ENGINE + 0x04) /* negative: both sets are taken */
#define TAKEN (ENGINE + 0x0C)   /* bits 0 and 8: a set whose job is not done */
#define REGISTER (ENGINE + 0x20)

enum { ENGINE_CLOCK = 1 << 11, ENGINE_FIRST = 1 << 8, STALL_CYCLES = 8, EVENT_ENGINE = 1 << 12 };
enum { WEIGHTS = 0, CONFIG = 23, IN_WEIGHT_MEMORY = 1 << 9 };

static PI_CL_L1 uint32_t begun = 0, waited = 0;

static void store(uint32_t address, uint32_t value) {
    *(volatile uint32_t *)address = value;
}

static uint32_t load(uint32_t address) {
    return *(volatile uint32_t *)address;
}

void neureka_power_up(void) {
    store(CONTROL, ENGINE_CLOCK | ENGINE_FIRST | STALL_CYCLES);
}

static uint32_t done(void) {
    const uint32_t taken = load(TAKEN);
    return begun - (taken & 1) - (taken >> 8 & 1);
}

void rt_job(int accelerator, const uint32_t *registers, int count) {
    (void)accelerator;
    order_memory();
    while ((int32_t)load(ACQUIRE) < 0) eu_evt_maskWaitAndClr(EVENT_ENGINE);
    for (int i = 0; i < count; i++) store(REGISTER + 4 * (uint32_t)i, registers[i]);
    /* The engine adds the address of the weight memory to that of the weights. */
    if (registers[CONFIG] & IN_WEIGHT_MEMORY) store(REGISTER, registers[WEIGHTS] - WEIGHT_MEMORY);
    begun++;
    store(TRIGGER, 0);
}

void rt_job_wait(int accelerator) {
    (void)accelerator;
    if (waited == begun) return;
    while (done() == waited) eu_evt_maskWaitAndClr(EVENT_ENGINE);
    waited++;
    order_memory();
}
