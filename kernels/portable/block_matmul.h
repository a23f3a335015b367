/* Batched matrix product whose right-hand side holds its columns densely, with a scale and perhaps a zero point for
 * every block of a column.
 */
#ifndef DEEPLOY_BLOCK_MATMUL_H
#define DEEPLOY_BLOCK_MATMUL_H

#include "epilogue.h"

struct block_matmul {
    const void *a;
    const void *b;
    const float *scales; /* [columns, blocks] */
    const void *zeros;   /* the same, or 0 */
    void *y;
    int batch[4];                   /* batch axes, outermost first, filled up with extents of 1 */
    int a_batch[4], y_batch[4];     /* their strides in elements; 0 where the operand is broadcast */
    int rows, columns, depth, size; /* the depth is divided into blocks of this size; the last one may be shorter */
    int a_row, y_row;               /* strides in elements; the depth of a and the columns of y are dense */
    int b_column;                   /* from one column of b to the next, in elements, or bytes of packed ones */
    int scales_column, zeros_column;
    struct epilogue epilogue;
};

#endif
