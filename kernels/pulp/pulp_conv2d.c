#include "pulp_conv2d.h"

/* `rows` runs of `run` bytes that lie `step` apart, one after the other. */
OUT_OF_LINE void copy_rows(X_T *to, const X_T *from, int step, int rows, int run) {
    for (; rows > 0; rows--, from += step, to += run) xp_copy(to, from, run);
}

OUT_OF_LINE void fill(const struct pulp_conv2d *k, X_T *to, int count) {
    xp_fill(to, (uint8_t)k->zero_point, count);
}

/* A row of taps, some of which are outside: single ones, since they may lie apart. */
static inline void gather_taps(const struct pulp_conv2d *k, const X_T *row, int iw, X_T *to) {
    for (int fw = 0; fw < k->kernel_w; fw++, iw += k->dilation_w, to += k->channels) {
        if (iw >= 0 && iw < k->width)
            copy_rows(to, row + iw * k->x_column, 0, 1, k->channels);
        else
            fill(k, to, k->channels);
    }
}

/* What the window at (ih, iw) of one group sees, where it is not all inside, or taps of a row lie apart. */
OUT_OF_LINE void gather(const struct pulp_conv2d *k, const X_T *image, int ih, int iw, int is_dense, X_T *to) {
    const int run = k->kernel_w * k->channels;
    const int left = iw < 0 ? -iw : 0, beyond = iw + k->kernel_w - k->width, right = beyond > 0 ? beyond : 0;
    is_dense &= left + right < k->kernel_w;
    for (int fh = 0; fh < k->kernel_h; fh++, ih += k->dilation_h, to += run) {
        const X_T *const row = image + (ih < 0 || ih >= k->height ? 0 : ih * k->x_row);
        if (ih < 0 || ih >= k->height) {
            fill(k, to, run);
        } else if (is_dense) {
            const int before = left * k->channels, inside = run - before - right * k->channels;
            if (left) fill(k, to, before);
            copy_rows(to + before, row + (iw + left) * k->x_column, 0, 1, inside);
            if (right) fill(k, to + before + inside, run - before - inside);
        } else {
            gather_taps(k, row, iw, to);
        }
    }
}

/* The windows are in the image: every row of the output is a product, or all of them together where the rows follow
 * each other. */
static inline void convolve_in_place(const struct pulp_conv2d *k, const X_T *x, const W_T *w, Y_T *y, int channel) {
    const int x_step = k->stride_w * k->x_column;
    const int is_flat = k->stride_h * k->x_row == k->out_width * x_step && k->y_row == k->out_width * k->y_column;
    const int count = is_flat ? k->out_width * k->out_height : k->out_width;
    for (int oh = 0; oh < (is_flat ? 1 : k->out_height); oh++) {
        product(&k->product,
                (struct rows){x + oh * k->stride_h * k->x_row, y + oh * k->y_row, x_step, k->y_column, count}, w,
                channel);
    }
}

/* Four neighbouring windows of a row of the output are gathered, and multiplied. Where the taps of a row follow each
 * other, a window inside the image is a few runs. */
static inline void convolve(const struct pulp_conv2d *k, const X_T *image, const W_T *w, Y_T *y, int channel) {
    X_T *const windows = (X_T *)k->windows;
    const int pitch = k->pitch, is_dense = k->dilation_w * k->x_column == k->channels || k->kernel_w == 1;
    for (int oh = 0; oh < k->out_height; oh++) {
        const int ih = oh * k->stride_h - k->top;
        const int is_inside = is_dense && ih >= 0 && ih + (k->kernel_h - 1) * k->dilation_h < k->height;
        const int least = is_inside ? 0 : 1 << 30, most = k->width - k->kernel_w;
        for (int ow = 0; ow < k->out_width; ow += 4) {
            const int count = k->out_width - ow < 4 ? k->out_width - ow : 4;
            for (int i = 0, iw = ow * k->stride_w - k->left; i < count; i++, iw += k->stride_w) {
                if (iw >= least && iw <= most)
                    copy_rows(windows + i * pitch, image + ih * k->x_row + iw * k->x_column, k->dilation_h * k->x_row,
                              k->kernel_h, k->kernel_w * k->channels);
                else
                    gather(k, image, ih, iw, is_dense, windows + i * pitch);
            }
            product(&k->product,
                    (struct rows){windows, y + oh * k->y_row + ow * k->y_column, pitch, k->y_column, count}, w,
                    channel);
        }
    }
}

/* A copy of the filters in rows of whole words. What follows a window's bytes there is multiplied by zero. */
OUT_OF_LINE const W_T *fill_up(const struct pulp_conv2d *k) {
    W_T *const copy = (W_T *)k->windows + 4 * k->pitch;
    const int depth = k->kernel_h * k->kernel_w * k->channels;
    for (int j = 0; j < k->product.filters; j++) {
        xp_copy(copy + j * k->pitch, (const W_T *)k->w + j * depth, depth);
        for (int i = depth; i < k->pitch; i++) copy[j * k->pitch + i] = 0;
    }
    return copy;
}

void KERNEL(const struct pulp_conv2d *k) {
    const struct pulp_product *const p = &k->product;
    const W_T *const filters = k->is_filled ? fill_up(k) : (const W_T *)k->w;
    for (int n = 0; n < k->batch; n++) {
        for (int group = 0; group < k->groups; group++) {
            const int channel = group * p->filters;
            const X_T *const image = (const X_T *)k->x + n * k->x_batch + group * k->channels;
            const W_T *const w = filters + channel * p->w_row;
            Y_T *const y = (Y_T *)k->y + n * k->y_batch + channel;
            if (k->windows)
                convolve(k, image, w, y, channel);
            else
                convolve_in_place(k, image, w, y, channel);
        }
    }
}
