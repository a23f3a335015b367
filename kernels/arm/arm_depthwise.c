/* Four channels at a time: the rows under a filter are kept as rows of 16 bits, one per channel, in which neighbours
 * are pairs. Every row of the image is widened once. */
#include "arm_epilogue.h"

#include "arm_depthwise.h"

enum { LANES = 4 };

/* Rows of 16 bits: that of the image's row r and lane j begins at ((r modulo height) * LANES + j) * pitch. */
struct rows {
    int16_t *first;
    int height, pitch;
};

static inline int16_t *row_of(const struct rows *s, int row, int lane) {
    const int place = (row % s->height + s->height) % s->height;
    return s->first + (place * LANES + lane) * s->pitch;
}

OUT_OF_LINE void widen_row(const struct arm_depthwise *k, const struct rows *s, const X_T *image, int row, int lanes) {
    int16_t *const to = row_of(s, row, 0);
    const int is_row = row >= 0 && row < k->height, pitch = s->pitch;
    const X_T *x = image + (is_row ? row * k->x_row : 0);
    int end = k->left + k->width;
    if (!is_row || end > pitch) end = is_row ? pitch : 0;
    const int begin = is_row ? (k->left < end ? k->left : end) : 0;
    for (int lane = 0; lane < lanes; lane++) {
        for (int i = 0; i < begin; i++) to[lane * pitch + i] = (int16_t)k->zero_point;
        for (int i = end; i < pitch; i++) to[lane * pitch + i] = (int16_t)k->zero_point;
    }
    int16_t *at = to + begin;
    if (lanes < LANES) {
        for (int i = begin; i < end; i++, at++, x += k->x_column) {
            for (int lane = 0; lane < lanes; lane++) at[lane * pitch] = x[lane];
        }
        return;
    }
    for (int16_t *const last = to + end; at < last; at++, x += k->x_column) {
        const uint32_t word = arm_word(x), even = ARM_EVEN(X_T, word), odd = ARM_ODD(X_T, word);
        at[0] = (int16_t)(even & 0xFFFF), at[pitch] = (int16_t)(odd & 0xFFFF);
        at[2 * pitch] = (int16_t)(even >> 16), at[3 * pitch] = (int16_t)(odd >> 16);
    }
}

static inline uint32_t pair(int low, int high) {
    return (uint32_t)(uint16_t)low | (uint32_t)high << 16;
}

/* One row of outputs of a 3x3 filter, each of whose rows of three is two pairs, which overlap. */
OUT_OF_LINE void row_of_3x3(const int16_t *const x[3], const uint32_t w[6], int stride, int count, Y_T *y, int y_column,
                            struct arm_channel c, const struct epilogue *e) {
    const int16_t *r0 = x[0], *r1 = x[1], *r2 = x[2];
    int i = 0;
    if (stride == 1) { /* two outputs share their inputs */
        for (; i + 2 <= count; i += 2, r0 += 2, r1 += 2, r2 += 2) {
            int32_t s0 = 0, s1 = 0;
            uint32_t a = arm_word(r0), b = arm_word(r0 + 2);
            s0 = arm_multiply_add_high_low(arm_multiply_add(s0, a, w[0]), w[1], b);
            s1 = arm_multiply_add(arm_multiply_add_high_low(s1, a, w[0]), b, w[1]);
            a = arm_word(r1), b = arm_word(r1 + 2);
            s0 = arm_multiply_add_high_low(arm_multiply_add(s0, a, w[2]), w[3], b);
            s1 = arm_multiply_add(arm_multiply_add_high_low(s1, a, w[2]), b, w[3]);
            a = arm_word(r2), b = arm_word(r2 + 2);
            s0 = arm_multiply_add_high_low(arm_multiply_add(s0, a, w[4]), w[5], b);
            s1 = arm_multiply_add(arm_multiply_add_high_low(s1, a, w[4]), b, w[5]);
            *y = arm_finish(s0, c, e), y += y_column;
            *y = arm_finish(s1, c, e), y += y_column;
        }
    }
    for (; i < count; i++, r0 += stride, r1 += stride, r2 += stride, y += y_column) {
        int32_t s = 0;
        s = arm_multiply_add_high_low(arm_multiply_add(s, arm_word(r0), w[0]), w[1], arm_half(r0 + 2));
        s = arm_multiply_add_high_low(arm_multiply_add(s, arm_word(r1), w[2]), w[3], arm_half(r1 + 2));
        s = arm_multiply_add_high_low(arm_multiply_add(s, arm_word(r2), w[4]), w[5], arm_half(r2 + 2));
        *y = arm_finish(s, c, e);
    }
}

