#include "reduce.h"

#include <stddef.h>
#include <stdint.h>

#define LANES 32

/* Step an odometer of `axes` digits; returns 0 when it wraps around. */
static int next(int *index, const int *extent, int axes) {
    for (int axis = axes - 1; axis >= 0; axis--) {
        if (++index[axis] < extent[axis]) return 1;
        index[axis] = 0;
    }
    return 0;
}

static ptrdiff_t offset(const int *index, const int *stride, int axes) {
    ptrdiff_t sum = 0;
    for (int axis = 0; axis < axes; axis++) sum += (ptrdiff_t)index[axis] * stride[axis];
    return sum;
}

static inline ACC_T result(enum reduce_operation operation, ACC_T value, int count) {
    if (operation == REDUCE_MEAN) return value / (ACC_T)count;
#ifndef ACC_IS_FLOAT
    if (operation == REDUCE_INTEGER_MEAN) return (value + (value > 0 ? count >> 1 : value < 0 ? -(count >> 1) : 0)) / count;
    if (operation == REDUCE_SHIFT_MEAN) {
        int shift = 0;
        while ((count >> shift) > 1) shift++;
        return shift ? (value + (1 << (shift - 1))) >> shift : value;
    }
#endif
    return value;
}

static void lanes(const struct reduce *k, const X_T *x, Y_T *y, int first, int count) {
    ACC_T acc[LANES] = {0};
    const int step = k->x_kept[5];
    int index[6] = {0};
    int taps = 0;
    do {
        const X_T *const p = x + offset(index, k->x_reduced, 6) + (ptrdiff_t)first * step;
        if (k->operation == REDUCE_MAX) {
            for (int j = 0; j < count; j++) acc[j] = !taps || (ACC_T)p[j * step] > acc[j] ? (ACC_T)p[j * step] : acc[j];
        } else if (k->operation == REDUCE_MIN) {
            for (int j = 0; j < count; j++) acc[j] = !taps || (ACC_T)p[j * step] < acc[j] ? (ACC_T)p[j * step] : acc[j];
        } else {
            for (int j = 0; j < count; j++) acc[j] += (ACC_T)p[j * step];
        }
        taps++;
    } while (next(index, k->reduced, 6));
    for (int j = 0; j < count; j++) acc[j] = result(k->operation, acc[j], taps);
    finish_row(acc, y + first, &k->epilogue, first, count);
}

void KERNEL(const struct reduce *k) {
    int index[5] = {0};
    do {
        const X_T *const x = (const X_T *)k->x + offset(index, k->x_kept, 5);
        Y_T *const y = (Y_T *)k->y + offset(index, k->y_kept, 5);
        for (int first = 0; first < k->kept[5]; first += LANES) {
            lanes(k, x, y, first, k->kept[5] - first < LANES ? k->kept[5] - first : LANES);
        }
    } while (next(index, k->kept, 5));
}
