/* Sum, difference, product or quotient of two operands; steps are 0 where one is broadcast. */
#ifndef DEEPLOY_BINARY_H
#define DEEPLOY_BINARY_H

#include <stdint.h>

#include "epilogue.h"

enum binary_operation { BINARY_ADD, BINARY_SUB, BINARY_MUL, BINARY_DIV };

struct binary {
    const void *a;
    const void *b;
    void *y;
    int extent[6], a_step[6], b_step[6], y_step[6]; /* the last axis of y is dense */
    enum binary_operation operation;
    int a_zero_point, b_zero_point; /* of a product */
    struct epilogue epilogue;
};

#endif
