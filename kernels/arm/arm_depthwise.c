/* y[n, oh, ow, c] = the sum of x[n, oh stride_h + fh dilation_h - top, ow stride_w + fw dilation_w - left, c] w[fh, fw,
 * c], finished; zero_point outside x.
 *
 * Channels lie side by side in x and in w. Of four channels, a word each, the rows under it are copied, with what is
 * outside x; every row once; the filter is widened. Of two outputs, a product of four channels each is four loads, four
 * SXTB16 or UXTB16, four SMLABB and four SMLATT: 18 cycles of a Cortex-M4, and 15 where both see the pixels between
 * them. FILTER_HEIGHT and FILTER_WIDTH are those of the filter, over which a loop is unrolled; STRIDE and DILATION are
 * those of columns. */
#include "arm_epilogue.h"

#include "arm_depthwise.h"

enum { LANES = 4 };

enum {
    ROW_WORDS = 1 + 2 * FILTER_WIDTH,
    IS_SHARED = STRIDE == DILATION /* whether neighbours see the same pixels */
};

/* `words`: for every row of the filter, where the row of pixels lies and the widened taps; then the rows of pixels. */
struct copies {
    uint32_t *filter, *rows;
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
    const int step = k->x_column;
    int i = begin;
    for (; lanes == LANES && i + 1 < end; i += 2, x += 2 * step, to += 2) {
        const uint32_t word = arm_word(x), next = arm_word(x + step);
        to[0] = word, to[1] = next;
    }
    for (; i < end; i++, x += step) *to++ = word_of(x, lanes);
    fill(to, outside, s->pitch - end);
}

/* What two neighbouring outputs of four channels, or the first of them, see of a row. */
static inline __attribute__((always_inline)) void add_row(struct arm_four_sums *a, struct arm_four_sums *b,
                                                          const uint32_t *at, const uint32_t *w, int count) {
    const uint32_t *const x = at + w[0];
    struct arm_filters f;
#pragma GCC unroll 8
    for (int fw = 0; fw < FILTER_WIDTH; fw++) {
        if (IS_SHARED && count > 1 && fw > 0)
            f = ARM_SHARED_TAP_OF(X_T)(b, a, x + DILATION * fw, f, w + 1 + 2 * fw);
        else
            f = ARM_TAP_OF(X_T)(a, x + DILATION * fw, w + 1 + 2 * fw);
        if (count > 1 && (!IS_SHARED || fw == FILTER_WIDTH - 1)) ARM_SAME_TAP_OF(X_T)(b, x + DILATION * fw + STRIDE, f);
    }
}

/* Two neighbouring outputs of four channels, or the first of them. */
static inline __attribute__((always_inline)) void outputs(const uint32_t *w, const uint32_t *at, Y_T *y, Y_T *next,
                                                          const struct arm_channel c[LANES], const struct epilogue *e,
                                                          int count) {
    struct arm_four_sums a = {arm_first(c[0]), arm_first(c[1]), arm_first(c[2]), arm_first(c[3])}, b = a;
    const uint32_t *const end = w + FILTER_HEIGHT * ROW_WORDS;
    do {
        add_row(&a, &b, at, w, count);
        w = arm_hidden(w + ROW_WORDS);
    } while (w != end);
    /* all before the first store, which might change the constants */
    const Y_T a0 = arm_finish(a.s0, c[0], e), b0 = arm_finish(b.s0, c[0], e);
    const Y_T a1 = arm_finish(a.s1, c[1], e), b1 = arm_finish(b.s1, c[1], e);
    const Y_T a2 = arm_finish(a.s2, c[2], e), b2 = arm_finish(b.s2, c[2], e);
    const Y_T a3 = arm_finish(a.s3, c[3], e), b3 = arm_finish(b.s3, c[3], e);
    y[0] = a0, y[1] = a1, y[2] = a2, y[3] = a3;
    if (count > 1) next[0] = b0, next[1] = b1, next[2] = b2, next[3] = b3;
}

