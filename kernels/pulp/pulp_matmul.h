/* Batched matrix product of bytes: rows of a times rows of b, which holds its columns densely (it is stored
 * transposed). */
#ifndef DEEPLOY_PULP_MATMUL_H
#define DEEPLOY_PULP_MATMUL_H

#include "pulp_batch.h"
#include "pulp_product.h"
#include "pulp_zeros.h"

struct pulp_matmul {
    const void *a;
    const void *b;
    void *y;
    const struct batches *batches; /* 0: one product */
    int rows;
    int a_row, y_row;               /* strides in elements; the depth of a and the columns of y are dense */
    const struct pulp_zeros *zeros; /* 0: none */
    struct pulp_product product;
};

#endif
