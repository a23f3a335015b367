/* Norms of dense rows of bytes; a call may be for some columns of rows that are measured whole. */
#ifndef DEEPLOY_PULP_INTEGER_NORM_H
#define DEEPLOY_PULP_INTEGER_NORM_H

struct pulp_integer_norm {
    const void *x;      /* whole rows */
    const void *weight; /* one per column of y */
    const void *bias;   /* one per column of y; centred norms only */
    void *y;
    int columns, first;                  /* of whole rows; the one that y begins with */
    int extent[6], x_step[6], y_step[6]; /* of y; the last axis is the row */
    int shift;
};

#endif
