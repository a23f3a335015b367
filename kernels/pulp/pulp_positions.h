/* Windows of depthwise convolutions, of planes: one channel each, whose neighbouring taps are neighbouring bytes. */
#ifndef DEEPLOY_PULP_POSITIONS_H
#define DEEPLOY_PULP_POSITIONS_H

#include "pulp_depthwise_any.h"

enum { IS_PACKED = 0 };
#include "pulp_dots.h"
#include "pulp_finish.h"

static inline int least(int a, int b) {
    return a < b ? a : b;
}

/* Four words of four channels each become four of one channel each, `plane` bytes apart. */
static inline void turn(const uint8_t *a, const uint8_t *b, const uint8_t *c, const uint8_t *d, X_T *to, int plane) {
    const uint32_t even_bytes = 0x06020400, odd_bytes = 0x07030501, upper_bytes = 0x07060302;
    const uint32_t first = xp_load(a), second = xp_load(b), third = xp_load(c), fourth = xp_load(d);
    const uint32_t even = xp_shuffle2(first, second, even_bytes), odd = xp_shuffle2(first, second, odd_bytes);
    const uint32_t next_even = xp_shuffle2(third, fourth, even_bytes);
    const uint32_t next_odd = xp_shuffle2(third, fourth, odd_bytes);
    xp_store(to, xp_pack(next_even, even));
    xp_store(to + plane, xp_pack(next_odd, odd));
    xp_store(to + 2 * plane, xp_shuffle2(even, next_even, upper_bytes));
    xp_store(to + 3 * plane, xp_shuffle2(odd, next_odd, upper_bytes));
}

/* How the words of a window lie: rows of so many, `skip` bytes from the end of one to the next. */
struct words {
    int rows, count, skip;
    const W_T *w;
};

static inline int32_t one(const struct words *s, const X_T *x) {
    const W_T *w = s->w;
    int32_t acc = 0;
    for (int row = s->rows; row > 0; row--, x += s->skip) {
        for (int i = s->count; i > 0; i--, x += 4, w += 4) acc = dot4(xp_load(x), xp_load(w), acc);
    }
    return acc;
}

struct sums {
    int32_t a, b, c, d;
};

/* Four positions, `step` bytes apart. */
static inline struct sums four(const struct words *s, const X_T *x, int step) {
    struct sums r = {0, 0, 0, 0};
    const W_T *w = s->w;
    XP_BLOCK(
        BEGIN ".insn i 0x7b, 4, x1, %[rows], 2*12\n" LOOP("%[count]", 9) XP_LOAD("t4", "w") WALK("t0", "x", "%[step]")
            WALK("t1", "x", "%[step]") WALK("t2", "x", "%[step]") WALK("t3", "x", "%[back]") DOT("a", "t0", "t4")
                DOT("b", "t1", "t4") DOT("c", "t2", "t4")
                    DOT("d", "t3", "t4") "add %[x], %[x], %[skip]\nnop\n" END : [a] "+r"(r.a),
        [b] "+r"(r.b), [c] "+r"(r.c), [d] "+r"(r.d), [x] "+r"(x), [w] "+r"(w) : [rows] "r"(s->rows),
        [count] "r"(s->count), [skip] "r"(s->skip), [step] "r"(step), [back] "r"(4 - 3 * step), [sdot] "i"(SDOT) : "t0",
        "t1", "t2", "t3", "t4", "memory");
    if (XPULP_INSN) return r;
    return (struct sums){one(s, x), one(s, x + step), one(s, x + 2 * step), one(s, x + 3 * step)};
}

/* How many positions there are, and how far apart in x and in y. */
struct walk {
    int count, x_step, y_step;
};

/* Lines of positions of one channel, whose windows are `ahead.x_step` bytes apart; the last four of a line may begin
 * among those before them. */
static inline void positions(const struct pulp_depthwise_any *k, const struct words *given, const X_T *from,
                             const struct walk *ahead, const struct walk *lines, Y_T *to, const struct stages *stages) {
    const struct words s = *given;
    const int step = ahead->x_step, y_step = ahead->y_step, wide = ahead->count;
    const struct stages own = *stages;
    const struct pulp_epilogue e = k->epilogue;
    const struct pulp_requantisation r = k->requantisation;
    for (int line = lines->count; line > 0; line--, from += lines->x_step, to += lines->y_step) {
        const X_T *x = from;
        Y_T *y = to;
        int count = wide;
        if (count < 4) {
            for (; count > 0; count--, x += step, y += y_step) y[0] = (Y_T)finish_with(one(&s, x), &own, &e, &r);
            continue;
        }
        for (; count > 0; count -= 4, x += 4 * step, y += 4 * y_step) {
            if (count < 4) x -= (4 - count) * step, y -= (4 - count) * y_step;
            const struct sums acc = four(&s, x, step);
            const int32_t first = finish_with(acc.a, &own, &e, &r), second = finish_with(acc.b, &own, &e, &r);
            const int32_t third = finish_with(acc.c, &own, &e, &r), fourth = finish_with(acc.d, &own, &e, &r);
            y[0] = (Y_T)first, y[y_step] = (Y_T)second, y[2 * y_step] = (Y_T)third, y[3 * y_step] = (Y_T)fourth;
        }
    }
}

#endif
