/* The machine's table against this machine: which engine and level is which, and where arenas lie. */
#include "bare.h"
#include "cluster.h"
#include "console.h"
#include "pulp.h"

extern char __l1_arena[], __l1_arena_end[], __l2_arena[], __l2_arena_end[], __l2_end[];

enum { LEVELS = 8, TICKETS = 8 };

static IN_L1 struct {
    rt_address arena, constants;
} place[LEVELS];

static char *io_begin = __l2_end; /* arrays of the application lie from here to the end of L2 */

static int is_same(const char *a, const char *b) {
    while (*a && *a == *b) a++, b++;
    return *a == *b;
}

static void set_level(int i, const struct rt_level *level) {
    if (is_same(level->name, "L1")) {
        place[i].arena = (rt_address)__l1_arena;
        if (level->capacity > (uint32_t)(__l1_arena_end - __l1_arena))
            bare_fail("the L1 arena is larger than what link.ld leaves");
    } else if (is_same(level->name, "L2")) {
        place[i].arena = (rt_address)__l2_arena;
    } else if (is_same(level->name, "L3")) {
        place[i].constants = 0;
        place[i].arena = (level->constants + 15) & ~15u;
        if (level->constants > HYPERRAM_BYTES) bare_fail("constants are larger than HyperRAM");
#ifdef WEIGHT_MEMORY
    } else if (is_same(level->name, "WM")) {
        place[i].constants = WEIGHT_MEMORY;
        place[i].arena = WEIGHT_MEMORY + ((level->constants + 15) & ~15u);
        if (level->constants > WEIGHT_MEMORY_BYTES) bare_fail("constants are larger than the weight memory");
#endif
    } else {
        bare_fail("the machine has a level that this runtime does not know");
    }
}

void bare_set_up(void) {
    if (rt_machine.levels > LEVELS || rt_machine.engines > MOST_ENGINES)
        bare_fail("the machine has too many levels or engines");
    for (int i = 0; i < rt_machine.levels; i++) set_level(i, &rt_machine.level[i]);
    for (int i = 0; i < rt_machine.engines; i++) {
        const struct rt_engine *const engine = &rt_machine.engine[i];
        if (is_same(engine->name, "L2_L1") || is_same(engine->name, "WM_L1"))
            mchan_serve(i);
        else if (!is_same(engine->name, "L3_L2"))
            bare_fail("the machine has an engine that this runtime does not know");
        if (engine->tickets > TICKETS) bare_fail("the machine has more tickets than this runtime");
    }
    for (int i = 0; i < rt_machine.accelerators; i++) {
#ifdef NEUREKA
        if (is_same(rt_machine.accelerator[i].name, "neureka")) {
            neureka_power_up();
            continue;
        }
#endif
        bare_fail("the machine has an accelerator that this runtime does not know");
    }
    hyperram_power_up();
    cluster_power_up();
}

/* The next bytes of the file, to a far level: to HyperRAM through L2, to a memory that cores reach as they are. */
static void load_level(int file, rt_address to, uint32_t bytes) {
    const uint32_t most = 65536;
    const int is_reached = to >= L1_BASE;
    for (uint32_t moved = 0, n; moved < bytes; moved += n) {
        n = bytes - moved < most ? bytes - moved : most;
        if (n > (uint32_t)(io_begin - __l2_arena)) bare_fail("no room in L2 to load constants through");
        void *const from = is_reached ? (char *)(to + moved) : __l2_arena;
        if (file_read(file, from, n)) bare_fail("the file of constants cannot be read");
        if (!is_reached) hyperram_write(to + moved, from, n);
    }
}

void bare_load_constants(const char *path) {
    uint32_t bytes = 0;
    for (int i = 0; i < rt_machine.levels; i++) bytes += rt_machine.level[i].constants;
    if (!bytes) return;
    const int file = file_open(path, 0);
    if (file < 0 || file_bytes(file) != (int32_t)bytes)
        bare_fail("the file of constants is missing or of another length");
    for (int i = 0; i < rt_machine.levels; i++) load_level(file, place[i].constants, rt_machine.level[i].constants);
    file_close(file);
}

void *bare_allocate(uint32_t bytes) {
    const uint32_t rounded = (bytes + 15) & ~15u;
    if (rounded < bytes || rounded > (uint32_t)(io_begin - __l2_arena_end))
        bare_fail("inputs and outputs do not fit into L2 beside the arena");
    return io_begin -= rounded;
}

rt_address rt_arena(int level) {
    return place[level].arena;
}

rt_address rt_constants(int level) {
    return place[level].constants;
}

uint32_t rt_cycles(void) {
    return load(CLUSTER_TIMER + 0x08);
}
