/* Padding by a value, by reflection, or by repeating the edge; negative amounts cut off. */
#ifndef DEEPLOY_PAD_H
#define DEEPLOY_PAD_H

#include <stdint.h>

enum pad_mode { PAD_CONSTANT, PAD_REFLECT, PAD_EDGE };

struct pad {
    const void *x;
    void *y;
    enum pad_mode mode;
    int extent[6], x_extent[6], before[6]; /* of y, of x, and the elements of y before the first one of x */
    int x_step[6], y_step[6];
    int64_t value;
    float value_f;
};

#endif
