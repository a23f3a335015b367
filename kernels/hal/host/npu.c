/* N-EUREKA, as the registers of a job describe its work: nothing but them and the bytes of its operands is known here.
 *
 * The engine works on tiles of 6 x 6 outputs and of 32 channels (28 where a 3x3 kernel's weights fill its 32 bytes a
 * pass); registers hold how many tiles there are, and how much of the last one is used. Facts: GVSoC's model of it.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "npu.h"

enum { REGISTERS = 24, PIXELS = 6, GROUP = 32, NARROW = 28, WINDOW = 8 };
enum { DENSE, DEPTHWISE, POINTWISE };

enum {
    WEIGHTS,
    X,
    Y,
    SCALE,
    SHIFTS,
    BIAS,
    X_PIXEL,
    X_ROW,
    X_BLOCK,
    Y_WORD,
    Y_PIXEL,
    Y_ROW,
    W_PASS,
    W_OUTPUT,
    W_BLOCK,
    REST_CHANNELS,
    REST_OUT,
    REST_IN,
    TILES_CHANNELS,
    TILES_PIXELS,
    PADDING,
    WEIGHT_OFFSET,
    FILTER_MASK,
    CONFIG
};

/* Bits of the configuration that this model knows; all others must be zero. */
enum {
    KNOWN = 7 << 0 | 1 << 4 | 3 << 5 | 1 << 9 | 1 << 10 | 3 << 12 | 1 << 14 | 31 << 16 | 3 << 21 | 1 << 23 | 1 << 24 |
    1 << 25 | 1 << 26
};

struct layer {
    uint32_t mode, bits, halo, inputs, outputs;        /* inputs, outputs: channels of a tile */
    uint32_t height, width, channels, filters, groups; /* groups: tiles of input channels */
    uint32_t top, left, above, before;                 /* above, before: where the border behind begins */
    uint32_t scale_bytes, shift, y_bytes;
    int is_signed, is_requantised, is_rectified, has_shifts, is_accumulating, in_weight_memory;
    int32_t weight_offset, padding;
};

static void demand(int is_right, const char *what, uint32_t value) {
    if (!is_right) host_violation("Registers of N-EUREKA describe one tile of a layer.", "%s 0x%" PRIx32, what, value);
}

/* So many channels or pixels are in `tiles` tiles of `size`, of which the last one has `rest`. */
static uint32_t total(uint32_t tiles, uint32_t rest, uint32_t size) {
    demand(tiles > 0 && rest <= size, "a number of tiles and the size of the last one:", tiles << 16 | rest);
    return (tiles - 1) * size + (rest ? rest : size);
}

/* Where the border behind begins, in pixels from the border in front. The register counts from the end of a window of 8
 * in the last tile, so it must not reach into the windows of the tile before. */
static uint32_t border(uint32_t padding, uint32_t tiles, uint32_t pixels) {
    const uint32_t last = (tiles - 1) * PIXELS, begin = last + WINDOW - padding;
    if (!padding || begin > pixels + 2) return pixels + 2;
    demand(tiles == 1 || begin >= last + 2, "padding that reaches into the tile before:", padding);
    return begin;
}

static struct layer read_config(const uint32_t *r) {
    const uint32_t c = r[CONFIG];
    demand(!(c & ~(uint32_t)KNOWN), "bits of the configuration that are not used here:", c & ~(uint32_t)KNOWN);
    struct layer l = {.mode = c >> 5 & 3, .bits = (c & 7) + 1, .is_signed = c >> 26 & 1};
    demand(l.mode <= POINTWISE, "the filter mode", l.mode);
    l.halo = l.mode == POINTWISE ? 0 : 2;
    l.inputs = l.mode == POINTWISE ? GROUP : NARROW;
    l.outputs = l.mode == DEPTHWISE ? NARROW : GROUP;
    l.is_requantised = c >> 4 & 1;
    l.y_bytes = 1u << (c >> 21 & 3);
    demand(l.y_bytes == (l.is_requantised ? 1 : 4), "an output of 8 bits is normalised, one of 32 is not:", c);
    demand((c >> 25 & 1) == (uint32_t)l.is_requantised, "a normalisation has a bias:", c);
    l.is_rectified = !(c >> 23 & 1);
    l.has_shifts = c >> 24 & 1;
    l.shift = c >> 16 & 31;
    l.is_accumulating = c >> 14 & 1;
    demand(!l.is_accumulating || (!l.is_requantised && l.mode != DEPTHWISE), "accumulation needs 32-bit outputs:", c);
    l.scale_bytes = 1u << (c >> 12 & 3);
    demand(l.scale_bytes <= 4, "the bits of scales", c);
    l.in_weight_memory = c >> 9 & 1;
    l.weight_offset = (int32_t)r[WEIGHT_OFFSET];
    l.padding = l.is_signed ? (int8_t)r[PADDING] : (uint8_t)r[PADDING];
    return l;
}

