/* Converts binary16 and bfloat16 to float, which is exact: all machines get the same values. */
#ifndef DEEPLOY_HALVES_H
#define DEEPLOY_HALVES_H

#include <stdint.h>
#include <string.h>

/* The type of binary16 in compilers for machines that convert it. */
#if defined(__F16C__) || defined(__riscv_zfhmin) || defined(__ARM_FEATURE_FP16_SCALAR_ARITHMETIC)
__extension__ typedef _Float16 half_t;
#define HAS_HALVES
#elif defined(__ARM_FP16_FORMAT_IEEE) && (__ARM_FP & 2)
typedef __fp16 half_t;
#define HAS_HALVES
#endif

/* A finite binary16. */
static inline float from_f16(uint16_t bits) {
#ifdef HAS_HALVES
    half_t half;
    memcpy(&half, &bits, sizeof half);
    return (float)half;
#else
    /* The exponent of a float has three bits more, and is by 112 larger; the smallest halves become floats that the
     * product makes normal ones. */
    const uint32_t moved = (uint32_t)(int16_t)bits << 13 & 0x8fffe000u;
    float value;
    memcpy(&value, &moved, sizeof value);
    return value * 0x1p112f;
#endif
}

/* A bfloat16 is the upper half of a float. */
static inline float from_bf16(uint16_t bits) {
    const uint32_t word = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &word, sizeof value);
    return value;
}

#endif
