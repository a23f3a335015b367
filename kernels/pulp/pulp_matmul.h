/* Batched matrix product of bytes: rows of a times rows of b, which holds its columns densely (it is stored
 * transposed). */
#ifndef DEEPLOY_PULP_MATMUL_H
#define DEEPLOY_PULP_MATMUL_H

#include "pulp_product.h"

struct pulp_matmul {
    const void *a;
    const void *b;
    void *y;
    int batch[4];                           /* batch axes, outermost first, filled up with extents of 1 */
    int a_batch[4], b_batch[4], y_batch[4]; /* their strides in elements; 0 where the operand is broadcast */
    int rows;
    int a_row, y_row; /* strides in elements; the depth of a and the columns of y are dense */
    struct pulp_product product;
};

#endif
