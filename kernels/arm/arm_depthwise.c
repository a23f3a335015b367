/* y[n, oh, ow, c] = the sum of x[n, oh stride_h + fh dilation_h - top, ow stride_w + fw dilation_w - left, c] w[fh, fw,
 * c], finished; zero_point outside x.
 *
 * Channels lie side by side in x and in w. Of four channels, a word each, the filter and the rows under it are copied,
 * with what is outside x; every row once. A product of four is two loads, four SXTB16 or UXTB16, two SMLABB and two
 * SMLATT: 12 cycles of a Cortex-M4. FILTER_WIDTH is the number of columns of the filter, over which the loop is
 * unrolled. */
#include "arm_epilogue.h"

#include "arm_depthwise.h"

enum { LANES = 4 };

/* `words`: those of the filter, then the places of its rows among `rows`, then the rows. */
struct copies {
    uint32_t *filter;
    int32_t *places;
    uint32_t *rows;
    int height, pitch; /* rows that are kept, and words of each */
};

/* A word of the channels of a pixel or of the filter; of `lanes` channels, others are 0. */
static inline uint32_t word_of(const void *from, int lanes) {
    uint32_t word = 0;
    if (lanes == LANES)
        word = arm_word(from);
    else
        memcpy(&word, from, (size_t)lanes);
    return word;
}

static inline uint32_t *fill(uint32_t *to, uint32_t word, int count) {
    for (; count > 0; count--) *to++ = word;
    return to;
}

OUT_OF_LINE void copy_row(const struct arm_depthwise *k, const struct copies *s, uint32_t *to, const X_T *image,
                          int row, int lanes) {
    const uint32_t outside = (uint32_t)(uint8_t)k->zero_point * 0x01010101u;
    if (row < 0 || row >= k->height) {
        fill(to, outside, s->pitch);
        return;
    }
    const int begin = k->left < s->pitch ? k->left : s->pitch, reach = k->left + k->width;
    const int end = reach < s->pitch ? reach : s->pitch;
    const X_T *x = image + row * k->x_row;
    to = fill(to, outside, begin);
    if (lanes == LANES)
        for (int i = begin; i < end; i++, x += k->x_column) *to++ = arm_word(x);
    else
        for (int i = begin; i < end; i++, x += k->x_column) *to++ = word_of(x, lanes);
    fill(to, outside, s->pitch - end);
}

/* A row of outputs of `lanes` channels. */
OUT_OF_LINE void row_of_outputs(const struct arm_depthwise *k, const struct copies *s, Y_T *y, int lanes,
                                const struct arm_channel c[LANES], const struct epilogue *e) {
    const int kernel_h = k->kernel_h, step = k->dilation_w, stride = k->stride_w, y_column = k->y_column;
    const uint32_t *at = s->rows;
    for (int left = k->out_width; left > 0; left--, at += stride, y += y_column) {
        struct arm_four_sums sums = {0, 0, 0, 0};
        const uint32_t *w = s->filter;
        const int32_t *const places = s->places;
        for (int fh = 0; fh < kernel_h; fh++) {
            const uint32_t *x = at + places[fh];
#pragma GCC unroll 8
            for (int fw = 0; fw < FILTER_WIDTH; fw++) ARM_PRODUCT_OF_FOUR(X_T, W_T)(&sums, &x, step, &w);
        }
        y[0] = arm_finish(sums.s0, c[0], e);
        if (lanes == LANES) {
            y[1] = arm_finish(sums.s1, c[1], e);
            y[2] = arm_finish(sums.s2, c[2], e);
            y[3] = arm_finish(sums.s3, c[3], e);
        } else {
            if (lanes > 1) y[1] = arm_finish(sums.s1, c[1], e);
            if (lanes > 2) y[2] = arm_finish(sums.s2, c[2], e);
        }
    }
}

/* All outputs of `lanes` channels, the first of which is `channel`. */
static void channels(const struct arm_depthwise *k, const struct copies *s, const X_T *image, Y_T *y, int channel,
                     int lanes) {
    const struct epilogue e = k->epilogue; /* a copy, which no output overwrites */
    struct arm_channel c[LANES];
    for (int lane = 0; lane < LANES; lane++) c[lane] = arm_channel(&e, channel + (lane < lanes ? lane : 0));
    const W_T *const w = (const W_T *)k->w + channel;
    for (int i = 0; i < k->kernel_h * k->kernel_w; i++) s->filter[i] = word_of(w + i * k->channels, lanes);
    int next = -k->top, place = 0; /* the first row that is not copied, and where it will lie */
    for (int oh = 0, ih = -k->top; oh < k->out_height; oh++, ih += k->stride_h, y += k->y_row) {
        for (; next < ih + s->height; next++) {
            if (next >= ih) copy_row(k, s, s->rows + place * s->pitch, image, next, lanes);
            if (++place == s->height) place = 0;
        }
        for (int fh = 0, row = place; fh < k->kernel_h; fh++) { /* the oldest row lies where the next one will */
            s->places[fh] = row * s->pitch;
            row += k->dilation_h;
            if (row >= s->height) row -= s->height;
        }
        row_of_outputs(k, s, y, lanes, c, &e);
    }
}

void KERNEL(const struct arm_depthwise *k) {
    const int taps = k->kernel_h * k->kernel_w;
    const int width = (k->out_width - 1) * k->stride_w + (k->kernel_w - 1) * k->dilation_w + 1;
    uint32_t *const words = k->words;
    const struct copies s = {words, (int32_t *)(words + taps), words + taps + k->kernel_h,
                             (k->kernel_h - 1) * k->dilation_h + 1, width};
    for (int n = 0; n < k->batch; n++) {
        const X_T *const image = (const X_T *)k->x + n * k->x_batch;
        Y_T *const y = (Y_T *)k->y + n * k->y_batch;
        for (int c = 0; c < k->channels; c += LANES)
            channels(k, &s, image + c, y + c, c, k->channels - c < LANES ? k->channels - c : LANES);
    }
}
