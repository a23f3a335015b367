#include "depthwise2d.h"

#include <stddef.h>

#include "block.h"
#include "window.h"

/* A row of taps: acc[j] += sum of x[f * x_step + j] * w[f * w_step + j]; one function per width, as in products.h. */
#define MULTIPLY_ADD(name, ...)                                                                               \
    OUT_OF_LINE void name(ACC_T *restrict acc, const X_T *x, int x_step, const W_T *w, int w_step, int count, \
                          int width) {                                                                        \
        const int lanes = __VA_ARGS__;                                                                        \
        ptrdiff_t x_at = 0, w_at = 0;                                                                         \
        (void)width;                                                                                          \
        for (int f = 0; f < count; f++, x_at += x_step, w_at += w_step) {                                     \
            const X_T *from = x + x_at;                                                                       \
            const W_T *row = w + w_at;                                                                        \
            for (int j = 0; j < lanes; j++) acc[j] += (ACC_T)from[j] * (ACC_T)row[j];                         \
        }                                                                                                     \
    }
MULTIPLY_ADD(multiply_add_64, 64)
MULTIPLY_ADD(multiply_add_32, 32)
MULTIPLY_ADD(multiply_add_16, 16)
MULTIPLY_ADD(multiply_add_8, 8)
MULTIPLY_ADD(multiply_add_any, width)

/* The same where `multiplier` filters share a channel. */
static void multiply_add_shared(ACC_T *acc, const struct depthwise2d *k, const X_T *x, const W_T *w, int first,
                                int lanes) {
    int channel = first / k->multiplier;
    int next = (channel + 1) * k->multiplier - first; /* lane where the next channel begins */
    for (int j = 0; j < lanes; j++) {
        if (j == next) channel++, next += k->multiplier;
        acc[j] += (ACC_T)x[channel] * (ACC_T)w[j];
    }
}

/* Taps of one row that lie inside the image; x is the first of them. */
static inline void add_row(ACC_T *acc, const struct depthwise2d *k, const X_T *x, const W_T *w, int count, int first,
                           int lanes) {
    const int step = k->dilation_w * k->x_column;
    if (k->multiplier != 1) {
        for (int f = 0; f < count; f++) multiply_add_shared(acc, k, x + f * step, w + f * k->filters, first, lanes);
        return;
    }
    switch (lanes) {
        case 64:
            multiply_add_64(acc, x + first, step, w, k->filters, count, lanes);
            break;
        case 32:
            multiply_add_32(acc, x + first, step, w, k->filters, count, lanes);
            break;
        case 16:
            multiply_add_16(acc, x + first, step, w, k->filters, count, lanes);
            break;
        case 8:
            multiply_add_8(acc, x + first, step, w, k->filters, count, lanes);
            break;
        default:
            multiply_add_any(acc, x + first, step, w, k->filters, count, lanes);
    }
}

/* Taps outside the image read the zero point. */
static void add_outside(ACC_T *acc, const struct depthwise2d *k, const W_T *w, struct span rows, struct span columns,
                        int lanes) {
    for (int fh = 0; fh < k->kernel_h; fh++) {
        for (int fw = 0; fw < k->kernel_w; fw++, w += k->filters) {
            const int valid = fh >= rows.first && fh < rows.last && fw >= columns.first && fw < columns.last;
            if (valid) continue;
            for (int j = 0; j < lanes; j++) acc[j] += (ACC_T)k->zero_point * (ACC_T)w[j];
        }
    }
}

static void block(const struct depthwise2d *k, int first, int lanes) {
    const W_T *w = (const W_T *)k->w + first;
    const int taps = k->kernel_h * k->kernel_w;
    for (int n = 0; n < k->batch; n++) {
        const X_T *image = (const X_T *)k->x + n * k->x_batch;
        for (int oh = 0; oh < k->out_height; oh++) {
            const int ih = oh * k->stride_h - k->top;
            const struct span rows = inside(ih, k->dilation_h, k->kernel_h, k->height);
            Y_T *y = (Y_T *)k->y + n * k->y_batch + oh * k->y_row + first;
            for (int ow = 0; ow < k->out_width; ow++) {
                const int iw = ow * k->stride_w - k->left;
                const struct span columns = inside(iw, k->dilation_w, k->kernel_w, k->width);
                const int count = columns.last - columns.first;
                ACC_T acc[LANES];
                for (int j = 0; j < lanes; j++) acc[j] = 0;
                for (int fh = rows.first; count > 0 && fh < rows.last; fh++) {
                    const X_T *row = image + (ih + fh * k->dilation_h) * k->x_row;
                    const X_T *x = row + (iw + columns.first * k->dilation_w) * k->x_column;
                    add_row(acc, k, x, w + (fh * k->kernel_w + columns.first) * k->filters, count, first, lanes);
                }
                if (k->zero_point != 0 && (rows.last - rows.first) * count != taps) {
                    add_outside(acc, k, w, rows, columns, lanes);
                }
                finish_row(acc, y + ow * k->y_column, &k->epilogue, first, lanes);
            }
        }
    }
}

void KERNEL(const struct depthwise2d *k) {
    for (int first = 0, lanes; first < k->filters; first += lanes) {
        lanes = block_width(&first, k->filters);
        block(k, first, lanes);
    }
}
