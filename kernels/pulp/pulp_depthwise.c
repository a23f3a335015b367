#include "pulp_depthwise.h"

/* Four channels and some positions of y at a time, in two steps with small loops: a core holds 512 bytes of
 * instructions. First the columns under the positions. What three rows of x hold at one place is three words, one byte
 * per channel; shuffles turn them into one word per channel, with a byte per row. Then channel by channel: a position
 * takes three columns, an inner product each. The fourth byte of a column is anything, that of a filter's word is zero.
 */
enum { SDOT_UNSIGNED = (X_T)-1 > 0 };

static inline int32_t dot4(uint32_t x, uint32_t w, int32_t acc) {
    return SDOT_UNSIGNED ? xp_sdotusp(x, w, acc) : xp_sdotsp(x, w, acc);
}

/* The three words of each of four filters; the last one ends with the filter. */
static void load_filters(uint32_t *words, const W_T *w) {
    for (int c = 0; c < 4; c++, w += 9, words += 3) {
        words[0] = xp_load(w) & 0xffffff, words[1] = xp_load(w + 3) & 0xffffff, words[2] = xp_load(w + 5) >> 8;
    }
}

/* Where column iw of a row begins, and how far it is to the next one; a row outside x repeats the zero point. */
struct walk {
    const uint8_t *at;
    int step;
};

static inline struct walk row_at(const struct pulp_depthwise *k, const X_T *image, int ih, int iw,
                                 const uint32_t *zero_points) {
    if (ih < 0 || ih >= k->height) return (struct walk){(const uint8_t *)zero_points, 0};
    return (struct walk){(const uint8_t *)(image + ih * k->x_row + iw * k->x_column), k->x_column};
}

static inline uint32_t *fill_columns(uint32_t *to, int count, uint32_t word) {
    for (; count > 0; count--, to += 4) to[0] = to[1] = to[2] = to[3] = word;
    return to;
}

/* A box of y: rows, positions in each, and how many columns lie in between from row to row. */
struct box {
    int rows, count, columns;
};

/* columns[4 * i + channel] for the columns iw + i of the rows from ih on, for one row of the box after the other. */
OUT_OF_LINE void load_columns(const struct pulp_depthwise *k, const X_T *image, int ih, int iw, struct box box,
                              uint32_t *to) {
    const uint32_t zero_points = (uint8_t)k->zero_point * 0x01010101u;
    const uint32_t even_bytes = 0x06020400, odd_bytes = 0x07030501, third_bytes = 0x06060302, fourth_bytes = 0x07070302;
    const int wide = (box.count - 1) * STRIDE_W + 3, before = iw >= 0 ? 0 : -iw < wide ? -iw : wide;
    const int most = k->width - iw - before, inside = most < 0 ? 0 : most < wide - before ? most : wide - before;
    const int after = wide - before - inside;
    iw += before;
    for (int row = box.rows; row > 0; row--, ih += k->stride_h) {
        uint32_t *const begin = to;
        to = fill_columns(to, before, zero_points);
        struct walk a = row_at(k, image, ih, iw, &zero_points), b = row_at(k, image, ih + 1, iw, &zero_points);
        struct walk c = row_at(k, image, ih + 2, iw, &zero_points);
#ifdef XPULP_INSN
        if (inside)
            __asm__ volatile(
                ".option push\n.option norvc\n.insn i 0x7b, 4, x0, %[n], 15*2\n"
                ".insn r 0x0b, 7, 0x10, t0, %[a], %[as]\n.insn r 0x0b, 7, 0x10, t1, %[b], %[bs]\n"
                ".insn r 0x0b, 7, 0x10, t2, %[c], %[cs]\nmv t3, t0\n"
                ".insn r 0x57, 1, 0x64, t3, t1, %[even]\n.insn r 0x57, 1, 0x64, t0, t1, %[odd]\n"
                "srli t5, t2, 8\n.insn r 0x57, 0, 0x68, t4, t2, t3\n.insn r 0x57, 0, 0x68, t5, t5, t0\n"
                ".insn r 0x57, 1, 0x64, t3, t2, %[third]\n.insn r 0x57, 1, 0x64, t0, t2, %[fourth]\n"
                ".insn s 0x2b, 2, t4, 4(%[to])\n.insn s 0x2b, 2, t5, 4(%[to])\n"
                ".insn s 0x2b, 2, t3, 4(%[to])\n.insn s 0x2b, 2, t0, 4(%[to])\n.option pop\n"
                : [a] "+r"(a.at), [b] "+r"(b.at), [c] "+r"(c.at), [to] "+r"(to)
                : [n] "r"(inside), [as] "r"(a.step), [bs] "r"(b.step), [cs] "r"(c.step), [even] "r"(even_bytes),
                  [odd] "r"(odd_bytes), [third] "r"(third_bytes), [fourth] "r"(fourth_bytes)
                : "t0", "t1", "t2", "t3", "t4", "t5", "memory");
#else
        for (int i = 0; i < inside; i++, to += 4) {
            const uint32_t row_0 = xp_load(a.at + i * a.step), row_1 = xp_load(b.at + i * b.step),
                           row_2 = xp_load(c.at + i * c.step);
            const uint32_t even = xp_shuffle2(row_0, row_1, even_bytes), odd = xp_shuffle2(row_0, row_1, odd_bytes);
            to[0] = xp_pack(row_2, even), to[1] = xp_pack(row_2 >> 8, odd);
            to[2] = xp_shuffle2(even, row_2, third_bytes), to[3] = xp_shuffle2(odd, row_2, fourth_bytes);
        }
#endif
        fill_columns(to, after, zero_points);
        to = begin + 4 * box.columns;
    }
}

