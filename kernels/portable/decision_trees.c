/* y = the sum, average, least or greatest over trees of what the leaves hold that a row of x leads to.
 *
 * x is [rows, features], y [rows, outputs], nodes [nodes, 4]. A node of the way takes loads of its feature's number,
 * mode and child, of the threshold and of the feature, and a comparison: loads that wait for each other bound it.
 */
#include "decision_trees.h"

#include <math.h>
#include <stdint.h>

#define MISSING 8

static inline int is_true(float x, float threshold, int mode) {
    if (x != x && mode >= MISSING) return 1;
    switch (mode % MISSING) {
        case 0:
            return x <= threshold;
        case 1:
            return x < threshold;
        case 2:
            return x >= threshold;
        case 3:
            return x > threshold;
        case 4:
            return x == threshold;
        default:
            return x != threshold;
    }
}

/* The leaf of a tree that a row reaches: children lie behind their parents. */
static inline const NODES_T *leaf_of(const struct decision_trees *k, const X_T *x, int node) {
    const NODES_T *nodes = (const NODES_T *)k->nodes;
    while (nodes[4 * node] >= 0) {
        const NODES_T *at = nodes + 4 * node;
        node = (int)at[is_true(x[at[0]], ((const THRESHOLDS_T *)k->thresholds)[node], (int)at[1]) ? 2 : 3];
    }
    return nodes + 4 * node;
}

static inline Y_T combined(enum decision_aggregate aggregate, Y_T a, Y_T b) {
    if (aggregate == DECISION_MIN) return b < a ? b : a;
    if (aggregate == DECISION_MAX) return b > a ? b : a;
    return a + b;
}

void KERNEL(const struct decision_trees *k) {
    const Y_T start = k->aggregate == DECISION_MIN ? INFINITY : (k->aggregate == DECISION_MAX ? -INFINITY : 0.0f);
    for (int row = 0; row < k->rows; row++) {
        const X_T *x = (const X_T *)k->x + row * k->x_step;
        Y_T *y = (Y_T *)k->y + row * k->y_step;
        for (int e = 0; e < k->count; e++) y[e] = start;
        for (int tree = 0; tree < k->trees; tree++) {
            const NODES_T *leaf = leaf_of(k, x, (int)((const ROOTS_T *)k->roots)[tree]);
            for (int i = (int)leaf[2]; i < (int)(leaf[2] + leaf[3]); i++) {
                Y_T *sum = y + ((const TARGETS_T *)k->targets)[i];
                *sum = combined(k->aggregate, *sum, ((const WEIGHTS_T *)k->weights)[i]);
            }
        }
        for (int e = 0; e < k->count; e++) {
            if (k->aggregate == DECISION_AVERAGE) y[e] = y[e] / (Y_T)k->trees;
            if (k->aggregate >= DECISION_MIN && y[e] == start) y[e] = 0.0f;
        }
    }
}
