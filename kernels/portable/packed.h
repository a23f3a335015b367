/* Elements of 1 to 7 bits: rows are streams of bits, from the lowest one of their first byte on. */
#ifndef DEEPLOY_PACKED_H
#define DEEPLOY_PACKED_H

#include <stdint.h>

/* Units of as few bytes as hold whole elements: their bytes and elements, and the bytes of so many elements. */
#define PACKED_UNIT(bits) ((bits) == 6 ? 3 : 8 % (bits) ? (bits) : 1)
#define PACKED_PER_UNIT(bits) (8 * PACKED_UNIT(bits) / (bits))
#define PACKED_BYTES(count, bits) (((count) * (bits) + 7) / 8)

/* The i-th element of a row. One of a single bit that is signed is 1 or -1. */
static inline int packed_element(const uint8_t *row, int i, int bits, int is_signed) {
    const int byte = (int)((unsigned)(i * bits) / 8), before = (int)((unsigned)(i * bits) % 8);
    if (8 % bits && before + bits > 8) {
        const unsigned top = (unsigned)(row[byte] | row[byte + 1] << 8) << (32 - bits - before);
        return is_signed ? (int32_t)top >> (32 - bits) : (int)(top >> (32 - bits));
    }
    const unsigned top = (unsigned)row[byte] << (8 - bits - before) & 255;
    if (bits == 1 && is_signed) return 1 - 2 * (int)(top >> 7);
    return (is_signed ? (int8_t)top : (int)top) >> (8 - bits);
}

#endif
