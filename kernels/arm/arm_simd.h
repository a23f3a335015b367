/* Armv7E-M's products of pairs of 16-bit values (SMLAD, SMLABB, SMLATT) on bytes that are widened two at a time
 * (SXTB16, UXTB16), with a body in portable C, which says what they do. Widening a word gives its bytes 0 and 2, and
 * with `odd` its bytes 1 and 3. */
#ifndef ARM_SIMD_H
#define ARM_SIMD_H

#include <stdint.h>
#include <string.h>

struct arm_four_sums {
    int32_t s0, s1, s2, s3;
};

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

/* The upper halves of two sums. */
static inline uint32_t arm_pack_upper(int32_t low, int32_t high) {
    uint32_t word;
    __asm__("pkhtb %0, %1, %2, asr #16" : "=r"(word) : "r"(high), "r"(low));
    return word;
}

/* The real and the imaginary part of the product of two complex numbers, whose real parts are the lower ones. */
static inline int32_t arm_multiply_real(uint32_t a, uint32_t b) {
    return __smusd((int16x2_t)a, (int16x2_t)b);
}

static inline int32_t arm_multiply_imaginary(uint32_t a, uint32_t b) {
    return __smuadx((int16x2_t)a, (int16x2_t)b);
}

/* (a + b + 1) >> 1 of both parts. */
static inline uint32_t arm_halve_sums(uint32_t a, uint32_t b) {
    return (uint32_t)__shsub16((int16x2_t)a, (int16x2_t)~b);
}

