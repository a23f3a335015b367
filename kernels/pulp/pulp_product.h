/* Products of rows of x with rows of w, both dense along the depth: what matrix products and convolutions have in common.
 *
 * Two rows of x and four of w at a time, in a hardware loop of 14 instructions for 32 multiply-accumulates. Needs X_T, W_T
 * and Y_T: both bytes, x unsigned or both signed.
 */
#ifndef DEEPLOY_PULP_PRODUCT_H
#define DEEPLOY_PULP_PRODUCT_H

#include "pulp_epilogue.h"

struct pulp_product {
    int depth, filters; /* elements of a row, rows of w */
    int w_row;          /* from one row of w to the next */
    struct pulp_epilogue epilogue;
    struct pulp_requantisation requantisation;
};

#endif

#if defined(ACC_T) && !defined(DEEPLOY_PULP_DOTS)
#define DEEPLOY_PULP_DOTS

enum { SDOT = (W_T)-1 > 0 ? XP_SDOTUP : (X_T)-1 > 0 ? XP_SDOTUSP : XP_SDOTSP };

static inline int32_t dot4(uint32_t x, uint32_t w, int32_t acc) {
    return SDOT == XP_SDOTUP ? xp_sdotup(x, w, acc) : SDOT == XP_SDOTUSP ? xp_sdotusp(x, w, acc) : xp_sdotsp(x, w, acc);
}

#define LOOP(instructions) ".option push\n.option norvc\n.insn i 0x7b, 4, x0, %[n], " #instructions "*2\n"
#define LOAD(to, from) ".insn i 0x0b, 2, " to ", %[" from "], 4\n"
#define DOT(acc, x, w) ".insn r 0x57, 1, %[sdot], %[" acc "], " x ", " w "\n"
#define END ".option pop\n"

/* acc[4*r + j] = x[r] . w[j] for two rows of x and four of w. */
static inline void dots_2x4(const X_T *x0, const X_T *x1, const W_T *w, int w_row, int depth, int32_t acc[8]) {
    const W_T *w0 = w, *w1 = w0 + w_row, *w2 = w1 + w_row, *w3 = w2 + w_row;
    const int words = depth >> 2, rest = depth & 3;
    int32_t a0 = 0, a1 = 0, a2 = 0, a3 = 0, b0 = 0, b1 = 0, b2 = 0, b3 = 0;
    if (rest) {
        const uint32_t p = xp_load_end(x0, depth, rest), q = xp_load_end(x1, depth, rest);
        const uint32_t v0 = xp_load_end(w0, depth, rest), v1 = xp_load_end(w1, depth, rest);
        const uint32_t v2 = xp_load_end(w2, depth, rest), v3 = xp_load_end(w3, depth, rest);
        a0 = dot4(p, v0, a0), a1 = dot4(p, v1, a1), a2 = dot4(p, v2, a2), a3 = dot4(p, v3, a3);
        b0 = dot4(q, v0, b0), b1 = dot4(q, v1, b1), b2 = dot4(q, v2, b2), b3 = dot4(q, v3, b3);
    }
#ifdef XPULP_INSN
    if (words) {
        __asm__ volatile(
            LOOP(14) LOAD("t0", "x0") LOAD("t1", "x1") LOAD("t2", "w0") LOAD("t3", "w1") LOAD("t4", "w2") LOAD("t5", "w3")
            DOT("a0", "t0", "t2") DOT("b0", "t1", "t2") DOT("a1", "t0", "t3") DOT("b1", "t1", "t3")
            DOT("a2", "t0", "t4") DOT("b2", "t1", "t4") DOT("a3", "t0", "t5") DOT("b3", "t1", "t5") END
            : [a0] "+r"(a0), [a1] "+r"(a1), [a2] "+r"(a2), [a3] "+r"(a3), [b0] "+r"(b0), [b1] "+r"(b1), [b2] "+r"(b2),
              [b3] "+r"(b3), [x0] "+r"(x0), [x1] "+r"(x1), [w0] "+r"(w0), [w1] "+r"(w1), [w2] "+r"(w2), [w3] "+r"(w3)
            : [n] "r"(words), [sdot] "i"(SDOT)
            : "t0", "t1", "t2", "t3", "t4", "t5", "memory");
    }
#else
    for (int i = 0; i < words; i++, x0 += 4, x1 += 4, w0 += 4, w1 += 4, w2 += 4, w3 += 4) {
        const uint32_t p = xp_load(x0), q = xp_load(x1);
        const uint32_t v0 = xp_load(w0), v1 = xp_load(w1), v2 = xp_load(w2), v3 = xp_load(w3);
        a0 = dot4(p, v0, a0), a1 = dot4(p, v1, a1), a2 = dot4(p, v2, a2), a3 = dot4(p, v3, a3);
        b0 = dot4(q, v0, b0), b1 = dot4(q, v1, b1), b2 = dot4(q, v2, b2), b3 = dot4(q, v3, b3);
    }
#endif
    acc[0] = a0, acc[1] = a1, acc[2] = a2, acc[3] = a3, acc[4] = b0, acc[5] = b1, acc[6] = b2, acc[7] = b3;
}

