/* scale and zero_point of bytes for floats from low to high, with zero among them: scale = (high - low) / 255,
 * zero_point = round(-low / scale).
 *
 * All are arrays of `count` entries with any strides. An entry takes two divisions, which bound it.
 */
#include "dynamic_scale.h"

#include <math.h>
#include <stdint.h>

#define LEVELS 255.0f

void KERNEL(const struct dynamic_scale *k) {
    for (int i = 0; i < k->count; i++) {
        const float first = ((const LOW_T *)k->low)[i * k->low_step],
                    last = ((const HIGH_T *)k->high)[i * k->high_step];
        const float low = first < 0.0f ? first : 0.0f, high = last > 0.0f ? last : 0.0f;
        const float step = (high - low) / LEVELS;
        const float scale = step > 0.0f ? step : 1.0f;
        const float zero = 0.0f - low / scale;
        ((SCALE_T *)k->scale)[i * k->scale_step] = scale;
        ((ZERO_POINT_T *)k->zero_point)[i * k->zero_point_step] =
            (ZERO_POINT_T)rintf(zero < LEVELS ? (zero > 0.0f ? zero : 0.0f) : LEVELS);
    }
}
