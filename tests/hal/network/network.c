/* A network of two calls as the compiler would write it. The test changes single lines of it; every change is a hazard.
 *
 * step 0, `scale`: y = 3 * x + w, 8 tiles of 4 rows, double buffered, 4 cores; x (32 x 16) is the caller's and is read
 * in windows of 12 columns, w (12 bytes) is a constant of L3 that the initialisation copies to L2; y goes to L2, and w
 * is fetched before the step begins. step 1, `spill`: y travels to L3 and back in a second block, while z = prefix of
 * the sums of rows is computed by the team. step 2, `add`: z is added to what came back, and goes to the caller's
 * output (32 x 12).
 */
#include <string.h>

#include "deeploy_box.h"
#include "deeploy_network.h"
#include "deeploy_rt.h"

enum { ROWS = 32, COLUMNS = 16, WIDTH = 12, TILE = 4, TILES = ROWS / TILE, CORES = 4 };
enum { L1, L2, L3 };
enum { L2_L1, L3_L2 };

enum {
    AT_W = 0,
    AT_X = 16,    /* two windows of 48 bytes */
    AT_Y = 112,   /* two windows of 48 bytes */
    AT_SUM = 208, /* 4 partial sums */
    AT_CLOSURE = 224,
    AT_WHOLE = 272,
    L2_W = 0,
    L2_Y = 16,
    L2_BACK = 400,
    L3_Y = 32
};

static const struct rt_block blocks[] = {
    {"w", L1, 0, 12, -1, 0},
    {"scale.x", L1, 16, 96, 0, 0},
    {"scale.y", L1, 112, 96, 0, 0},
    {"scale.closure", L1, 224, 24, 0, 0},
    {"spill.y", L1, 272, 384, 1, 1},
    {"sums", L1, 208, 16, 1, 2},
    {"spill.closure", L1, 224, 24, 1, 1},
    {"add.back", L1, 272, 384, 2, 2},
    {"w_copy", L2, 0, 12, -1, 3},
    {"y", L2, 16, 384, 0, 1},
    {"back", L2, 400, 384, 1, 2},
    {"y_far", L3, 32, 384, 1, 1},
};
#define STEP(n) RT_STEP(blocks, (int)(sizeof blocks / sizeof blocks[0]), n)

static int8_t *l1;

struct scale {
    const int8_t *x, *w;
    int8_t *y;
};

static void scale_core(void *argument) {
    const struct scale *k = argument;
    const int row = rt_core();
    for (int i = 0; i < WIDTH; i++) k->y[row * WIDTH + i] = (int8_t)(3 * k->x[row * WIDTH + i] + k->w[i]);
}

static void fetch_x(const int8_t *x, int t) {
    const rt_address window = rt_arena(L1) + AT_X + (rt_address)(t % 2 * 48);
    const rt_address from = (rt_address)(x + t * TILE * COLUMNS);
    rt_fetch(L2_L1, t % 2, &(struct rt_box){window, from, WIDTH, 1, {TILE}, {COLUMNS}});
}

static void store_y(int t) {
    const rt_address window = rt_arena(L1) + AT_Y + (rt_address)(t % 2 * 48);
    const rt_address to = rt_arena(L2) + L2_Y + (rt_address)(t * 48);
    rt_store(L2_L1, 2 + t % 2, &(struct rt_box){window, to, 48, 0, {0}, {0}});
}

static void scale(const int8_t *x) {
    struct scale *k = (struct scale *)(void *)(l1 + AT_CLOSURE);
    fetch_x(x, 0);
    for (int t = 0; t < TILES; t++) {
        if (t + 1 < TILES) fetch_x(x, t + 1);
        rt_wait(L2_L1, t % 2);
        if (t >= 2) rt_wait(L2_L1, 2 + t % 2);
        *k = (struct scale){l1 + AT_X + t % 2 * 48, l1 + AT_W, l1 + AT_Y + t % 2 * 48};
        rt_fork(CORES, scale_core, k);
        store_y(t);
    }
    rt_wait(L2_L1, 2);
    rt_wait(L2_L1, 3);
}

struct sums {
    const int8_t *y;
    int32_t *part;
};

