/* The machine's table against this machine, and memory for the application. */
#include "bare.h"
#include "cluster.h"
#include "console.h"

extern char __l1_arena[], __l1_arena_end[], __l2_arena[], __l2_arena_end[], __l2_end[];

enum { IN_USE = 256 }; /* bytes of a stack when the application begins */

static char *io_begin = __l2_end; /* arrays of the application lie from here to the end of L2 */

static int is_l1(int level) {
    return rt_machine.level[level].name[1] == '1';
}

void bare_set_up(void) {
    bare_paint_stacks(IN_USE); /* the cores wait already */
    if (rt_machine.levels != 2 || rt_machine.engines != 1)
        bare_fail("the machine has other levels or engines than this runtime");
    for (int i = 0; i < rt_machine.levels; i++) {
        if (is_l1(i) && rt_machine.level[i].capacity > (uint32_t)(__l1_arena_end - __l1_arena))
            bare_fail("the L1 arena is larger than what link.ld leaves");
    }
}

void bare_load_constants(const char *path) {
    (void)path; /* L2 is part of the program */
}

void *bare_allocate(uint32_t bytes) {
    const uint32_t rounded = (bytes + 63) & ~63u;
    if (rounded < bytes || rounded > (uint32_t)(io_begin - __l2_arena_end))
        bare_fail("inputs and outputs do not fit into L2 beside the arena");
    return io_begin -= rounded;
}

rt_address rt_arena(int level) {
    return (rt_address)(is_l1(level) ? __l1_arena : __l2_arena);
}

rt_address rt_constants(int level) {
    (void)level;
    return 0;
}
