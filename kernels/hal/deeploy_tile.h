/* Index arithmetic of tiles, and other helpers of generated code. */
#ifndef DEEPLOY_TILE_H
#define DEEPLOY_TILE_H

#include <stdint.h>

/* Layers are not inlined: in one large function, the stack frames of all layers would add up. */
#ifdef __GNUC__
#define TILED_LAYER static __attribute__((noinline)) void
#else
#define TILED_LAYER static void
#endif

static inline int32_t smaller(int32_t a, int32_t b) {
    return a < b ? a : b;
}

static inline int32_t larger(int32_t a, int32_t b) {
    return a > b ? a : b;
}

/* Moves one core's share of the rows that stay in a ring buffer from `begin` to its start; the two ranges do not
 * overlap. */
static inline void slide_part(unsigned char *ring, int32_t begin, uint32_t bytes, uint32_t core, uint32_t cores) {
    const uint32_t share = (bytes / cores + 4) & ~3u, first = core * share;
    const uint32_t end = first + share < bytes ? first + share : bytes;
    uint32_t at = first;
    if (begin % 4 == 0) {
        typedef uint32_t __attribute__((may_alias)) word;
        word *to = (word *)(void *)(ring + first);
        const word *from = (const word *)(const void *)(ring + begin + first);
        for (; at + 4 <= end; at += 4) *to++ = *from++;
    }
    for (; at < end; at++) ring[at] = ring[begin + (int32_t)at];
}

/* a / b, rounded towards minus infinity; b is positive. */
static inline int32_t quotient(int32_t a, int32_t b) {
    return a / b - (a % b < 0);
}

#endif
