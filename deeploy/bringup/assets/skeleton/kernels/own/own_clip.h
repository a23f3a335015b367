/* Every element, not below `low` and not above `high`. */
#ifndef OWN_CLIP_H
#define OWN_CLIP_H

#include <stdint.h>

struct own_clip {
    const void *x;
    void *y;
    int count;
    int32_t low, high;
};

#endif
