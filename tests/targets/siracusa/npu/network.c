/* A network that runs what its input describes on N-EUREKA: a head of numbers, then the operands, each at a multiple of
 * 8 bytes. The outputs are what y holds afterwards, and the cycles from the first register to the end of the last wait.
 * Built for the host machine model and for Siracusa alike. The hazards' tests change single lines. */
#include <string.h>

#include "deeploy_network.h"
#include "deeploy_rt.h"
#include "neureka.h"

#ifndef JOB_BYTES /* of an input and of an output */
#define JOB_BYTES (48 * 1024)
#define JOB_ROOM (24 * 1024)
#endif

enum { L1, L2, WM };
enum { DMA, WEIGHTS };
enum { ENGINE };
enum { IN_WEIGHT_MEMORY = 1 << 9 };
enum { X, W, SCALE, BIAS, SHIFTS, Y, OPERANDS };

static const struct rt_level levels[] = {
    {"L1", 192 * 1024, 8, 0, 0},
    {"L2", 1024, 8, 0, 0},
    {"WM", 192 * 1024, 16, 0, 1},
};

static const struct rt_engine engines[] = {
    {"L2_L1", 0, 1, 131071, 65535, 131071, 65535, 1, 0, 8, 16},
    {"WM_L1", 0, 2, 131071, 65535, 131071, 65535, 1, 0, 8, 16},
};

static const struct rt_accelerator accelerators[] = {{"neureka", 0, 2, 2}};

const struct rt_machine rt_machine = {"siracusa", 8, 3, 2, levels, engines, 1, accelerators};

/* The head of the input. */
struct head {
    int32_t bytes[OPERANDS];
    int32_t repeats;
    int32_t parts; /* jobs, each of some rows, all begun before the first wait; 0: pixels that follow each other */
    uint32_t config;
    int32_t weight_offset, padding_value;
    int32_t height, width, channels_in, channels_out;
    int32_t x_pixel, x_row, y_pixel, y_row;
    int32_t top, left, bottom, right;
};

static struct rt_block blocks[OPERANDS + 1] = {
    {"x", L1, 0, 0, 0, 2},      {"weights", L1, 0, 0, 0, 2}, {"scale", L1, 0, 0, 0, 2}, {"bias", L1, 0, 0, 0, 2},
    {"shifts", L1, 0, 0, 0, 2}, {"y", L1, 0, 0, 0, 2},       {"far", WM, 0, 0, 0, 2},
};
#define STEP(n) RT_STEP(blocks, OPERANDS + 1, n)

static struct {
    const unsigned char *input;
    unsigned char *y;
    int32_t *cycles;
} call;

static void move(int engine, rt_address to, rt_address from, uint32_t bytes) {
    const struct rt_transfer t = {to, from, bytes, 1, bytes, bytes};
    if (!bytes) return;
    rt_start(engine, 0, &t);
    rt_wait(engine, 0);
}

static rt_address at(int operand) {
    return rt_arena(L1) + blocks[operand].offset;
}

static void begin_part(const struct neureka_layer *layer, struct neureka_tile tile, int32_t part, int32_t parts) {
    const int32_t first = tile.height * part / parts, end = tile.height * (part + 1) / parts;
    tile.x += (rt_address)(first * tile.x_row);
    tile.y += (rt_address)(first * tile.y_row);
    tile.height = end - first;
    neureka_job(ENGINE, layer, &tile);
}

static int32_t run_job(const struct head *h) {
    const struct neureka_layer layer = {h->config, h->weight_offset, h->padding_value};
    const struct neureka_tile tile = {
        .x = at(X),
        .y = at(Y),
        .weights = h->config & IN_WEIGHT_MEMORY ? rt_arena(WM) : at(W),
        .scale = at(SCALE),
        .bias = at(BIAS),
        .shifts = at(SHIFTS),
        .height = h->height,
        .width = h->width,
        .channels_in = h->channels_in,
        .channels_out = h->channels_out,
        .x_pixel = h->x_pixel,
        .x_row = h->x_row,
        .y_pixel = h->y_pixel,
        .y_row = h->y_row,
        .top = h->top,
        .left = h->left,
        .bottom = h->bottom,
        .right = h->right,
    };
    uint32_t cycles = 0;
    for (int i = 0; i < h->repeats; i++) {
        const uint32_t begin = rt_cycles();
        if (h->parts == 1) neureka_job(ENGINE, &layer, &tile);
        for (int32_t part = 0; h->parts > 1 && part < h->parts; part++) begin_part(&layer, tile, part, h->parts);
        const int32_t jobs = h->parts ? h->parts : neureka_linear(ENGINE, &layer, &tile, h->height * h->width);
        for (int32_t part = 0; part < jobs; part++) rt_job_wait(0);
        cycles = rt_cycles() - begin;
    }
    return (int32_t)cycles;
}

static int compute(void *argument) {
    (void)argument;
    static struct head h;
    memcpy(&h, call.input, sizeof h);
    uint32_t place = 256, from = sizeof h;
    for (int i = 0; i < OPERANDS; i++) {
        blocks[i].offset = place, blocks[i].bytes = (uint32_t)h.bytes[i];
        place += ((uint32_t)h.bytes[i] + 7) & ~7u;
    }
    blocks[OPERANDS].bytes = (uint32_t)h.bytes[W];
    STEP(-1);
    RT_REGION(L2, call.input, JOB_BYTES, 0);
    RT_REGION(L2, call.y, JOB_ROOM, 1);
    STEP(0);
    for (int i = 0; i < OPERANDS; i++) {
        from = (from + 7) & ~7u;
        move(DMA, at(i), (rt_address)(call.input + from), (uint32_t)h.bytes[i]);
        from += (uint32_t)h.bytes[i];
    }
    if (h.config & IN_WEIGHT_MEMORY) move(WEIGHTS, rt_arena(WM), at(W), (uint32_t)h.bytes[W]);
    STEP(1);
    *call.cycles = run_job(&h);
    STEP(2);
    move(DMA, (rt_address)call.y, at(Y), (uint32_t)h.bytes[Y]);
    STEP(3);
    return DEEPLOY_OK;
}

static enum deeploy_status init(void *arena, size_t bytes) {
    (void)arena, (void)bytes;
    return DEEPLOY_OK;
}

static enum deeploy_status run(const void *const *inputs, void *const *outputs) {
    call.input = inputs[0], call.y = outputs[0], call.cycles = outputs[1];
    return (enum deeploy_status)rt_enter(compute, 0);
}

static const int32_t shapes[] = {JOB_BYTES, JOB_ROOM, 1};
static const struct deeploy_tensor inputs[] = {{"job", DEEPLOY_UINT8, 1, &shapes[0], JOB_BYTES, 1, 0}};
static const struct deeploy_tensor outputs[] = {
    {"y", DEEPLOY_UINT8, 1, &shapes[1], JOB_ROOM, 1, 0},
    {"cycles", DEEPLOY_INT32, 1, &shapes[2], 4, 1, 0},
};
static const struct deeploy_network network = {"job", 0, 1, 2, inputs, outputs, init, run, 0, 0, 0, 0};
const struct deeploy_network *const deeploy_networks[] = {&network};
const int deeploy_network_count = 1;
