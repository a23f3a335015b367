/* y[n, oh, ow, c] = the maximum over taps of x[n, oh*sh + fh*dh - top, ow*sw + fw*dw - left, c], of floats; without
 * numbers among the taps inside the image minus infinity.
 *
 * x and y are channels-last images. A tap of four channels takes 4 loads, 4 comparisons and 2 instructions more, which
 * bound it.
 */
#include <math.h>

#include "../portable/maxpool2d.h"

typedef struct maxpool2d arguments;
#define WITH_TAP "fmax.s"
#define FIRST (-INFINITY)

/* The larger of NaN and a number is the number. */
static inline float with_tap(float best, float x) {
    return x > best ? x : best;
}

static inline int count_of(const arguments *k, int taps) {
    (void)k, (void)taps;
    return 1;
}

#include "pulp_pool_floats.h"

static inline void finish_channels(const arguments *k, const struct window *w, const float *values, int channel,
                                   int count, float *y) {
    (void)k, (void)w, (void)channel;
    for (int j = 0; j < count; j++) y[j] = values[j];
}

void KERNEL(const struct maxpool2d *k) {
    over_windows(k);
}
