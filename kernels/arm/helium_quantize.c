/* Quantisations of floats to bytes, four at a time where these are dense and have one scale. */
#include "../portable/quantize.h"

#include <math.h>

#include "../portable/loops.h"
#include "helium.h"

static inline Y_T quantized(float x, float scale, int32_t offset, int32_t low, int32_t high) {
    const float steps = x / scale, least = (float)(low - offset), most = (float)(high - offset);
    const float shifted = (steps > most ? most : steps >= least ? steps : least) + 12582912.0f; /* rounds */
    return (Y_T)((int32_t)(shifted - 12582912.0f) + offset);
}

/* So many elements of a row from the first on; how many are left. */
#if defined(__ARM_FEATURE_MVE) && __ARM_FEATURE_MVE & 2
static inline int elements(const struct quantize *k, const float *x, float scale, int32_t offset, Y_T *y, int count) {
    const float32x4_t low = vdupq_n_f32((float)(k->low - offset)), high = vdupq_n_f32((float)(k->high - offset));
    for (; count >= LANES; count -= LANES, y += LANES) {
        words v;
        __asm__(
            "vldrw.32 q0, [%[x]], #16\n"
            "\tvdiv.f32 s0, s0, %[scale]\n\tvdiv.f32 s1, s1, %[scale]\n"
            "\tvdiv.f32 s2, s2, %[scale]\n\tvdiv.f32 s3, s3, %[scale]\n"
            "\tvmaxnm.f32 q0, q0, %q[low]\n\tvminnm.f32 q0, q0, %q[high]\n\tvcvtn.s32.f32 %q[v], q0"
            : [x] "+r"(x), [v] "=w"(v)
            : [scale] "t"(scale), [low] "w"(low), [high] "w"(high), "m"(*(const float (*)[LANES])x)
            : "q0");
        bytes_store(y, vaddq_n_s32(v, offset), LANES);
    }
    return count;
}
#else
static inline int elements(const struct quantize *k, const float *x, float scale, int32_t offset, Y_T *y, int count) {
    for (int i = 0; i < (count & ~(LANES - 1)); i++) y[i] = quantized(x[i], scale, offset, k->low, k->high);
    return count & (LANES - 1);
}
#endif

void KERNEL(const struct quantize *k) {
    const int x_step = k->x_step[LAST], scale_step = k->scale_step[LAST], zero_step = k->zero_point_step[LAST];
    const int y_step = k->y_step[LAST], count = k->extent[LAST];
    int index[AXES] = {0};
    do {
        const float *const x = (const float *)k->x + row_offset(index, k->x_step);
        const SCALE_T *const scale = (const SCALE_T *)k->scale + row_offset(index, k->scale_step);
        const ZERO_POINT_T *const zero = (const ZERO_POINT_T *)k->zero_point + row_offset(index, k->zero_point_step);
        Y_T *const y = (Y_T *)k->y + row_offset(index, k->y_step);
        int i = 0;
        if (x_step == 1 && y_step == 1 && !scale_step && !zero_step)
            i = count - elements(k, x, scale[0], zero[0], y, count);
        for (; i < count; i++)
            y[i * y_step] = quantized(x[i * x_step], scale[i * scale_step], zero[i * zero_step], k->low, k->high);
    } while (next_row(index, k->extent));
}
