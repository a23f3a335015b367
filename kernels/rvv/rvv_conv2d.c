/* A convolution, up to 16 filters at a time with four neighbouring positions of a row. */
#include "rvv_epilogue.h"

#include "../portable/conv2d.h"

enum { POSITIONS = 4 };

/* Four positions of a row of outputs, the windows of which begin at row ih and these columns; filters from `first` on.
 */
static inline void positions(const struct conv2d *k, const X_T *image, int ih, const int iw[POSITIONS], const W_T *w,
                             int channel, size_t lanes, Y_T *const y[POSITIONS]) {
    const X_T outside = (X_T)k->zero_point;
    words s0 = words_zero(lanes), s1 = s0, s2 = s0, s3 = s0;
    for (int fh = 0; fh < k->kernel_h; fh++) {
        const int row = ih + fh * k->dilation_h, is_row = row >= 0 && row < k->height;
        if (!is_row && outside == 0) continue;
        for (int fw = 0; fw < k->kernel_w; fw++) {
            const W_T *filters = w + fh * k->w_row + fw * k->w_column;
            const X_T *x[POSITIONS];
            int step[POSITIONS];
            for (int i = 0; i < POSITIONS; i++) {
                const int column = iw[i] + fw * k->dilation_w;
                step[i] = is_row && column >= 0 && column < k->width;
                x[i] = step[i] ? image + row * k->x_row + column * k->x_column : &outside;
            }
            const X_T *x0 = x[0], *x1 = x[1], *x2 = x[2], *x3 = x[3];
            for (int c = 0; c < k->channels; c++, filters += k->w_channel) {
                const halves v = HALVES(W_T, filters, lanes);
                s0 = words_scaled(s0, *x0, v, lanes), s1 = words_scaled(s1, *x1, v, lanes);
                s2 = words_scaled(s2, *x2, v, lanes), s3 = words_scaled(s3, *x3, v, lanes);
                x0 += step[0], x1 += step[1], x2 += step[2], x3 += step[3];
            }
        }
    }
    finish_words(s0, y[0], &k->epilogue, channel, lanes), finish_words(s1, y[1], &k->epilogue, channel, lanes);
    finish_words(s2, y[2], &k->epilogue, channel, lanes), finish_words(s3, y[3], &k->epilogue, channel, lanes);
}

/* All filters of a group at the row oh of an image. */
static void row(const struct conv2d *k, int group, const X_T *image, int oh, Y_T *y) {
    for (int first = 0, lanes; first < k->filters; first += lanes) {
        const int channel = group * k->filters + first;
        lanes = (int)lanes_of(k->filters - first);
        for (int ow = 0; ow < k->out_width; ow += POSITIONS) {
            int iw[POSITIONS];
            Y_T *to[POSITIONS];
            for (int i = 0; i < POSITIONS; i++) { /* behind the end of a row, the last one again */
                const int column = ow + i < k->out_width ? ow + i : k->out_width - 1;
                iw[i] = column * k->stride_w - k->left, to[i] = y + column * k->y_column + channel;
            }
            positions(k, image, oh * k->stride_h - k->top, iw, (const W_T *)k->w + channel, channel, (size_t)lanes, to);
        }
    }
}

void KERNEL(const struct conv2d *k) {
    for (int n = 0; n < k->batch; n++) {
        for (int group = 0; group < k->groups; group++) {
            const X_T *const image = (const X_T *)k->x + n * k->x_batch + group * k->channels;
            for (int oh = 0; oh < k->out_height; oh++)
                row(k, group, image, oh, (Y_T *)k->y + n * k->y_batch + oh * k->y_row);
        }
    }
}
