/* Products of rows of x with rows of w, whose elements have 4 bits: two in a byte, signed. Included by pulp_product.h.
 *
 * A word of w holds eight elements, the first four in the lower halves of its bytes. Shifted up by four bits, or
 * without the lower halves, its bytes are those elements times 16, so that accumulators hold 16 times their sums until
 * the end: 22 instructions for 32 multiply-accumulates of one row of x, 32 for 64 of two. The depth is a multiple of 8.
 */
enum { UP = 4 };
#define WHOLE(acc) (acc) >>= UP

/* Instructions on bytes: shift up by four bits; leave the upper four. */
#define LOWER(to, from) ".insn r 0x57, 7, 0x28, " to ", " from ", x2\n"
#define UPPER_HALF(to, from) ".insn r 0x57, 7, 0x34, " to ", " from ", x24\n"
static inline uint32_t lower(uint32_t w) {
#ifdef XPULP_INSN
    __asm__(LOWER("%0", "%0") : "+r"(w));
    return w;
#else
    return w << UP & 0xf0f0f0f0;
#endif
}
static inline uint32_t upper(uint32_t w) {
    return w & 0xf0f0f0f0;
}

/* Two rows of x at any distance by four of w. */
static inline void block_2x4(const struct pulp_product *p, const X_T *x0, int x_step, const W_T *w0, Y_T *y, int y_step,
                             const int32_t *sums, struct operands s) {
    const X_T *x1 = x0 + x_step;
    const W_T *w1 = w0 + p->w_row, *w2 = w1 + p->w_row, *w3 = w2 + p->w_row;
    const int words = p->depth >> 3;
    int32_t a0 = 0, a1 = 0, a2 = 0, a3 = 0, b0 = 0, b1 = 0, b2 = 0, b3 = 0;
    (void)sums;
#ifdef XPULP_INSN
#define BY(w, t, j) \
    LOWER("t5", t)  \
    UPPER_HALF(t, t) DOT("a" j, "t0", "t5") DOT("b" j, "t2", "t5") DOT("a" j, "t1", t) DOT("b" j, "t3", t)
    __asm__ volatile(
        BEGIN LOOP("%[n]", 32) LOAD("t0", "x0") LOAD("t1", "x0") LOAD("t2", "x1") LOAD("t3", "x1") LOAD("t4", "w0")
            LOAD("t6", "w1") BY("w0", "t4", "0") LOAD("t4", "w2") BY("w1", "t6", "1") LOAD("t6", "w3")
                BY("w2", "t4", "2") BY("w3", "t6", "3") END
        : [a0] "+r"(a0), [a1] "+r"(a1), [a2] "+r"(a2), [a3] "+r"(a3), [b0] "+r"(b0), [b1] "+r"(b1), [b2] "+r"(b2),
          [b3] "+r"(b3), [x0] "+r"(x0), [x1] "+r"(x1), [w0] "+r"(w0), [w1] "+r"(w1), [w2] "+r"(w2), [w3] "+r"(w3)
        : [n] "r"(words), [sdot] "i"(SDOT)
        : "t0", "t1", "t2", "t3", "t4", "t5", "t6", "memory");
#undef BY
#else
    for (int i = 0; i < words; i++, x0 += 8, x1 += 8, w0 += 4, w1 += 4, w2 += 4, w3 += 4) {
        const uint32_t p0 = xp_load(x0), q0 = xp_load(x0 + 4), p1 = xp_load(x1), q1 = xp_load(x1 + 4);
        const uint32_t v0 = xp_load(w0), v1 = xp_load(w1), v2 = xp_load(w2), v3 = xp_load(w3);
        a0 = dot4(q0, upper(v0), dot4(p0, lower(v0), a0)), a1 = dot4(q0, upper(v1), dot4(p0, lower(v1), a1));
        a2 = dot4(q0, upper(v2), dot4(p0, lower(v2), a2)), a3 = dot4(q0, upper(v3), dot4(p0, lower(v3), a3));
        b0 = dot4(q1, upper(v0), dot4(p1, lower(v0), b0)), b1 = dot4(q1, upper(v1), dot4(p1, lower(v1), b1));
        b2 = dot4(q1, upper(v2), dot4(p1, lower(v2), b2)), b3 = dot4(q1, upper(v3), dot4(p1, lower(v3), b3));
    }
#endif
    WHOLE(a0), WHOLE(a1), WHOLE(a2), WHOLE(a3), WHOLE(b0), WHOLE(b1), WHOLE(b2), WHOLE(b3);
    finish_2(a0, b0, y, y_step, 0, s, p), finish_2(a1, b1, y, y_step, 1, s, p);
    finish_2(a2, b2, y, y_step, 2, s, p), finish_2(a3, b3, y, y_step, 3, s, p);
}

