#include "conv2d_transpose.h"

#include <stddef.h>

#define COLUMNS 32

/* The input index that tap f takes to output index o, or -1 where there is none. */
static inline int source(int o, int before, int f, int dilation, int stride, int size) {
    const int at = o + before - f * dilation;
    return at >= 0 && at % stride == 0 && at / stride < size ? at / stride : -1;
}

static void block(const struct conv2d_transpose *k, const X_T *image, int oh, int ow, int group, int offset, int columns, ACC_T *restrict acc) {
    const int depth = k->channels / k->groups, per_group = k->out_channels / k->groups;
    for (int fh = 0; fh < k->kernel_h; fh++) {
        const int ih = source(oh, k->top, fh, k->dilation_h, k->stride_h, k->height);
        for (int fw = 0; fw < k->kernel_w; fw++) {
            const int iw = source(ow, k->left, fw, k->dilation_w, k->stride_w, k->width);
            if (ih < 0 || iw < 0) continue;
            const X_T *const x = image + (ptrdiff_t)ih * k->x_row + (ptrdiff_t)iw * k->x_column + group * depth;
            const W_T *const w = (const W_T *)k->w + ((ptrdiff_t)(fh * k->kernel_w + fw) * k->channels + group * depth) * per_group + offset;
            for (int c = 0; c < depth; c++) {
                const ACC_T value = (ACC_T)x[c] - (ACC_T)k->zero_point;
                for (int j = 0; j < columns; j++) acc[j] += value * (ACC_T)w[(ptrdiff_t)c * per_group + j];
            }
        }
    }
}

void KERNEL(const struct conv2d_transpose *k) {
    const int per_group = k->out_channels / k->groups;
    for (int n = 0; n < k->batch; n++) {
        const X_T *const image = (const X_T *)k->x + (ptrdiff_t)n * k->x_batch;
        for (int oh = 0; oh < k->out_height; oh++) {
            for (int ow = 0; ow < k->out_width; ow++) {
                Y_T *const y = (Y_T *)k->y + (ptrdiff_t)n * k->y_batch + (ptrdiff_t)oh * k->y_row + (ptrdiff_t)ow * k->y_column;
                for (int first = 0; first < k->out_channels;) {
                    const int group = first / per_group, offset = first % per_group;
                    const int columns = per_group - offset < COLUMNS ? per_group - offset : COLUMNS;
                    ACC_T acc[COLUMNS] = {0};
                    block(k, image, oh, ow, group, offset, columns, acc);
                    finish_row(acc, y + first, &k->epilogue, first, columns);
                    first += columns;
                }
            }
        }
    }
}
