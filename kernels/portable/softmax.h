/* Softmax of dense rows, in floats. */
#ifndef DEEPLOY_SOFTMAX_H
#define DEEPLOY_SOFTMAX_H

struct softmax {
    const void *x;
    void *y;
    int extent[6], x_step[6], y_step[6]; /* the last axis is the row */
};

#endif
