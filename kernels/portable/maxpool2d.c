/* y[n, oh, ow, c] = the maximum over taps of x[n, oh*sh + fh*dh - top, ow*sw + fw*dw - left, c]; without taps inside
 * the image the least element.
 *
 * x and y are channels-last images. A tap of a channel is a load and a comparison, in vectors over channels where there
 * are any: loads bound it.
 */
#include "maxpool2d.h"

#include <math.h>
#include <stdint.h>

#include "block.h"
#include "window.h"

/* The smallest value of an element: what a window without a tap gives. */
#ifdef X_IS_FLOAT
#define LOWEST (-INFINITY)
#else
#define LOWEST ((X_T) - 1 > 0 ? 0 : sizeof(X_T) == 1 ? INT8_MIN : sizeof(X_T) == 2 ? INT16_MIN : INT32_MIN)
#endif

static inline void block(const struct maxpool2d *k, int first, int lanes) {
    for (int n = 0; n < k->batch; n++) {
        const X_T *image = (const X_T *)k->x + n * k->x_batch + first;
        for (int oh = 0; oh < k->out_height; oh++) {
            const int ih = oh * k->stride_h - k->top;
            /*@ split ih < 0; */
            /*@ split ih + (k->kernel_h - 1) * k->dilation_h >= k->height; */
            /*@ ghost if (ih < 0 || ih + (k->kernel_h - 1) * k->dilation_h >= k->height) { /@ split ih; @/ ; } */
            const struct span rows = inside(ih, k->dilation_h, k->kernel_h, k->height);
            for (int ow = 0; ow < k->out_width; ow++) {
                const int iw = ow * k->stride_w - k->left;
                /*@ split iw < 0; */
                /*@ split iw + (k->kernel_w - 1) * k->dilation_w >= k->width; */
                /*@ ghost if (iw < 0 || iw + (k->kernel_w - 1) * k->dilation_w >= k->width) { /@ split iw; @/ ; } */
                const struct span columns = inside(iw, k->dilation_w, k->kernel_w, k->width);
                X_T best[LANES];
                /*@ loop unroll LANES; */
                for (int j = 0; j < lanes; j++) best[j] = (X_T)LOWEST;
                for (int fh = rows.first; fh < rows.last; fh++) {
                    for (int fw = columns.first; fw < columns.last; fw++) {
                        const X_T *x =
                            image + (ih + fh * k->dilation_h) * k->x_row + (iw + fw * k->dilation_w) * k->x_column;
                        /*@ loop unroll LANES; */
                        for (int j = 0; j < lanes; j++) best[j] = x[j] > best[j] ? x[j] : best[j];
                    }
                }
                Y_T *y = (Y_T *)k->y + n * k->y_batch + oh * k->y_row + ow * k->y_column + first;
                /*@ loop unroll LANES; */
                for (int j = 0; j < lanes; j++) y[j] = best[j];
            }
        }
    }
}

void KERNEL(const struct maxpool2d *k) {
    /*@ loop unroll k->channels % LANES * k->channels; */ /* where the last block begins earlier */
    for (int first = 0, lanes; first < k->channels; first += lanes) {
        lanes = block_width(&first, k->channels);
        WITH_WIDTH(lanes, block, k, first);
    }
}
