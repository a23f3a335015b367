/* Depthwise convolutions of bytes on x86-64 with AVX-512: the lanes of a vector are channels of one position or of
 * several neighbours, each with four taps, and one instruction (vpdpbusd) multiplies these with those of the filters
 * and adds all up. Rows of the image are copied first, so that what lies outside and steps of several columns cost
 * nothing later; there, inputs are made unsigned, which adds 128 times the sum of a filter. Sums begin with as much
 * less.
 *
 * Included by depthwise2d.c behind x86.h. */
#ifndef DEEPLOY_DEPTHWISE_X86_H
#define DEEPLOY_DEPTHWISE_X86_H

#include "bytes_x86.h"
#include "epilogue_x86.h"

enum { WIDE_TAPS = 28, WIDE_ROOM = 24576 };

struct wide_depthwise {
    int32_t begin[WIDE_BYTES];
    int8_t w[WIDE_TAPS * WIDE_BYTES]; /* [taps / 4][64][4] in the order of wide_four */
    int tap[WIDE_TAPS];               /* where it begins in `rows` */
    int columns;                      /* of a row whose numbers have the same remainder by the stride */
    struct wide_epilogue epilogue;
    uint8_t rows[WIDE_ROOM + WIDE_BYTES]; /* [kernel_h][stride_w][columns][channels] */
};

/* Four bytes of 64 lanes side by side: lanes 0 to 3, 16 to 19, 32 to 35 and 48 to 51 in the first vector, and so on. */
WIDE_PART void wide_four(const __m512i tap[4], __m512i four[4]) {
    const __m512i low = _mm512_unpacklo_epi8(tap[0], tap[1]), high = _mm512_unpackhi_epi8(tap[0], tap[1]);
    const __m512i low2 = _mm512_unpacklo_epi8(tap[2], tap[3]), high2 = _mm512_unpackhi_epi8(tap[2], tap[3]);
    four[0] = _mm512_unpacklo_epi16(low, low2), four[1] = _mm512_unpackhi_epi16(low, low2);
    four[2] = _mm512_unpacklo_epi16(high, high2), four[3] = _mm512_unpackhi_epi16(high, high2);
}

/* The filters of `count` channels from `first` on, again and again in `lanes` lanes. */
WIDE_PART void wide_filters(const struct depthwise2d *k, int first, int count, int lanes, int quads,
                            struct wide_depthwise *to) {
    const __m512i most = _mm512_set1_epi8((X_T)-1 < 0 ? (char)0x80 : 0);
    __m512i sum[4] = {_mm512_setzero_si512(), _mm512_setzero_si512(), _mm512_setzero_si512(), _mm512_setzero_si512()};
    for (int q = 0; q < quads; q++) {
        int8_t rows[4][WIDE_BYTES] = {{0}};
        __m512i tap[4], four[4];
        for (int t = 0; t < 4; t++) {
            const W_T *const w = (const W_T *)k->w + (4 * q + t) * k->filters + first;
            for (int j = 0; j < lanes && 4 * q + t < k->kernel_h * k->kernel_w; j++) rows[t][j] = (int8_t)w[j % count];
            tap[t] = _mm512_loadu_si512(rows[t]);
        }
        wide_four(tap, four);
        for (int part = 0; part < 4; part++) {
            _mm512_storeu_si512(to->w + (4 * q + part) * WIDE_BYTES, four[part]);
            sum[part] = _mm512_dpbusd_epi32(sum[part], most, four[part]);
        }
    }
    for (int part = 0; part < 4; part++)
        _mm512_storeu_si512(to->begin + part * WIDE_LANES, _mm512_sub_epi32(_mm512_setzero_si512(), sum[part]));
}

/* What `columns` output columns from the one at iw on read of the rows from ih on. */
WIDE_PART void wide_rows(const struct depthwise2d *k, const X_T *image, int ih, int iw, int count,
                         struct wide_depthwise *d) {
    uint8_t *to = d->rows;
    for (int fh = 0; fh < k->kernel_h; fh++) {
        const int row = ih + fh * k->dilation_h;
        for (int phase = 0; phase < k->stride_w; phase++, to += d->columns * count) {
            if (row < 0 || row >= k->height) {
                wide_fill(k->zero_point, d->columns * count, to);
                continue;
            }
            for (int i = 0; i < d->columns;) {
                const int column = iw + phase + i * k->stride_w;
                int run = 1;
                if (column < 0 || column >= k->width) {
                    wide_fill(k->zero_point, count, to + i * count);
                } else {
                    if (k->stride_w == 1 && k->x_column == count)
                        run = k->width - column < d->columns - i ? k->width - column : d->columns - i;
                    wide_copy(image + row * k->x_row + column * k->x_column, run * count, to + i * count);
                }
                i += run;
            }
        }
    }
}

