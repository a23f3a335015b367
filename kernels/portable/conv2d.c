/* y[n, oh, ow, k] = epilogue(the sum over fh, fw, c of x[n, oh*sh + fh*dh - top, ow*sw + fw*dw - left, c] * w[fh, fw,
 * c, k]); what lies outside x is its zero point.
 *
 * x and y are channels-last images, w holds neighbouring filters side by side. A block of up to 64 filters takes a load
 * of x for all, and for each filter a load of w, a multiplication and an addition: 3 instructions a product without
 * vectors. Loads of w bound it, which several positions share for floats.
 */
#include "conv2d.h"

#include "products.h"
#include "window.h"

/* Taps first to last - 1 of a row, all of which read the zero point. */
OUT_OF_LINE void add_outside(ACC_T *acc, const struct conv2d *k, const W_T *w, int first, int last, int lanes) {
    const X_T outside = (X_T)k->zero_point;
    const int filters = k->w_channel, tap = k->w_column, is_run = tap == k->channels * filters;
    const int step = is_run ? last - first : 1;
    /*@ loop unroll k->kernel_w; */
    for (int fw = first; fw < last; fw += step)
        accumulate(acc, &outside, 0, w + fw * tap, filters, step * k->channels, lanes);
}

/* One row of taps, the first of which lies at column iw of the image's row; those outside `columns` read the zero
 * point. */
static inline void add_row(ACC_T *acc, const struct conv2d *k, const X_T *row, int iw, struct span columns,
                           const W_T *w, int lanes) {
    const int channels = k->channels;
    const int filters = k->w_channel, tap = k->w_column;
    if (k->zero_point != 0) {
        add_outside(acc, k, w, 0, columns.first, lanes);
        add_outside(acc, k, w, columns.last, k->kernel_w, lanes);
    }
    if (k->dilation_w * k->x_column == channels &&
        tap == channels * filters) { /* neighbouring taps are neighbours in memory: one long run */
        const int count = columns.last - columns.first;
        if (count == 0) return;
        const X_T *x = row + (iw + columns.first * k->dilation_w) * k->x_column;
        accumulate(acc, x, 1, w + columns.first * tap, filters, count * channels, lanes);
        return;
    }
    /*@ loop unroll k->kernel_w; */
    for (int fw = columns.first; fw < columns.last; fw++) {
        const X_T *x = row + (iw + fw * k->dilation_w) * k->x_column;
        accumulate(acc, x, 1, w + fw * tap, filters, channels, lanes);
    }
}

/* POSITIONS outputs of a row, whose columns are all inside the image. */
static inline void positions(const struct conv2d *k, const X_T *image, const W_T *w, int ih, int iw, struct span rows,
                             Y_T *y, int channel, int lanes) {
    const int filters = k->w_channel, next = k->stride_w * k->x_column;
    const int is_run = k->dilation_w * k->x_column == k->channels && k->w_column == k->channels * filters;
    const int taps = is_run ? 1 : k->kernel_w, count = is_run ? k->kernel_w * k->channels : k->channels;
    ACC_T acc[POSITIONS][LANES];
    for (int p = 0; p < POSITIONS; p++)
        for (int j = 0; j < lanes; j++) acc[p][j] = 0;
    for (int fh = rows.first; fh < rows.last; fh++) {
        const X_T *row = image + (ih + fh * k->dilation_h) * k->x_row + iw * k->x_column;
        for (int fw = 0; fw < taps; fw++)
            accumulate_all(acc, row + fw * k->dilation_w * k->x_column, next, 1, w + fh * k->w_row + fw * k->w_column,
                           filters, count, lanes);
    }
    for (int p = 0; p < POSITIONS; p++) finish_row(acc[p], y + p * k->y_column, &k->epilogue, channel, lanes);
}

