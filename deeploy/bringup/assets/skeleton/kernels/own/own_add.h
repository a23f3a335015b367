/* The sum of two tensors of one shape, row by row: epilogues follow the last axis. */
#ifndef OWN_ADD_H
#define OWN_ADD_H

#include "../portable/epilogue.h"

struct own_add {
    const void *a, *b;
    void *y;
    int rows, columns;
    struct epilogue epilogue;
};

#endif
