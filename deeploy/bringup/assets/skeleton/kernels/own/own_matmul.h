/* A product of two matrices whose second one is stored by columns. */
#ifndef OWN_MATMUL_H
#define OWN_MATMUL_H

#include "../portable/epilogue.h"

struct own_matmul {
    const void *a; /* [rows, depth] */
    const void *b; /* [columns, depth] */
    void *y;       /* [rows, columns] */
    int rows, columns, depth;
    int a_row, b_row, y_row; /* from one row to the next, in elements */
    struct epilogue epilogue;
};

#endif
