/* Armv7E-M's products of pairs of 16-bit values (SMLAD, SMLABB, SMLATT) on bytes that are widened two at a time
 * (SXTB16, UXTB16), with a body in portable C, which says what they do. Widening a word gives its bytes 0 and 2, and
 * with `odd` its bytes 1 and 3. */
#ifndef ARM_SIMD_H
#define ARM_SIMD_H

#include <stdint.h>
#include <string.h>

static inline uint32_t arm_word(const void *bytes) {
    uint32_t word;
    memcpy(&word, bytes, sizeof word); /* LDR, which needs no alignment */
    return word;
}

#if defined(__ARM_FEATURE_SIMD32)
#include <arm_acle.h>

static inline int32_t arm_multiply_add(int32_t acc, uint32_t a, uint32_t b) {
    return __smlad((int16x2_t)a, (int16x2_t)b, acc);
}

static inline uint32_t arm_widen_s8(uint32_t word) {
    return (uint32_t)__sxtb16((int8x4_t)word);
}

static inline uint32_t arm_widen_u8(uint32_t word) {
    return (uint32_t)__uxtb16((uint8x4_t)word);
}

static inline uint32_t arm_widen_odd_s8(uint32_t word) {
    uint32_t result;
    __asm__("sxtb16 %0, %1, ror #8" : "=r"(result) : "r"(word));
    return result;
}

static inline uint32_t arm_widen_odd_u8(uint32_t word) {
    uint32_t result;
    __asm__("uxtb16 %0, %1, ror #8" : "=r"(result) : "r"(word));
    return result;
}
#else
static inline int32_t arm_multiply_add(int32_t acc, uint32_t a, uint32_t b) {
    return acc + (int16_t)(a & 0xFFFF) * (int16_t)(b & 0xFFFF) + (int16_t)(a >> 16) * (int16_t)(b >> 16);
}

static inline uint32_t arm_widen_s8(uint32_t word) {
    const uint32_t low = (uint16_t)(int8_t)(word & 0xFF), high = (uint16_t)(int8_t)(word >> 16 & 0xFF);
    return low | high << 16;
}

static inline uint32_t arm_widen_u8(uint32_t word) {
    return word & 0x00FF00FFu;
}

static inline uint32_t arm_widen_odd_s8(uint32_t word) {
    return arm_widen_s8(word >> 8);
}

static inline uint32_t arm_widen_odd_u8(uint32_t word) {
    return arm_widen_u8(word >> 8);
}
#endif

/* The lower and the upper half times the lower and the upper half: one SMLABB or SMLATT. */
static inline int32_t arm_multiply_add_low(int32_t acc, uint32_t a, uint32_t b) {
    return acc + (int16_t)(a & 0xFFFF) * (int16_t)(b & 0xFFFF);
}

static inline int32_t arm_multiply_add_high(int32_t acc, uint32_t a, uint32_t b) {
    return acc + (int16_t)(a >> 16) * (int16_t)(b >> 16);
}

/* By the type of the bytes, which is a constant. */
#define ARM_IS_UNSIGNED(type) ((type) - 1 > 0)
#define ARM_EVEN(type, word) (ARM_IS_UNSIGNED(type) ? arm_widen_u8(word) : arm_widen_s8(word))
#define ARM_ODD(type, word) (ARM_IS_UNSIGNED(type) ? arm_widen_odd_u8(word) : arm_widen_odd_s8(word))

#endif
