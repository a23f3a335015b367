/* y[n, oh, ow, c] = epilogue(sum over 3x3 taps of x[n, oh*sh + fh - top, ow*sw + fw - left, c] * w[c, fw, fh]), of
 * bytes.
 *
 * x and y are channels-last images, w is [channels, 9], columns of taps first; steps are 1 or 2. A column of a row is
 * turned by 18 instructions for four channels under a pair of rows, 28 at a step of two. Two positions of a channel
 * take 3 or 6 loads, 6 products and a bias, twice STAGES (pulp_finish.h) and 2 stores: 17 to 32 instructions for 18
 * products, about 1 to 2 each. Instructions bound it.
 */
#include "pulp_depthwise.h"

#include <stddef.h>

#include "pulp_finish.h"

/* Four channels of pairs of neighbouring rows of y at a time, in two steps with small loops: a core holds 512 bytes of
 * instructions. First the columns under the positions: what the rows of x hold at one place is one word each, one byte
 * per channel; shuffles turn four of them into one word per channel, with a byte per row. Where a pair reads five rows,
 * words of the last three follow, with anything in their fourth byte. Then channel by channel: a position takes three
 * columns, an inner product each for both rows of y.
 */
enum { SDOT_UNSIGNED = (X_T)-1 > 0, ROWS = STRIDE_H + 3, WORDS = 4 * STRIDE_H };

static inline int32_t dot4(uint32_t x, uint32_t w, int32_t acc) {
    return SDOT_UNSIGNED ? xp_sdotusp(x, w, acc) : xp_sdotsp(x, w, acc);
}

/* A box of y, and the columns of x under each of its pairs of rows: those outside x, and those inside from `x` on. */
struct box {
    int rows, count;               /* rows, of which the last pair may begin one earlier; positions in each */
    int ih, before, inside, after; /* the first row of x; columns */
    const X_T *x;                  /* in row 0 */
};

/* Where columns of a row begin, and how far it is to the next one; a row outside x repeats the zero point. */
struct walk {
    const uint8_t *at;
    int step;
};

static inline struct walk row_at(const X_T *at, int is_inside, int x_column, const uint32_t *zero_points) {
    return is_inside ? (struct walk){(const uint8_t *)at, x_column} : (struct walk){(const uint8_t *)zero_points, 0};
}

static inline void fill_columns(uint32_t *to, int count, uint32_t word) {
    for (count *= STRIDE_H; count > 0; count--, to += 4) to[0] = to[1] = to[2] = to[3] = word;
}

#define LOAD(to, row) ".insn r 0x0b, 7, 0x10, " to ", %[" row "], %[" row "_step]\n"
#define STORE(from) ".insn s 0x2b, 2, " from ", 4(%[to])\n"
#define FOUR                                                                                                      \
    "mv t4, t0\nmv t5, t2\n" XP_SHUFFLE("t4", "t1", "even") XP_SHUFFLE("t0", "t1", "odd")                         \
        XP_SHUFFLE("t5", "t3", "even") XP_SHUFFLE("t2", "t3", "odd") XP_PACK("t1", "t5", "t4")                    \
            XP_PACK("t3", "t2", "t0") XP_SHUFFLE("t4", "t5", "upper") XP_SHUFFLE("t0", "t2", "upper") STORE("t1") \
                STORE("t3") STORE("t4") STORE("t0")
#define THREE                                                                                              \
    "srli t4, t6, 8\n" XP_PACK("t1", "t6", "t5") XP_PACK("t3", "t4", "t2") XP_SHUFFLE("t5", "t6", "upper") \
        XP_SHUFFLE("t2", "t4", "upper") STORE("t1") STORE("t3") STORE("t5") STORE("t2")
#define IS_FAR "%[stride] == 2"
enum { COLUMN_LENGTH = STRIDE_H == 2 ? 28 : 18 };

