/* A convolution as products of windows with four filters at a time. A window that lies in one piece is read where it
 * is. */
#include "helium_epilogue.h"

#include "arm_conv2d.h"

/* What the window at (ih, iw) of one group sees: where it lies in the image, or its copy. */
OUT_OF_LINE const int8_t *window(const struct arm_conv2d *k, const int8_t *image, int ih, int iw, int8_t *room) {
    const int is_run = k->dilation_w * k->x_column == k->channels || k->kernel_w == 1;
    const int inside = is_run && iw >= 0 && iw + (k->kernel_w - 1) * k->dilation_w < k->width;
    const int run = k->kernel_w * k->channels;
    if (inside && k->kernel_h == 1 && ih >= 0 && ih < k->height) return image + ih * k->x_row + iw * k->x_column;
    int8_t *to = room;
    for (int fh = 0; fh < k->kernel_h; fh++, to += run) {
        const int row = ih + fh * k->dilation_h;
        if (row < 0 || row >= k->height) {
            helium_fill(to, k->zero_point, run);
        } else if (inside) {
            helium_copy(to, image + row * k->x_row + iw * k->x_column, run);
        } else {
            for (int fw = 0; fw < k->kernel_w; fw++) {
                const int column = iw + fw * k->dilation_w;
                if (column >= 0 && column < k->width)
                    helium_copy(to + fw * k->channels, image + row * k->x_row + column * k->x_column, k->channels);
                else
                    helium_fill(to + fw * k->channels, k->zero_point, k->channels);
            }
        }
    }
    return room;
}

void KERNEL(const struct arm_conv2d *k) {
    const int depth = k->kernel_h * k->kernel_w * k->channels;
    for (int n = 0; n < k->batch; n++) {
        const int8_t *const image = (const int8_t *)k->x + n * k->x_batch;
        for (int oh = 0; oh < k->out_height; oh++) {
            Y_T *y = (Y_T *)k->y + n * k->y_batch + oh * k->y_row;
            for (int ow = 0; ow < k->out_width; ow++, y += k->y_column) {
                for (int group = 0, channel = 0; group < k->groups; group++, channel += k->filters) {
                    const int8_t *const x = window(k, image + group * k->channels, oh * k->stride_h - k->top,
                                                   ow * k->stride_w - k->left, k->windows);
                    multiply_rows(x, (const int8_t *)k->w + channel * depth, depth, depth, k->filters, y + channel,
                                  &k->epilogue, channel);
                }
            }
        }
    }
}
