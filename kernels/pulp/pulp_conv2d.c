#include "pulp_conv2d.h"

/* One tap of a window. */
static inline void gather_tap(const struct pulp_conv2d *k, const X_T *row, int column, X_T *to) {
    if (column >= 0 && column < k->width)
        xp_copy(to, row + column * k->x_column, k->channels);
    else
        xp_fill(to, (uint8_t)k->zero_point, k->channels);
}

/* What the window at (ih, iw) of one group sees. A row of taps inside the image is one run where they are neighbours.
 */
static void gather(const struct pulp_conv2d *k, const X_T *image, int ih, int iw, X_T *to) {
    const int run = k->kernel_w * k->channels;
    const int is_run =
        iw >= 0 && iw + (k->kernel_w - 1) * k->dilation_w < k->width && k->dilation_w * k->x_column == k->channels;
    for (int fh = 0; fh < k->kernel_h; fh++, ih += k->dilation_h) {
        if (ih < 0 || ih >= k->height) {
            xp_fill(to, (uint8_t)k->zero_point, run);
            to += run;
            continue;
        }
        const X_T *const row = image + ih * k->x_row;
        if (is_run) {
            xp_copy(to, row + iw * k->x_column, run);
            to += run;
            continue;
        }
        for (int fw = 0; fw < k->kernel_w; fw++, to += k->channels) gather_tap(k, row, iw + fw * k->dilation_w, to);
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

/* Four neighbouring windows of a row of the output are gathered, and multiplied. */
static inline void convolve(const struct pulp_conv2d *k, const struct pulp_product *p, const X_T *image, const W_T *w,
                            Y_T *y, int channel) {
    X_T *const windows = (X_T *)k->windows;
    const int pitch = k->pitch;
    for (int oh = 0; oh < k->out_height; oh++) {
        const int ih = oh * k->stride_h - k->top;
        for (int ow = 0; ow < k->out_width; ow += 4) {
            const int count = k->out_width - ow < 4 ? k->out_width - ow : 4;
            for (int i = 0; i < count; i++) gather(k, image, ih, (ow + i) * k->stride_w - k->left, windows + i * pitch);
            product(p, (struct rows){windows, y + oh * k->y_row + ow * k->y_column, pitch, k->y_column, count}, w,
                    channel);
        }
    }
}

/* A copy of the filters in rows of whole words. What follows a window's bytes there is multiplied by zero. */
OUT_OF_LINE const W_T *fill_up(const struct pulp_conv2d *k, struct pulp_product *p) {
    W_T *const copy = (W_T *)k->windows + 4 * k->pitch;
    for (int j = 0; j < p->filters; j++) {
        xp_copy(copy + j * k->pitch, (const W_T *)k->w + j * p->w_row, p->depth);
        for (int i = p->depth; i < k->pitch; i++) copy[j * k->pitch + i] = 0;
    }
    p->depth = p->w_row = k->pitch;
    return copy;
}

void KERNEL(const struct pulp_conv2d *k) {
    struct pulp_product p = k->product;
    const W_T *const filters = k->is_filled ? fill_up(k, &p) : (const W_T *)k->w;
    for (int n = 0; n < k->batch; n++) {
        for (int group = 0; group < k->groups; group++) {
            const int channel = group * p.filters;
            const X_T *const image = (const X_T *)k->x + n * k->x_batch + group * k->channels;
            const W_T *const w = filters + channel * p.w_row;
            Y_T *const y = (Y_T *)k->y + n * k->y_batch + channel;
            if (k->windows)
                convolve(k, &p, image, w, y, channel);
            else
                convolve_in_place(k, image, w, y, channel);
        }
    }
}
