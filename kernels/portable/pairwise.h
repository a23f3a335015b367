/* Functions of two operands of one type; steps are 0 where one is broadcast. */
#ifndef DEEPLOY_PAIRWISE_H
#define DEEPLOY_PAIRWISE_H

#include <stdint.h>

struct pairwise {
    const void *a;
    const void *b;
    void *y;
    int extent[6], a_step[6], b_step[6], y_step[6];
};

#endif
