/* Functions of one integer operand with an int32 result. */
#ifndef DEEPLOY_INTEGER_FUNCTION_H
#define DEEPLOY_INTEGER_FUNCTION_H

#include <stdint.h>

struct integer_function {
    const void *x;
    void *y;
    int extent[6], x_step[6], y_step[6];
    int32_t a, b, c;
};

#endif
