/* Decision trees: each row of features reaches one leaf per tree, whose values are added to the row's outputs. */
#ifndef DEEPLOY_DECISION_TREES_H
#define DEEPLOY_DECISION_TREES_H

enum decision_aggregate { DECISION_SUM, DECISION_AVERAGE, DECISION_MIN, DECISION_MAX };

struct decision_trees {
    const void *x;          /* [rows, features] */
    const void *nodes;      /* [nodes, 4]: feature, mode, child where true, child where false */
    const void *thresholds; /* [nodes] */
    const void *roots;      /* [trees] */
    const void *targets;    /* [entries] of leaves */
    const void *weights;    /* [entries] of leaves */
    void *y;                /* [rows, count] */
    int rows, count, trees, x_step, y_step;
    enum decision_aggregate aggregate;
};

#endif