static inline void block(const struct conv2d *k, int group, int first, int lanes) {
    const int channel = group * k->filters + first;
    const W_T *w = (const W_T *)k->w + channel;
    for (int n = 0; n < k->batch; n++) {
        const X_T *image = (const X_T *)k->x + n * k->x_batch + group * k->channels;
        for (int oh = 0; oh < k->out_height; oh++) {
            const int ih = oh * k->stride_h - k->top;
            const struct span rows = inside(ih, k->dilation_h, k->kernel_h, k->height);
            Y_T *y = (Y_T *)k->y + n * k->y_batch + oh * k->y_row + channel;
            for (int ow = 0; ow < k->out_width; ow++) {
                const int iw = ow * k->stride_w - k->left;
                /*@ split iw < 0; */
                /*@ split iw + (k->kernel_w - 1) * k->dilation_w >= k->width; */
                /*@ ghost if (iw < 0 || iw + (k->kernel_w - 1) * k->dilation_w >= k->width) { /@ split iw; @/ ; } */
                const struct span columns = inside(iw, k->dilation_w, k->kernel_w, k->width);
                const int last_iw = iw + (POSITIONS - 1) * k->stride_w + (k->kernel_w - 1) * k->dilation_w;
                if (HAS_POSITIONS && iw >= 0 && last_iw < k->width && ow + POSITIONS <= k->out_width &&
                    lanes % 8 == 0) {
                    positions(k, image, w, ih, iw, rows, y + ow * k->y_column, channel, lanes);
                    ow += POSITIONS - 1;
                    continue;
                }
                ACC_T acc[LANES];
                /*@ loop unroll LANES; */
                for (int j = 0; j < lanes; j++) acc[j] = 0;
                /*@ loop unroll k->kernel_h; */
                for (int fh = 0; fh < k->kernel_h; fh++) {
                    const int row = ih + fh * k->dilation_h;
                    if (row >= 0 && row < k->height)
                        add_row(acc, k, image + row * k->x_row, iw, columns, w + fh * k->w_row, lanes);
                    else if (k->zero_point != 0)
                        add_outside(acc, k, w + fh * k->w_row, 0, k->kernel_w, lanes);
                }
                finish_row(acc, y + ow * k->y_column, &k->epilogue, channel, lanes);
            }
        }
    }
}

/* Pointwise convolutions whose rows lie one behind the other are those of one long row. */
static inline void flatten(struct conv2d *k) {
    if (k->kernel_h * k->kernel_w == 1 && k->stride_h * k->stride_w == 1 && k->height == k->out_height &&
        k->width == k->out_width && k->x_row == k->width * k->x_column && k->y_row == k->width * k->y_column) {
        k->width = k->out_width = k->width * k->height;
        k->height = k->out_height = 1;
    }
}

#include "x86.h"
#if defined(HAS_WIDE) && !defined(ACC_IS_FLOAT)
#define CONV struct conv2d
#include "conv2d_x86.h"

static inline void wide_pack(const CONV *k, int channel, int count, int lanes, int8_t *quads) {
    int d = 0;
    for (int fh = 0; fh < k->kernel_h; fh++) {
        for (int fw = 0; fw < k->kernel_w; fw++) {
            for (int c = 0; c < k->channels; c++, d++) {
                const W_T *const w = (const W_T *)k->w + fh * k->w_row + fw * k->w_column + c * k->w_channel + channel;
                for (int f = 0; f < count; f++) quads[(d / 4 * lanes + f) * 4 + d % 4] = (int8_t)w[f];
            }
        }
    }
}
#else
static inline int is_wide(const struct conv2d *k) {
    (void)k;
    return 0;
}

static inline void wide_conv2d(const struct conv2d *k) {
    (void)k;
}
#endif

void KERNEL(const struct conv2d *whole) {
    if (is_wide(whole)) {
        wide_conv2d(whole);
        return;
    }
    struct conv2d flattened = *whole;
    flatten(&flattened);
    const struct conv2d *const k = &flattened;
    for (int group = 0; group < k->groups; group++) {
        /*@ loop unroll k->filters % LANES * k->filters; */ /* where the last block begins earlier */
        for (int first = 0, lanes; first < k->filters; first += lanes) {
            lanes = block_width(&first, k->filters);
            block(k, group, first, lanes);
        }
    }
}
