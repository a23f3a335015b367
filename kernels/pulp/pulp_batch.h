/* Loops over the four batch axes of a matrix product. */
#ifndef DEEPLOY_PULP_BATCH_H
#define DEEPLOY_PULP_BATCH_H

#include "xpulp.h"

enum { BATCHES = 4 };

/* Extents, outermost first, filled up with 1, and steps of the operands in elements; 0 where one is broadcast. */
struct batches {
    int extent[BATCHES], a_step[BATCHES], b_step[BATCHES], y_step[BATCHES];
};

/* A number that compilers do not know. A structure that holds one is stored word by word; one of constants would be
 * copied out of L2, by every core. */
static inline int unknown(int number) {
    XP_UNKNOWN(number);
    return number;
}

/* Which product is next, and where its operands begin, in elements. */
struct batch {
    int index[BATCHES], a, b, y;
};

/* The next one; 0 after the last one. Axes are walked in a loop that is not unrolled: short code is fetched faster. */
static inline int next_batch(struct batch *at, const struct batches *all) {
    int axis = BATCHES - 1;
    XP_UNKNOWN(axis);
    for (; axis >= 0; axis--) {
        const int extent = all->extent[axis], a = all->a_step[axis], b = all->b_step[axis], y = all->y_step[axis];
        at->a += a, at->b += b, at->y += y;
        if (++at->index[axis] < extent) return 1;
        at->a -= a * extent, at->b -= b * extent, at->y -= y * extent;
        at->index[axis] = 0;
    }
    return 0;
}

#endif
