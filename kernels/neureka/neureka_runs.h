/* One tile of any convolution of one group, on N-EUREKA: a job for every run of taps, which adds to the sums of those
 * before.
 *
 * Taps of a row that are neighbours are one run of pixels, along which a window is moved: a convolution of one pixel
 * with many channels, whose pixels overlap. Other taps are runs of one pixel each. The border that windows see is
 * copied around the image by the cores; where windows are taller than wide (UPRIGHT), column after column, so that
 * taps of a column are runs; channels of several groups in blocks (IN_BLOCKS), each an image of its own. A single row
 * of outputs (LINEAR) is computed as an image of six to a row. */
#ifndef NEUREKA_RUNS_H
#define NEUREKA_RUNS_H

#include <stdint.h>

#include "neureka.h"

struct neureka_runs {
    int accelerator, cores;
    struct neureka_layer layer;
    struct neureka_tile tile; /* of the first run; x is not looked at, nor are its distances */
    const void *x;
    int32_t images, height, width, channels; /* of x, whose pixels lie side by side unless channels are in blocks */
    int32_t block, block_out;                /* channels of x and of y that a block has */
    int32_t rows, columns;                   /* that all windows see */
    int32_t runs_h, runs_w;                  /* how many runs, one below and beside the other */
    int32_t stride_h, stride_w;
    int32_t dilation_h, dilation_w;
    int32_t top, left; /* rows and columns before the first one of x */
    /* Distances in bytes: of weights, from run to run and from an output channel to the next one. */
    int32_t x_image, x_row, x_column, y_image, w_run, w_channel;
    uint8_t *padded; /* rows * columns pixels, of whole blocks */
};

#endif
