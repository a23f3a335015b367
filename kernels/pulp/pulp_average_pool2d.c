/* y = epilogue(mean over a window of (x - zero_point), with 16 bits behind the point), of a channels-last image of
 * bytes; a mean divides by the taps inside the image, or by all.
 *
 * x and y are [batch, height, width, channels]. Four channels take 5 instructions a tap, then a mean each: one shift
 * where taps are a power of two and all count (IS_POWER), else some 20 instructions. Instructions bound it.
 */
#include "pulp_average_pool2d.h"

#include "pulp_finish.h"

#include "pulp_window.h"

/* How many taps a mean divides by, and the rounded down reciprocal of that: the cores share a divider of one bit a
 * cycle. */
struct divisor {
    uint32_t count, inverse;
};

/* n / by; the product with the reciprocal is too small by a few. */
static inline uint32_t quotient(uint32_t n, uint32_t by, uint32_t inverse) {
    uint32_t whole = (uint32_t)((uint64_t)n * inverse >> 32);
    for (n -= whole * by; n >= by; n -= by) whole++;
    return whole;
}

/* floor((2*sum*65536 + count) / (2*count)): whole part and fraction apart, so that nothing leaves 32 bits. No mean of a
 * byte less a zero point is below -ABOVE. */
enum { ABOVE = 512 };
static inline int32_t mean(int32_t sum, const struct divisor *by) {
    if (IS_POWER) { /* windows of 2 to 64 taps, a power of two, all of which count: 16 bits behind the point are exact
                     */
        const int shift = xp_last_bit(by->count);
        return (sum * 65536 + (1 << (shift - 1))) >> shift;
    }
    const uint32_t above = (uint32_t)(sum + ABOVE * (int32_t)by->count),
                   whole = quotient(above, by->count, by->inverse);
    const uint32_t rest = above - whole * by->count;
    const uint32_t fraction = quotient(rest * 131072u + by->count, 2 * by->count, by->inverse >> 1);
    return ((int32_t)whole - ABOVE) * 65536 + (int32_t)fraction;
}

static inline int32_t dot4(uint32_t x, uint32_t w, int32_t acc) {
    return (X_T)-1 > 0 ? xp_sdotup(x, w, acc) : xp_sdotsp(x, w, acc);
}

/* sum[j] += channel j of `count` taps that lie `step` apart, at least one: inner products with a one at the channel. */
static inline void add_row(const X_T *x, int step, int count, int32_t sum[4]) {
    int32_t s0 = sum[0], s1 = sum[1], s2 = sum[2], s3 = sum[3];
    XP_BLOCK(
        BEGIN LOOP("%[n]", 5) ".insn r 0x0b, 7, 0x10, t0, %[x], %[step]\n"
        ".insn r 0x57, 1, %[dot], %[s0], t0, %[first]\n.insn r 0x57, 1, %[dot], %[s1], t0, %[second]\n"
        ".insn r 0x57, 1, %[dot], %[s2], t0, %[third]\n.insn r 0x57, 1, %[dot], %[s3], t0, %[fourth]\n" END
        : [x] "+r"(x), [s0] "+r"(s0), [s1] "+r"(s1), [s2] "+r"(s2), [s3] "+r"(s3)
        : [n] "r"(count), [step] "r"(step), [dot] "i"((X_T)-1 > 0 ? XP_SDOTUP : XP_SDOTSP), [first] "r"(1),
          [second] "r"(1 << 8), [third] "r"(1 << 16), [fourth] "r"(1 << 24)
        : "t0", "memory");
    for (int i = 0; i < count && !XPULP_INSN; i++) {
        const uint32_t word = xp_load(x + i * step);
        s0 = dot4(word, 1, s0), s1 = dot4(word, 1 << 8, s1), s2 = dot4(word, 1 << 16, s2), s3 = dot4(word, 1 << 24, s3);
    }
    sum[0] = s0, sum[1] = s1, sum[2] = s2, sum[3] = s3;
}

static inline Y_T finish(const struct pulp_average_pool2d *k, const struct divisor *by, int32_t sum, int taps,
                         int channel) {
    const struct stages stages = stages_of(operands_at(&k->epilogue, &k->requantisation, channel), 0);
    return (Y_T)finish_with(mean(sum - taps * k->zero_point, by), &stages, &k->epilogue, &k->requantisation);
}

/* One position of y, whose first tap inside the image is `x`. */
OUT_OF_LINE void position(const struct pulp_average_pool2d *k, const struct divisor *by, const X_T *x, int rows,
                          int columns, Y_T *y) {
    const int channels = k->channels, row = k->dilation_h * k->x_row, column = k->dilation_w * k->x_column;
    const int taps = rows * columns;
    if (row == columns * column) columns = taps, rows = 1; /* rows that follow each other are one */
    for (int next = 0; next < channels && channels >= 4; next += 4) {
        const int first = next + 4 <= channels ? next : channels - 4; /* the last four may begin earlier */
        const X_T *at = x + first;
        int32_t sum[4] = {0, 0, 0, 0};
        for (int i = columns ? rows : 0; i > 0; i--, at += row) add_row(at, column, columns, sum);
        for (int j = 0; j < 4; j++) y[first + j] = finish(k, by, sum[j], taps, first + j);
    }
    for (int c = 0; c < channels && channels < 4; c++) {
        int32_t sum = 0;
        for (int i = 0; i < taps; i++) sum += x[i / columns * row + i % columns * column + c];
        y[c] = finish(k, by, sum, taps, c);
    }
}

void KERNEL(const struct pulp_average_pool2d *k) {
    struct divisor by = {0, 0};
    for (int n = 0; n < k->batch; n++) {
        const X_T *const image = (const X_T *)k->x + n * k->x_batch;
        for (int oh = 0; oh < k->out_height; oh++) {
            const int ih = oh * k->stride_h - k->top;
            const struct taps rows = taps_inside(ih, k->dilation_h, k->kernel_h, k->height);
            Y_T *y = (Y_T *)k->y + n * k->y_batch + oh * k->y_row;
            for (int ow = 0; ow < k->out_width; ow++, y += k->y_column) {
                const int iw = ow * k->stride_w - k->left;
                const struct taps columns = taps_inside(iw, k->dilation_w, k->kernel_w, k->width);
                const int is_empty = rows.count == 0 || columns.count == 0;
                const int first =
                    (ih + rows.first * k->dilation_h) * k->x_row + (iw + columns.first * k->dilation_w) * k->x_column;
                const int counted = k->count_include_pad ? k->kernel_h * k->kernel_w : rows.count * columns.count;
                const uint32_t count = counted > 0 ? (uint32_t)counted : 1;
                if (count != by.count) by = (struct divisor){count, UINT32_MAX / count};
                position(k, &by, is_empty ? image : image + first, rows.count, columns.count, y);
            }
        }
    }
}
