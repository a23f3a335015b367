#include "depthwise2d.h"

#include "block.h"
#include "window.h"

/* One tap: acc[j] += x[channel of filter j] * w[j]. */
static inline void tap(ACC_T *acc, const struct depthwise2d *k, const X_T *x, const W_T *w, int first, int lanes) {
    if (k->multiplier == 1) {
        for (int j = 0; j < lanes; j++) acc[j] += (ACC_T)x[first + j] * (ACC_T)w[j];
        return;
    }
    int channel = first / k->multiplier;
    int next = (channel + 1) * k->multiplier - first; /* lane where the next channel begins */
    for (int j = 0; j < lanes; j++) {
        if (j == next) channel++, next += k->multiplier;
        acc[j] += (ACC_T)x[channel] * (ACC_T)w[j];
    }
}

/* All taps of one output pixel, those outside the image included. */
static inline void border(ACC_T *acc, const struct depthwise2d *k, const X_T *image, const W_T *w, int ih, int iw,
                          int first, int lanes) {
    for (int fh = 0; fh < k->kernel_h; fh++, ih += k->dilation_h) {
        for (int fw = 0; fw < k->kernel_w; fw++, w += k->filters) {
            const int column = iw + fw * k->dilation_w;
            if (ih >= 0 && ih < k->height && column >= 0 && column < k->width) {
                tap(acc, k, image + ih * k->x_row + column * k->x_column, w, first, lanes);
            } else if (k->zero_point != 0) {
                for (int j = 0; j < lanes; j++) acc[j] += (ACC_T)k->zero_point * (ACC_T)w[j];
            }
        }
    }
}

static inline void block(const struct depthwise2d *k, int first, int lanes) {
    const W_T *w = (const W_T *)k->w + first;
    for (int n = 0; n < k->batch; n++) {
        const X_T *image = (const X_T *)k->x + n * k->x_batch;
        for (int oh = 0; oh < k->out_height; oh++) {
            const int ih = oh * k->stride_h - k->top;
            const struct span rows = inside(ih, k->dilation_h, k->kernel_h, k->height);
            const int all_rows = rows.last - rows.first == k->kernel_h;
            Y_T *y = (Y_T *)k->y + n * k->y_batch + oh * k->y_row + first;
            for (int ow = 0; ow < k->out_width; ow++) {
                const int iw = ow * k->stride_w - k->left;
                ACC_T acc[LANES];
                for (int j = 0; j < lanes; j++) acc[j] = 0;
                if (all_rows && iw >= 0 && iw + (k->kernel_w - 1) * k->dilation_w < k->width) {
                    const X_T *x = image + ih * k->x_row + iw * k->x_column;
                    const W_T *filter = w;
                    for (int fh = 0; fh < k->kernel_h; fh++) {
                        for (int fw = 0; fw < k->kernel_w; fw++, filter += k->filters) {
                            const int offset = fh * k->dilation_h * k->x_row + fw * k->dilation_w * k->x_column;
                            tap(acc, k, x + offset, filter, first, lanes);
                        }
                    }
                } else {
                    border(acc, k, image, w, ih, iw, first, lanes);
                }
                finish_row(acc, y + ow * k->y_column, &k->epilogue, first, lanes);
            }
        }
    }
}

void KERNEL(const struct depthwise2d *k) {
    for (int first = 0, lanes; first < k->filters; first += lanes) {
        lanes = block_width(&first, k->filters);
        WITH_WIDTH(lanes, block, k, first);
    }
}
