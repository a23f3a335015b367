#include "own_clip.h"

void KERNEL(const struct own_clip *k) {
    for (int i = 0; i < k->count; i++) {
        const int32_t x = ((const X_T *)k->x)[i];
        ((Y_T *)k->y)[i] = (Y_T)(x < k->low ? k->low : x > k->high ? k->high : x);
    }
}
