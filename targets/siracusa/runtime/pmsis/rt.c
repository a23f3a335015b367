/* Maps the engines and levels of the machine's table to those of the SDK, checks them, and allocates the arenas. */
#include <string.h>

#include "pmsis.h"
#include "sdk.h"

enum { LEVELS = 8, ENGINES = 8 };

static PI_CL_L1 uint8_t is_hyperram[ENGINES] = {0};
static PI_CL_L1 struct {
    rt_address arena, constants;
} place[LEVELS] = {{0, 0}};
static PI_CL_L1 rt_address l1_begin = 0, l1_bytes = 0;

void sdk_fail(const char *what) {
    printf("error: %s\n", what);
    pmsis_exit(1);
    for (;;) continue;
}

static rt_address align(const void *at, uint32_t alignment) {
    return ((rt_address)at + alignment - 1) / alignment * alignment;
}

static void set_level(int i, const struct rt_level *level) {
    const uint32_t spare = level->alignment > 8 ? level->alignment : 0; /* the SDK's chunks begin at a multiple of 8 */
    void *memory;
    if (strcmp(level->name, "L1") == 0) {
        memory = cluster_allocate(level->capacity + spare);
        if (!memory) sdk_fail("the L1 arena is larger than what the SDK leaves");
        place[i].arena = l1_begin = align(memory, level->alignment);
        l1_bytes = level->capacity;
    } else if (strcmp(level->name, "L2") == 0) {
        memory = pi_l2_malloc(level->capacity + spare);
        if (!memory) sdk_fail("code, data and the L2 arena together are larger than L2");
        place[i].arena = align(memory, level->alignment);
    } else if (strcmp(level->name, "L3") == 0) {
        const uint32_t constants = (level->constants + level->alignment - 1) / level->alignment * level->alignment;
        if (constants + level->capacity == 0) return;
        place[i].constants = ram_open(constants + level->capacity);
        place[i].arena = place[i].constants + constants;
    } else if (strcmp(level->name, "WM") == 0) {
        place[i].constants = WEIGHT_MEMORY;
        place[i].arena =
            WEIGHT_MEMORY + (level->constants + level->alignment - 1) / level->alignment * level->alignment;
        if (level->constants > WEIGHT_MEMORY_BYTES) sdk_fail("constants are larger than the weight memory");
    } else {
        sdk_fail("the machine has a level that this runtime does not know");
    }
}

void sdk_set_up(void) {
    if (rt_machine.levels > LEVELS || rt_machine.engines > ENGINES)
        sdk_fail("the machine has too many levels or engines");
    cluster_open();
    for (int i = 0; i < rt_machine.levels; i++) set_level(i, &rt_machine.level[i]);
    cluster_make_stacks();
    for (int i = 0; i < rt_machine.engines; i++) {
        const struct rt_engine *const engine = &rt_machine.engine[i];
        is_hyperram[i] = strcmp(engine->name, "L3_L2") == 0;
        if (!is_hyperram[i] && strcmp(engine->name, "L2_L1") != 0)
            sdk_fail("the machine has an engine that this runtime does not know");
        if (engine->tickets > TICKETS) sdk_fail("the machine has more tickets than this runtime");
    }
    for (int i = 0; i < rt_machine.accelerators; i++) {
        if (strcmp(rt_machine.accelerator[i].name, "neureka"))
            sdk_fail("the machine has an accelerator that this runtime does not know");
        neureka_power_up();
    }
}

void sdk_store_constants(int level, uint32_t offset, void *from, uint32_t bytes) {
    const rt_address to = place[level].constants + offset;
    if (to < ON_CHIP)
        ram_store(to, from, bytes);
    else
        memcpy((void *)to, from, bytes);
}

void *sdk_allocate(uint32_t bytes) {
    void *const memory = pi_l2_malloc(bytes ? bytes : 8);
    if (!memory) sdk_fail("inputs and outputs do not fit into L2 beside the arena");
    return memory;
}

rt_address rt_arena(int level) {
    return place[level].arena;
}

rt_address rt_constants(int level) {
    return place[level].constants;
}

void rt_start(int engine, int ticket, const struct rt_transfer *transfer) {
    if (is_hyperram[engine])
        ram_start(ticket, transfer, transfer->to >= ON_CHIP);
    else
        dma_start(ticket, transfer, transfer->to - l1_begin < l1_bytes);
}

void rt_wait(int engine, int ticket) {
    if (is_hyperram[engine])
        ram_wait(ticket);
    else
        dma_wait(ticket);
}
