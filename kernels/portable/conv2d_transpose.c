/* y[n, oh, ow, k] = epilogue(the sum over taps and c of x[n, ih, iw, c] * w[fh, fw, c, k] where oh = ih*sh + fh*dh -
 * top, and ow alike).
 *
 * x and y are channels-last images, w holds neighbouring filters side by side. A block of filters takes a load of x for
 * all, and for each filter a load of w and a multiplication and addition: loads of w bound it.
 */
#include "conv2d_transpose.h"

#include "products.h"

/* The input index that tap f takes to output index `to`, or -1 where there is none. */
static inline int source(int to, int f, int dilation, int stride, int size) {
    const int at = to - f * dilation;
    return at >= 0 && at % stride == 0 && at / stride < size ? at / stride : -1;
}

/* acc = what the inputs under the taps add to the output at (oh, ow). */
static void pixel(ACC_T *acc, const struct conv2d_transpose *k, const X_T *image, const W_T *w, int oh, int ow,
                  int lanes) {
    const int tap = k->groups * k->channels * k->filters;
    const X_T zero = (X_T)k->zero_point;
    ACC_T of_zero[LANES]; /* what inputs at the zero point would have added */
    for (int j = 0; j < lanes; j++) acc[j] = of_zero[j] = 0;
    for (int fh = 0; fh < k->kernel_h; fh++) {
        const int ih = source(oh + k->top, fh, k->dilation_h, k->stride_h, k->height);
        if (ih < 0) continue;
        for (int fw = 0; fw < k->kernel_w; fw++) {
            const int iw = source(ow + k->left, fw, k->dilation_w, k->stride_w, k->width);
            if (iw < 0) continue;
            const X_T *x = image + ih * k->x_row + iw * k->x_column;
            const W_T *filter = w + (fh * k->kernel_w + fw) * tap;
            accumulate(acc, x, 1, filter, k->filters, k->channels, lanes);
            if (zero != 0) accumulate(of_zero, &zero, 0, filter, k->filters, k->channels, lanes);
        }
    }
    for (int j = 0; j < lanes; j++) acc[j] -= of_zero[j];
}

static void block(const struct conv2d_transpose *k, int group, int first, int lanes) {
    const int channel = group * k->filters + first;
    const W_T *w = (const W_T *)k->w + group * k->channels * k->filters + first;
    for (int n = 0; n < k->batch; n++) {
        const X_T *image = (const X_T *)k->x + n * k->x_batch + group * k->channels;
        for (int oh = 0; oh < k->out_height; oh++) {
            Y_T *y = (Y_T *)k->y + n * k->y_batch + oh * k->y_row + channel;
            for (int ow = 0; ow < k->out_width; ow++) {
                ACC_T acc[LANES];
                pixel(acc, k, image, w, oh, ow, lanes);
                finish_row(acc, y + ow * k->y_column, &k->epilogue, channel, lanes);
            }
        }
    }
}

void KERNEL(const struct conv2d_transpose *k) {
    for (int group = 0; group < k->groups; group++) {
        for (int first = 0, lanes; first < k->filters; first += lanes) {
            lanes = block_width(&first, k->filters);
            block(k, group, first, lanes);
        }
    }
}
