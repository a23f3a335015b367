#include "pulp_conv2d.h"

/* One tap of a window. */
static inline void gather_tap(const struct pulp_conv2d *k, const X_T *row, int column, X_T *to) {
    if (column >= 0 && column < k->width) xp_copy(to, row + column * k->x_column, k->channels);
    else xp_fill(to, (uint8_t)k->zero_point, k->channels);
}

/* What the window at (ih, iw) of one group sees. A row of taps inside the image is one run where they are neighbours. */
static void gather(const struct pulp_conv2d *k, const X_T *image, int ih, int iw, X_T *to) {
    const int run = k->kernel_w * k->channels;
    const int is_run = iw >= 0 && iw + (k->kernel_w - 1) * k->dilation_w < k->width && k->dilation_w * k->x_column == k->channels;
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

/* The window at a position: in the image itself, or gathered. */
static inline const X_T *window(const struct pulp_conv2d *k, const X_T *image, int oh, int ow, int slot) {
    const int ih = oh * k->stride_h - k->top, iw = ow * k->stride_w - k->left;
    if (!k->windows) return image + ih * k->x_row + iw * k->x_column;
    X_T *const to = (X_T *)k->windows + slot * ((k->product.depth + 3) & ~3);
    gather(k, image, ih, iw, to);
    return to;
}

static void convolve(const struct pulp_conv2d *k, const X_T *image, const W_T *w, Y_T *y, int channel) {
    const int count = k->out_height * k->out_width;
    int oh = 0, ow = 0;
    for (int i = 0; i + 2 <= count; i += 2) {
        const X_T *const x0 = window(k, image, oh, ow, 0);
        Y_T *const y0 = y + oh * k->y_row + ow * k->y_column;
        if (++ow == k->out_width) ow = 0, oh++;
        const X_T *const x1 = window(k, image, oh, ow, 1);
        Y_T *const y1 = y + oh * k->y_row + ow * k->y_column;
        if (++ow == k->out_width) ow = 0, oh++;
        product_2(&k->product, x0, x1, w, y0, y1, channel);
    }
    if (count & 1) product_1(&k->product, window(k, image, oh, ow, 0), w, y + oh * k->y_row + ow * k->y_column, channel);
}

void KERNEL(const struct pulp_conv2d *k) {
    for (int n = 0; n < k->batch; n++) {
        for (int group = 0; group < k->groups; group++) {
            const int channel = group * k->product.filters;
            convolve(k, (const X_T *)k->x + n * k->x_batch + group * k->channels, (const W_T *)k->w + channel * k->product.w_row,
                     (Y_T *)k->y + n * k->y_batch + channel, channel);
        }
    }
}
