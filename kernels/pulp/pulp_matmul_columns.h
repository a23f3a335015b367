/* Batched matrix product of bytes whose right-hand side holds its rows densely, and is no constant. */
#ifndef DEEPLOY_PULP_MATMUL_COLUMNS_H
#define DEEPLOY_PULP_MATMUL_COLUMNS_H

#include "pulp_batch.h"
#include "pulp_product.h"
#include "pulp_zeros.h"

struct pulp_matmul_columns {
    const void *a;
    const void *b; /* [depth, columns] */
    void *y;
    const struct batches *batches; /* 0: one product */
    int rows, columns;
    int a_row, b_row, y_row;        /* strides in elements; the depth of a and the columns of b and y are dense */
    void *turned;                   /* the calling core's own: room for some columns of b, product.w_row bytes apart */
    int room;                       /* how many, a multiple of four */
    const struct pulp_zeros *zeros; /* 0: none */
    struct pulp_product product;    /* of these columns */
};

#endif