static void read_sizes(struct layer *l, const uint32_t *r) {
    const uint32_t tall = r[TILES_PIXELS] >> 16, wide = r[TILES_PIXELS] & 0xFFFF, padding = r[PADDING];
    const uint32_t rest_h = r[REST_OUT] >> 16, rest_w = r[REST_OUT] & 0xFFFF;
    l->height = total(tall, rest_h, PIXELS);
    l->width = total(wide, rest_w, PIXELS);
    l->groups = r[TILES_CHANNELS] & 0xFFFF;
    demand((r[REST_CHANNELS] & 0xFFFF) && r[REST_CHANNELS] >> 16, "the rests of channels", r[REST_CHANNELS]);
    l->channels = total(l->groups, r[REST_CHANNELS] & 0xFFFF, l->inputs);
    l->filters = total(r[TILES_CHANNELS] >> 16, r[REST_CHANNELS] >> 16, l->outputs);
    demand(l->mode != DEPTHWISE || l->channels == l->filters, "depthwise filters for other channels:", l->filters);
    demand(r[REST_IN] == ((rest_h ? rest_h + l->halo : 0) << 16 | (rest_w ? rest_w + l->halo : 0)),
           "rests of inputs that do not belong to those of outputs:", r[REST_IN]);
    demand(l->mode != POINTWISE || !(padding >> 16), "padding of a 1x1 convolution:", padding >> 16);
    l->top = padding >> 28;
    l->left = padding >> 16 & 15;
    demand(l->top <= 2 && l->left <= 2, "padding in front:", padding >> 16);
    l->above = l->halo ? border(padding >> 20 & 15, tall, l->height) : l->height;
    l->before = l->halo ? border(padding >> 24 & 15, wide, l->width) : l->width;
}

static struct layer read_registers(const uint32_t *r) {
    struct layer l = read_config(r);
    read_sizes(&l, r);
    const uint32_t output = l.mode == POINTWISE ? GROUP * l.groups : GROUP * l.groups * l.bits;
    demand(l.mode == DEPTHWISE || r[W_OUTPUT] == output, "the distance of an output's weights:", r[W_OUTPUT]);
    demand(l.mode == POINTWISE || r[W_PASS] == GROUP, "the distance of passes:", r[W_PASS]);
    demand(r[Y_WORD] == GROUP, "the distance of eight 32-bit outputs:", r[Y_WORD]);
    demand(!r[FILTER_MASK], "a mask of the filter:", r[FILTER_MASK]);
    return l;
}

static uint32_t weight_bytes(const struct layer *l) {
    if (l->mode == DEPTHWISE) return l->groups * l->bits * GROUP;
    return l->filters * l->groups * GROUP * (l->mode == DENSE ? l->bits : 1);
}

static uint32_t distance(uint32_t end, uint32_t begin) {
    return end > begin ? end - begin : 0;
}

int npu_ranges(const uint32_t *r, int count, struct host_range ranges[NPU_RANGES]) {
    demand(count == REGISTERS, "the number of registers is", (uint32_t)count);
    const struct layer l = read_registers(r);
    const uint32_t begin = r[X] + l.top * r[X_ROW] + l.left * r[X_PIXEL], y_run = l.filters * l.y_bytes;
    struct host_range *at = ranges;
    *at++ = (struct host_range){.name = "x",
                                .address = begin,
                                .rows = distance(l.above, l.top),
                                .columns = distance(l.before, l.left),
                                .bytes = l.channels,
                                .row_pitch = r[X_ROW],
                                .column_pitch = r[X_PIXEL]};
    *at++ = (struct host_range){.name = "weights",
                                .is_weights = l.in_weight_memory,
                                .address = r[WEIGHTS],
                                .rows = 1,
                                .columns = 1,
                                .bytes = weight_bytes(&l)};
    if (l.is_requantised) {
        demand(!(r[SCALE] % l.scale_bytes) && !(r[BIAS] % 4), "scales or biases are not aligned:", r[SCALE]);
        *at++ = (struct host_range){
            .name = "scale", .address = r[SCALE], .rows = 1, .columns = 1, .bytes = l.filters * l.scale_bytes};
        *at++ =
            (struct host_range){.name = "bias", .address = r[BIAS], .rows = 1, .columns = 1, .bytes = l.filters * 4};
        if (l.has_shifts)
            *at++ = (struct host_range){
                .name = "shifts", .address = r[SHIFTS], .rows = 1, .columns = 1, .bytes = l.filters};
    }
    demand(!(r[Y] % l.y_bytes || r[Y_PIXEL] % l.y_bytes || r[Y_ROW] % l.y_bytes), "outputs are not aligned:", r[Y]);
    *at++ = (struct host_range){.name = "y",
                                .is_written = 1,
                                .address = r[Y],
                                .rows = l.height,
                                .columns = l.width,
                                .bytes = y_run,
                                .row_pitch = r[Y_ROW],
                                .column_pitch = r[Y_PIXEL]};
    return (int)(at - ranges);
}

