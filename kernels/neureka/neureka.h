/* Jobs of N-EUREKA, the convolution engine of Siracusa: 1x1, dense 3x3 and depthwise 3x3 convolutions of 8-bit images.
 *
 * What all tiles of a layer have in common is one struct, which the compiler writes; what differs from tile to tile is
 * another one. Images have their channels last; distances are in bytes.
 */
#ifndef NEUREKA_H
#define NEUREKA_H

#include <stdint.h>

#include "deeploy_rt.h"

enum { NEUREKA_REGISTERS = 24, NEUREKA_WEIGHTS = 0, NEUREKA_X = 1, NEUREKA_CONFIG = 23 };
enum { NEUREKA_ADD = 1 << 14 }; /* of the configuration: sums are added to those that are there */

struct neureka_layer {
    uint32_t config;       /* mode, types, bits of weights and scales, shift: the configuration register */
    int32_t weight_offset; /* added to every weight */
    int32_t padding_value; /* what x is beyond the border */
};

struct neureka_tile {
    rt_address x; /* the first pixel inside */
    rt_address y, weights;
    rt_address scale, bias; /* per output channel; unused when y is int32 */
    rt_address shifts;      /* a byte per output channel, when the layer has no common shift */
    int32_t height, width;  /* of the output */
    int32_t channels_in, channels_out;
    /* Distances of pixels and rows that follow each other in the convolution: of stride 2, every second one. */
    int32_t x_pixel, x_row, y_pixel, y_row;
    int32_t top, left, bottom, right; /* rows and columns beyond the border, in front of x and behind it */
};

/* The engine works on 6 x 6 outputs, 32 output channels and 32 input channels at a time; a 3x3 kernel has 28 input
 * channels, a depthwise one 28 channels. */
enum { NEUREKA_PIXELS = 6, NEUREKA_GROUP = 32, NEUREKA_NARROW = 28 };
enum { NEUREKA_DENSE, NEUREKA_DEPTHWISE, NEUREKA_POINTWISE };

/* Where all sizes are constants, compilers compute the registers, if they look into these functions. */
#ifdef __GNUC__
#define NEUREKA_INLINE static inline __attribute__((always_inline))
#else
#define NEUREKA_INLINE static inline
#endif

NEUREKA_INLINE uint32_t neureka_halves(uint32_t high, uint32_t low) {
    return high << 16 | low;
}

/* Quotients, rounded up, of numbers below 2^16 - 32: a multiplication takes a tenth of a division's cycles. */
NEUREKA_INLINE uint32_t neureka_groups(uint32_t count, uint32_t size) {
    const uint32_t quads = (count + NEUREKA_NARROW - 1) >> 2;
    return size == NEUREKA_GROUP ? (count + NEUREKA_GROUP - 1) >> 5 : quads * 37450 >> 18;
}

NEUREKA_INLINE uint32_t neureka_subtiles(uint32_t pixels) {
    return (pixels + NEUREKA_PIXELS - 1) * 43691 >> 18;
}

/* What the border of the last subtile is, when that has `rest` of its 6 outputs (0: all). */
NEUREKA_INLINE uint32_t neureka_far_border(uint32_t padding, uint32_t rest) {
    return padding && rest ? padding + NEUREKA_PIXELS - rest : padding;
}

