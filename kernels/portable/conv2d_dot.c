/* The convolution of conv2d.c where windows are long: each is widened to 16 bits once, then multiplied with the rows of
 * w.
 *
 * x and y are channels-last images of bytes, w is [filters, kernel_h, kernel_w, channels], perhaps packed in 1 to 7
 * bits. Four filters share the loads of a window: 1.25 loads and a multiplication and addition a product, in vectors of
 * pairs where there are any. Multiplications bound it; packed elements take 4 to 6 operations each to unpack, which
 * bound theirs.
 */
#include "conv2d_dot.h"

#define DOT_T W_T
#ifdef W_BITS
#define DOT_BITS W_BITS
#define DOT_IS_SIGNED W_IS_SIGNED
#endif
#include "dot.h"

static inline void widen(const X_T *restrict x, int count, int16_t *restrict vector) {
    /*@ loop unroll count; */
    for (int i = 0; i < count; i++) vector[i] = x[i];
}

/* What the whole window at (ih, iw) of one group sees. A row of taps inside the image is one run where they are
 * neighbours. */
static inline void gather_window(const struct conv2d_dot *k, const X_T *image, int ih, int iw,
                                 int16_t *restrict vector) {
    const int run = k->kernel_w * k->channels, tap = k->dilation_w * k->x_column;
    /*@ split iw < 0; */
    /*@ split iw + (k->kernel_w - 1) * k->dilation_w >= k->width; */
    /*@ ghost if (iw < 0 || iw + (k->kernel_w - 1) * k->dilation_w >= k->width) { /@ split iw; @/ ; } */
    const int inside = iw >= 0 && iw + (k->kernel_w - 1) * k->dilation_w < k->width;
    /*@ loop unroll k->kernel_h; */
    for (int fh = 0; fh < k->kernel_h; fh++, vector += run) {
        const int row = ih + fh * k->dilation_h;
        if (row < 0 || row >= k->height) {
            /*@ loop unroll run; */
            for (int i = 0; i < run; i++) vector[i] = (int16_t)k->zero_point;
        } else if (inside && tap == k->channels) {
            widen(image + row * k->x_row + iw * k->x_column, run, vector);
        } else {
            /*@ loop unroll k->kernel_w; */
            for (int fw = 0; fw < k->kernel_w; fw++) {
                const int column = iw + fw * k->dilation_w;
                int16_t *const part = vector + fw * k->channels;
                if (column >= 0 && column < k->width) {
                    widen(image + row * k->x_row + column * k->x_column, k->channels, part);
                } else {
                    /*@ loop unroll k->channels; */
                    for (int c = 0; c < k->channels; c++) part[c] = (int16_t)k->zero_point;
                }
            }
        }
    }
}

/* Where in a window a part of it begins. */
struct place {
    int fh, fw, channel;
};

/* The next part of the window at (ih, iw), where it is too long for one vector: `count` elements over taps and
 * channels. */
static inline void gather(const struct conv2d_dot *k, const X_T *image, int ih, int iw, struct place *from, int count,
                          int16_t *restrict vector) {
    /*@ loop unroll count / k->channels + 2; */
    while (count > 0) {
        const int row = ih + from->fh * k->dilation_h, column = iw + from->fw * k->dilation_w;
        const int rest = k->channels - from->channel, run = rest < count ? rest : count;
        if (row >= 0 && row < k->height && column >= 0 && column < k->width) {
            widen(image + row * k->x_row + column * k->x_column + from->channel, run, vector);
        } else {
            /*@ loop unroll run; */
            for (int c = 0; c < run; c++) vector[c] = (int16_t)k->zero_point;
        }
        vector += run, count -= run, from->channel += run;
        if (from->channel < k->channels) continue;
        from->channel = 0;
        if (++from->fw == k->kernel_w) from->fw = 0, from->fh++;
    }
}

/* All output channels of one group at `count` neighbouring positions of a row, at most VECTORS. */
static inline void positions(const struct conv2d_dot *k, const X_T *image, int ih, int iw, int count, int group,
                             Y_T *y) {
    const int depth = k->kernel_h * k->kernel_w * k->channels;
    int16_t vectors[VECTORS][DEPTH];
    /*@ loop unroll 1; */
    for (int first = 0; first < k->filters; first += BLOCK) {
        const int filters = k->filters - first < BLOCK ? k->filters - first : BLOCK;
        const int channel = group * k->filters + first;
        int32_t acc[VECTORS][BLOCK] = {{0}};
        struct place from[VECTORS] = {{0, 0, 0}};
        /*@ loop unroll depth / DEPTH + 1; */
        for (int begin = 0; begin < depth; begin += DEPTH) {
            const int end = depth - begin < DEPTH ? depth : begin + DEPTH;
            /*@ loop unroll VECTORS; */
            for (int i = 0; i < count; i++) {
                if (depth > DEPTH)
                    gather(k, image, ih, iw + i * k->stride_w, &from[i], end - begin, vectors[i]);
                else if (first == 0)
                    gather_window(k, image, ih, iw + i * k->stride_w, vectors[i]);
            }
            dots_of_vectors(acc, (const int16_t (*)[DEPTH])vectors, count,
                            (const W_T *)k->w + channel * stored(depth) + stored(begin), stored(depth), end - begin,
                            filters);
        }
        for (int i = 0; i < count; i++)
            finish_row(acc[i], y + i * k->y_column + channel, &k->epilogue, channel, filters);
    }
}

#ifdef HAS_WIDE
#define CONV struct conv2d_dot
#include "conv2d_x86.h"

static inline void wide_pack(const CONV *k, int channel, int count, int lanes, int8_t *quads) {
    const int depth = k->kernel_h * k->kernel_w * k->channels;
    const W_T *w = (const W_T *)k->w + channel * depth;
    for (int f = 0; f < count; f++, w += depth) {
        int8_t *const to = quads + 4 * f;
        for (int d = 0; d + 4 <= depth; d += 4) memcpy(to + d * lanes, w + d, 4);
        for (int d = depth & ~3; d < depth; d++) to[(depth & ~3) * lanes + d % 4] = (int8_t)w[d];
    }
}
#else
static inline int is_wide(const struct conv2d_dot *k) {
    (void)k;
    return 0;
}

static inline void wide_conv2d(const struct conv2d_dot *k) {
    (void)k;
}
#endif

void KERNEL(const struct conv2d_dot *k) {
    if (!IS_PACKED && is_wide(k)) {
        wide_conv2d(k);
        return;
    }
    for (int n = 0; n < k->batch; n++) {
        for (int oh = 0; oh < k->out_height; oh++) {
            for (int ow = 0; ow < k->out_width; ow += VECTORS) {
                const int count = k->out_width - ow < VECTORS ? k->out_width - ow : VECTORS;
                Y_T *const y = (Y_T *)k->y + n * k->y_batch + oh * k->y_row + ow * k->y_column;
                for (int group = 0; group < k->groups; group++) {
                    const X_T *const image = (const X_T *)k->x + n * k->x_batch + group * k->channels;
                    positions(k, image, oh * k->stride_h - k->top, ow * k->stride_w - k->left, count, group, y);
                }
            }
        }
    }
}
