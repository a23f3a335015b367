/* The stacks of the cores, consecutive in memory as link.ld lays them out. They are filled with a pattern before use,
 * so that the deepest use can be measured. */
#include "bare.h"
#include "board.h"
#include "console.h"

extern uint32_t __core_stack_bottom[], __core_0_stack_bottom[], __core_0_stack_top[];
extern char __core_stack_bytes[]; /* an absolute symbol */

enum { PAINT = 0x5AFEC0DE };

static int is_painted;

static uint32_t *bottom_of(int core) {
    return core ? __core_stack_bottom + (uint32_t)(core - 1) * ((uint32_t)__core_stack_bytes / 4)
                : __core_0_stack_bottom;
}

uint32_t bare_stack_bytes(int core) {
    return core ? (uint32_t)__core_stack_bytes : (uint32_t)((char *)__core_0_stack_top - (char *)__core_0_stack_bottom);
}

uint32_t bare_stack_used(int core) {
    const uint32_t *const bottom = bottom_of(core);
    uint32_t unused = 0;
    while (unused < bare_stack_bytes(core) && bottom[unused / 4] == PAINT) unused += 4;
    return bare_stack_bytes(core) - unused;
}

void bare_paint_stacks(uint32_t in_use) {
    is_painted = 1;
    for (int core = 0; core < BARE_CORES; core++) {
        uint32_t *const bottom = bottom_of(core);
        for (uint32_t i = 0; i < (bare_stack_bytes(core) - in_use) / 4; i++) bottom[i] = PAINT;
    }
}

void bare_end(int status) {
    for (int core = 0; core < BARE_CORES && is_painted; core++) {
        if (*bottom_of(core) != PAINT) bare_fail("a core's stack is full: the target must reserve more of L1");
    }
    bare_exit(status);
}