OUT_OF_LINE void any_row(const struct arm_depthwise *k, const struct rows *s, const W_T *w, int ih, int lane, Y_T *y,
                         struct arm_channel c) {
    for (int ow = 0; ow < k->out_width; ow++) {
        int32_t sum = 0;
        for (int fh = 0; fh < k->kernel_h; fh++) {
            const int16_t *const x = row_of(s, ih + fh * k->dilation_h, lane) + ow * k->stride_w;
            const W_T *const filter = w + fh * k->kernel_w * k->channels;
            for (int fw = 0; fw < k->kernel_w; fw++) sum += x[fw * k->dilation_w] * filter[fw * k->channels];
        }
        y[ow * k->y_column] = arm_finish(sum, c, &k->epilogue);
    }
}

/* A row of outputs of one channel, whose window begins at row ih of the image. */
static void channel_row(const struct arm_depthwise *k, const struct rows *s, int ih, int channel, int lane, Y_T *y) {
    const W_T *const w = (const W_T *)k->w + channel;
    const struct arm_channel c = arm_channel(&k->epilogue, channel);
    if (k->kernel_h != 3 || k->kernel_w != 3 || k->dilation_h != 1 || k->dilation_w != 1) {
        any_row(k, s, w, ih, lane, y, c);
        return;
    }
    const int16_t *const x[3] = {row_of(s, ih, lane), row_of(s, ih + 1, lane), row_of(s, ih + 2, lane)};
    uint32_t pairs[6];
    for (int fh = 0; fh < 3; fh++) {
        const W_T *const filter = w + fh * 3 * k->channels;
        pairs[2 * fh] = pair(filter[0], filter[k->channels]);
        pairs[2 * fh + 1] = pair(filter[k->channels], filter[2 * k->channels]);
    }
    if (k->stride_w == 1)
        row_of_3x3(x, pairs, 1, k->out_width, y, k->y_column, c, &k->epilogue);
    else
        row_of_3x3(x, pairs, k->stride_w, k->out_width, y, k->y_column, c, &k->epilogue);
}

void KERNEL(const struct arm_depthwise *k) {
    const int width = (k->out_width - 1) * k->stride_w + (k->kernel_w - 1) * k->dilation_w + 1;
    const struct rows s = {k->rows, (k->kernel_h - 1) * k->dilation_h + 1, (width + 1) & ~1};
    for (int n = 0; n < k->batch; n++) {
        for (int channel = 0; channel < k->channels; channel += LANES) {
            const X_T *const image = (const X_T *)k->x + n * k->x_batch + channel;
            const int lanes = k->channels - channel < LANES ? k->channels - channel : LANES;
            int next = -k->top; /* the first row that is not widened */
            for (int oh = 0; oh < k->out_height; oh++) {
                const int ih = oh * k->stride_h - k->top;
                if (next < ih) next = ih;
                for (; next < ih + s.height; next++) widen_row(k, &s, image, next, lanes);
                Y_T *const y = (Y_T *)k->y + n * k->y_batch + oh * k->y_row + channel;
                for (int lane = 0; lane < lanes; lane++) channel_row(k, &s, ih, channel + lane, lane, y + lane);
            }
        }
    }
}