/* Neighbouring columns inside x, of the rows from a on. */
static inline uint32_t *turn_columns(struct walk a, struct walk b, struct walk c, struct walk d, struct walk e,
                                     int count, uint32_t *to) {
    const uint32_t even_bytes = 0x06020400, odd_bytes = 0x07030501, upper_bytes = 0x07060302;
    if (XPULP_INSN && count > 0)
        XP_BLOCK(BEGIN ".insn i 0x7b, 4, x0, %[n], %[length]\n" LOAD("t0", "a") LOAD("t1", "b") LOAD("t2", "c")
                     LOAD("t3", "d") IF(IS_FAR, LOAD("t6", "e")) FOUR IF(IS_FAR, THREE) END : [a] "+r"(a.at),
                 [b] "+r"(b.at), [c] "+r"(c.at), [d] "+r"(d.at), [e] "+r"(e.at), [to] "+r"(to) : [n] "r"(count),
                 [length] "i"(2 * COLUMN_LENGTH), [a_step] "r"(a.step), [b_step] "r"(b.step), [c_step] "r"(c.step),
                 [d_step] "r"(d.step), [e_step] "ri"(STRIDE_H == 2 ? e.step : 0), [stride] "i"(STRIDE_H),
                 [even] "r"(even_bytes), [odd] "r"(odd_bytes), [upper] "r"(upper_bytes) : "t0", "t1", "t2", "t3", "t4",
                 "t5", "t6", "memory");
    for (int i = 0; i < count && !XPULP_INSN; i++, to += WORDS) {
        const uint32_t row_0 = xp_load(a.at + i * a.step), row_1 = xp_load(b.at + i * b.step),
                       row_2 = xp_load(c.at + i * c.step), row_3 = xp_load(d.at + i * d.step);
        const uint32_t even = xp_shuffle2(row_0, row_1, even_bytes), odd = xp_shuffle2(row_0, row_1, odd_bytes);
        const uint32_t next_even = xp_shuffle2(row_2, row_3, even_bytes),
                       next_odd = xp_shuffle2(row_2, row_3, odd_bytes);
        to[0] = xp_pack(next_even, even), to[1] = xp_pack(next_odd, odd);
        to[2] = xp_shuffle2(even, next_even, upper_bytes), to[3] = xp_shuffle2(odd, next_odd, upper_bytes);
        if (STRIDE_H == 2) {
            const uint32_t row_4 = xp_load(e.at + i * e.step);
            to[4] = xp_pack(row_4, next_even), to[5] = xp_pack(row_4 >> 8, next_odd);
            to[6] = xp_shuffle2(next_even, row_4, upper_bytes), to[7] = xp_shuffle2(next_odd, row_4 >> 8, upper_bytes);
        }
    }
    return to;
}

/* columns[WORDS * i + channel] for the columns under a pair of rows, for one pair after the other; those outside x are
 * the same for all channels, and filled for the first ones. */
OUT_OF_LINE void load_columns(const struct pulp_depthwise *k, const struct box *given, const X_T *x, uint32_t *to,
                              int is_first) {
    const uint32_t zero_points = (uint8_t)k->zero_point * 0x01010101u;
    const struct box box = *given;
    const int height = k->height, x_row = k->x_row, x_column = k->x_column;
    const int last = box.rows > 1 ? box.rows - 2 : 0, before = box.before * WORDS, after = box.after * WORDS;
    for (int row = 0; row < box.rows; row += 2) {
        const int ih = box.ih + (row < last ? row : last) * STRIDE_H, rest = height - ih;
        const X_T *const at = x + ih * x_row;
        if (is_first) fill_columns(to, box.before, zero_points);
        to += before;
        if (ih >= 0 && rest >= ROWS) {
            const struct walk a = {(const uint8_t *)at, x_column}, b = {a.at + x_row, x_column};
            const struct walk c = {b.at + x_row, x_column}, d = {c.at + x_row, x_column};
            to = turn_columns(a, b, c, d, STRIDE_H == 2 ? (struct walk){d.at + x_row, x_column} : d, box.inside, to);
        } else {
            const struct walk a = row_at(at, ih >= 0 && rest > 0, x_column, &zero_points);
            const struct walk b = row_at(at + x_row, ih >= -1 && rest > 1, x_column, &zero_points);
            const struct walk c = row_at(at + 2 * x_row, ih >= -2 && rest > 2, x_column, &zero_points);
            const struct walk d = row_at(at + 3 * x_row, ih >= -3 && rest > 3, x_column, &zero_points);
            const struct walk e = row_at(at + 4 * x_row, ih >= -4 && rest > 4, x_column, &zero_points);
            to = turn_columns(a, b, c, d, e, box.inside, to);
        }
        if (is_first) fill_columns(to, box.after, zero_points);
        to += after;
    }
}

/* One channel of a box. */
struct channel {
    int pairs, count; /* pairs of rows, positions of each */
    int skip;         /* bytes from the columns behind the last position to those of the next pair */
    int forth, row;   /* the same of elements of y; from row to row */
    Y_T *last, *y;    /* results of the last pair, of the first one */
    int step;
    const uint32_t *column;
    uint32_t w[3]; /* the words of its filter; the fourth byte is zero */
};

/* Accumulators begin with the bias, or by a product that adds nothing. */
#define FIRST(acc, x, w)                                       \
    EITHER(IS_BIASED, "mv " acc ", %[bias]\n" NEXT(acc, x, w), \
           ".insn r 0x57, 1, %[sdot] - 0x10, " acc ", " x ", %[" w "]\n")
