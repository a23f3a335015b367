/* y[n, oh, ow, c] = epilogue(sum over taps of x[n, oh*sh + fh*dh - top, ow*sw + fw*dw - left, c] * w[c, fh, fw]), of
 * bytes, for any window.
 *
 * x and y are channels-last images; lines of w, or columns, are filled up to whole words. Four positions of a channel
 * take 9 instructions for a word of taps, 16 products at most, and copies before that some 20 for 16 bytes.
 * Instructions bound it.
 */
#include "pulp_positions.h"

/* What a box of y sees of four channels is copied first, one plane per channel: lines along which neighbouring taps are
 * neighbouring bytes. Where taps are `dilation` apart, every line is as many segments, one for each remainder of a
 * position by that. What is outside the image is the zero point. Then channel by channel: positions whose windows begin
 * in one segment follow each other at one step, and four of them share the words of the filter. */

struct box {
    int lines, columns; /* of x, from the first one on that the box sees: */
    int line, column;   /* in x, or outside */
    int segment, pitch; /* bytes of a segment, of a line */
    int high, wide;     /* of y */
    int plane;          /* bytes of one channel */
};

static inline int most(int a, int b) {
    return a > b ? a : b;
}

/* Divisions take 35 cycles, and most windows have no dilation. */
static inline int parts_of(int count, int size) {
    return size == 1 ? count : (count + size - 1) / size;
}

/* Bytes of a segment that holds so many columns of a line, with those that words reach beyond. */
static inline int segment_of(int columns, int dilation) {
    return (parts_of(columns, dilation) + 7) & ~3;
}

/* `count` elements of `lanes` channels; behind them up to three bytes of `outside`, one in each byte of the word. */
static inline void load_run(const X_T *x, int step, int count, X_T *to, int plane, int lanes, uint32_t outside) {
    if (lanes < 4) {
        for (int i = 0; i < count; i++, x += step) {
            for (int lane = 0; lane < lanes; lane++) to[lane * plane + i] = x[lane];
        }
        return;
    }
    const uint8_t *from = (const uint8_t *)x, *const behind = (const uint8_t *)&outside;
    for (; count >= 4; count -= 4, from += 4 * step, to += 4) {
        turn(from, from + step, from + 2 * step, from + 3 * step, to, plane);
    }
    if (count > 0)
        turn(from, count > 1 ? from + step : behind, count > 2 ? from + 2 * step : behind, behind, to, plane);
}

/* What is outside x is the same for all channels, and filled for the first ones. */
OUT_OF_LINE void load_planes(const struct pulp_depthwise_any *k, const struct box *b, const X_T *x, X_T *planes,
                             int lanes, int is_first) {
    const int dilation = k->along.dilation, plane = b->plane, step = dilation * k->along.x_step;
    const int high = least(b->lines, k->across.size - b->line), top = most(0, -b->line); /* lines inside x */
    if (is_first) xp_fill(planes, (uint8_t)k->zero_point, lanes * plane);
    for (int r = 0; r < dilation; r++) {
        const int count = parts_of(most(b->columns - r, 0), dilation);
        const int first = b->column + r, last = k->along.size - first; /* columns before x, and where it ends */
        const int before = first < 0 ? least(parts_of(-first, dilation), count) : 0;
        const int end = last > 0 ? least(parts_of(last, dilation), count) : 0;
        const X_T *from = x + (b->line + top) * k->across.x_step + (first + before * dilation) * k->along.x_step;
        X_T *to = planes + r * b->segment + top * b->pitch + before;
        for (int i = top; i < high; i++, from += k->across.x_step, to += b->pitch)
            load_run(from, step, end - before, to, plane, lanes, (uint8_t)k->zero_point * 0x01010101u);
    }
}

static int divisor(int a, int b) {
    while (b) {
        const int rest = a % b;
        a = b, b = rest;
    }
    return a;
}

