/* Convolutions as products of windows with filters.
 *
What a convolution reads around a part of the image is copied, together with the part: windows that overlap have most of
 * their bytes in common, and none is cut off by a border then. Where the taps of a row follow each other in whole words
 * (RUNS), products read them there; with GATHERED, windows are copied once more, into rows of their own. */
#ifndef DEEPLOY_PULP_CONVOLVE_H
#define DEEPLOY_PULP_CONVOLVE_H

#include "pulp_conv2d.h"
#include "pulp_multiply.h"

/* A part of the image with what is around it, channels of one group: rows of `row` bytes. */
struct patch {
    X_T *x;
    int rows, columns, row;
};

/* Columns from `from` on, of one group. */
static inline void copy_columns(const struct pulp_conv2d *k, X_T *to, const X_T *from, int columns) {
    if (k->x_column == k->channels) {
        xp_copy(to, from, columns * k->channels);
        return;
    }
    for (; columns > 0; columns--, to += k->channels, from += k->x_column) xp_copy(to, from, k->channels);
}

/* Rows and columns from ih and iw on; what is outside the image is the zero point. */
OUT_OF_LINE void load_patch(const struct pulp_conv2d *k, const X_T *image, const struct patch *s, int ih, int iw) {
    const int before = iw >= 0 ? 0 : -iw < s->columns ? -iw : s->columns, most = k->width - iw - before;
    const int rest = s->columns - before, inside = most < 0 ? 0 : most < rest ? most : rest;
    const int left = before * k->channels, right = (rest - inside) * k->channels;
    const X_T *from = image + ih * k->x_row + (iw + before) * k->x_column;
    X_T *to = s->x;
    for (int i = s->rows; i > 0; i--, ih++, from += k->x_row, to += s->row) {
        if (ih < 0 || ih >= k->height) {
            xp_fill(to, (uint8_t)k->zero_point, s->row);
            continue;
        }
        if (left) xp_fill(to, (uint8_t)k->zero_point, left);
        copy_columns(k, to + left, from, inside);
        if (right) xp_fill(to + s->row - right, (uint8_t)k->zero_point, right);
    }
}

/* `count` windows side by side; up to three bytes behind a row of taps are copied, too, and written over or never
 * read. */
OUT_OF_LINE void gather(const struct pulp_conv2d *k, const X_T *from, int row, X_T *to, int count) {
    const int is_dense = k->dilation_w == 1, step = k->stride_w * k->channels, down = k->dilation_h * row;
    const int run = is_dense ? k->kernel_w * k->channels : k->channels;
    if (XPULP_INSN && is_dense) {
        const int words = (run + 3) >> 2, next_run = down - 4 * words, next = run - 4 * words;
        for (; count > 0; count--, from += step, to += k->pitch) {
            const X_T *source = from;
            X_T *place = to;
            XP_BLOCK(
                ".option push\n.option norvc\n"
                ".insn i 0x7b, 4, x1, %[rows], 10\n"
                ".insn i 0x7b, 4, x0, %[words], 4\n"
                ".insn i 0x0b, 2, t0, %[source], 4\n"
                ".insn s 0x2b, 2, t0, 4(%[place])\n"
                "add %[source], %[source], %[next_run]\n"
                "add %[place], %[place], %[next]\n"
                ".option pop\n" : [source] "+r"(source),
                [place] "+r"(place) : [rows] "r"(k->kernel_h), [words] "r"(words), [next_run] "r"(next_run),
                [next] "r"(next) : "t0", "memory");
        }
        return;
    }
    for (; count > 0; count--, from += step, to += k->pitch) {
        X_T *place = to;
        for (int fh = 0; fh < k->kernel_h; fh++) {
            for (int fw = 0; fw < (is_dense ? 1 : k->kernel_w); fw++, place += run)
                xp_copy(place, from + fh * down + fw * k->dilation_w * k->channels, run);
        }
    }
}

/* A copy of the filters in rows of whole words. What follows a window's bytes there is multiplied by zero. */
OUT_OF_LINE const W_T *fill_up(const struct pulp_conv2d *k) {
    W_T *const copy = (W_T *)k->filled;
    const int depth = k->kernel_h * k->kernel_w * k->channels;
    for (int j = 0; j < k->product.filters; j++) {
        xp_copy(copy + j * k->pitch, (const W_T *)k->w + j * depth, depth);
        for (int i = depth; i < k->pitch; i++) copy[j * k->pitch + i] = 0;
    }
    return copy;
}