/* A weight without its offset: its bits lie in passes of 32 bytes, or, of a 1x1 kernel, in one. */
static int32_t weight(const struct layer *l, const unsigned char *weights, uint32_t k, uint32_t c, uint32_t tap) {
    const uint32_t channel = l->mode == DEPTHWISE ? k : c, in = channel % l->inputs, group = channel / l->inputs;
    const uint32_t row = l->mode == DEPTHWISE ? group : k * l->groups + group;
    const uint32_t passes = l->mode == POINTWISE ? 1 : l->bits;
    int32_t value = 0;
    for (uint32_t bit = 0; bit < l->bits; bit++) {
        const unsigned char *const pass = weights + (size_t)(row * passes + (passes > 1 ? bit : 0)) * GROUP;
        const uint32_t at = l->mode == POINTWISE ? in / 4 * 32 + bit * 4 + in % 4 : tap * NARROW + in;
        value |= (pass[at / 8] >> at % 8 & 1) << bit;
    }
    return value + l->weight_offset;
}

static int32_t input(const struct layer *l, const unsigned char *x, uint32_t row, uint32_t column, uint32_t channel) {
    if (row < l->top || row >= l->above || column < l->left || column >= l->before) return l->padding;
    const size_t pixel = (size_t)(row - l->top) * (l->before - l->left) + column - l->left;
    const unsigned char value = x[pixel * l->channels + channel];
    return l->is_signed ? (int8_t)value : value;
}

static int64_t accumulate(const struct layer *l, const unsigned char *x, const int32_t *w, uint32_t i, uint32_t j,
                          uint32_t k) {
    const uint32_t side = l->halo + 1, first = l->mode == DEPTHWISE ? k : 0;
    const uint32_t count = l->mode == DEPTHWISE ? 1 : l->channels;
    int64_t acc = 0;
    for (uint32_t tap = 0; tap < side * side; tap++) {
        for (uint32_t c = 0; c < count; c++)
            acc += w[tap * count + c] * (int64_t)input(l, x, i + tap / side, j + tap % side, first + c);
    }
    return acc;
}

static uint32_t little(const unsigned char *at, uint32_t bytes) {
    uint32_t value = 0;
    for (uint32_t i = 0; i < bytes; i++) value |= (uint32_t)at[i] << 8 * i;
    return value;
}

static void within_32_bits(int64_t value, const char *what, uint32_t channel) {
    if (value < INT32_MIN || value > INT32_MAX)
        host_violation("Accumulators of N-EUREKA, scaled or not, have 32 bits.",
                       "%s of output channel %" PRIu32 " is %" PRId64, what, channel, value);
}

struct norm {
    const unsigned char *scale, *bias, *shifts;
};

static int32_t normalise(const struct layer *l, const struct norm *n, int64_t acc, uint32_t k) {
    const int64_t scaled = acc * little(n->scale + k * l->scale_bytes, l->scale_bytes);
    within_32_bits(scaled, "a scaled sum", k);
    const int64_t sum = scaled + (int32_t)little(n->bias + 4 * (size_t)k, 4);
    within_32_bits(sum, "a scaled sum with its bias", k);
    const uint32_t shift = l->has_shifts ? n->shifts[k] : l->shift;
    demand(shift <= 31, "a shift", shift);
    const int64_t half = sum < 0 ? ~(~sum >> shift) : sum >> shift;
    const int32_t low = l->is_rectified ? 0 : -128, high = l->is_rectified ? 255 : 127;
    return half < low ? low : half > high ? high : (int32_t)half;
}

static void put(const struct layer *l, const struct norm *n, int64_t acc, uint32_t k, unsigned char *y) {
    int64_t value = acc;
    if (l->is_accumulating) value += (int32_t)little(y, 4);
    within_32_bits(value, "a sum", k);
    if (l->is_requantised) value = normalise(l, n, value, k);
    for (uint32_t i = 0; i < l->y_bytes; i++) y[i] = (unsigned char)((uint64_t)value >> 8 * i);
}

void npu_compute(const uint32_t *registers, unsigned char *const *operands, unsigned char *result) {
    const struct layer l = read_registers(registers);
    const struct norm n = {operands[2], operands[3], operands[4]}; /* looked at only where they exist */
    const uint32_t side = l.halo + 1, count = l.mode == DEPTHWISE ? 1 : l.channels;
    int32_t *const w = malloc(sizeof *w * side * side * count);
    if (!w) abort();
    for (uint32_t k = 0; k < l.filters; k++) {
        for (uint32_t tap = 0; tap < side * side; tap++) {
            for (uint32_t c = 0; c < count; c++) w[tap * count + c] = weight(&l, operands[1], k, c, tap);
        }
        for (uint32_t i = 0; i < l.height; i++) {
            for (uint32_t j = 0; j < l.width; j++) {
                unsigned char *const y = result + ((size_t)(i * l.width + j) * l.filters + k) * l.y_bytes;
                put(&l, &n, accumulate(&l, operands[0], w, i, j, k), k, y);
            }
        }
    }
    free(w);
}
