#include "neureka.h"

/* The engine works on 6 x 6 outputs, 32 output channels and 32 input channels at a time; a 3x3 kernel has 28 input
 * channels, a depthwise one 28 channels. */
enum { PIXELS = 6, GROUP = 32, NARROW = 28 };
enum { DENSE, DEPTHWISE, POINTWISE };

static uint32_t halves(uint32_t high, uint32_t low) {
    return high << 16 | low;
}

/* Quotients, rounded up, of numbers below 2^16 - 32: a multiplication takes a tenth of a division's cycles. */
static uint32_t groups(uint32_t count, uint32_t size) {
    const uint32_t quads = (count + NARROW - 1) >> 2;
    return size == GROUP ? (count + GROUP - 1) >> 5 : quads * 37450 >> 18;
}

static uint32_t subtiles(uint32_t pixels) {
    return (pixels + PIXELS - 1) * 43691 >> 18;
}

/* What the border of the last subtile is, when that has `rest` of its 6 outputs (0: all). */
static uint32_t far_border(uint32_t padding, uint32_t rest) {
    return padding && rest ? padding + PIXELS - rest : padding;
}

void neureka_registers(const struct neureka_layer *layer, const struct neureka_tile *t, uint32_t *registers) {
    const uint32_t mode = layer->config >> 5 & 3, bits = (layer->config & 7) + 1;
    const uint32_t inputs = mode == POINTWISE ? GROUP : NARROW, outputs = mode == DEPTHWISE ? NARROW : GROUP;
    const uint32_t height = (uint32_t)t->height, width = (uint32_t)t->width;
    const uint32_t in = groups((uint32_t)t->channels_in, inputs), out = groups((uint32_t)t->channels_out, outputs);
    const uint32_t tall = subtiles(height), wide = subtiles(width);
    const uint32_t rest_in = (uint32_t)t->channels_in - (in - 1) * inputs;
    const uint32_t rest_out = (uint32_t)t->channels_out - (out - 1) * outputs;
    const uint32_t full_h = tall * PIXELS == height, full_w = wide * PIXELS == width;
    const uint32_t rest_h = full_h ? 0 : height - (tall - 1) * PIXELS,
                   rest_w = full_w ? 0 : width - (wide - 1) * PIXELS;
    const uint32_t halo = mode == POINTWISE ? 0 : 2;
    uint32_t *r = registers;
    *r++ = (uint32_t)t->weights;
    *r++ = (uint32_t)t->x - (uint32_t)(t->top * t->x_row + t->left * t->x_pixel);
    *r++ = (uint32_t)t->y;
    *r++ = (uint32_t)t->scale;
    *r++ = (uint32_t)t->shifts;
    *r++ = (uint32_t)t->bias;
    *r++ = (uint32_t)t->x_pixel;
    *r++ = (uint32_t)t->x_row;
    *r++ = 0;
    *r++ = GROUP;
    *r++ = (uint32_t)t->y_pixel;
    *r++ = (uint32_t)t->y_row;
    *r++ = GROUP;
    *r++ = mode == POINTWISE ? GROUP * in : mode == DENSE ? GROUP * bits * in : 0;
    *r++ = 0;
    *r++ = halves(rest_out, rest_in);
    *r++ = halves(rest_h, rest_w);
    *r++ = halves(rest_h ? rest_h + halo : 0, rest_w ? rest_w + halo : 0);
    *r++ = halves(out, in);
    *r++ = halves(tall, wide);
    *r++ = (uint32_t)t->top << 28 | far_border((uint32_t)t->right, rest_w) << 24 |
           far_border((uint32_t)t->bottom, rest_h) << 20 | (uint32_t)t->left << 16 |
           ((uint32_t)layer->padding_value & 255);
    *r++ = (uint32_t)layer->weight_offset;
    *r++ = 0;
    *r = layer->config;
}

void neureka_job(int accelerator, const struct neureka_layer *layer, const struct neureka_tile *tile) {
    uint32_t registers[NEUREKA_REGISTERS];
    neureka_registers(layer, tile, registers);
    rt_job(accelerator, registers, NEUREKA_REGISTERS);
}

int neureka_linear(int accelerator, const struct neureka_layer *layer, const struct neureka_tile *tile,
                   int32_t pixels) {
    struct neureka_tile t = *tile;
    const int32_t tall = (int32_t)subtiles((uint32_t)pixels + 1) - 1, rest = pixels - PIXELS * tall;
    t.height = tall, t.width = PIXELS;
    t.x_row = PIXELS * t.x_pixel, t.y_row = PIXELS * t.y_pixel;
    if (tall) neureka_job(accelerator, layer, &t);
    if (!rest) return 1;
    t.x += (rt_address)(tall * t.x_row), t.y += (rt_address)(tall * t.y_row);
    t.height = 1, t.width = rest;
    neureka_job(accelerator, layer, &t);
    return 1 + (tall != 0);
}