/* As many windows as there is room for, of several rows of the output where these follow each other. */
static inline void multiply_gathered(const struct pulp_conv2d *k, const struct patch *s, int high, int wide, OUT_T *y,
                                     const W_T *w, int channel) {
    X_T *const windows = (X_T *)k->windows;
    const int is_flat = k->y_row == wide * k->y_column;
    int filled = 0;
    for (int oh = 0; oh < high; oh++) {
        const X_T *const row = s->x + oh * k->stride_h * s->row;
        for (int ow = 0; ow < wide;) {
            const int rest = wide - ow, free = k->slots - filled, count = rest < free ? rest : free;
            gather(k, row + ow * k->stride_w * k->channels, s->row, windows + filled * k->pitch, count);
            filled += count, ow += count;
            if (filled < k->slots && (is_flat ? oh + 1 < high || ow < wide : ow < wide)) continue;
            struct rows r;
            set_rows(&r, windows, k->pitch, y + oh * k->y_row + (ow - filled) * k->y_column, k->y_column, filled);
            product(&k->product, &r, w, channel);
            filled = 0;
        }
    }
}

/* Windows where they lie, row after row of the output. */
static inline void multiply_runs(const struct pulp_conv2d *k, const struct patch *s, int high, int wide, OUT_T *y,
                                 const W_T *w, int channel) {
    const int run = k->kernel_w * k->channels;
    for (int oh = 0; oh < high; oh++) {
        struct rows r;
        const X_T *const x = s->x + oh * k->stride_h * s->row;
        set_rows(&r, x, k->stride_w * k->channels, y + oh * k->y_row, k->y_column, wide);
        r.runs = k->kernel_h, r.words = run >> 2, r.skip = k->dilation_h * s->row - run;
        product(&k->product, &r, w, channel);
    }
}

/* Patches of whole rows where there is room for one, of four positions or fewer elsewhere. */
static inline void convolve_patches(const struct pulp_conv2d *k, const X_T *image, const W_T *w, OUT_T *y,
                                    int channel) {
    const int tall = (k->kernel_h - 1) * k->dilation_h + 1, broad = (k->kernel_w - 1) * k->dilation_w + 1;
    const int row_of_all = ((k->out_width - 1) * k->stride_w + broad) * k->channels;
    int wide = k->out_width, high = 1;
    if (tall * row_of_all > k->room) {
        wide = (k->room / (tall * k->channels) - broad) / k->stride_w + 1;
        if (wide > 4) wide &= ~3;
    } else {
        high = (k->room / row_of_all - tall) / k->stride_h + 1;
    }
    for (int oh = 0; oh < k->out_height; oh += high) {
        const int rows = k->out_height - oh < high ? k->out_height - oh : high;
        for (int ow = 0; ow < k->out_width; ow += wide) {
            const int count = k->out_width - ow < wide ? k->out_width - ow : wide;
            const int columns = (count - 1) * k->stride_w + broad;
            const struct patch s = {(X_T *)k->patch, (rows - 1) * k->stride_h + tall, columns, columns * k->channels};
            load_patch(k, image, &s, oh * k->stride_h - k->top, ow * k->stride_w - k->left);
            OUT_T *const to = y + oh * k->y_row + ow * k->y_column;
            if (RUNS)
                multiply_runs(k, &s, rows, count, to, w, channel);
            else
                multiply_gathered(k, &s, rows, count, to, w, channel);
        }
    }
}

/* Every window is one pixel of the image: every row of the output is a product, or all of them together where the rows
 * follow each other. */
static inline void convolve_pixels(const struct pulp_conv2d *k, const X_T *x, const W_T *w, OUT_T *y, int channel) {
    const int x_step = k->stride_w * k->x_column;
    const int is_flat = k->stride_h * k->x_row == k->out_width * x_step && k->y_row == k->out_width * k->y_column;
    const int count = is_flat ? k->out_width * k->out_height : k->out_width;
    for (int oh = 0; oh < (is_flat ? 1 : k->out_height); oh++) {
        struct rows r;
        set_rows(&r, x + oh * k->stride_h * k->x_row, x_step, y + oh * k->y_row, k->y_column, count);
        product(&k->product, &r, w, channel);
    }
}
static inline void convolve(const struct pulp_conv2d *k) {
    const struct pulp_product *const p = &k->product;
    const W_T *const filters = FILLED ? fill_up(k) : (const W_T *)k->w;
    for (int n = 0; n < k->batch; n++) {
        for (int group = 0; group < k->groups; group++) {
            const int channel = group * p->filters;
            const X_T *const image = (const X_T *)k->x + n * k->x_batch + group * k->channels;
            const W_T *const w = filters + channel * p->w_row;
            OUT_T *const y = (OUT_T *)k->y + n * k->y_batch + channel;
            if (RUNS || GATHERED)
                convolve_patches(k, image, w, y, channel);
            else
                convolve_pixels(k, image, w, y, channel);
        }
    }
}

#endif
