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

/* A pair of each of two filters. */
struct arm_filters {
    uint32_t first, second;
};

struct arm_bytes {
    uint32_t word;
} __attribute__((packed, may_alias));

static inline uint32_t arm_word(const void *bytes) {
    uint32_t word;
    memcpy(&word, bytes, sizeof word); /* LDR, which needs no alignment */
    return word;
}

#if defined(__ARM_FEATURE_SIMD32) && defined(__OPTIMIZE__) /* without it, registers are too few */
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

/* The upper word of acc * factor, and summand. */
static inline int32_t arm_upper(int32_t acc, int32_t factor, int32_t summand) {
    int32_t result;
    __asm__("smmla %0, %1, %2, %3" : "=r"(result) : "r"(acc), "r"(factor), "r"(summand));
    return result;
}

#define arm_clip_s8(value) (int32_t)__builtin_arm_ssat(value, 8)
#define arm_clip_u8(value) (int32_t)__usat(value, 8)

/* Four sums + four bytes times those of four columns, which lie one behind the other. */
#define ARM_FOUR_OF_COLUMN(sum, bytes, widen)                                                                    \
    widen " %10, " bytes "\n\tsmlad " sum ", %4, %10, " sum "\n\t" widen " %10, " bytes ", ror #8\n\tsmlad " sum \
          ", %5, %10, " sum "\n\t"
#define ARM_FOUR_OF_ROW(name, widen_x, widen_w)                                                                      \
    static inline __attribute__((always_inline)) void name(struct arm_four_sums *s, const void *x, const void *w) {  \
        const struct arm_bytes *const bytes = w;                                                                     \
        uint32_t even, odd, w0, w1, w2, w3, pair;                                                                    \
        __asm__("ldr %5, %11\n\tldr %6, %12\n\tldr %7, %13\n\tldr %8, %14\n\tldr %9, %15\n\t" widen_x                \
                " %4, %5\n\t" widen_x " %5, %5, ror #8\n\t" ARM_FOUR_OF_COLUMN("%0", "%6", widen_w)                  \
                    ARM_FOUR_OF_COLUMN("%1", "%7", widen_w) ARM_FOUR_OF_COLUMN("%2", "%8", widen_w)                  \
                        ARM_FOUR_OF_COLUMN("%3", "%9", widen_w)                                                      \
                : "+r"(s->s0), "+r"(s->s1), "+r"(s->s2), "+r"(s->s3), "=&r"(even), "=&r"(odd), "=&r"(w0), "=&r"(w1), \
                  "=&r"(w2), "=&r"(w3), "=&r"(pair)                                                                  \
                : "m"(*(const struct arm_bytes *)x), "m"(bytes[0]), "m"(bytes[1]), "m"(bytes[2]), "m"(bytes[3]));    \
    }
ARM_FOUR_OF_ROW(arm_four_columns_s8_s8, "sxtb16", "sxtb16")
ARM_FOUR_OF_ROW(arm_four_columns_s8_u8, "sxtb16", "uxtb16")
ARM_FOUR_OF_ROW(arm_four_columns_u8_s8, "uxtb16", "sxtb16")
ARM_FOUR_OF_ROW(arm_four_columns_u8_u8, "uxtb16", "uxtb16")

/* Four sums + the four bytes of a word times those of a filter, widened: the even ones, then the odd ones. */
#define ARM_TAP(name, widen)                                                                                         \
    static inline __attribute__((always_inline)) struct arm_filters name(struct arm_four_sums *s, const uint32_t *x, \
                                                                         const uint32_t *w) {                        \
        uint32_t even, odd;                                                                                          \
        struct arm_filters f;                                                                                        \
        __asm__("ldr %7, %8\n\tldr %4, %9\n\tldr %5, %10\n\t" widen " %6, %7\n\t" widen                              \
                " %7, %7, ror #8\n\tsmlabb %0, %6, %4, %0\n\tsmlabb %1, %7, %5, %1\n\t"                              \
                "smlatt %2, %6, %4, %2\n\tsmlatt %3, %7, %5, %3"                                                     \
                : "+r"(s->s0), "+r"(s->s1), "+r"(s->s2), "+r"(s->s3), "=&r"(f.first), "=&r"(f.second), "=&r"(even),  \
                  "=&r"(odd)                                                                                         \
                : "m"(*x), "m"(w[0]), "m"(w[1]));                                                                    \
        return f;                                                                                                    \
    }
ARM_TAP(arm_tap_s8, "sxtb16")
ARM_TAP(arm_tap_u8, "uxtb16")

/* The same of another word. */
#define ARM_SAME_TAP(name, widen)                                                                      \
    static inline __attribute__((always_inline)) void name(struct arm_four_sums *s, const uint32_t *x, \
                                                           struct arm_filters f) {                     \
        uint32_t even, odd;                                                                            \
        __asm__("ldr %5, %8\n\t" widen " %4, %5\n\t" widen                                             \
                " %5, %5, ror #8\n\tsmlabb %0, %4, %6, %0\n\tsmlabb %1, %5, %7, %1\n\t"                \
                "smlatt %2, %4, %6, %2\n\tsmlatt %3, %5, %7, %3"                                       \
                : "+r"(s->s0), "+r"(s->s1), "+r"(s->s2), "+r"(s->s3), "=&r"(even), "=&r"(odd)          \
                : "r"(f.first), "r"(f.second), "m"(*x));                                               \
    }