#define NEXT(acc, x, w) ".insn r 0x57, 1, %[sdot], " acc ", " x ", %[" w "]\n"
#define TEXT(macro) TEXT_OF(macro)
#define TEXT_OF(value) #value
#define COLUMN "16*" TEXT(STRIDE_H)
#define FORTH COLUMN "*" TEXT(STRIDE_W)
#define LOAD_FIRST(to) ".insn i 0x0b, 2, " to ", %[column], " FORTH "\n"
#define LOAD_OTHER(to, at) "lw " to ", " at "-" FORTH "(%[column])\n"
/* The accumulators of both rows. */
#define LOADED LOAD_FIRST("t0") LOAD_OTHER("t1", COLUMN) LOAD_OTHER("t2", "2*" COLUMN)
#define BOTH(add, x, i) add("t3", x, "w" i) add("t4", x, "v" i)
#define NEAR BOTH(FIRST, "t0", "0") BOTH(NEXT, "t1", "1") BOTH(NEXT, "t2", "2")
#define ROW_0 FIRST("t3", "t0", "w0") LOAD_OTHER("t0", "16") NEXT("t3", "t1", "w1") LOAD_OTHER("t1", "16+" COLUMN)
#define ROW_1 NEXT("t3", "t2", "w2") LOAD_OTHER("t2", "16+2*" COLUMN) FIRST("t4", "t0", "w0") NEXT("t4", "t1", "w1")
#define PRODUCTS LOADED EITHER(IS_FAR, ROW_0 ROW_1 NEXT("t4", "t2", "w2"), NEAR)
/* The assembly finds them by their offsets. */
#define AT(field, offset) \
    _Static_assert(!XPULP_INSN || offsetof(struct channel, field) == (offset), "where the assembly looks for it")
AT(pairs, 0);
AT(count, 4);
AT(skip, 8);
AT(forth, 12);
AT(row, 16);
AT(last, 20);

/* A hardware loop over the positions of a pair of rows, in one over pairs. */
enum { POSITION = 2 + (STRIDE_H == 1 ? 3 : 6) + 2 * (3 + ADDS_BIAS + STAGES) };
static inline void positions(struct channel *c, struct stages stages, const struct pulp_epilogue *e,
                             const struct pulp_requantisation *r) {
    const uint32_t *column = c->column;
    Y_T *y = c->y, *second = y + c->row;
    XP_BLOCK(
        BEGIN "lw t0, 0(%[c])\nlw t5, 4(%[c])\nlw t6, 8(%[c])\n"
        ".insn i 0x7b, 4, x1, t0, %[length] + 16\n.insn i 0x7b, 4, x0, t5, %[length]\n" PRODUCTS XP_STAGES_OF_2("t3", "t0", "t4", "t1", "%[mul]", "%[upper]", "%[add]") ".insn r 0x2b, 4, 0, %[step], %[second], t4\n.insn r 0x2b, 4, 0, %[step], %[y], t3\n"
        "lw t2, 12(%[c])\nlw t3, 20(%[c])\nlw t4, 16(%[c])\nadd %[column], %[column], t6\n"
        "add %[y], %[y], t2\n.insn r 0x33, 5, 2, %[y], %[y], t3\nadd %[second], %[y], t4\n" END
        : [column] "+r"(column), [y] "+r"(y), [second] "+r"(second)
        : [c] "r"(c), [length] "i"(2 * POSITION), [stride] "i"(STRIDE_H), [bias] "ri"(ADDS_BIAS ? stages.bias : 0),
          [w0] "r"(c->w[0]), [w1] "r"(c->w[1]), [w2] "r"(c->w[2]), [v0] "ri"(STRIDE_H == 1 ? c->w[0] << 8 : 0),
          [v1] "ri"(STRIDE_H == 1 ? c->w[1] << 8 : 0), [v2] "ri"(STRIDE_H == 1 ? c->w[2] << 8 : 0),
          [sdot] "i"(SDOT_UNSIGNED ? XP_SDOTUSP : XP_SDOTSP),
          XP_OPERANDS_OF_2(stages, e, r), [step] "r"(c->step)
        : "t0", "t1", "t2", "t3", "t4", "t5", "t6", "memory");
}

static inline int32_t position(const uint32_t *column, const uint32_t *w, int shift) {
    return dot4(column[2 * WORDS], w[2] << shift,
                dot4(column[WORDS], w[1] << shift, dot4(column[0], w[0] << shift, 0)));
}

