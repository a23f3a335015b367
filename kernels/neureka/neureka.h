/* Jobs of N-EUREKA, the convolution engine of Siracusa: 1x1, dense 3x3 and depthwise 3x3 convolutions of 8-bit images.
 *
 * What all tiles of a layer have in common is one struct, which the compiler writes; what differs from tile to tile is
 * another one. Images have their channels last; distances are in bytes.
 */
#ifndef NEUREKA_H
#define NEUREKA_H

#include <stdint.h>

#include "deeploy_rt.h"

enum { NEUREKA_REGISTERS = 24 };

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

/* The registers of the job for a tile. */
void neureka_registers(const struct neureka_layer *layer, const struct neureka_tile *tile, uint32_t *registers);

/* Begins the job for a tile. */
void neureka_job(int accelerator, const struct neureka_layer *layer, const struct neureka_tile *tile);

/* Begins the jobs for a 1x1 convolution of `pixels` pixels that lie `x_pixel` and `y_pixel` apart, such as the rows of
 * a product of matrices: images of 6 pixels a row, which fill the engine, then the rest. Height and width of the tile
 * do not matter, nor do distances of rows. Returns the number of jobs, at most 2. */
int neureka_linear(int accelerator, const struct neureka_layer *layer, const struct neureka_tile *tile, int32_t pixels);

#endif
