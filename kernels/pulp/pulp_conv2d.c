#include "pulp_conv2d.h"

#include "pulp_window.h"

/* `rows` runs of `run` bytes. */
OUT_OF_LINE void copy_rows(X_T *to, int to_step, const X_T *from, int step, int rows, int run) {
    for (; rows > 0; rows--, from += step, to += to_step) xp_copy(to, from, run);
}

OUT_OF_LINE void fill_rows(const struct pulp_conv2d *k, X_T *to, int step, int rows, int run) {
    for (; rows > 0; rows--, to += step) xp_fill(to, (uint8_t)k->zero_point, run);
}

/* A row of taps, some of which are outside: single ones, since they may lie apart. */
static inline void gather_taps(const struct pulp_conv2d *k, const X_T *row, int iw, X_T *to) {
    for (int fw = 0; fw < k->kernel_w; fw++, iw += k->dilation_w, to += k->channels) {
        if (iw >= 0 && iw < k->width)
            copy_rows(to, 0, row + iw * k->x_column, 0, 1, k->channels);
        else
            fill_rows(k, to, 0, 1, k->channels);
    }
}

/* What `rows` rows of taps see that are in the image from `row` on, where a column is not, or taps of a row lie apart.
 */
OUT_OF_LINE void gather(const struct pulp_conv2d *k, const X_T *row, int rows, int iw, int is_dense, X_T *to) {
    const int run = k->kernel_w * k->channels, step = k->dilation_h * k->x_row;
    const int left = iw < 0 ? -iw : 0, beyond = iw + k->kernel_w - k->width, right = beyond > 0 ? beyond : 0;
    if (is_dense && left + right < k->kernel_w) {
        const int before = left * k->channels, after = right * k->channels;
        if (left) fill_rows(k, to, run, rows, before);
        if (right) fill_rows(k, to + run - after, run, rows, after);
        copy_rows(to + before, run, row + (iw + left) * k->x_column, step, rows, run - before - after);
    } else {
        for (; rows > 0; rows--, row += step, to += run) gather_taps(k, row, iw, to);
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

/* Neighbouring windows of a row of the output, four where there is room, are gathered, and multiplied. Where the taps
 * of a row follow each other, a window inside the image is a few runs. Taps above and below the image are filled once
 * for all windows of the row. */
static inline void convolve(const struct pulp_conv2d *k, const X_T *image, const W_T *w, Y_T *y, int channel) {
    X_T *const windows = (X_T *)k->windows;
    const int pitch = k->pitch, is_dense = k->dilation_w * k->x_column == k->channels || k->kernel_w == 1;
    const int run = k->kernel_w * k->channels, step = k->dilation_h * k->x_row;
    const int least = is_dense ? 0 : 1 << 30, most = k->width - k->kernel_w;
    for (int oh = 0; oh < k->out_height; oh++) {
        const int ih = oh * k->stride_h - k->top, slots = k->out_width < k->room ? k->out_width : k->room;
        const struct taps rows = taps_inside(ih, k->dilation_h, k->kernel_h, k->height);
        const X_T *const row = image + (rows.count ? (ih + rows.first * k->dilation_h) * k->x_row : 0);
        const int above = rows.first * run, inside = rows.count * run, below = k->kernel_h * run - above - inside;
        if (above) fill_rows(k, windows, pitch, slots, above);
        if (below) fill_rows(k, windows + above + inside, pitch, slots, below);
        for (int ow = 0; ow < k->out_width; ow += k->room) {
            const int count = k->out_width - ow < k->room ? k->out_width - ow : k->room;
            X_T *to = windows + above;
            for (int i = 0, iw = ow * k->stride_w - k->left; i < count; i++, iw += k->stride_w, to += pitch) {
                if (iw >= least && iw <= most)
                    copy_rows(to, run, row + iw * k->x_column, step, rows.count, run);
                else
                    gather(k, row, rows.count, iw, is_dense, to);
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
