/* y[n, oh, ow, c] = epilogue(the mean over taps of x - zero_point, of integers with 16 bits behind the point).
 *
 * x and y are channels-last images. A tap of a channel is a load and an addition, in vectors over channels where there
 * are any; then a division for each output, which bounds small windows on machines without vectors.
 */
#include "average_pool2d.h"

#include "block.h"
#include "window.h"

/* Of integers floor((2*sum*65536 + count) / (2*count)): whole part and fraction apart, so that 32-bit machines divide
 * 32 bits. */
static inline ACC_T mean(ACC_T sum, int count) {
    if (IS_FLOAT) return sum / (ACC_T)count;
    int32_t whole = (int32_t)sum / count, rest = (int32_t)sum % count;
    if (rest < 0) whole--, rest += count;
    const uint32_t fraction = count < 32768
                                  ? ((uint32_t)rest * 131072u + (uint32_t)count) / (2u * (uint32_t)count)
                                  : (uint32_t)(((uint64_t)rest * 131072u + (uint64_t)count) / (2u * (uint64_t)count));
    return (ACC_T)(whole * 65536 + (int32_t)fraction);
}

static inline void block(const struct average_pool2d *k, int first, int lanes) {
    for (int n = 0; n < k->batch; n++) {
        const X_T *image = (const X_T *)k->x + n * k->x_batch + first;
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
                const int taps = (rows.last - rows.first) * (columns.last - columns.first);
                const int count = k->count_include_pad ? k->kernel_h * k->kernel_w : taps;
                ACC_T acc[LANES];
                /*@ loop unroll LANES; */
                for (int j = 0; j < lanes; j++) acc[j] = 0;
                /*@ loop unroll k->kernel_h; */
                for (int fh = rows.first; fh < rows.last; fh++) {
                    /*@ loop unroll k->kernel_w; */
                    for (int fw = columns.first; fw < columns.last; fw++) {
                        const X_T *x =
                            image + (ih + fh * k->dilation_h) * k->x_row + (iw + fw * k->dilation_w) * k->x_column;
                        /*@ loop unroll EXACT; */
                        for (int j = 0; j < lanes; j++) acc[j] += (ACC_T)x[j];
                    }
                }
                const ACC_T zero = (ACC_T)(taps * k->zero_point);
                /*@ loop unroll LANES; */
                ROLLED for (int j = 0; j < lanes; j++) acc[j] = mean(acc[j] - zero, count > 0 ? count : 1);
                finish_row(acc, y + ow * k->y_column, &k->epilogue, first, lanes);
            }
        }
    }
}

void KERNEL(const struct average_pool2d *k) {
    /*@ loop unroll k->channels % LANES * k->channels; */ /* where the last block begins earlier */
    for (int first = 0, lanes; first < k->channels; first += lanes) {
        lanes = block_width(&first, k->channels);
        WITH_WIDTH(lanes, block, k, first);
    }
}
