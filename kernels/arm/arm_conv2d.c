/* A convolution as products of gathered windows, two positions and two filters at a time. */
#include "../portable/conv2d_dot.h"

#define VECTOR_T X_T
#define MATRIX_T W_T
#include "arm_dot.h"

/* What the window at (ih, iw) of one group sees, from element `begin` to `end` counted over taps and channels. */
static void gather(const struct conv2d_dot *k, const X_T *image, int ih, int iw, int begin, int end, X_T *vector) {
    for (int i = begin; i < end;) {
        const int tap = i / k->channels, channel = i % k->channels;
        const int row = ih + tap / k->kernel_w * k->dilation_h, column = iw + tap % k->kernel_w * k->dilation_w;
        const int rest = k->channels - channel, count = rest < end - i ? rest : end - i;
        if (row >= 0 && row < k->height && column >= 0 && column < k->width)
            memcpy(vector, image + row * k->x_row + column * k->x_column + channel, (size_t)count);
        else
            memset(vector, k->zero_point, (size_t)count);
        vector += count;
        i += count;
    }
}

/* All filters of one group at the positions (ih, iw0) and (ih, iw1); the second is left out where y1 is null. */
static void positions(const struct conv2d_dot *k, const X_T *image, int ih, int iw0, int iw1, int group, Y_T *y0,
                      Y_T *y1) {
    const int depth = k->kernel_h * k->kernel_w * k->channels;
    X_T a[2][DEPTH];
    for (int first = 0; first < k->filters; first += BLOCK) {
        const int filters = k->filters - first < BLOCK ? k->filters - first : BLOCK;
        const int channel = group * k->filters + first;
        int32_t acc[2][BLOCK] = {{0}, {0}};
        for (int begin = 0; begin < depth; begin += DEPTH) {
            const int end = depth - begin < DEPTH ? depth : begin + DEPTH;
            if (first == 0 || depth > DEPTH) {
                gather(k, image, ih, iw0, begin, end, a[0]);
                if (y1) gather(k, image, ih, iw1, begin, end, a[1]);
            }
            dots(acc[0], acc[1], a[0], a[y1 != 0], (const W_T *)k->w + channel * depth + begin, depth, end - begin,
                 filters);
        }
        finish_row(acc[0], y0 + channel, &k->epilogue, channel, filters);
        if (y1) finish_row(acc[1], y1 + channel, &k->epilogue, channel, filters);
    }
}

void KERNEL(const struct conv2d_dot *k) {
    for (int n = 0; n < k->batch; n++) {
        for (int oh = 0; oh < k->out_height; oh++) {
            for (int ow = 0; ow < k->out_width; ow += 2) {
                Y_T *const y = (Y_T *)k->y + n * k->y_batch + oh * k->y_row + ow * k->y_column;
                Y_T *const next = ow + 1 < k->out_width ? y + k->y_column : 0;
                for (int group = 0; group < k->groups; group++) {
                    const X_T *const image = (const X_T *)k->x + n * k->x_batch + group * k->channels;
                    const int iw = ow * k->stride_w - k->left;
                    positions(k, image, oh * k->stride_h - k->top, iw, iw + k->stride_w, group, y, next);
                }
            }
        }
    }
}