/* One row of x. */
static inline void block_1x4(const struct pulp_product *p, const X_T *x, const W_T *w0, Y_T *y, const int32_t *sums,
                             struct operands s) {
    const W_T *w1 = w0 + p->w_row, *w2 = w1 + p->w_row, *w3 = w2 + p->w_row;
    const int words = p->depth >> 3;
    int32_t a0 = 0, a1 = 0, a2 = 0, a3 = 0;
    (void)sums;
#ifdef XPULP_INSN
#define BY(t, u, j) LOWER(u, t) UPPER_HALF(t, t) DOT("a" j, "t0", u) DOT("a" j, "t1", t)
    __asm__ volatile(BEGIN LOOP("%[n]", 22) LOAD("t0", "x") LOAD("t1", "x") LOAD("t2", "w0") LOAD("t3", "w1")
                         LOAD("t4", "w2") LOAD("t5", "w3") BY("t2", "t6", "0") BY("t3", "t6", "1") BY("t4", "t6", "2")
                             BY("t5", "t6", "3") END
                     : [a0] "+r"(a0), [a1] "+r"(a1), [a2] "+r"(a2), [a3] "+r"(a3), [x] "+r"(x), [w0] "+r"(w0),
                       [w1] "+r"(w1), [w2] "+r"(w2), [w3] "+r"(w3)
                     : [n] "r"(words), [sdot] "i"(SDOT)
                     : "t0", "t1", "t2", "t3", "t4", "t5", "t6", "memory");
#undef BY
#else
    for (int i = 0; i < words; i++, x += 8, w0 += 4, w1 += 4, w2 += 4, w3 += 4) {
        const uint32_t p0 = xp_load(x), q0 = xp_load(x + 4);
        const uint32_t v0 = xp_load(w0), v1 = xp_load(w1), v2 = xp_load(w2), v3 = xp_load(w3);
        a0 = dot4(q0, upper(v0), dot4(p0, lower(v0), a0)), a1 = dot4(q0, upper(v1), dot4(p0, lower(v1), a1));
        a2 = dot4(q0, upper(v2), dot4(p0, lower(v2), a2)), a3 = dot4(q0, upper(v3), dot4(p0, lower(v3), a3));
    }
#endif
    WHOLE(a0), WHOLE(a1), WHOLE(a2), WHOLE(a3);
    y[0] = (Y_T)finish(a0, 0, s, p), y[1] = (Y_T)finish(a1, 1, s, p), y[2] = (Y_T)finish(a2, 2, s, p),
    y[3] = (Y_T)finish(a3, 3, s, p);
}

/* Two rows of x by two filters, the same twice where there is but one. */
static inline void block_2x2(const struct pulp_product *p, const X_T *x0, int x_step, const W_T *w0, int w_step, Y_T *y,
                             int y_step, const int32_t *sums, int channel) {
    const X_T *x1 = x0 + x_step;
    const W_T *w1 = w0 + w_step;
    const struct operands s = operands_at(&p->epilogue, &p->requantisation, channel);
    int32_t a0 = 0, a1 = 0, b0 = 0, b1 = 0;
    (void)sums;
    for (int i = p->depth >> 3; i > 0; i--, x0 += 8, x1 += 8, w0 += 4, w1 += 4) {
        const uint32_t p0 = xp_load(x0), q0 = xp_load(x0 + 4), p1 = xp_load(x1), q1 = xp_load(x1 + 4);
        const uint32_t v0 = xp_load(w0), v1 = xp_load(w1);
        a0 = dot4(q0, upper(v0), dot4(p0, lower(v0), a0)), a1 = dot4(q0, upper(v1), dot4(p0, lower(v1), a1));
        b0 = dot4(q1, upper(v0), dot4(p1, lower(v0), b0)), b1 = dot4(q1, upper(v1), dot4(p1, lower(v1), b1));
    }
    WHOLE(a0), WHOLE(a1), WHOLE(b0), WHOLE(b1);
    finish_2(a0, b0, y, y_step, 0, s, p);
    finish_2(a1, b1, y, y_step, w_step != 0, s, p);
}
#undef LOWER
#undef UPPER_HALF
#undef WHOLE
