/* y[n, oh, ow, k] = epilogue(the sum over fh, fw of x[n, oh*sh + fh*dh - top, ow*sw + fw*dw - left, k / multiplier] *
 * w[fh, fw, k]); what lies outside x is its zero point.
 *
 * x and y are channels-last images, w holds neighbouring filters side by side. A product is a load of x, one of w, and
 * a multiplication and addition, in vectors over channels where there are any: loads bound it.
 */
#include "depthwise2d.h"

#include <stddef.h>

#include "block.h"
#include "weights.h"
#include "window.h"

/* Taps inside the image: where those of the first lane begin in x and w, and how far apart they lie there. */
struct taps {
    const X_T *x;
    const W_T *w;
    int rows, count;
    ptrdiff_t x_row, x_step, w_row, w_step;
};

/* acc[j] += sum over taps of x[j] * w[j]; one function per width, as in products.h. */
#define MULTIPLY_ADD(name, ...)                                                                \
    VECTORISED void name(ACC_T *restrict acc, const struct taps *t, int width) {               \
        const int lanes = __VA_ARGS__;                                                         \
        (void)width;                                                                           \
        const X_T *first_x = t->x;                                                             \
        const W_T *first_w = t->w;                                                             \
        /*@ loop unroll t->rows; */                                                            \
        for (int rows = t->rows; rows > 0; rows--, first_x += t->x_row, first_w += t->w_row) { \
            const X_T *x = first_x;                                                            \
            const W_T *w = first_w;                                                            \
            /*@ loop unroll t->count; */                                                       \
            for (int count = t->count; count > 0; count--, x += t->x_step, w += t->w_step) {   \
                /*@ loop unroll EXACT; */                                                      \
                for (int j = 0; j < lanes; j++) acc[j] += (ACC_T)x[j] * WEIGHT(w[j]);          \
            }                                                                                  \
        }                                                                                      \
    }
MULTIPLY_ADD(multiply_add_64, 64)
MULTIPLY_ADD(multiply_add_32, 32)
MULTIPLY_ADD(multiply_add_16, 16)
MULTIPLY_ADD(multiply_add_8, 8)
MULTIPLY_ADD(multiply_add_any, width)

/* The same where `multiplier` filters share a channel, the first of which is that of filter `first`. */
OUT_OF_LINE void multiply_add_shared(ACC_T *restrict acc, const struct taps *t, int multiplier, int first, int lanes) {
    const int rest = multiplier - first % multiplier; /* lane where the next channel begins */
    for (int row = 0; row < t->rows; row++) {
        for (int tap = 0; tap < t->count; tap++) {
            const X_T *x = t->x + row * t->x_row + tap * t->x_step;
            const W_T *w = t->w + row * t->w_row + tap * t->w_step;
            for (int j = 0, next = rest; j < lanes; j++) {
                if (j == next) x++, next += multiplier;
                acc[j] += (ACC_T)x[0] * WEIGHT(w[j]);
            }
        }
    }
}

static inline void multiply_add(ACC_T *acc, const struct taps *t, int lanes) {
    if (LANES > 16 && lanes == 64)
        multiply_add_64(acc, t, lanes);
    else if (LANES > 16 && lanes == 32)
        multiply_add_32(acc, t, lanes);
    else if (LANES > 8 && lanes == 16)
        multiply_add_16(acc, t, lanes);
    else if (lanes == 8)
        multiply_add_8(acc, t, lanes);
    else
        multiply_add_any(acc, t, lanes);
}

/* Taps outside the image read the zero point. */
OUT_OF_LINE void add_outside(ACC_T *acc, const struct depthwise2d *k, const W_T *w, struct span rows,
                             struct span columns, int lanes) {
    /*@ loop unroll k->kernel_h; */
    for (int fh = 0; fh < k->kernel_h; fh++) {
        /*@ loop unroll k->kernel_w; */
        for (int fw = 0; fw < k->kernel_w; fw++, w += k->filters) {
            const int valid = fh >= rows.first && fh < rows.last && fw >= columns.first && fw < columns.last;
            if (valid) continue;
            /*@ loop unroll EXACT; */
            for (int j = 0; j < lanes; j++) acc[j] += (ACC_T)k->zero_point * WEIGHT(w[j]);
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
            /*@ split ih < 0; */
            /*@ split ih + (k->kernel_h - 1) * k->dilation_h >= k->height; */
            /*@ ghost if (ih < 0 || ih + (k->kernel_h - 1) * k->dilation_h >= k->height) { /@ split ih; @/ ; } */
            const struct span rows = inside(ih, k->dilation_h, k->kernel_h, k->height);
            Y_T *y = (Y_T *)k->y + n * k->y_batch + oh * k->y_row + first;
            for (int ow = 0; ow < k->out_width; ow++) {
                const int iw = ow * k->stride_w - k->left;
                /*@ split iw < 0; */
                /*@ split iw + (k->kernel_w - 1) * k->dilation_w >= k->width; */
                /*@ ghost if (iw < 0 || iw + (k->kernel_w - 1) * k->dilation_w >= k->width) { /@ split iw; @/ ; } */
                const struct span columns = inside(iw, k->dilation_w, k->kernel_w, k->width);
                const int count = columns.last - columns.first;
                ACC_T acc[LANES];
                /*@ loop unroll LANES; */
                for (int j = 0; j < lanes; j++) acc[j] = 0;
                const int row = ih + rows.first * k->dilation_h, column = iw + columns.first * k->dilation_w;
                const struct taps t = {.x = image + row * k->x_row + column * k->x_column + first / k->multiplier,
                                       .w = w + (rows.first * k->kernel_w + columns.first) * k->filters,
                                       .rows = rows.last - rows.first,
                                       .count = count,
                                       .x_row = k->dilation_h * k->x_row,
                                       .x_step = k->dilation_w * k->x_column,
                                       .w_row = k->kernel_w * k->filters,
                                       .w_step = k->filters};
                if (k->multiplier == 1)
                    multiply_add(acc, &t, lanes);
                else
                    multiply_add_shared(acc, &t, k->multiplier, first, lanes);
                if (k->zero_point != 0 && (rows.last - rows.first) * count != taps) {
                    add_outside(acc, k, w, rows, columns, lanes);
                }
                finish_row(acc, y + ow * k->y_column, &k->epilogue, first, lanes);
            }
        }
    }
}

#include "x86.h"
#if defined(HAS_WIDE) && !defined(ACC_IS_FLOAT)
#include "depthwise_x86.h"
#else
static inline int is_wide(const struct depthwise2d *k) {
    (void)k;
    return 0;
}

static inline void wide_depthwise2d(const struct depthwise2d *k) {
    (void)k;
}
#endif

void KERNEL(const struct depthwise2d *k) {
    if (is_wide(k)) {
        wide_depthwise2d(k);
        return;
    }
    /*@ loop unroll k->filters % LANES * k->filters; */ /* where the last block begins earlier */
    for (int first = 0, lanes; first < k->filters; first += lanes) {
        lanes = block_width(&first, k->filters);
        block(k, first, lanes);
    }
}