/* The sums of 64 lanes from `at` on, in order. */
WIDE_FUNCTION void wide_taps(const struct wide_depthwise *d, int at, int quads, int32_t *acc) {
    __m512i sum[4];
    for (int part = 0; part < 4; part++) sum[part] = _mm512_loadu_si512(d->begin + part * WIDE_LANES);
    for (int q = 0; q < quads; q++) {
        __m512i tap[4], four[4];
        for (int t = 0; t < 4; t++) tap[t] = _mm512_loadu_si512(d->rows + d->tap[4 * q + t] + at);
        wide_four(tap, four);
        for (int part = 0; part < 4; part++)
            sum[part] =
                _mm512_dpbusd_epi32(sum[part], four[part], _mm512_loadu_si512(d->w + (4 * q + part) * WIDE_BYTES));
    }
    const __m512i a = _mm512_shuffle_i32x4(sum[0], sum[1], 0x44), b = _mm512_shuffle_i32x4(sum[0], sum[1], 0xEE);
    const __m512i c = _mm512_shuffle_i32x4(sum[2], sum[3], 0x44), e = _mm512_shuffle_i32x4(sum[2], sum[3], 0xEE);
    _mm512_storeu_si512(acc, _mm512_shuffle_i32x4(a, c, 0x88));
    _mm512_storeu_si512(acc + 16, _mm512_shuffle_i32x4(a, c, 0xDD));
    _mm512_storeu_si512(acc + 32, _mm512_shuffle_i32x4(b, e, 0x88));
    _mm512_storeu_si512(acc + 48, _mm512_shuffle_i32x4(b, e, 0xDD));
}

/* The most output columns whose inputs fit, for some channels; 0 where not even one does. */
static inline int wide_columns(const struct depthwise2d *k, int count) {
    const int columns = WIDE_ROOM / (k->kernel_h * k->stride_w * count);
    return columns - ((k->kernel_w - 1) * k->dilation_w + k->stride_w - 1) / k->stride_w;
}

/* `count` channels from `first` on. */
WIDE_FUNCTION void wide_channels(const struct depthwise2d *k, int first, int count) {
    struct wide_depthwise d;
    const int taps = k->kernel_h * k->kernel_w, quads = (taps + 3) / 4, lanes = WIDE_BYTES / count * count;
    const int most = wide_columns(k, count), part = most < k->out_width ? most : k->out_width;
    d.columns = part + ((k->kernel_w - 1) * k->dilation_w + k->stride_w - 1) / k->stride_w;
    for (int t = 0; t < 4 * quads; t++) {
        const int fh = t / k->kernel_w, column = t % k->kernel_w * k->dilation_w;
        const int place = (fh * k->stride_w + column % k->stride_w) * d.columns + column / k->stride_w;
        d.tap[t] = t < taps ? place * count : 0;
    }
    wide_filters(k, first, count, lanes, quads, &d);
    wide_repeat(&d.epilogue, &k->epilogue, first, count, lanes);
    for (int n = 0; n < k->batch; n++) {
        const X_T *const image = (const X_T *)k->x + n * k->x_batch + first;
        for (int oh = 0; oh < k->out_height; oh++) {
            for (int ow = 0; ow < k->out_width; ow += part) {
                const int bytes = (k->out_width - ow < part ? k->out_width - ow : part) * count;
                Y_T *const y = (Y_T *)k->y + n * k->y_batch + oh * k->y_row + ow * k->y_column + first;
                wide_rows(k, image, oh * k->stride_h - k->top, ow * k->stride_w - k->left, count, &d);
                for (int at = 0; at < bytes; at += lanes) {
                    const int there = bytes - at < lanes ? bytes - at : lanes;
                    int32_t acc[WIDE_BYTES];
                    wide_taps(&d, at, quads, acc);
                    if (k->y_column == count) {
                        wide_finish(acc, y + at, &d.epilogue, there);
                    } else {
                        for (int i = 0; i < there; i += count)
                            wide_finish(acc + i, y + (at + i) / count * k->y_column, &d.epilogue, count);
                    }
                }
            }
        }
    }
}

/* Whether this machine has the instructions, and a call's operands are such: signed weights, and filters that fit. */
static inline int is_wide(const struct depthwise2d *k) {
    const int count = k->filters < WIDE_BYTES ? k->filters : WIDE_BYTES;
    return sizeof(X_T) == 1 && sizeof(W_T) == 1 && (W_T)-1 < 0 && k->multiplier == 1 &&
           k->kernel_h * k->kernel_w <= WIDE_TAPS && wide_columns(k, count) > 0 && has_wide();
}

static void wide_depthwise2d(const struct depthwise2d *k) {
    for (int first = 0; first < k->filters; first += WIDE_BYTES)
        wide_channels(k, first, k->filters - first < WIDE_BYTES ? k->filters - first : WIDE_BYTES);
}

#endif