/* The registers of the job for a tile. */
NEUREKA_INLINE void neureka_registers(const struct neureka_layer *layer, const struct neureka_tile *t,
                                      uint32_t *registers) {
    const uint32_t mode = layer->config >> 5 & 3, bits = (layer->config & 7) + 1;
    const uint32_t inputs = mode == NEUREKA_POINTWISE ? NEUREKA_GROUP : NEUREKA_NARROW,
                   outputs = mode == NEUREKA_DEPTHWISE ? NEUREKA_NARROW : NEUREKA_GROUP;
    const uint32_t height = (uint32_t)t->height, width = (uint32_t)t->width;
    const uint32_t in = neureka_groups((uint32_t)t->channels_in, inputs),
                   out = neureka_groups((uint32_t)t->channels_out, outputs);
    const uint32_t tall = neureka_subtiles(height), wide = neureka_subtiles(width);
    const uint32_t rest_in = (uint32_t)t->channels_in - (in - 1) * inputs;
    const uint32_t rest_out = (uint32_t)t->channels_out - (out - 1) * outputs;
    const uint32_t full_h = tall * NEUREKA_PIXELS == height, full_w = wide * NEUREKA_PIXELS == width;
    const uint32_t rest_h = full_h ? 0 : height - (tall - 1) * NEUREKA_PIXELS,
                   rest_w = full_w ? 0 : width - (wide - 1) * NEUREKA_PIXELS;
    const uint32_t halo = mode == NEUREKA_POINTWISE ? 0 : 2;
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
    *r++ = NEUREKA_GROUP;
    *r++ = (uint32_t)t->y_pixel;
    *r++ = (uint32_t)t->y_row;
    *r++ = NEUREKA_GROUP;
    *r++ = mode == NEUREKA_POINTWISE ? NEUREKA_GROUP * in : mode == NEUREKA_DENSE ? NEUREKA_GROUP * bits * in : 0;
    *r++ = 0;
    *r++ = neureka_halves(rest_out, rest_in);
    *r++ = neureka_halves(rest_h, rest_w);
    *r++ = neureka_halves(rest_h ? rest_h + halo : 0, rest_w ? rest_w + halo : 0);
    *r++ = neureka_halves(out, in);
    *r++ = neureka_halves(tall, wide);
    *r++ = (uint32_t)t->top << 28 | neureka_far_border((uint32_t)t->right, rest_w) << 24 |
           neureka_far_border((uint32_t)t->bottom, rest_h) << 20 | (uint32_t)t->left << 16 |
           ((uint32_t)layer->padding_value & 255);
    *r++ = (uint32_t)layer->weight_offset;
    *r++ = 0;
    *r = layer->config;
}

/* Begins the job for a tile whose sizes are constants. */
NEUREKA_INLINE void neureka_known_job(int accelerator, const struct neureka_layer *layer,
                                      const struct neureka_tile *tile) {
    uint32_t registers[NEUREKA_REGISTERS];
    neureka_registers(layer, tile, registers);
    rt_job(accelerator, registers, NEUREKA_REGISTERS);
}

/* Begins the job for any tile. */
static inline void neureka_job(int accelerator, const struct neureka_layer *layer, const struct neureka_tile *tile) {
    neureka_known_job(accelerator, layer, tile);
}

/* Begins the jobs for a 1x1 convolution of `pixels` pixels that lie `x_pixel` and `y_pixel` apart, such as the rows of
 * a product of matrices: what is left of images of 6 pixels a row, which fill the engine, then these. Height and width
 * of the tile do not matter, nor do distances of rows. Returns the number of jobs, at most 2. */
static inline int neureka_linear(int accelerator, const struct neureka_layer *layer, const struct neureka_tile *tile,
                                 int32_t pixels) {
    struct neureka_tile t = *tile;
    const int32_t tall = (int32_t)neureka_subtiles((uint32_t)pixels + 1) - 1, rest = pixels - NEUREKA_PIXELS * tall;
    t.x_row = NEUREKA_PIXELS * t.x_pixel, t.y_row = NEUREKA_PIXELS * t.y_pixel;
    if (rest) {
        t.x = tile->x + (rt_address)(tall * t.x_row), t.y = tile->y + (rt_address)(tall * t.y_row);
        t.height = 1, t.width = rest;
        neureka_job(accelerator, layer, &t);
    }
    if (!tall) return 1;
    t.x = tile->x, t.y = tile->y;
    t.height = tall, t.width = NEUREKA_PIXELS;
    neureka_job(accelerator, layer, &t);
    return 1 + (rest != 0);
}

#endif
