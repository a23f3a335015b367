/* Arithmetic of tiles, for generated code. */
#ifndef DEEPLOY_TILE_H
#define DEEPLOY_TILE_H

#include <stdint.h>

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