ARM_SAME_TAP(arm_same_tap_s8, "sxtb16")
ARM_SAME_TAP(arm_same_tap_u8, "uxtb16")

/* Four sums + a word times the filter in f, then four others + the same word times the next tap. */
#define ARM_SHARED_TAP(name, widen)                                                                                  \
    static inline __attribute__((always_inline)) struct arm_filters name(struct arm_four_sums *b,                    \
                                                                         struct arm_four_sums *a, const uint32_t *x, \
                                                                         struct arm_filters f, const uint32_t *w) {  \
        uint32_t even, odd;                                                                                          \
        __asm__("ldr %7, %8\n\t" widen " %6, %7\n\t" widen                                                           \
                " %7, %7, ror #8\n\tsmlabb %0, %6, %4, %0\n\tsmlabb %1, %7, %5, %1\n\t"                              \
                "smlatt %2, %6, %4, %2\n\tsmlatt %3, %7, %5, %3\n\tldr %4, %9\n\tldr %5, %10"                        \
                : "+r"(b->s0), "+r"(b->s1), "+r"(b->s2), "+r"(b->s3), "+&r"(f.first), "+&r"(f.second), "=&r"(even),  \
                  "=&r"(odd)                                                                                         \
                : "m"(*x), "m"(w[0]), "m"(w[1]));                                                                    \
        __asm__("smlabb %0, %4, %6, %0\n\tsmlabb %1, %5, %7, %1\n\tsmlatt %2, %4, %6, %2\n\tsmlatt %3, %5, %7, %3"   \
                : "+r"(a->s0), "+r"(a->s1), "+r"(a->s2), "+r"(a->s3)                                                 \
                : "r"(even), "r"(odd), "r"(f.first), "r"(f.second));                                                 \
        return f;                                                                                                    \
    }
ARM_SHARED_TAP(arm_shared_tap_s8, "sxtb16")
ARM_SHARED_TAP(arm_shared_tap_u8, "uxtb16")

/* The same pointer: addresses behind it are offsets of loads, and take no register each. */
static inline const uint32_t *arm_hidden(const uint32_t *pointer) {
    __asm__("" : "+r"(pointer));
    return pointer;
}

/* What was loaded before is loaded again. */
static inline void arm_forget(void) {
    __asm__("" ::: "memory");
}

/* Four sums + a pair of each of two vectors times those of two filters, whose bytes alternate in a word. */
#define ARM_TWO_FILTERS(name, widen)                                                                                 \
    static inline __attribute__((always_inline)) struct arm_filters name(struct arm_four_sums *s, const uint32_t *x, \
                                                                         const struct arm_bytes *w) {                \
        uint32_t x0, x1;                                                                                             \
        struct arm_filters f;                                                                                        \
        __asm__("ldr %5, %8\n\tldr %6, %9\n\tldr %7, %10\n\t" widen " %4, %5\n\t" widen                              \
                " %5, %5, ror #8\n\tsmlad %0, %6, %4, %0\n\tsmlad %1, %6, %5, %1\n\t"                                \
                "smlad %2, %7, %4, %2\n\tsmlad %3, %7, %5, %3"                                                       \
                : "+r"(s->s0), "+r"(s->s1), "+r"(s->s2), "+r"(s->s3), "=&r"(f.first), "=&r"(f.second), "=&r"(x0),    \
                  "=&r"(x1)                                                                                          \
                : "m"(*w), "m"(x[0]), "m"(x[1]));                                                                    \
        return f;                                                                                                    \
    }
ARM_TWO_FILTERS(arm_two_filters_s8, "sxtb16")
ARM_TWO_FILTERS(arm_two_filters_u8, "uxtb16")

