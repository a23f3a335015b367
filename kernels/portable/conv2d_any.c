/* The convolution of conv2d.c with any layout of w, which may be a variable.
 *
 * x and y are channels-last images, w has any strides. A product is a load of x, one of w, a multiplication and an
 * addition: 4 operations, which bound it.
 */
#include "conv2d_any.h"

static ACC_T pixel(const struct conv2d_any *k, const X_T *image, const W_T *w, int oh, int ow) {
    const struct conv2d *c = &k->conv;
    ACC_T acc = 0;
    for (int fh = 0; fh < c->kernel_h; fh++) {
        const int ih = oh * c->stride_h + fh * c->dilation_h - c->top;
        for (int fw = 0; fw < c->kernel_w; fw++) {
            const int iw = ow * c->stride_w + fw * c->dilation_w - c->left;
            const int inside = ih >= 0 && ih < c->height && iw >= 0 && iw < c->width;
            const X_T outside = (X_T)c->zero_point;
            const X_T *x = inside ? image + ih * c->x_row + iw * c->x_column : &outside;
            const W_T *tap = w + fh * k->w_row + fw * k->w_column;
            for (int i = 0; i < c->channels; i++) acc += (ACC_T)x[inside * i] * (ACC_T)tap[i * k->w_channel];
        }
    }
    return acc;
}

void KERNEL(const struct conv2d_any *k) {
    const struct conv2d *c = &k->conv;
    for (int n = 0; n < c->batch; n++) {
        for (int filter = 0; filter < c->groups * c->filters; filter++) {
            const X_T *image = (const X_T *)c->x + n * c->x_batch + filter / c->filters * c->channels;
            const W_T *w = (const W_T *)c->w + filter * k->w_filter;
            Y_T *y = (Y_T *)c->y + n * c->y_batch + filter;
            for (int oh = 0; oh < c->out_height; oh++) {
                for (int ow = 0; ow < c->out_width; ow++) {
                    y[oh * c->y_row + ow * c->y_column] = finish(pixel(k, image, w, oh, ow), &c->epilogue, filter);
                }
            }
        }
    }
}
