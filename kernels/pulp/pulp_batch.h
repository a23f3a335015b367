/* Loops over the four batch axes of a matrix product. */
#ifndef DEEPLOY_PULP_BATCH_H
#define DEEPLOY_PULP_BATCH_H

#include "xpulp.h"

enum { BATCHES = 4 };

/* Whether there is one product alone. */
static inline int is_single(const int extent[BATCHES]) {
    return (extent[0] | extent[1] | extent[2] | extent[3]) == 1;
}

/* Which product is next, and where its operands begin, in elements. */
struct batch {
    int index[BATCHES], a, b, y;
};

/* The next one; 0 after the last one. Axes are walked in a loop that is not unrolled: short code is fetched faster. */
static inline int next_batch(struct batch *at, const int extent[BATCHES], const int a_step[BATCHES],
                             const int b_step[BATCHES], const int y_step[BATCHES]) {
    int axis = BATCHES - 1;
    XP_UNKNOWN(axis);
    for (; axis >= 0; axis--) {
        at->a += a_step[axis], at->b += b_step[axis], at->y += y_step[axis];
        if (++at->index[axis] < extent[axis]) return 1;
        at->a -= a_step[axis] * extent[axis], at->b -= b_step[axis] * extent[axis];
        at->y -= y_step[axis] * extent[axis];
        at->index[axis] = 0;
    }
    return 0;
}

#endif
