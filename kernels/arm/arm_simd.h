/* Armv7E-M's products of pairs of 16-bit values (SMLAD, SMLATB) on bytes that are widened two at a time
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

static inline uint32_t arm_half(const int16_t *value) {
    return (uint16_t)*value;
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

/* The upper word of acc * factor + summand. */
static inline int32_t arm_upper(int32_t acc, int32_t factor, int64_t summand) {
    __asm__("smlal %Q0, %R0, %1, %2" : "+r"(summand) : "r"(acc), "r"(factor));
    return (int32_t)(summand >> 32);
}

#define arm_clip_s8(value) (int32_t)__builtin_arm_ssat(value, 8)
#define arm_clip_u8(value) (int32_t)__usat(value, 8)

struct arm_bytes {
    uint32_t word;
} __attribute__((packed, may_alias));

/* sum + four elements, as pairs, times four bytes: in one piece, which needs two registers whatever stands around it.
 */
#define ARM_FOUR_PRODUCTS(name, widen)                                                        \
    static inline int32_t name(int32_t sum, uint32_t even, uint32_t odd, const void *bytes) { \
        uint32_t word, pair;                                                                  \
        __asm__("ldr %1, %5\n\t" widen " %2, %1\n\tsmlad %0, %3, %2, %0\n\t" widen            \
                " %2, %1, ror #8\n\tsmlad %0, %4, %2, %0"                                     \
                : "+r"(sum), "=&r"(word), "=&r"(pair)                                         \
                : "r"(even), "r"(odd), "m"(*(const struct arm_bytes *)bytes));                \
        return sum;                                                                           \
    }
ARM_FOUR_PRODUCTS(arm_four_products_s8, "sxtb16")
ARM_FOUR_PRODUCTS(arm_four_products_u8, "uxtb16")

/* Two words, and the address behind them. */
static inline const uint32_t *arm_two_words(const uint32_t *from, uint32_t *first, uint32_t *second) {
    uint32_t low, high;
    __asm__("ldrd %0, %1, [%2], #8" : "=&r"(low), "=&r"(high), "+r"(from) : : "memory");
    *first = low, *second = high;
    return from;
}
#else
static inline int32_t arm_upper(int32_t acc, int32_t factor, int64_t summand) {
    return (int32_t)(((int64_t)acc * factor + summand) >> 32);
}

static inline int32_t arm_clip_s8(int32_t value) {
    return value < -128 ? -128 : value > 127 ? 127 : value;
}

static inline int32_t arm_clip_u8(int32_t value) {
    return value < 0 ? 0 : value > 255 ? 255 : value;
}

static inline const uint32_t *arm_two_words(const uint32_t *from, uint32_t *first, uint32_t *second) {
    *first = from[0], *second = from[1];
    return from + 2;
}

static inline int32_t arm_multiply_add(int32_t acc, uint32_t a, uint32_t b) {
    return acc + (int16_t)(a & 0xFFFF) * (int16_t)(b & 0xFFFF) + (int16_t)(a >> 16) * (int16_t)(b >> 16);
}

static inline uint32_t arm_widen_s8(uint32_t word) {
    const uint16_t low = (uint16_t)(int8_t)(word & 0xFF), high = (uint16_t)(int8_t)(word >> 16 & 0xFF);
    return (uint32_t)low | (uint32_t)high << 16;
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

static inline int32_t arm_four_products_s8(int32_t sum, uint32_t even, uint32_t odd, const void *bytes) {
    const uint32_t word = arm_word(bytes);
    return arm_multiply_add(arm_multiply_add(sum, even, arm_widen_s8(word)), odd, arm_widen_odd_s8(word));
}

static inline int32_t arm_four_products_u8(int32_t sum, uint32_t even, uint32_t odd, const void *bytes) {
    const uint32_t word = arm_word(bytes);
    return arm_multiply_add(arm_multiply_add(sum, even, arm_widen_u8(word)), odd, arm_widen_odd_u8(word));
}
#endif

/* The upper half of one times the lower half of the other: one SMLATB. */
static inline int32_t arm_multiply_add_high_low(int32_t acc, uint32_t a, uint32_t b) {
    return acc + (int16_t)(a >> 16) * (int16_t)(b & 0xFFFF);
}

/* By the type of the bytes, which is a constant. */
#define ARM_IS_UNSIGNED(type) ((type) - 1 > 0)
#define ARM_EVEN(type, word) (ARM_IS_UNSIGNED(type) ? arm_widen_u8(word) : arm_widen_s8(word))
#define ARM_ODD(type, word) (ARM_IS_UNSIGNED(type) ? arm_widen_odd_u8(word) : arm_widen_odd_s8(word))

#define ARM_FOUR(type, sum, even, odd, bytes) \
    (ARM_IS_UNSIGNED(type) ? arm_four_products_u8(sum, even, odd, bytes) : arm_four_products_s8(sum, even, odd, bytes))

#endif
