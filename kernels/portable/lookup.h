/* A function of one 8-bit operand by a table of 256 entries, the smallest value of the type first. */
#ifndef DEEPLOY_LOOKUP_H
#define DEEPLOY_LOOKUP_H

#include <stdint.h>

struct lookup {
    const void *x;
    const void *table;
    void *y;
    int extent[6], x_step[6], y_step[6];
    int smallest; /* of the type of x */
};

#endif
