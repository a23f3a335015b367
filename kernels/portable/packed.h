/* Elements of few bits, of which a byte holds several: the first in the lowest bits. */
#ifndef DEEPLOY_PACKED_H
#define DEEPLOY_PACKED_H

#include <stdint.h>

/* The element of a byte that has so many before it. */
static inline int packed_element(unsigned byte, int before, int bits, int is_signed) {
    const unsigned top = byte << (8 - bits * (before + 1)) & 255;
    return (is_signed ? (int8_t)top : (int)top) >> (8 - bits);
}

#endif
