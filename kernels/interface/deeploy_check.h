/* Checks of bytes: the weights of a network, and what its layers leave in memory. */
#ifndef DEEPLOY_CHECK_H
#define DEEPLOY_CHECK_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The CRC-32 of bytes (ISO 3309, as of zlib) behind others whose CRC-32 is `crc`, or 0 where there are none. */
static inline uint32_t deeploy_crc32(uint32_t crc, const void *bytes, size_t count) {
    static const uint32_t of_four_bits[16] = {0x00000000, 0x1db71064, 0x3b6e20c8, 0x26d930ac, 0x76dc4190, 0x6b6b51f4,
                                              0x4db26158, 0x5005713c, 0xedb88320, 0xf00f9344, 0xd6d6a3e8, 0xcb61b38c,
                                              0x9b64c2b0, 0x86d3d2d4, 0xa00ae278, 0xbdbdf21c};
    const uint8_t *const byte = (const uint8_t *)bytes;
    crc = ~crc;
    for (size_t i = 0; i < count; i++) {
        crc = of_four_bits[(crc ^ byte[i]) & 15] ^ crc >> 4;
        crc = of_four_bits[(crc ^ byte[i] >> 4) & 15] ^ crc >> 4;
    }
    return ~crc;
}

/* A little-endian number of 32 bits. */
static inline uint32_t deeploy_number(const unsigned char *bytes) {
    return (uint32_t)bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 | (uint32_t)bytes[3] << 24;
}

/* Whether the file of weights at an address is whole and made for the code with this number. Its last 16 bytes are that
 * number, the CRC-32 of all before, and zeros. */
static inline int deeploy_weights_fit(const unsigned char *weights, size_t bytes, uint32_t code) {
    if ((uintptr_t)weights % 16 || deeploy_number(weights + bytes - 16) != code) return 0;
    return deeploy_number(weights + bytes - 12) == deeploy_crc32(0, weights, bytes - 12);
}

#ifdef __cplusplus
}
#endif

#endif
