/* A network as the compiler writes them, by hand: y = a + b + constants, element by element, where the constants lie in
 * HyperRAM. Two layers: the addition of the inputs, tile by tile in L1 with double buffering, and that of the
 * constants. */
#include "deeploy_network.h"
#include "deeploy_rt.h"

enum { L1, L2, L3 };
enum { DMA, RAM };
enum { ELEMENTS = 3000, TILE = 512, TILES = (ELEMENTS + TILE - 1) / TILE, CORES = 8 };

static const struct rt_level levels[] = {
    {"L1", 64 * 1024, 4, 0, 0},
    {"L2", 64 * 1024, 4, 0, 0},
    {"L3", 64 * 1024, 16, ELEMENTS, 1},
};

static const struct rt_engine engines[] = {
    {"L2_L1", 0, 1, 65535, 65535, 131071, 65535, 1, 0, 8, 16},
    {"L3_L2", 1, 2, 32768, 1, 32768, 0, 1, 0, 8, 8},
};

const struct rt_machine rt_machine = {"siracusa", CORES, 3, 2, levels, engines, 0, 0};

struct job {
    int8_t *a;
    const int8_t *b;
    int elements;
};

static void add(void *argument) {
    const struct job *const job = argument;
    for (int i = rt_core(); i < job->elements; i += CORES) job->a[i] = (int8_t)(job->a[i] + job->b[i]);
}

static void move(int engine, int ticket, rt_address to, rt_address from, uint32_t bytes) {
    const struct rt_transfer t = {to, from, bytes, 1, bytes, bytes};
    rt_start(engine, ticket, &t);
}

static uint32_t tile_bytes(int tile) {
    return tile + 1 < TILES ? TILE : ELEMENTS - (TILES - 1) * TILE;
}

/* y = a + b, all in L2; tiles of a and b alternate between two places in L1. */
static void add_tiled(rt_address y, rt_address a, rt_address b) {
    for (int tile = -1; tile < TILES; tile++) {
        if (tile + 1 < TILES) {
            const int next = (tile + 1) % 2;
            const rt_address at = rt_arena(L1) + (uint32_t)next * 2 * TILE, offset = (uint32_t)(tile + 1) * TILE;
            rt_wait(DMA, 2 + next);
            move(DMA, next, at, a + offset, tile_bytes(tile + 1));
            move(DMA, next, at + TILE, b + offset, tile_bytes(tile + 1));
        }
        if (tile < 0) continue;
        const rt_address at = rt_arena(L1) + (uint32_t)(tile % 2) * 2 * TILE;
        struct job job = {(int8_t *)at, (const int8_t *)at + TILE, (int)tile_bytes(tile)};
        rt_wait(DMA, tile % 2);
        rt_fork(CORES, add, &job);
        move(DMA, 2 + tile % 2, y + (uint32_t)tile * TILE, at, tile_bytes(tile));
    }
    rt_wait(DMA, 2);
    rt_wait(DMA, 3);
}

struct call {
    const void *const *inputs;
    void *const *outputs;
};

#ifdef DEEPLOY_PROFILE
#define LAYER(index, name, work) (deeploy_profile(name, index, 0), work, deeploy_profile(name, index, 1))
#else
#define LAYER(index, name, work) (work)
#endif

#ifdef TOO_DEEP
static void too_deep(void *argument) {
    volatile char room[1000];
    for (uint32_t i = 0; i < sizeof room; i++) room[i] = (char)i;
    (void)argument;
}
#endif

static int enter(void *argument) {
    const struct call *const call = argument;
    const rt_address constants = rt_arena(L2), y = (rt_address)call->outputs[0];
    move(RAM, 0, constants, rt_constants(L3), ELEMENTS);
    LAYER(0, "inputs", add_tiled(y, (rt_address)call->inputs[0], (rt_address)call->inputs[1]));
    rt_wait(RAM, 0);
    LAYER(1, "constants", add_tiled(y, y, constants));
#ifdef TOO_DEEP
    rt_fork(2, too_deep, 0);
#endif
    return DEEPLOY_OK;
}

static enum deeploy_status run(const void *const *inputs, void *const *outputs) {
    struct call call = {inputs, outputs};
    return (enum deeploy_status)rt_enter(enter, &call);
}

static enum deeploy_status init(void *arena, size_t bytes) {
    (void)arena;
    (void)bytes;
    return DEEPLOY_OK;
}

static const int32_t shape[] = {ELEMENTS};
static const struct deeploy_tensor inputs[] = {{"a", DEEPLOY_INT8, 1, shape, ELEMENTS, 1, 0},
                                               {"b", DEEPLOY_INT8, 1, shape, ELEMENTS, 1, 0}};
static const struct deeploy_tensor outputs[] = {{"y", DEEPLOY_INT8, 1, shape, ELEMENTS, 1, 0}};
static const struct deeploy_network network = {"net", 0, 2, 1, inputs, outputs, init, run, 0, 0, 0, 0};

const struct deeploy_network *const deeploy_networks[] = {&network};
const int deeploy_network_count = 1;