/* Every core sums a quarter; behind the barrier, core 0 makes prefix sums of them. */
static void sum_core(void *argument) {
    const struct sums *k = argument;
    const int core = rt_core(), count = ROWS * WIDTH / CORES;
    k->part[core] = 0;
    for (int i = 0; i < count; i++) k->part[core] += k->y[core * count + i];
    rt_barrier();
    if (core == 0) {
        for (int i = 1; i < CORES; i++) k->part[i] += k->part[i - 1];
    }
    rt_barrier();
}

static void spill(void) {
    const rt_address near = rt_arena(L2) + L2_Y, far = rt_arena(L3) + L3_Y;
    rt_store(L3_L2, 0, &(struct rt_box){near, far, 384, 0, {0}, {0}});
    rt_fetch(L2_L1, 0, &(struct rt_box){rt_arena(L1) + AT_WHOLE, near, 384, 0, {0}, {0}});
    rt_wait(L2_L1, 0);
    struct sums *k = (struct sums *)(void *)(l1 + AT_CLOSURE);
    *k = (struct sums){l1 + AT_WHOLE, (int32_t *)(void *)(l1 + AT_SUM)};
    rt_fork(CORES, sum_core, k);
    rt_wait(L3_L2, 0);
    rt_fetch(L3_L2, 1, &(struct rt_box){rt_arena(L2) + L2_BACK, far, 384, 0, {0}, {0}});
    rt_wait(L3_L2, 1);
}

static void add(int8_t *out) {
    const int32_t *sums = (const int32_t *)(const void *)(l1 + AT_SUM);
    rt_fetch(L2_L1, 0, &(struct rt_box){rt_arena(L1) + AT_WHOLE, rt_arena(L2) + L2_BACK, 384, 0, {0}, {0}});
    rt_wait(L2_L1, 0);
    for (int i = 0; i < ROWS * WIDTH; i++) l1[AT_WHOLE + i] = (int8_t)(l1[AT_WHOLE + i] + sums[i % CORES]);
    rt_store(L2_L1, 1, &(struct rt_box){rt_arena(L1) + AT_WHOLE, (rt_address)out, 384, 0, {0}, {0}});
    rt_wait(L2_L1, 1);
}

struct call {
    const int8_t *x;
    int8_t *out;
};

static int cluster(void *argument) {
    const struct call *call = argument;
    l1 = (int8_t *)rt_arena(L1);
    STEP(-1);
    rt_fetch(L2_L1, 3, &(struct rt_box){rt_arena(L1) + AT_W, rt_arena(L2) + L2_W, WIDTH, 0, {0}, {0}});
    STEP(0);
    rt_wait(L2_L1, 3);
    scale(call->x);
    STEP(1);
    spill();
    STEP(2);
    add(call->out);
    STEP(3);
    return 0;
}

static enum deeploy_status run(const void *const *inputs, void *const *outputs) {
    struct call call = {inputs[0], outputs[0]};
    RT_REGION(L2, inputs[0], ROWS * COLUMNS, 0);
    RT_REGION(L2, outputs[0], ROWS * WIDTH, 1);
    return rt_enter(cluster, &call) ? DEEPLOY_ERROR_NULL : DEEPLOY_OK;
}

static enum deeploy_status init(void *arena, size_t bytes) {
    if (arena || bytes) return DEEPLOY_ERROR_ARENA;
    rt_fetch(L3_L2, 0, &(struct rt_box){rt_arena(L2) + L2_W, rt_constants(L3) + 16, WIDTH, 0, {0}, {0}});
    rt_wait(L3_L2, 0);
    return DEEPLOY_OK;
}

static const int32_t x_shape[] = {ROWS, COLUMNS}, y_shape[] = {ROWS, WIDTH};
static const struct deeploy_tensor x = {"x", DEEPLOY_INT8, 2, x_shape, ROWS *COLUMNS, 1.0f, 0};
static const struct deeploy_tensor y = {"y", DEEPLOY_INT8, 2, y_shape, ROWS *WIDTH, 1.0f, 0};
static const struct deeploy_network net = {"small", 0, 1, 1, &x, &y, init, run, 0, 0, 0, 0};
const struct deeploy_network *const deeploy_networks[] = {&net};
const int deeploy_network_count = 1;