/* The same for one row of x. */
static inline void dots_1x4(const X_T *x, const W_T *w, int w_row, int depth, int32_t acc[4]) {
    const W_T *w0 = w, *w1 = w0 + w_row, *w2 = w1 + w_row, *w3 = w2 + w_row;
    const int words = depth >> 2, rest = depth & 3;
    int32_t a0 = 0, a1 = 0, a2 = 0, a3 = 0;
    if (rest) {
        const uint32_t p = xp_load_end(x, depth, rest);
        a0 = dot4(p, xp_load_end(w0, depth, rest), a0), a1 = dot4(p, xp_load_end(w1, depth, rest), a1);
        a2 = dot4(p, xp_load_end(w2, depth, rest), a2), a3 = dot4(p, xp_load_end(w3, depth, rest), a3);
    }
#ifdef XPULP_INSN
    if (words) {
        __asm__ volatile(
            LOOP(9) LOAD("t0", "x") LOAD("t1", "w0") LOAD("t2", "w1") LOAD("t3", "w2") LOAD("t4", "w3")
            DOT("a0", "t0", "t1") DOT("a1", "t0", "t2") DOT("a2", "t0", "t3") DOT("a3", "t0", "t4") END
            : [a0] "+r"(a0), [a1] "+r"(a1), [a2] "+r"(a2), [a3] "+r"(a3), [x] "+r"(x), [w0] "+r"(w0), [w1] "+r"(w1),
              [w2] "+r"(w2), [w3] "+r"(w3)
            : [n] "r"(words), [sdot] "i"(SDOT)
            : "t0", "t1", "t2", "t3", "t4", "memory");
    }
#else
    for (int i = 0; i < words; i++, x += 4, w0 += 4, w1 += 4, w2 += 4, w3 += 4) {
        const uint32_t p = xp_load(x);
        a0 = dot4(p, xp_load(w0), a0), a1 = dot4(p, xp_load(w1), a1), a2 = dot4(p, xp_load(w2), a2), a3 = dot4(p, xp_load(w3), a3);
    }
#endif
    acc[0] = a0, acc[1] = a1, acc[2] = a2, acc[3] = a3;
}

/* One row of x and one of w. */
static inline int32_t dot_1x1(const X_T *x, const W_T *w, int depth) {
    const int words = depth >> 2, rest = depth & 3;
    int32_t acc = rest ? dot4(xp_load_end(x, depth, rest), xp_load_end(w, depth, rest), 0) : 0;
    for (int i = 0; i < words; i++) acc = dot4(xp_load(x + 4 * i), xp_load(w + 4 * i), acc);
    return acc;
}
#undef LOOP
#undef LOAD
#undef DOT
#undef END

/* Two rows of y, whose first channel is `channel`. A last group of fewer than four filters is completed by ones before it. */
static inline void product_2(const struct pulp_product *p, const X_T *x0, const X_T *x1, const W_T *w, Y_T *y0, Y_T *y1, int channel) {
    const struct pulp_epilogue *const e = &p->epilogue;
    for (int first = 0; first < p->filters; first += 4) {
        const int j = first + 4 <= p->filters ? first : p->filters - 4;
        if (j < 0) break;
        int32_t acc[8];
        dots_2x4(x0, x1, w + j * p->w_row, p->w_row, p->depth, acc);
        for (int i = 0; i < 4; i++) {
            const struct stages s = stages_of(e, channel + j + i);
            const Y_T a = finish(acc[i], &s, e, &p->requantisation), b = finish(acc[4 + i], &s, e, &p->requantisation);
            y0[j + i] = a, y1[j + i] = b;
        }
    }
    for (int j = 0; p->filters < 4 && j < p->filters; j++) {
        const struct stages s = stages_of(e, channel + j);
        y0[j] = finish(dot_1x1(x0, w + j * p->w_row, p->depth), &s, e, &p->requantisation);
        y1[j] = finish(dot_1x1(x1, w + j * p->w_row, p->depth), &s, e, &p->requantisation);
    }
}

/* One row of y. */
static inline void product_1(const struct pulp_product *p, const X_T *x, const W_T *w, Y_T *y, int channel) {
    const struct pulp_epilogue *const e = &p->epilogue;
    for (int first = 0; first < p->filters; first += 4) {
        const int j = first + 4 <= p->filters ? first : p->filters - 4;
        if (j < 0) break;
        int32_t acc[4];
        dots_1x4(x, w + j * p->w_row, p->w_row, p->depth, acc);
        for (int i = 0; i < 4; i++) {
            const struct stages s = stages_of(e, channel + j + i);
            y[j + i] = finish(acc[i], &s, e, &p->requantisation);
        }
    }
    for (int j = 0; p->filters < 4 && j < p->filters; j++) {
        const struct stages s = stages_of(e, channel + j);
        y[j] = finish(dot_1x1(x, w + j * p->w_row, p->depth), &s, e, &p->requantisation);
    }
}
#endif
