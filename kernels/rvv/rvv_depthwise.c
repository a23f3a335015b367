/* A depthwise convolution, up to 16 channels at a time. */
#include "rvv_epilogue.h"

#include "../portable/depthwise2d.h"

/* The channels from `first` on at one position, whose window begins at (ih, iw). */
static inline void position(const struct depthwise2d *k, const X_T *image, int ih, int iw, int first, size_t lanes,
                            Y_T *y) {
    words sums = words_zero(lanes);
    for (int fh = 0; fh < k->kernel_h; fh++) {
        const int row = ih + fh * k->dilation_h, is_row = row >= 0 && row < k->height;
        const W_T *w = (const W_T *)k->w + fh * k->kernel_w * k->filters + first;
        for (int fw = 0; fw < k->kernel_w; fw++, w += k->filters) {
            const int column = iw + fw * k->dilation_w;
            if (is_row && column >= 0 && column < k->width) {
                const X_T *const x = image + row * k->x_row + column * k->x_column + first;
                sums = words_products(sums, HALVES(X_T, x, lanes), HALVES(W_T, w, lanes), lanes);
            } else if (k->zero_point != 0) {
                sums = words_scaled(sums, k->zero_point, HALVES(W_T, w, lanes), lanes);
            }
        }
    }
    finish_words(sums, y + first, &k->epilogue, first, lanes);
}

void KERNEL(const struct depthwise2d *k) {
    for (int n = 0; n < k->batch; n++) {
        const X_T *const image = (const X_T *)k->x + n * k->x_batch;
        for (int first = 0, lanes; first < k->filters; first += lanes) {
            lanes = (int)lanes_of(k->filters - first);
            for (int oh = 0; oh < k->out_height; oh++) {
                Y_T *y = (Y_T *)k->y + n * k->y_batch + oh * k->y_row;
                for (int ow = 0; ow < k->out_width; ow++, y += k->y_column)
                    position(k, image, oh * k->stride_h - k->top, ow * k->stride_w - k->left, first, (size_t)lanes, y);
            }
        }
    }
}
