/* Functions of one float operand. */
#ifndef DEEPLOY_UNARY_H
#define DEEPLOY_UNARY_H

#include <stdint.h>

struct unary {
    const void *x;
    void *y;
    int extent[6], x_step[6], y_step[6];
    float alpha, beta;
};

#endif
