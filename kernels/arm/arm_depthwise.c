/* One filter per channel, four channels at a time: a word of the image and a word of the filters are four products. */
#include "../portable/depthwise2d.h"

#include "arm_simd.h"

enum { LANES = 4 };

static void four_channels(const struct depthwise2d *k, const X_T *image, const W_T *w, int ih, int iw, int32_t *acc) {
    const uint32_t outside = (uint8_t)k->zero_point * 0x01010101u;
    int32_t s0 = 0, s1 = 0, s2 = 0, s3 = 0;
    for (int fh = 0; fh < k->kernel_h; fh++) {
        const int row = ih + fh * k->dilation_h, is_row = row >= 0 && row < k->height;
        for (int fw = 0; fw < k->kernel_w; fw++, w += k->filters) {
            const int column = iw + fw * k->dilation_w, is_inside = is_row && column >= 0 && column < k->width;
            const uint32_t x = is_inside ? arm_word(image + row * k->x_row + column * k->x_column) : outside,
                           y = arm_word(w);
            const uint32_t xe = ARM_EVEN(X_T, x), xo = ARM_ODD(X_T, x), ye = ARM_EVEN(W_T, y), yo = ARM_ODD(W_T, y);
            s0 = arm_multiply_add_low(s0, xe, ye), s1 = arm_multiply_add_low(s1, xo, yo);
            s2 = arm_multiply_add_high(s2, xe, ye), s3 = arm_multiply_add_high(s3, xo, yo);
        }
    }
    acc[0] = s0, acc[1] = s1, acc[2] = s2, acc[3] = s3;
}

static int32_t one_channel(const struct depthwise2d *k, const X_T *image, const W_T *w, int ih, int iw) {
    int32_t sum = 0;
    for (int fh = 0; fh < k->kernel_h; fh++) {
        const int row = ih + fh * k->dilation_h, is_row = row >= 0 && row < k->height;
        for (int fw = 0; fw < k->kernel_w; fw++, w += k->filters) {
            const int column = iw + fw * k->dilation_w, is_inside = is_row && column >= 0 && column < k->width;
            sum += (is_inside ? image[row * k->x_row + column * k->x_column] : k->zero_point) * *w;
        }
    }
    return sum;
}

static void position(const struct depthwise2d *k, const X_T *image, int ih, int iw, Y_T *y) {
    for (int c = 0; c < k->filters; c += LANES) {
        const int lanes = k->filters - c < LANES ? k->filters - c : LANES;
        const W_T *const w = (const W_T *)k->w + c;
        int32_t acc[LANES];
        if (lanes == LANES) four_channels(k, image + c, w, ih, iw, acc);
        for (int j = 0; lanes < LANES && j < lanes; j++) acc[j] = one_channel(k, image + c + j, w + j, ih, iw);
        finish_row(acc, y + c, &k->epilogue, c, lanes);
    }
}

void KERNEL(const struct depthwise2d *k) {
    for (int n = 0; n < k->batch; n++) {
        const X_T *const image = (const X_T *)k->x + n * k->x_batch;
        for (int oh = 0; oh < k->out_height; oh++) {
            for (int ow = 0; ow < k->out_width; ow++) {
                Y_T *const y = (Y_T *)k->y + n * k->y_batch + oh * k->y_row + ow * k->y_column;
                position(k, image, oh * k->stride_h - k->top, ow * k->stride_w - k->left, y);
            }
        }
    }
}
