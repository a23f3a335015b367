/* Copy between any two layouts, converting the element type where it differs. */
#ifndef DEEPLOY_COPY_H
#define DEEPLOY_COPY_H

#include <stdint.h>

struct copy {
    const void *x;
    void *y;
    int extent[6], x_step[6], y_step[6];
};

#endif
