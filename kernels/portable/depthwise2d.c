#include "depthwise2d.h"

#include <stddef.h>
#include <stdint.h>

#define CHANNELS 32

/* acc[j] += x[j] * w[j], or value * w[j] where x is NULL; the full block has a constant trip count. */
static inline void tap(ACC_T *restrict acc, const X_T *x, ACC_T value, const W_T *w, int count) {
    if (!x) {
        for (int j = 0; j < count; j++) acc[j] += value * (ACC_T)w[j];
    } else if (count == CHANNELS) {
        for (int j = 0; j < CHANNELS; j++) acc[j] += (ACC_T)x[j] * (ACC_T)w[j];
    } else {
        for (int j = 0; j < count; j++) acc[j] += (ACC_T)x[j] * (ACC_T)w[j];
    }
}

void KERNEL(const struct depthwise2d *k) {
    for (int n = 0; n < k->batch; n++) {
        const X_T *const image = (const X_T *)k->x + (ptrdiff_t)n * k->x_batch;
        for (int oh = 0; oh < k->out_height; oh++) {
            for (int ow = 0; ow < k->out_width; ow++) {
                Y_T *const y = (Y_T *)k->y + (ptrdiff_t)n * k->y_batch + (ptrdiff_t)oh * k->y_row + (ptrdiff_t)ow * k->y_column;
                for (int first = 0; first < k->channels; first += CHANNELS) {
                    const int count = k->channels - first < CHANNELS ? k->channels - first : CHANNELS;
                    ACC_T acc[CHANNELS] = {0};
                    for (int fh = 0; fh < k->kernel_h; fh++) {
                        const int ih = oh * k->stride_h + fh * k->dilation_h - k->top;
                        for (int fw = 0; fw < k->kernel_w; fw++) {
                            const int iw = ow * k->stride_w + fw * k->dilation_w - k->left;
                            const int inside = ih >= 0 && ih < k->height && iw >= 0 && iw < k->width;
                            const X_T *const x = inside ? image + (ptrdiff_t)ih * k->x_row + (ptrdiff_t)iw * k->x_column + first : NULL;
                            tap(acc, x, (ACC_T)k->zero_point, (const W_T *)k->w + (fh * k->kernel_w + fw) * k->channels + first, count);
                        }
                    }
                    finish_row(acc, y + first, &k->epilogue, first, count);
                }
            }
        }
    }
}