#ifdef XP_STAGES
enum { IN_ASSEMBLY = sizeof(Y_T) == 1 };
#ifdef EPILOGUE_BIAS
#define FIRST "mv t3, %[bias]\n.insn r 0x57, 1, %[sdot], t3, t0, %[w0]\n"
enum { FIRSTS = 2 };
#else
#define FIRST ".insn r 0x57, 1, %[dot], t3, t0, %[w0]\n"
enum { FIRSTS = 1 };
#endif

/* One channel of a box in two hardware loops: over rows, and over the positions of a row. */
static inline void positions(const uint32_t *column, const uint32_t *w, struct box box, Y_T *y, int step, int y_row,
                             struct stages stages, const struct pulp_epilogue *e, const struct pulp_requantisation *r) {
    __asm__ volatile(
        ".option push\n.option norvc\n.insn i 0x7b, 4, x1, %[rows], %[length]+6\n"
        ".insn i 0x7b, 4, x0, %[n], %[length]\n"
        ".insn i 0x0b, 2, t0, %[column], %[next]\nlw t1, 16-%[next](%[column])\nlw t2, 32-%[next](%[column])\n" FIRST
        ".insn r 0x57, 1, %[sdot], t3, t1, %[w1]\n.insn r 0x57, 1, %[sdot], t3, t2, %[w2]\n" XP_STAGES
        ".insn r 0x2b, 4, 0, %[step], %[y], t4\nadd %[column], %[column], %[column_skip]\n"
        "add %[y], %[y], %[y_skip]\n.option pop\n"
        : [column] "+r"(column), [y] "+r"(y)
        : [rows] "r"(box.rows), [n] "r"(box.count), [length] "i"(2 * (6 + FIRSTS + STAGES)), [next] "i"(16 * STRIDE_W),
          [column_skip] "r"(16 * (box.columns - box.count * STRIDE_W)), [y_skip] "r"(y_row - box.count * step),
          [bias] "r"(stages.bias), [w0] "r"(w[0]), [w1] "r"(w[1]), [w2] "r"(w[2]),
          [sdot] "i"(SDOT_UNSIGNED ? XP_SDOTUSP : XP_SDOTSP), [dot] "i"(SDOT_UNSIGNED ? 0x44 : 0x4c),
          XP_STAGE_OPERANDS(stages, e, r), [step] "r"(step)
        : "t0", "t1", "t2", "t3", "t4", "memory");
}
#endif