/* Channels from `begin` to `end`, in blocks of four, the last of which may begin earlier. */
OUT_OF_LINE void compute(const struct pulp_depthwise_any *k, const struct box *b, int begin, int end, Y_T *y) {
    const struct pulp_axis along = k->along;
    const int dilation = along.dilation, is_dense = dilation == 1;
    const int common = is_dense ? 1 : divisor(along.stride, dilation), apart = is_dense ? 1 : dilation / common;
    const int row = (along.taps + 3) & ~3, filter = k->across.taps * row, down = k->across.stride * b->pitch;
    const int step = is_dense ? along.stride : along.stride / common, y_step = apart * along.y_step;
    struct words s = {k->across.taps, row >> 2, k->across.dilation * b->pitch - row, 0};
    for (int first = 0; first < apart && first < b->wide; first++, y += along.y_step) {
        const int at = first * along.stride;
        const X_T *x = (const X_T *)k->planes + (is_dense ? 0 : at % dilation * b->segment + at / dilation);
        struct walk ahead = {parts_of(b->wide - first, apart), step, y_step};
        struct walk lines = {b->high, down, k->across.y_step};
        if (ahead.count < 4 && lines.count >= 4) { /* down the columns */
            const struct walk other = ahead;
            ahead = lines, lines = other;
        }
        for (int next = begin; next < end; next++, x += b->plane) {
            const int over = (next & ~3) + 4 - k->channels, number = k->channels > 3 && over > 0 ? next - over : next;
            const struct stages stages = stages_of(operands_at(&k->epilogue, &k->requantisation, number), 0);
            s.w = (const W_T *)k->w + number * filter;
            positions(k, &s, x, &ahead, &lines, y + number, &stages);
        }
    }
}

/* Whole lines where there is room for them, or parts of one. */
static inline void convolve(const struct pulp_depthwise_any *k, const X_T *x, Y_T *y) {
    const struct pulp_axis across = k->across, along = k->along;
    const int tall = (across.taps - 1) * across.dilation + 1, broad = (along.taps - 1) * along.dilation + 1;
    const int room = k->room / 4;
    const int line = along.dilation * segment_of((along.out - 1) * along.stride + broad, along.dilation);
    int high = 1, wide = along.out;
    if (tall * line > room) {
        const int columns = (room / (tall * along.dilation) - 7) * along.dilation;
        wide = (columns - broad) / along.stride + 1;
    } else {
        high = (room / line - tall) / across.stride + 1;
    }
    for (int oh = 0; oh < across.out; oh += high) {
        for (int ow = 0; ow < along.out; ow += wide) {
            struct box b = {.high = least(high, across.out - oh), .wide = least(wide, along.out - ow)};
            b.lines = (b.high - 1) * across.stride + tall, b.columns = (b.wide - 1) * along.stride + broad;
            b.line = oh * across.stride - across.before, b.column = ow * along.stride - along.before;
            b.segment = segment_of(b.columns, along.dilation), b.pitch = along.dilation * b.segment;
            Y_T *const to = y + oh * across.y_step + ow * along.y_step;
            b.plane = b.lines * b.pitch;
            const int count = k->channels < 4 ? k->channels : (k->channels + 3) & ~3; /* with those computed twice */
            const int together = most(k->room / b.plane & ~3, 4);
            for (int begin = 0; begin < count; begin += together) {
                const int end = least(begin + together, count), lanes = least(count, 4);
                X_T *planes = (X_T *)k->planes;
                for (int next = begin; next < end; next += 4, planes += 4 * b.plane)
                    load_planes(k, &b, x + least(next, k->channels - lanes), planes, lanes, begin == 0);
                compute(k, &b, begin, end, to);
            }
        }
    }
}

void KERNEL(const struct pulp_depthwise_any *k) {
    for (int n = 0; n < k->batch; n++) convolve(k, (const X_T *)k->x + n * k->x_batch, (Y_T *)k->y + n * k->y_batch);
}
