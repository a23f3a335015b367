#include "average_pool2d.h"

#include <stddef.h>

#define CHANNELS 32

/* Taps along one axis that lie inside [0, size), or, when `counted` is positive, inside the padded extent. */
static int taps(int first, int kernel, int dilation, int size, int before, int counted) {
    int count = 0;
    for (int f = 0; f < kernel; f++) {
        const int at = first + f * dilation;
        count += counted ? at < counted - before : at >= 0 && at < size;
    }
    return count;
}

static inline ACC_T mean(ACC_T sum, int count) {
#ifdef ACC_IS_FLOAT
    return sum / (float)count;
#else
    const int64_t twice = (int64_t)sum * 131072 + count, divisor = 2 * (int64_t)count;
    return (ACC_T)(twice >= 0 ? twice / divisor : -((divisor - 1 - twice) / divisor));
#endif
}

void KERNEL(const struct average_pool2d *k) {
    for (int n = 0; n < k->batch; n++) {
        for (int oh = 0; oh < k->out_height; oh++) {
            const int row = oh * k->stride_h - k->top;
            const int rows = taps(row, k->kernel_h, k->dilation_h, k->height, k->top, k->counted_h);
            for (int ow = 0; ow < k->out_width; ow++) {
                const int column = ow * k->stride_w - k->left;
                const int count = rows * taps(column, k->kernel_w, k->dilation_w, k->width, k->left, k->counted_w);
                Y_T *const y = (Y_T *)k->y + (ptrdiff_t)n * k->y_batch + (ptrdiff_t)oh * k->y_row + (ptrdiff_t)ow * k->y_column;
                for (int first = 0; first < k->channels; first += CHANNELS) {
                    const int channels = k->channels - first < CHANNELS ? k->channels - first : CHANNELS;
                    ACC_T acc[CHANNELS] = {0};
                    for (int fh = 0; fh < k->kernel_h; fh++) {
                        const int ih = row + fh * k->dilation_h;
                        for (int fw = 0; fw < k->kernel_w; fw++) {
                            const int iw = column + fw * k->dilation_w;
                            if (ih < 0 || ih >= k->height || iw < 0 || iw >= k->width) continue;
                            const X_T *const x = (const X_T *)k->x + (ptrdiff_t)n * k->x_batch + (ptrdiff_t)ih * k->x_row +
                                                 (ptrdiff_t)iw * k->x_column + first;
                            for (int c = 0; c < channels; c++) acc[c] += (ACC_T)x[c] - (ACC_T)k->zero_point;
                        }
                    }
                    for (int c = 0; c < channels; c++) acc[c] = mean(acc[c], count ? count : 1);
                    finish_row(acc, y + first, &k->epilogue, first, channels);
                }
            }
        }
    }
}