/* One channel of a box. */
static inline void one_channel(struct channel *c, struct stages stages, const struct pulp_epilogue *e,
                               const struct pulp_requantisation *r) {
    if (IN_ASSEMBLY && sizeof(Y_T) == 1) {
        positions(c, stages, e, r);
        return;
    }
    const uint32_t *column = c->column;
    Y_T *y = c->y;
    for (; c->pairs > 0; c->pairs--, column += c->skip / 4, y += c->forth) {
        if (y > c->last) y = c->last;
        for (int i = 0; i < c->count; i++, column += WORDS * STRIDE_W, y += c->step) {
            const int32_t second = position(column + 4 * (STRIDE_H - 1), c->w, STRIDE_H == 1 ? 8 : 0);
            y[c->row] = (Y_T)finish_with(second, &stages, e, r);
            *y = (Y_T)finish_with(position(column, c->w, 0), &stages, e, r);
        }
    }
}

/* All channels of a box, four at a time; the last four may begin earlier. */
OUT_OF_LINE void channels(const struct pulp_depthwise *k, const struct box *box, const W_T *w, Y_T *y) {
    const struct pulp_epilogue e = k->epilogue;
    const struct pulp_requantisation r = k->requantisation;
    struct channel c = {.count = box->count, .step = k->y_column};
    c.skip = 4 * WORDS * (box->before + box->inside + box->after - box->count * STRIDE_W);
    c.row = box->rows > 1 ? k->y_row : 0; /* a single row is written over its neighbour */
    c.forth = 2 * k->y_row - c.count * c.step;
    const int last = box->rows > 1 ? (box->rows - 2) * k->y_row : 0;
    for (int next = 0; next < k->channels; next += 4) {
        const int first = next + 4 <= k->channels ? next : k->channels - 4;
        load_columns(k, box, box->x + first, k->columns, next == 0);
        const struct operands operands = operands_at(&k->epilogue, &k->requantisation, first);
        const W_T *filter = w + 9 * first;
        c.y = y + first;
        for (int i = 0; i < 4; i++, filter += 9, c.y++) {
            c.pairs = (box->rows + 1) / 2, c.column = k->columns + i, c.last = c.y + last;
            c.w[0] = xp_load(filter) & 0xffffff, c.w[1] = xp_load(filter + 3) & 0xffffff;
            c.w[2] = xp_load(filter + 5) >> 8; /* ends with the filter */
            one_channel(&c, stages_of(operands, i), &e, &r);
        }
    }
}

/* As many pairs of rows or parts of a pair at a time as there is room for their columns. */
OUT_OF_LINE void boxes(const struct pulp_depthwise *k, const X_T *image, const W_T *w, Y_T *y) {
    const int room = (k->room - 3) / STRIDE_W + 1, parts = (k->out_width + room - 1) / room;
    const int width = (k->out_width + parts - 1) / parts, high = 2 * (k->room / ((width - 1) * STRIDE_W + 3));
    for (int oh = 0; oh < k->out_height; oh += high) {
        /* A last row alone is a pair with the one before. */
        const int begin = oh && oh + 1 == k->out_height ? oh - 1 : oh;
        for (int ow = 0; ow < k->out_width; ow += width) {
            const int rest = k->out_width - ow, count = rest < width ? rest : width, wide = (count - 1) * STRIDE_W + 3;
            const int iw = ow * STRIDE_W - k->left, before = iw >= 0 ? 0 : -iw < wide ? -iw : wide;
            const int most = k->width - iw - before;
            const int inside = most < 0 ? 0 : most < wide - before ? most : wide - before;
            const struct box box = {.rows = k->out_height - begin < high ? k->out_height - begin : high,
                                    .count = count,
                                    .ih = begin * STRIDE_H - k->top,
                                    .before = before,
                                    .inside = inside,
                                    .after = wide - before - inside,
                                    .x = image + (iw + before) * k->x_column};
            channels(k, &box, w, y + begin * k->y_row + ow * k->y_column);
        }
    }
}

/* Fewer than four channels, one at a time. */
OUT_OF_LINE void few(const struct pulp_depthwise *k, const X_T *image, const W_T *w, Y_T *y) {
    for (int i = 0; i < k->out_height * k->out_width * k->channels; i++) {
        const int channel = i % k->channels, ow = i / k->channels % k->out_width, oh = i / k->channels / k->out_width;
        const int ih = oh * STRIDE_H - k->top, iw = ow * STRIDE_W - k->left;
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
    boxes(k, image, w, y);
}

void KERNEL(const struct pulp_depthwise *k) {
    for (int n = 0; n < k->batch; n++) {
        convolve(k, (const X_T *)k->x + n * k->x_batch, (const W_T *)k->w, (Y_T *)k->y + n * k->y_batch);
    }
}
