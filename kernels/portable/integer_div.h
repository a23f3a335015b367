/* Quotient of integers, rounded to the nearest: (a * factor) / (b * scale + offset). */
#ifndef DEEPLOY_INTEGER_DIV_H
#define DEEPLOY_INTEGER_DIV_H

#include <stdint.h>

struct integer_div {
    const void *a;
    const void *b;
    void *y;
    int extent[6], a_step[6], b_step[6], y_step[6];
    int64_t factor, scale, offset;
};

#endif