/* One channel of a box. */
OUT_OF_LINE void channel(const struct pulp_depthwise *k, const uint32_t *column, const uint32_t *w, struct box box,
                         Y_T *y, struct operands operands) {
    const struct pulp_epilogue e = k->epilogue;
    const struct pulp_requantisation r = k->requantisation;
    const struct stages stages = stages_of(operands, 0);
    const int step = k->y_column, y_row = k->y_row;
#ifdef XP_STAGES
    if (IN_ASSEMBLY) {
        positions(column, w, box, y, step, y_row, stages, &e, &r);
        return;
    }
#endif
    const uint32_t w0 = w[0], w1 = w[1], w2 = w[2];
    for (int row = box.rows; row > 0; row--, column += 4 * box.columns, y += y_row) {
        for (int i = 0; i < box.count; i++) {
            const uint32_t *const at = column + 4 * STRIDE_W * i;
            y[i * step] = (Y_T)finish_with(dot4(at[8], w2, dot4(at[4], w1, dot4(at[0], w0, 0))), &stages, &e, &r);
        }
    }
}

/* Four channels of all positions, as many rows or parts of a row at a time as there is room for their columns. */
static inline void four(const struct pulp_depthwise *k, const X_T *image, const W_T *w, Y_T *y, int first) {
    uint32_t *const columns = k->columns, words[12];
    load_filters(words, w + 9 * first);
    const int most = (k->room - 3) / STRIDE_W + 1, parts = (k->out_width + most - 1) / most;
    const int width = (k->out_width + parts - 1) / parts, wide = (width - 1) * STRIDE_W + 3, high = k->room / wide;
    for (int oh = 0; oh < k->out_height; oh += high) {
        for (int ow = 0; ow < k->out_width; ow += width) {
            const struct box box = {k->out_height - oh < high ? k->out_height - oh : high,
                                    k->out_width - ow < width ? k->out_width - ow : width, wide};
            load_columns(k, image + first, oh * k->stride_h - k->top, ow * STRIDE_W - k->left, box, columns);
            for (int i = 0; i < 4; i++) {
                channel(k, columns + i, words + 3 * i, box, y + oh * k->y_row + ow * k->y_column + first + i,
                        operands_at(&k->epilogue, &k->requantisation, first + i));
            }
        }
    }
}

/* Fewer than four channels, one at a time. */
OUT_OF_LINE void few(const struct pulp_depthwise *k, const X_T *image, const W_T *w, Y_T *y) {
    for (int i = 0; i < k->out_height * k->out_width * k->channels; i++) {
        const int channel = i % k->channels, ow = i / k->channels % k->out_width, oh = i / k->channels / k->out_width;
        const int ih = oh * k->stride_h - k->top, iw = ow * STRIDE_W - k->left;
        int32_t acc = 0;
        for (int tap = 0; tap < 9; tap++) {
            const int h = ih + tap % 3, v = iw + tap / 3;
            const int inside = h >= 0 && h < k->height && v >= 0 && v < k->width;
            acc += (inside ? image[h * k->x_row + v * k->x_column + channel] : k->zero_point) * w[9 * channel + tap];
        }
        const struct stages stages = stages_of(operands_at(&k->epilogue, &k->requantisation, channel), 0);
        y[oh * k->y_row + ow * k->y_column + channel] =
            (Y_T)finish_with(acc, &stages, &k->epilogue, &k->requantisation);
    }
}

static inline void convolve(const struct pulp_depthwise *k, const X_T *image, const W_T *w, Y_T *y) {
    if (k->channels < 4) {
        few(k, image, w, y);
        return;
    }
    for (int next = 0; next < k->channels; next += 4) {
        four(k, image, w, y, next + 4 <= k->channels ? next : k->channels - 4); /* the last four may begin earlier */
    }
}

void KERNEL(const struct pulp_depthwise *k) {
    for (int n = 0; n < k->batch; n++) {
        convolve(k, (const X_T *)k->x + n * k->x_batch, (const W_T *)k->w, (Y_T *)k->y + n * k->y_batch);
    }
}
