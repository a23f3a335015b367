/* One of two operands, element by element; steps are 0 where an operand is broadcast. */
#ifndef DEEPLOY_SELECT_H
#define DEEPLOY_SELECT_H

#include <stdint.h>

struct select {
    const void *condition; /* 0 takes b */
    const void *a;
    const void *b;
    void *y;
    int extent[6], condition_step[6], a_step[6], b_step[6], y_step[6];
};

#endif
