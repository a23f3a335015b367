/* A convolution as products of windows, four positions at a time with one filter. */
#include "arm_epilogue.h"

#include "arm_conv2d.h"

#define VECTOR_T X_T
#define MATRIX_T W_T
#include "arm_dot.h"

static inline X_T *copy(X_T *to, const X_T *from, int count) {
    for (; count >= 4; count -= 4, to += 4, from += 4) memcpy(to, from, 4);
    for (; count > 0; count--) *to++ = *from++;
    return to;
}

static inline X_T *outside(X_T *to, int value, int count) {
    for (; count > 0; count--) *to++ = (X_T)value;
    return to;
}

/* What the window at (ih, iw) of one group sees: where it lies in the image, or its copy, filled up to `depth`. */
OUT_OF_LINE const X_T *window(const struct arm_conv2d *k, const X_T *image, int ih, int iw, int depth, X_T *room) {
    const int is_run = k->dilation_w * k->x_column == k->channels || k->kernel_w == 1;
    const int inside = is_run && iw >= 0 && iw + (k->kernel_w - 1) * k->dilation_w < k->width;
    const int run = k->kernel_w * k->channels;
    if (inside && k->kernel_h == 1 && run == depth && ih >= 0 && ih < k->height)
        return image + ih * k->x_row + iw * k->x_column;
    X_T *to = room;
    for (int fh = 0; fh < k->kernel_h; fh++) {
        const int row = ih + fh * k->dilation_h;
        if (row < 0 || row >= k->height) {
            to = outside(to, k->zero_point, run);
        } else if (inside) {
            to = copy(to, image + row * k->x_row + iw * k->x_column, run);
        } else {
            for (int fw = 0; fw < k->kernel_w; fw++) {
                const int column = iw + fw * k->dilation_w;
                if (column >= 0 && column < k->width)
                    to = copy(to, image + row * k->x_row + column * k->x_column, k->channels);
                else
                    to = outside(to, k->zero_point, k->channels);
            }
        }
    }
    outside(to, 0, (int)(room + depth - to));
    return room;
}

/* All filters of one group, the first of which is `channel`, at the positions of `y`. */
OUT_OF_LINE void filters(const struct arm_conv2d *k, const uint32_t *pairs, int depth, int channel,
                         Y_T *const y[VECTORS]) {
    const W_T *w = (const W_T *)k->w + channel * depth;
    Y_T *const y0 = y[0], *const y1 = y[1], *const y2 = y[2], *const y3 = y[3];
    for (const int end = channel + k->filters; channel < end; channel++, w += depth) {
        const struct arm_channel c = arm_channel(&k->epilogue, channel);
        int32_t sums[VECTORS];
        dots_of_vectors(pairs, w, depth, sums);
        y0[channel] = arm_finish(sums[0], c, &k->epilogue);
        y1[channel] = arm_finish(sums[1], c, &k->epilogue);
        y2[channel] = arm_finish(sums[2], c, &k->epilogue);
        y3[channel] = arm_finish(sums[3], c, &k->epilogue);
    }
}

/* `count` positions from number `first` of an image on. */
static void positions(const struct arm_conv2d *k, const X_T *image, Y_T *out, int first, int count) {
    const int depth = (k->kernel_h * k->kernel_w * k->channels + 3) & ~3;
    uint32_t near[256], *const pairs = 9 * depth > (int)sizeof near ? k->windows : near;
    X_T *const room = (X_T *)(pairs + 2 * depth);
    for (int group = 0; group < k->groups; group++) {
        Y_T *y[VECTORS];
        const X_T *x = 0;
        int row = first / k->out_width, column = first % k->out_width;
        for (int i = 0; i < count; i++) {
            y[i] = out + row * k->y_row + column * k->y_column;
            x = window(k, image + group * k->channels, row * k->stride_h - k->top, column * k->stride_w - k->left,
                       depth, room);
            if (count > 1) widen(x, depth, pairs + i);
            if (++column == k->out_width) column = 0, row++;
        }
        const int channel = group * k->filters;
        if (count == 1) {
            multiply_rows(x, (const W_T *)k->w + channel * depth, depth, depth, k->filters, y[0] + channel,
                          &k->epilogue, channel);
            continue;
        }
        for (int i = count; i < VECTORS; i++) { /* the last one again */
            y[i] = y[count - 1];
            widen(x, depth, pairs + i);
        }
        filters(k, pairs, depth, channel, y);
    }
}

void KERNEL(const struct arm_conv2d *k) {
    const int all = k->out_height * k->out_width;
    for (int n = 0; n < k->batch; n++) {
        for (int first = 0; first < all; first += VECTORS) {
            const int count = all - first < VECTORS ? all - first : VECTORS;
            positions(k, (const X_T *)k->x + n * k->x_batch, (Y_T *)k->y + n * k->y_batch, first, count);
        }
    }
}
