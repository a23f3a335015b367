/* clip(x, low, high). */
#ifndef DEEPLOY_CLIP_H
#define DEEPLOY_CLIP_H

#include <stdint.h>

struct clip {
    const void *x;
    void *y;
    int extent[6], x_step[6], y_step[6];
    int64_t low, high;
    float low_f, high_f;
};

#endif
