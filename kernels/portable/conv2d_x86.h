/* Convolutions of bytes on x86-64 with AVX-512: sixteen filters are the lanes of a vector, each with four bytes of its
 * window, and one instruction (vpdpbusd) multiplies them with four bytes of an input and adds all up. Filters are laid
 * out for that when the kernel is called, which takes as long as some positions. Inputs are made unsigned, which adds
 * 128 times the sum of a filter; sums begin with as much less.
 *
 * Included by kernels behind x86.h. They define CONV, the struct of a call, and wide_pack. */
#ifndef DEEPLOY_CONV2D_X86_H
#define DEEPLOY_CONV2D_X86_H

#include <string.h>

#include "bytes_x86.h"
#include "epilogue_x86.h"

enum { WIDE_FILTERS = 64, WIDE_POSITIONS = 4, WIDE_LONGEST = 1024 };

struct wide_filters {
    int32_t begin[WIDE_FILTERS];
    int8_t quads[WIDE_LONGEST * WIDE_FILTERS]; /* [depth / 4][filters, up to a multiple of 16][4] */
};

/* Filters from `channel` on, `lanes` of them with those that fill a vector, whose elements are zeros before. */
static inline void wide_pack(const CONV *k, int channel, int count, int lanes, int8_t *quads);

/* What the window at (ih, iw) sees. */
WIDE_PART void wide_window(const CONV *k, const X_T *image, int ih, int iw, uint8_t *to) {
    const int inside = iw >= 0 && iw + (k->kernel_w - 1) * k->dilation_w < k->width;
    const int run = k->kernel_w * k->channels;
    for (int fh = 0; fh < k->kernel_h; fh++, to += run) {
        const int row = ih + fh * k->dilation_h;
        if (row < 0 || row >= k->height) {
            wide_fill(k->zero_point, run, to);
        } else if (inside && k->dilation_w * k->x_column == k->channels) {
            wide_copy(image + row * k->x_row + iw * k->x_column, run, to);
        } else {
            for (int fw = 0; fw < k->kernel_w; fw++) {
                const int column = iw + fw * k->dilation_w;
                uint8_t *const part = to + fw * k->channels;
                if (column >= 0 && column < k->width)
                    wide_copy(image + row * k->x_row + column * k->x_column, k->channels, part);
                else
                    wide_fill(k->zero_point, k->channels, part);
            }
        }
    }
}

/* Sums of WIDE_POSITIONS windows, `step` behind one another in acc; each overwrites what those before left behind. */
#define WIDE_PRODUCTS(name, blocks)                                                                                   \
    WIDE_FUNCTION void name(int32_t *acc, int step, uint8_t (*windows)[WIDE_LONGEST + WIDE_BYTES],                    \
                            const struct wide_filters *w, int quads) {                                                \
        __m512i sum[WIDE_POSITIONS][blocks];                                                                          \
        for (int p = 0; p < WIDE_POSITIONS; p++)                                                                      \
            for (int b = 0; b < (blocks); b++) sum[p][b] = _mm512_loadu_si512(w->begin + b * WIDE_LANES);             \
        for (int q = 0; q < quads; q++) {                                                                             \
            __m512i y[blocks];                                                                                        \
            for (int b = 0; b < (blocks); b++) y[b] = _mm512_loadu_si512(w->quads + (q * (blocks) + b) * WIDE_BYTES); \
            for (int p = 0; p < WIDE_POSITIONS; p++) {                                                                \
                int32_t four;                                                                                         \
                memcpy(&four, windows[p] + 4 * q, sizeof four);                                                       \
                for (int b = 0; b < (blocks); b++)                                                                    \
                    sum[p][b] = _mm512_dpbusd_epi32(sum[p][b], _mm512_set1_epi32(four), y[b]);                        \
            }                                                                                                         \
        }                                                                                                             \
        for (int p = 0; p < WIDE_POSITIONS; p++)                                                                      \
            for (int b = 0; b < (blocks); b++) _mm512_storeu_si512(acc + p * step + b * WIDE_LANES, sum[p][b]);       \
    }
