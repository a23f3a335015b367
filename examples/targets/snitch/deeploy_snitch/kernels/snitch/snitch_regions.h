/* Outputs of a window over an image in rectangles, all of which see the same taps: the inner one sees all of them. */
#ifndef SNITCH_REGIONS_H
#define SNITCH_REGIONS_H

#include "../portable/window.h"

/* Outputs first <= o < last along one axis, and the taps that they see. */
struct stretch {
    int first, last;
    struct span taps;
};

/* The stretch that begins at output `first` of `outputs`; its first tap lies at first * stride - before. */
static inline struct stretch stretch_from(int first, int outputs, int stride, int before, int dilation, int taps,
                                          int size) {
    struct stretch s = {first, first + 1, inside(first * stride - before, dilation, taps, size)};
    if (s.taps.first == 0 && s.taps.last == taps) { /* all that see every tap are neighbours */
        const int last = (size - 1 - (taps - 1) * dilation + before) / stride + 1;
        s.last = last < outputs ? last : outputs;
        return s;
    }
    for (; s.last < outputs; s.last++) {
        const struct span next = inside(s.last * stride - before, dilation, taps, size);
        if (next.first != s.taps.first || next.last != s.taps.last) break;
    }
    return s;
}

/* Calls rectangle(k, image, y, rows, columns) for every rectangle of every image of a batch. */
#define OVER_RECTANGLES(k, rectangle)                                                                                \
    for (int n = 0; n < (k)->batch; n++) {                                                                           \
        const float *const image = (const float *)(k)->x + n * (k)->x_batch;                                         \
        float *const y = (float *)(k)->y + n * (k)->y_batch;                                                         \
        for (struct stretch rows = {0, 0, {0, 0}}; rows.last < (k)->out_height;) {                                   \
            rows = stretch_from(rows.last, (k)->out_height, (k)->stride_h, (k)->top, (k)->dilation_h, (k)->kernel_h, \
                                (k)->height);                                                                        \
            for (struct stretch columns = {0, 0, {0, 0}}; columns.last < (k)->out_width;) {                          \
                columns = stretch_from(columns.last, (k)->out_width, (k)->stride_w, (k)->left, (k)->dilation_w,      \
                                       (k)->kernel_w, (k)->width);                                                   \
                rectangle(k, image, y, &rows, &columns);                                                             \
            }                                                                                                        \
        }                                                                                                            \
    }

#endif
