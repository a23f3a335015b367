#include "maxpool2d.h"

#include <stdint.h>

void KERNEL(const struct maxpool2d *k) {
    for (int n = 0; n < k->batch; n++) {
        for (int oh = 0; oh < k->out_height; oh++) {
            for (int ow = 0; ow < k->out_width; ow++) {
                Y_T *y = (Y_T *)k->y + n * k->y_batch + oh * k->y_row + ow * k->y_column;
                int first = 1;
                for (int fh = 0; fh < k->kernel_h; fh++) {
                    const int ih = oh * k->stride_h + fh * k->dilation_h - k->top;
                    if (ih < 0 || ih >= k->height) continue;
                    for (int fw = 0; fw < k->kernel_w; fw++) {
                        const int iw = ow * k->stride_w + fw * k->dilation_w - k->left;
                        if (iw < 0 || iw >= k->width) continue;
                        const X_T *x = (const X_T *)k->x + n * k->x_batch + ih * k->x_row + iw * k->x_column;
                        for (int c = 0; c < k->channels; c++) {
                            y[c] = first || x[c] > y[c] ? x[c] : y[c];
                        }
                        first = 0;
                    }
                }
            }
        }
    }
}