/* (a - b + 1) >> 1 of both parts. */
static inline uint32_t arm_halve_differences(uint32_t a, uint32_t b) {
    return (uint32_t)__sadd16(__shadd16((int16x2_t)a, (int16x2_t)~b), (int16x2_t)0x10001);
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

/* Four sums + the four bytes of a word times those of another, each with each, and the addresses of the next words: in
 * one piece, too. */
#define ARM_PRODUCT_OF_FOUR_BYTES(name, widen_a, widen_b)                                                        \
    static inline void name(struct arm_four_sums *s, const uint32_t **a, int a_words, const uint32_t **b) {      \
        uint32_t a_odd, b_odd, a_even, b_even;                                                                   \
        __asm__("ldr %4, [%8]\n\tldr %5, [%9], #4\n\tadd %8, %10\n\t" widen_a " %6, %4\n\t" widen_a              \
                " %4, %4, ror #8\n\t" widen_b " %7, %5\n\t" widen_b                                              \
                " %5, %5, ror #8\n\tsmlabb %0, %6, %7, %0\n\tsmlabb %1, %4, %5, %1\n\t"                          \
                "smlatt %2, %6, %7, %2\n\tsmlatt %3, %4, %5, %3"                                                 \
                : "+r"(s->s0), "+r"(s->s1), "+r"(s->s2), "+r"(s->s3), "=&r"(a_odd), "=&r"(b_odd), "=&r"(a_even), \
                  "=&r"(b_even), "+r"(*a), "+r"(*b)                                                              \
                : "r"(4 * a_words)                                                                               \
                : "memory");                                                                                     \
    }
ARM_PRODUCT_OF_FOUR_BYTES(arm_product_of_four_s8_s8, "sxtb16", "sxtb16")
ARM_PRODUCT_OF_FOUR_BYTES(arm_product_of_four_s8_u8, "sxtb16", "uxtb16")
ARM_PRODUCT_OF_FOUR_BYTES(arm_product_of_four_u8_s8, "uxtb16", "sxtb16")
ARM_PRODUCT_OF_FOUR_BYTES(arm_product_of_four_u8_u8, "uxtb16", "uxtb16")

/* Four sums + four bytes times those of four vectors, which are widened: their pairs of even bytes, then of odd ones.
 * The registers have names, since a load of several takes them in their order. */
#define ARM_FOUR_VECTORS(name, widen)                                                                         \
    static inline void name(struct arm_four_sums *s, const uint32_t **pairs, const void **bytes) {            \
        uint32_t word, half;                                                                                  \
        __asm__("ldr %4, [%7], #4\n\tldmia %6!, {r4, r5, r6, r8}\n\t" widen                                   \
                " %5, %4\n\tsmlad %0, r4, %5, %0\n\tsmlad %1, r5, %5, %1\n\tsmlad %2, r6, %5, %2\n\t"         \
                "smlad %3, r8, %5, %3\n\tldmia %6!, {r4, r5, r6, r8}\n\t" widen                               \
                " %5, %4, ror #8\n\tsmlad %0, r4, %5, %0\n\tsmlad %1, r5, %5, %1\n\tsmlad %2, r6, %5, %2\n\t" \
                "smlad %3, r8, %5, %3"                                                                        \
                : "+r"(s->s0), "+r"(s->s1), "+r"(s->s2), "+r"(s->s3), "=&r"(word), "=&r"(half), "+r"(*pairs), \
                  "+r"(*bytes)                                                                                \
                :                                                                                             \
                : "r4", "r5", "r6", "r8", "memory");                                                          \
    }
ARM_FOUR_VECTORS(arm_four_vectors_s8, "sxtb16")
ARM_FOUR_VECTORS(arm_four_vectors_u8, "uxtb16")
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

static inline int32_t arm_multiply_add(int32_t acc, uint32_t a, uint32_t b) {
    return acc + (int16_t)(a & 0xFFFF) * (int16_t)(b & 0xFFFF) + (int16_t)(a >> 16) * (int16_t)(b >> 16);
}

static inline uint32_t arm_pack_upper(int32_t low, int32_t high) {
    return ((uint32_t)high & 0xFFFF0000u) | (uint32_t)low >> 16;
}

static inline int32_t arm_multiply_real(uint32_t a, uint32_t b) {
    return (int16_t)a * (int16_t)b - (int16_t)(a >> 16) * (int16_t)(b >> 16);
}

static inline int32_t arm_multiply_imaginary(uint32_t a, uint32_t b) {
    return (int16_t)a * (int16_t)(b >> 16) + (int16_t)(a >> 16) * (int16_t)b;
}

static inline uint32_t arm_halve_sums(uint32_t a, uint32_t b) {
    const int32_t low = ((int16_t)a + (int16_t)b + 1) >> 1, high = ((int16_t)(a >> 16) + (int16_t)(b >> 16) + 1) >> 1;
    return (uint32_t)high << 16 | (uint16_t)low;
}

static inline uint32_t arm_halve_differences(uint32_t a, uint32_t b) {
    const int32_t low = ((int16_t)a - (int16_t)b + 1) >> 1, high = ((int16_t)(a >> 16) - (int16_t)(b >> 16) + 1) >> 1;
    return (uint32_t)high << 16 | (uint16_t)low;
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

#define ARM_PRODUCT_OF_FOUR_BYTES(name, a_type, b_type)                                                     \
    static inline void name(struct arm_four_sums *s, const uint32_t **a, int a_words, const uint32_t **b) { \
        a_type x[4];                                                                                        \
        b_type w[4];                                                                                        \
        memcpy(x, *a, 4), memcpy(w, *b, 4);                                                                 \
        s->s0 += x[0] * w[0], s->s1 += x[1] * w[1], s->s2 += x[2] * w[2], s->s3 += x[3] * w[3];             \
        *a += a_words, ++*b;                                                                                \
    }
ARM_PRODUCT_OF_FOUR_BYTES(arm_product_of_four_s8_s8, int8_t, int8_t)
ARM_PRODUCT_OF_FOUR_BYTES(arm_product_of_four_s8_u8, int8_t, uint8_t)
ARM_PRODUCT_OF_FOUR_BYTES(arm_product_of_four_u8_s8, uint8_t, int8_t)
ARM_PRODUCT_OF_FOUR_BYTES(arm_product_of_four_u8_u8, uint8_t, uint8_t)

#define ARM_FOUR_VECTORS(name, widen_even, widen_odd)                                              \
    static inline void name(struct arm_four_sums *s, const uint32_t **pairs, const void **bytes) { \
        const uint32_t word = arm_word(*bytes), even = widen_even(word), odd = widen_odd(word);    \
        const uint32_t *const p = *pairs;                                                          \
        s->s0 = arm_multiply_add(arm_multiply_add(s->s0, p[0], even), p[4], odd);                  \
        s->s1 = arm_multiply_add(arm_multiply_add(s->s1, p[1], even), p[5], odd);                  \
        s->s2 = arm_multiply_add(arm_multiply_add(s->s2, p[2], even), p[6], odd);                  \
        s->s3 = arm_multiply_add(arm_multiply_add(s->s3, p[3], even), p[7], odd);                  \
        *pairs = p + 8, *bytes = (const uint8_t *)*bytes + 4;                                      \
    }
ARM_FOUR_VECTORS(arm_four_vectors_s8, arm_widen_s8, arm_widen_odd_s8)
ARM_FOUR_VECTORS(arm_four_vectors_u8, arm_widen_u8, arm_widen_odd_u8)
#endif

/* By the type of the bytes, which is a constant. */
#define ARM_IS_UNSIGNED(type) ((type) - 1 > 0)
#define ARM_EVEN(type, word) (ARM_IS_UNSIGNED(type) ? arm_widen_u8(word) : arm_widen_s8(word))
#define ARM_ODD(type, word) (ARM_IS_UNSIGNED(type) ? arm_widen_odd_u8(word) : arm_widen_odd_s8(word))

#define ARM_PRODUCT_OF_FOUR(a_type, b_type)                                                                      \
    (ARM_IS_UNSIGNED(a_type)   ? ARM_IS_UNSIGNED(b_type) ? arm_product_of_four_u8_u8 : arm_product_of_four_u8_s8 \
     : ARM_IS_UNSIGNED(b_type) ? arm_product_of_four_s8_u8                                                       \
                               : arm_product_of_four_s8_s8)

#define ARM_FOUR(type, sum, even, odd, bytes) \
    (ARM_IS_UNSIGNED(type) ? arm_four_products_u8(sum, even, odd, bytes) : arm_four_products_s8(sum, even, odd, bytes))

#define ARM_VECTORS(type) (ARM_IS_UNSIGNED(type) ? arm_four_vectors_u8 : arm_four_vectors_s8)

#endif
