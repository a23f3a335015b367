/* Batched matrix product of 8-bit integers whose right-hand side holds its columns densely (it is stored transposed).
 */
#ifndef DEEPLOY_MATMUL_DOT_H
#define DEEPLOY_MATMUL_DOT_H

#include "epilogue.h"

struct matmul_dot {
    const void *a;
    const void *b;
    void *y;
    int batch[4];                           /* batch axes, outermost first, filled up with extents of 1 */
    int a_batch[4], b_batch[4], y_batch[4]; /* their strides in elements; 0 where the operand is broadcast */
    int rows, columns, depth;
    int a_row, a_depth; /* strides in elements */
    int b_column;       /* from one column of b to the next, in elements, or bytes of packed ones; they are dense */
    int y_row;          /* columns of y are dense */
    int a_zero_point, b_zero_point;
    struct epilogue epilogue;
};

#endif
