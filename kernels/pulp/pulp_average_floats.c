/* y[n, oh, ow, c] = epilogue(the mean over taps of x[n, oh*sh + fh*dh - top, ow*sw + fw*dw - left, c]), of floats.
 *
 * x and y are channels-last images. A tap of four channels takes 4 loads, 4 additions and 2 instructions more, a mean
 * some 10 instead of a division, for which cores share one unit. Instructions bound it.
 */
#include <math.h>

#include "../portable/average_pool2d.h"

typedef struct average_pool2d arguments;
#define WITH_TAP "fadd.s"
#define FIRST 0.0f

static inline float with_tap(float sum, float x) {
    return sum + x;
}

static inline int count_of(const arguments *k, int taps) {
    return k->count_include_pad ? k->kernel_h * k->kernel_w : taps > 0 ? taps : 1;
}

#include "pulp_pool_floats.h"

/* sum / count, rounded once. The product with a power of two is that quotient.
 *
 * Else, with inverse = (1 + d) / count and q the product, |d| is at most 2^-24, and q is within 1.5 of its last place
 * from sum / count. The rest r = sum - q * count is exact, so that the second sum is sum / count + r * d / count,
 * rounded once, which is off by 1.5 * 2^-24 of that place at most. A middle between two floats is farther from sum /
 * count, by half a place divided by count; it is never met, since count has an odd factor, by which the middle has more
 * bits than a float. Sums whose rests may be no normal numbers, and those that are no numbers, are divided. */
static inline float mean(float sum, int count, float inverse) {
    const float product = sum * inverse;
    const union {
        float value;
        uint32_t bits;
    } s = {sum};
    if ((count & (count - 1)) == 0) return product;
    if ((s.bits >> 23 & 255) - 60 >= 190 || count >= 1 << 20) return sum / (float)count;
    return fmaf(fmaf(-product, (float)count, sum), inverse, product);
}

static inline void finish_channels(const arguments *k, const struct window *w, const float *values, int channel,
                                   int count, float *y) {
    float means[4] = {0, 0, 0, 0};
    for (int j = 0; j < count; j++) means[j] = mean(values[j], w->count, w->inverse);
    if (HAS_BIAS || HAS_CLAMP) {
        finish_row(means, y, &k->epilogue, channel, count);
    } else {
        for (int j = 0; j < count; j++) y[j] = means[j];
    }
}

void KERNEL(const struct average_pool2d *k) {
    over_windows(k);
}