/* The same of two further vectors. */
static inline __attribute__((always_inline)) void arm_same_filters(struct arm_four_sums *s, const uint32_t *x,
                                                                   struct arm_filters f) {
    uint32_t x0, x1;
    __asm__(
        "ldr %4, %8\n\tldr %5, %9\n\tsmlad %0, %4, %6, %0\n\tsmlad %1, %4, %7, %1\n\t"
        "smlad %2, %5, %6, %2\n\tsmlad %3, %5, %7, %3"
        : "+r"(s->s0), "+r"(s->s1), "+r"(s->s2), "+r"(s->s3), "=&r"(x0), "=&r"(x1)
        : "r"(f.first), "r"(f.second), "m"(x[0]), "m"(x[1]));
}
#else
static inline int32_t arm_upper(int32_t acc, int32_t factor, int32_t summand) {
    return (int32_t)((int64_t)acc * factor >> 32) + summand;
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

#define ARM_FOUR_OF_ROW(name, x_type, w_type)                                        \
    static inline void name(struct arm_four_sums *s, const void *x, const void *w) { \
        const x_type *const a = x;                                                   \
        const w_type *const b = w;                                                   \
        for (int i = 0; i < 4; i++) {                                                \
            s->s0 += a[i] * b[i], s->s1 += a[i] * b[i + 4];                          \
            s->s2 += a[i] * b[i + 8], s->s3 += a[i] * b[i + 12];                     \
        }                                                                            \
    }
ARM_FOUR_OF_ROW(arm_four_columns_s8_s8, int8_t, int8_t)
ARM_FOUR_OF_ROW(arm_four_columns_s8_u8, int8_t, uint8_t)
ARM_FOUR_OF_ROW(arm_four_columns_u8_s8, uint8_t, int8_t)
ARM_FOUR_OF_ROW(arm_four_columns_u8_u8, uint8_t, uint8_t)

#define ARM_TAP(name, same_name, widen_even, widen_odd)                                                       \
    static inline void same_name(struct arm_four_sums *s, const uint32_t *x, struct arm_filters f) {          \
        const uint32_t even = widen_even(*x), odd = widen_odd(*x);                                            \
        s->s0 += (int16_t)even * (int16_t)f.first, s->s2 += (int16_t)(even >> 16) * (int16_t)(f.first >> 16); \
        s->s1 += (int16_t)odd * (int16_t)f.second, s->s3 += (int16_t)(odd >> 16) * (int16_t)(f.second >> 16); \
    }                                                                                                         \
    static inline struct arm_filters name(struct arm_four_sums *s, const uint32_t *x, const uint32_t *w) {    \
        const struct arm_filters f = {w[0], w[1]};                                                            \
        same_name(s, x, f);                                                                                   \
        return f;                                                                                             \
    }
ARM_TAP(arm_tap_s8, arm_same_tap_s8, arm_widen_s8, arm_widen_odd_s8)
ARM_TAP(arm_tap_u8, arm_same_tap_u8, arm_widen_u8, arm_widen_odd_u8)

#define ARM_SHARED_TAP(name, tap, same_tap)                                                                    \
    static inline struct arm_filters name(struct arm_four_sums *b, struct arm_four_sums *a, const uint32_t *x, \
                                          struct arm_filters f, const uint32_t *w) {                           \
        same_tap(b, x, f);                                                                                     \
        return tap(a, x, w);                                                                                   \
    }
ARM_SHARED_TAP(arm_shared_tap_s8, arm_tap_s8, arm_same_tap_s8)
ARM_SHARED_TAP(arm_shared_tap_u8, arm_tap_u8, arm_same_tap_u8)

static inline const uint32_t *arm_hidden(const uint32_t *pointer) {
    return pointer;
}

static inline void arm_forget(void) {}

static inline void arm_same_filters(struct arm_four_sums *s, const uint32_t *x, struct arm_filters f) {
    s->s0 = arm_multiply_add(s->s0, x[0], f.first), s->s1 = arm_multiply_add(s->s1, x[0], f.second);
    s->s2 = arm_multiply_add(s->s2, x[1], f.first), s->s3 = arm_multiply_add(s->s3, x[1], f.second);
}

#define ARM_TWO_FILTERS(name, widen_even, widen_odd)                                                               \
    static inline struct arm_filters name(struct arm_four_sums *s, const uint32_t *x, const struct arm_bytes *w) { \
        const struct arm_filters f = {widen_even(arm_word(w)), widen_odd(arm_word(w))};                            \
        arm_same_filters(s, x, f);                                                                                 \
        return f;                                                                                                  \
    }
ARM_TWO_FILTERS(arm_two_filters_s8, arm_widen_s8, arm_widen_odd_s8)
ARM_TWO_FILTERS(arm_two_filters_u8, arm_widen_u8, arm_widen_odd_u8)
#endif

/* By the type of the bytes, which is a constant. */
#define ARM_IS_UNSIGNED(type) ((type) - 1 > 0)
#define ARM_EVEN(type, word) (ARM_IS_UNSIGNED(type) ? arm_widen_u8(word) : arm_widen_s8(word))
#define ARM_ODD(type, word) (ARM_IS_UNSIGNED(type) ? arm_widen_odd_u8(word) : arm_widen_odd_s8(word))

#define ARM_TAP_OF(type) (ARM_IS_UNSIGNED(type) ? arm_tap_u8 : arm_tap_s8)
#define ARM_SHARED_TAP_OF(type) (ARM_IS_UNSIGNED(type) ? arm_shared_tap_u8 : arm_shared_tap_s8)
#define ARM_SAME_TAP_OF(type) (ARM_IS_UNSIGNED(type) ? arm_same_tap_u8 : arm_same_tap_s8)

#define ARM_FOUR_COLUMNS(x_type, w_type)                                                                   \
    (ARM_IS_UNSIGNED(x_type)   ? ARM_IS_UNSIGNED(w_type) ? arm_four_columns_u8_u8 : arm_four_columns_u8_s8 \
     : ARM_IS_UNSIGNED(w_type) ? arm_four_columns_s8_u8                                                    \
                               : arm_four_columns_s8_s8)

#define ARM_FILTERS(type) (ARM_IS_UNSIGNED(type) ? arm_two_filters_u8 : arm_two_filters_s8)

#endif
