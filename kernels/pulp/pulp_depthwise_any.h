/* Depthwise convolution of a channels-last image of bytes, with windows of any size. The two axes of the image are the
 * one along which words hold taps, and the one across. Weights are stored [channels, taps across, taps along], zeros
 * behind the last ones up to whole words. */
#ifndef DEEPLOY_PULP_DEPTHWISE_ANY_H
#define DEEPLOY_PULP_DEPTHWISE_ANY_H

#include "pulp_epilogue.h"

struct pulp_axis {
    int size, out;              /* of x and of y */
    int taps, stride, dilation; /* of the window */
    int before;                 /* what is read before the first element of x */
    int x_step, y_step;         /* from one element to the next; channels are dense */
};

struct pulp_depthwise_any {
    const void *x, *w;
    void *y;
    int batch, channels, x_batch, y_batch;
    int zero_point; /* what is read outside x */
    struct pulp_axis across, along;
    void *planes; /* the calling core's own, of so many bytes: room for four channels at least */
    int room;
    struct pulp_epilogue epilogue;
    struct pulp_requantisation requantisation;
};

#endif
