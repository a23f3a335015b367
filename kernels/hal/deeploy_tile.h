/* Arithmetic of tiles, and what else generated code shares. */
#ifndef DEEPLOY_TILE_H
#define DEEPLOY_TILE_H

#include <stdint.h>

/* A layer is a function of its own: in one for all, what each of them has on the stack would add up. */
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

/* a / b rounded towards minus infinity; b is positive. */
static inline int32_t quotient(int32_t a, int32_t b) {
    return a / b - (a % b < 0);
}

#endif