/* A row of outputs of four channels. */
OUT_OF_LINE void row_of_outputs(const struct arm_depthwise *k, const struct copies *s, Y_T *y,
                                const struct arm_channel c[LANES], const struct epilogue *e) {
    const uint32_t *at = s->rows, *const w = s->filter;
    const int y_column = k->y_column;
    int left = k->out_width;
    for (; left > 1; left -= 2, at += 2 * STRIDE, y += 2 * y_column) outputs(w, at, y, y + y_column, c, e, 2);
    if (left) outputs(w, at, y, y, c, e, 1);
}

/* A row of outputs of fewer channels. */
OUT_OF_LINE void row_of_lanes(const struct arm_depthwise *k, const struct copies *s, Y_T *y, int lanes,
                              const struct arm_channel c[LANES], const struct epilogue *e) {
    const uint32_t *at = s->rows, *const w = s->filter;
    for (int left = k->out_width; left > 0; left--, at += STRIDE, y += k->y_column) {
        Y_T four[LANES];
        outputs(w, at, four, four, c, e, 1);
        for (int lane = 0; lane < lanes; lane++) y[lane] = four[lane];
    }
}

/* All outputs of `lanes` channels, the first of which is `channel`. */
static void channels(const struct arm_depthwise *k, const struct copies *s, const X_T *image, Y_T *y, int channel,
                     int lanes) {
    const struct epilogue e = k->epilogue; /* a copy, which no output overwrites */
    struct arm_channel c[LANES];
    for (int lane = 0; lane < LANES; lane++) c[lane] = arm_channel(&e, channel + (lane < lanes ? lane : 0));
    const W_T *const w = (const W_T *)k->w + channel;
    for (int i = 0; i < FILTER_HEIGHT * FILTER_WIDTH; i++) {
        const uint32_t word = word_of(w + i * k->channels, lanes);
        uint32_t *const to = s->filter + 1 + i / FILTER_WIDTH + 2 * i;
        to[0] = ARM_EVEN(W_T, word), to[1] = ARM_ODD(W_T, word);
    }
    const int stride = k->stride_h, y_row = k->y_row, out_height = k->out_height;
    const int height = s->height, pitch = s->pitch, ring = height * pitch, step = k->dilation_h * pitch;
    uint32_t *const filter = s->filter, *const rows = s->rows;
    int next = -k->top, place = 0; /* the first row that is not copied, and where it will lie */
    for (int oh = 0, ih = next; oh < out_height; oh++, ih += stride, y += y_row) {
        for (; next < ih + height; next++) {
            if (next >= ih) copy_row(k, s, rows + place, image, next, lanes);
            place += pitch;
            if (place == ring) place = 0;
        }
        uint32_t *row = filter;
        for (int fh = 0, at = place; fh < FILTER_HEIGHT;
             fh++, row += ROW_WORDS) { /* the oldest row lies where the next one will */
            *row = (uint32_t)at;
            at += step;
            if (at >= ring) at -= ring;
        }
        if (lanes == LANES)
            row_of_outputs(k, s, y, c, &e);
        else
            row_of_lanes(k, s, y, lanes, c, &e);
    }
}

void KERNEL(const struct arm_depthwise *k) {
    const int width = (k->out_width - 1) * STRIDE + (FILTER_WIDTH - 1) * DILATION + 1;
    uint32_t *const words = k->words;
    const struct copies s = {words, words + FILTER_HEIGHT * ROW_WORDS, (FILTER_HEIGHT - 1) * k->dilation_h + 1, width};
    for (int n = 0; n < k->batch; n++) {
        const X_T *const image = (const X_T *)k->x + n * k->x_batch;
        Y_T *const y = (Y_T *)k->y + n * k->y_batch;
        for (int c = 0; c < k->channels; c += LANES)
            channels(k, &s, image + c, y + c, c, k->channels - c < LANES ? k->channels - c : LANES);
    }
}