WIDE_PRODUCTS(wide_products_16, 1)
WIDE_PRODUCTS(wide_products_32, 2)
WIDE_PRODUCTS(wide_products_48, 3)
WIDE_PRODUCTS(wide_products_64, 4)

/* Lays out filters; returns how many vectors they are. */
WIDE_PART int wide_layout(const CONV *k, int channel, int count, int quads, struct wide_filters *to) {
    const int blocks = (count + WIDE_LANES - 1) / WIDE_LANES;
    memset(to->quads, 0, (size_t)(quads * blocks * WIDE_BYTES));
    wide_pack(k, channel, count, blocks * WIDE_LANES, to->quads);
    const __m512i most = _mm512_set1_epi8((X_T)-1 < 0 ? (char)0x80 : 0);
    for (int b = 0; b < blocks; b++) {
        __m512i sum = _mm512_setzero_si512();
        for (int q = 0; q < quads; q++)
            sum = _mm512_dpbusd_epi32(sum, most, _mm512_loadu_si512(to->quads + (q * blocks + b) * WIDE_BYTES));
        _mm512_storeu_si512(to->begin + b * WIDE_LANES, _mm512_sub_epi32(_mm512_setzero_si512(), sum));
    }
    return blocks;
}

/* All positions of some filters of a group, the first of which is that of output channel `channel`. */
WIDE_FUNCTION void wide_block(const CONV *k, int group, int channel, int count) {
    static void (*const products[])(int32_t *, int, uint8_t (*)[WIDE_LONGEST + WIDE_BYTES], const struct wide_filters *,
                                    int) = {wide_products_16, wide_products_32, wide_products_48, wide_products_64};
    const int quads = (k->kernel_h * k->kernel_w * k->channels + 3) / 4, outputs = k->out_height * k->out_width;
    struct wide_filters filters;
    struct wide_epilogue epilogue;
    uint8_t windows[WIDE_POSITIONS][WIDE_LONGEST + WIDE_BYTES];
    int32_t acc[WIDE_OUTPUTS + WIDE_LANES];
    for (int p = 0; p < WIDE_POSITIONS; p++) memset(windows[p], 0, (size_t)quads * 4);
    const int blocks = wide_layout(k, channel, count, quads, &filters);
    wide_repeat(&epilogue, &k->epilogue, channel, count, WIDE_POSITIONS * count);
    for (int n = 0; n < k->batch; n++) {
        const X_T *const image = (const X_T *)k->x + n * k->x_batch + group * k->channels;
        Y_T *const first = (Y_T *)k->y + n * k->y_batch + channel;
        for (int at = 0, oh = 0, ow = 0; at < outputs; at += WIDE_POSITIONS) {
            const int there = outputs - at < WIDE_POSITIONS ? outputs - at : WIDE_POSITIONS;
            Y_T *y[WIDE_POSITIONS];
            int is_dense = 1;
            for (int p = 0; p < there; p++) {
                wide_window(k, image, oh * k->stride_h - k->top, ow * k->stride_w - k->left, windows[p]);
                y[p] = first + oh * k->y_row + ow * k->y_column;
                is_dense &= y[p] == y[0] + p * count;
                if (++ow == k->out_width) ow = 0, oh++;
            }
            products[blocks - 1](acc, count, windows, &filters, quads);
            if (is_dense) {
                wide_finish(acc, y[0], &epilogue, there * count);
            } else {
                for (int p = 0; p < there; p++) wide_finish(acc + p * count, y[p], &epilogue, count);
            }
        }
    }
}

/* Whether this machine has the instructions, and a call's operands are such: signed weights, and windows that fit. */
static inline int is_wide(const CONV *k) {
    return sizeof(X_T) == 1 && sizeof(W_T) == 1 && (W_T)-1 < 0 && sizeof(ACC_T) == 4 &&
           k->kernel_h * k->kernel_w * k->channels <= WIDE_LONGEST && has_wide();
}

static void wide_conv2d(const CONV *k) {
    for (int group = 0; group < k->groups; group++) {
        for (int first = 0; first < k->filters; first += WIDE_FILTERS) {
            const int rest = k->filters - first;
            wide_block(k, group, group * k->filters + first, rest < WIDE_FILTERS ? rest : WIDE_FILTERS);
        }
    }
}

#endif
