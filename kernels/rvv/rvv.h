/* RISC-V's vectors: up to 16 elements of bytes, widened to 16 bits, whose products are added up in 32 bits, with a body
 * in portable C, which says what they do. Intrinsics had no prefix before version 0.11. */
#ifndef RVV_H
#define RVV_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { MOST = 16 }; /* elements at a time */

/* Whether a type of bytes is unsigned, a constant. */
#define IS_UNSIGNED(type) ((type) - 1 > 0)

/* What values are shifted right by, and kept between. */
struct limits {
    int shift, low, high;
};

#ifdef __riscv_vector
#include <riscv_vector.h>

#ifdef __riscv_v_intrinsic
#define RVV(name) __riscv_##name
#else
#define RVV(name) name
#endif

typedef vint16m2_t halves;
typedef vint32m4_t words;

static inline size_t lanes_of(int count) {
    return RVV(vsetvl_e8m1)((size_t)(count < MOST ? count : MOST));
}

static inline halves halves_of_s8(const void *from, size_t lanes) {
    return RVV(vsext_vf2_i16m2)(RVV(vle8_v_i8m1)(from, lanes), lanes);
}

static inline halves halves_of_u8(const void *from, size_t lanes) {
    return RVV(vreinterpret_v_u16m2_i16m2)(RVV(vzext_vf2_u16m2)(RVV(vle8_v_u8m1)(from, lanes), lanes));
}

static inline words words_zero(size_t lanes) {
    return RVV(vmv_v_x_i32m4)(0, lanes);
}

static inline words words_scaled(words sums, int factor, halves values, size_t lanes) {
    return RVV(vwmacc_vx_i32m4)(sums, (int16_t)factor, values, lanes);
}

static inline words words_products(words sums, halves a, halves b, size_t lanes) {
    return RVV(vwmacc_vv_i32m4)(sums, a, b, lanes);
}

static inline void words_store(int32_t *to, words v, size_t lanes) {
    RVV(vse32_v_i32m4)(to, v, lanes);
}

/* (upper half of (v + bias) * factor) + summand, shifted right and limited, as bytes; `add` holds the bias below and
 * the summand above. */
static inline void words_requantise(void *to, words v, const int32_t *factor, const int64_t *add, struct limits l,
                                    size_t lanes) {
    const int32_t *const halves_of_add = (const int32_t *)(const void *)add;
    v = RVV(vadd_vv_i32m4)(v, RVV(vlse32_v_i32m4)(halves_of_add, sizeof *add, lanes), lanes);
    v = RVV(vmulh_vv_i32m4)(v, RVV(vle32_v_i32m4)(factor, lanes), lanes);
    v = RVV(vadd_vv_i32m4)(v, RVV(vlse32_v_i32m4)(halves_of_add + 1, sizeof *add, lanes), lanes);
    v = RVV(vmax_vx_i32m4)(RVV(vsra_vx_i32m4)(v, (size_t)l.shift, lanes), l.low, lanes);
    v = RVV(vmin_vx_i32m4)(v, l.high, lanes);
    RVV(vse8_v_i8m1)(to, RVV(vnsra_wx_i8m1)(RVV(vnsra_wx_i16m2)(v, 0, lanes), 0, lanes), lanes);
}
#else
typedef struct {
    int16_t lane[MOST];
} halves;
typedef struct {
    int32_t lane[MOST];
} words;

static inline size_t lanes_of(int count) {
    return (size_t)(count < MOST ? count : MOST);
}

static inline halves halves_of_s8(const void *from, size_t lanes) {
    halves v = {{0}};
    for (size_t j = 0; j < lanes; j++) v.lane[j] = ((const int8_t *)from)[j];
    return v;
}

static inline halves halves_of_u8(const void *from, size_t lanes) {
    halves v = {{0}};
    for (size_t j = 0; j < lanes; j++) v.lane[j] = ((const uint8_t *)from)[j];
    return v;
}

static inline words words_zero(size_t lanes) {
    (void)lanes;
    return (words){{0}};
}

static inline words words_scaled(words sums, int factor, halves values, size_t lanes) {
    for (size_t j = 0; j < lanes; j++) sums.lane[j] += factor * values.lane[j];
    return sums;
}

static inline words words_products(words sums, halves a, halves b, size_t lanes) {
    for (size_t j = 0; j < lanes; j++) sums.lane[j] += a.lane[j] * b.lane[j];
    return sums;
}

static inline void words_store(int32_t *to, words v, size_t lanes) {
    memcpy(to, v.lane, lanes * sizeof *to);
}

static inline void words_requantise(void *to, words v, const int32_t *factor, const int64_t *add, struct limits l,
                                    size_t lanes) {
    for (size_t j = 0; j < lanes; j++) {
        const int64_t product = ((int64_t)v.lane[j] + (int32_t)(add[j] & 0xFFFFFFFF)) * factor[j];
        const int32_t value = ((int32_t)(product >> 32) + (int32_t)(add[j] >> 32)) >> l.shift;
        ((uint8_t *)to)[j] = (uint8_t)((value < l.low ? l.low : value > l.high ? l.high : value) & 0xFF);
    }
}
#endif

#define HALVES(type, from, lanes) (IS_UNSIGNED(type) ? halves_of_u8(from, lanes) : halves_of_s8(from, lanes))

#endif
