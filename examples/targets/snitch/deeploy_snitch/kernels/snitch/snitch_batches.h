/* Products over a batch: of every matrix of it in turn. */
#ifndef SNITCH_BATCHES_H
#define SNITCH_BATCHES_H

#include "../portable/matmul.h"

typedef void (*matrix_product)(const struct matmul *k, const float *a, const float *b, float *y);

static inline __attribute__((always_inline)) void over_batch(const struct matmul *k, matrix_product product) {
    const int *const batch = k->batch;
    int index[4] = {0};
    for (int left = batch[0] * batch[1] * batch[2] * batch[3]; left > 0; left--) {
        const float *a = (const float *)k->a, *b = (const float *)k->b;
        float *y = (float *)k->y;
        for (int axis = 0; axis < 4; axis++) {
            a += index[axis] * k->a_batch[axis];
            b += index[axis] * k->b_batch[axis];
            y += index[axis] * k->y_batch[axis];
        }
        product(k, a, b, y);
        for (int axis = 3; axis >= 0 && ++index[axis] == batch[axis]; axis--) index[axis] = 0;
    }
}

#endif
