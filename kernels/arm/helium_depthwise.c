/* A depthwise convolution with filters of up to 3 rows and 4 columns, one channel after the other. Four rows of the
 * image are kept as one row of words: word i holds column i, a byte for each row. A window is four words, and so is a
 * filter, whose other bytes are 0; shifted by a byte it is the filter one row below. With every pair of rows of the
 * image, words are shifted by two bytes. */
#include "helium_epilogue.h"

#include "arm_depthwise.h"

#if defined(__ARM_FEATURE_MVE)
typedef int8x16_t filter;

static inline filter filter_of(const int8_t *w) {
    return vldrbq_s8(w);
}

static inline filter filter_below(filter w) {
    return vreinterpretq_s8_u32(vshlq_n_u32(vreinterpretq_u32_s8(w), 8));
}

/* The window at a word times a filter, and times that one row below. */
static inline int32_t window_dot(const uint32_t *at, filter w) {
    return vmladavq_s8(vreinterpretq_s8_u32(vldrwq_u32(at)), w);
}

/* Words, shifted by two bytes, with the bytes of two rows. */
static inline void shift_in(uint32_t *at, const int8_t *upper, int upper_step, const int8_t *lower, int lower_step,
                            int count) {
    const uint32x4_t steps = vidupq_n_u32(0, 1);
    const uint32x4_t uppers = vmulq_n_u32(steps, (uint32_t)upper_step),
                     lowers = vmulq_n_u32(steps, (uint32_t)lower_step);
    __asm__ volatile(
        "wlstp.32 lr, %[count], 2f\n"
        "1: vldrw.u32 q0, [%[at]]\n"
        "\tvldrb.u32 q1, [%[upper], %q[uppers]]\n\tvldrb.u32 q2, [%[lower], %q[lowers]]\n"
        "\tvshr.u32 q0, q0, #16\n\tvsli.32 q0, q1, #16\n\tvsli.32 q0, q2, #24\n"
        "\tadd %[upper], %[upper_step]\n\tadd %[lower], %[lower_step]\n"
        "\tvstrw.32 q0, [%[at]], #16\n\tletp lr, 1b\n"
        "2:"
        : [at] "+r"(at), [upper] "+r"(upper), [lower] "+r"(lower)
        : [uppers] "w"(uppers), [lowers] "w"(lowers), [upper_step] "r"(LANES * upper_step),
          [lower_step] "r"(LANES * lower_step), [count] "r"(count)
        : "lr", "q0", "q1", "q2", "cc", "memory");
}
#else
typedef struct {
    int8_t byte[16];
} filter;

static inline filter filter_of(const int8_t *w) {
    filter f;
    memcpy(f.byte, w, sizeof f.byte);
    return f;
}

static inline filter filter_below(filter w) {
    filter f;
    for (int i = 0; i < 16; i++) f.byte[i] = i % 4 ? w.byte[i - 1] : 0;
    return f;
}

static inline int32_t window_dot(const uint32_t *at, filter w) {
    int32_t sum = 0;
    for (int i = 0; i < 16; i++) sum += (int8_t)(at[i / 4] >> 8 * (i % 4) & 0xFF) * w.byte[i];
    return sum;
}

static inline void shift_in(uint32_t *at, const int8_t *upper, int upper_step, const int8_t *lower, int lower_step,
                            int count) {
    for (int i = 0; i < count; i++)
        at[i] = at[i] >> 16 | (uint32_t)(uint8_t)upper[i * upper_step] << 16 |
                (uint32_t)(uint8_t)lower[i * lower_step] << 24;
}
#endif

/* Where the words of one channel lie, and which of them are columns of the image. */
struct row {
    uint32_t *words;
    int count, begin, end;
};

static void shift_in_rows(const struct arm_depthwise *k, const struct row *r, const int8_t *image, int row) {
    const int8_t outside = (int8_t)k->zero_point;
    const int upper = row >= 0 && row < k->height, lower = row + 1 >= 0 && row + 1 < k->height;
    shift_in(r->words + r->begin, upper ? image + row * k->x_row : &outside, upper ? k->x_column : 0,
             lower ? image + (row + 1) * k->x_row : &outside, lower ? k->x_column : 0, r->end - r->begin);
}

/* `count` of four neighbouring outputs of a row. */
static inline void four_outputs(const uint32_t *at, int stride, filter f, Y_T *y, words places, int count,
                                struct channel c) {
    finish_same(words_of(window_dot(at, f), window_dot(at + stride, f), window_dot(at + 2 * stride, f),
                         window_dot(at + 3 * stride, f)),
                y, places, count, c);
}

static inline void row_of_outputs(const uint32_t *at, int stride, int count, filter f, Y_T *y, int step,
                                  struct channel c) {
    const words places = words_of(0, step, 2 * step, 3 * step);
    for (; count >= LANES; count -= LANES, at += LANES * stride, y += LANES * step)
        four_outputs(at, stride, f, y, places, LANES, c);
    if (count == 1)
        *y = finish_one(window_dot(at, f), c);
    else if (count > 0)
        four_outputs(at, stride, f, y, places, count, c);
}

static inline void outputs(const struct arm_depthwise *k, const uint32_t *at, filter f, Y_T *y, struct channel c) {
    if (k->stride_w == 1)
        row_of_outputs(at, 1, k->out_width, f, y, k->y_column, c);
    else
        row_of_outputs(at, k->stride_w, k->out_width, f, y, k->y_column, c);
}

OUT_OF_LINE void all_rows(const struct arm_depthwise *k, const struct row *r, const int8_t *image, int channel,
                          Y_T *y) {
    const filter f = filter_of((const int8_t *)k->w + 16 * channel), below = filter_below(f);
    const struct channel c = channel_of(&k->epilogue, channel, limits_of(&k->epilogue));
    helium_fill(r->words, k->zero_point, 4 * r->count);
    shift_in_rows(k, r, image, -k->top);
    for (int oh = 0; oh < k->out_height; oh++, y += k->y_row) {
        shift_in_rows(k, r, image, oh * k->stride_h - k->top + 2);
        outputs(k, r->words, f, y, c);
        if (k->stride_h == 1 && oh + 1 < k->out_height) outputs(k, r->words, below, y += k->y_row, c), oh++;
    }
}

void KERNEL(const struct arm_depthwise *k) {
    struct row r = {k->words, ((k->out_width + LANES - 1) / LANES * LANES - 1) * k->stride_w + 4, k->left, 0};
    r.end = k->left + k->width < r.count ? k->left + k->width : r.count;
    if (r.begin > r.end) r.begin = r.end;
    for (int n = 0; n < k->batch; n++) {
        const int8_t *const image = (const int8_t *)k->x + n * k->x_batch;
        Y_T *const y = (Y_T *)k->y + n * k->y_batch;
        for (int channel = 0; channel < k->channels; channel++) all_rows(k, &r, image + channel, channel, y + channel);
    }
}
