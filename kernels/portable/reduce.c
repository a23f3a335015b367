/* y = epilogue(the sum, product, mean, maximum or minimum of x over any axes).
 *
 * x and y have any strides along six axes that are kept and six that are reduced. An element is a load and one
 * operation, up to 64 neighbours at a time: loads bound it.
 */
#ifdef WIDE /* elements of 64 bits */
#undef ACC_T
#define ACC_T int64_t
#define WRAPPED_T uint64_t
#else
#define WRAPPED_T uint32_t
#endif
#include "reduce.h"

#include <math.h>

#include "block.h"

#ifdef ACC_IS_FLOAT
#define LOWEST (-INFINITY)
#define HIGHEST INFINITY
#elif defined(WIDE)
#define LOWEST INT64_MIN
#define HIGHEST INT64_MAX
#else
#define LOWEST INT32_MIN
#define HIGHEST INT32_MAX
#endif

/* Advances the index over the outer five axes and the offset into x that belongs to it; 0 behind the last index. */
static int advance(int index[5], const int *extent, const int *stride, int *offset) {
    for (int axis = 4; axis >= 0; axis--) {
        *offset += stride[axis];
        if (++index[axis] < extent[axis]) return 1;
        *offset -= extent[axis] * stride[axis];
        index[axis] = 0;
    }
    return 0;
}

/* Extremes of what is no number are none. */
static inline int is_nan(ACC_T x) {
    return IS_FLOAT && isnan((float)x);
}

static inline ACC_T combine(enum reduce_operation operation, ACC_T acc, ACC_T value) {
    if (operation == REDUCE_MAX) return value > acc || is_nan(value) ? value : acc;
    if (operation == REDUCE_MIN) return value < acc || is_nan(value) ? value : acc;
    if (IS_FLOAT) return operation == REDUCE_PRODUCT ? acc * value : acc + value;
    const WRAPPED_T a = (WRAPPED_T)acc, b = (WRAPPED_T)value; /* what is too large wraps around, as in NumPy */
    return (ACC_T)(operation == REDUCE_PRODUCT ? a * b : a + b);
}

/* One run along the innermost reduced axis, `step` apart, of `lanes` results, `lane` apart. */
static inline void run(ACC_T *acc, int lanes, int lane, const X_T *x, int count, int step, enum reduce_operation op) {
    if (lane == 1) {
        for (int i = 0; i < count; i++) {
            for (int j = 0; j < lanes; j++) acc[j] = combine(op, acc[j], (ACC_T)x[i * step + j]);
        }
        return;
    }
    for (int j = 0; j < lanes; j++) {
        ACC_T value = acc[j];
        for (int i = 0; i < count; i++) value = combine(op, value, (ACC_T)x[j * lane + i * step]);
        acc[j] = value;
    }
}

static ACC_T result(enum reduce_operation operation, ACC_T value, int count) {
#ifdef ACC_IS_FLOAT
    return operation == REDUCE_MEAN ? value / (ACC_T)count : value;
#else
    if (operation == REDUCE_INTEGER_MEAN) {
        return (value + (value > 0 ? count >> 1 : value < 0 ? -(count >> 1) : 0)) / count;
    }
    if (operation == REDUCE_SHIFT_MEAN) {
        int shift = 0;
        while (count >> shift > 1) shift++;
        return (value + (count >> 1)) >> shift;
    }
    return value;
#endif
}

static void lanes_of(const struct reduce *k, const X_T *x, Y_T *y, int first, int lanes) {
    const enum reduce_operation op = k->operation;
    ACC_T acc[LANES];
    for (int j = 0; j < lanes; j++)
        acc[j] = op == REDUCE_MAX ? LOWEST : op == REDUCE_MIN ? HIGHEST : op == REDUCE_PRODUCT ? 1 : 0;
    int index[5] = {0}, offset = 0, count = 0;
    do {
        const X_T *here = x + first * k->x_kept[5] + offset;
        const int length = k->reduced[5], step = k->x_reduced[5];
        if (op == REDUCE_MAX) {
            run(acc, lanes, k->x_kept[5], here, length, step, REDUCE_MAX);
        } else if (op == REDUCE_MIN) {
            run(acc, lanes, k->x_kept[5], here, length, step, REDUCE_MIN);
        } else if (op == REDUCE_PRODUCT) {
            run(acc, lanes, k->x_kept[5], here, length, step, REDUCE_PRODUCT);
        } else {
            run(acc, lanes, k->x_kept[5], here, length, step, REDUCE_SUM);
        }
        count += length;
    } while (advance(index, k->reduced, k->x_reduced, &offset));
    for (int j = 0; j < lanes; j++) {
        y[(first + j) * k->y_kept[5]] = finish(result(op, acc[j], count), &k->epilogue, first + j);
    }
}

void KERNEL(const struct reduce *k) {
    int index[5] = {0}, x = 0;
    do {
        int y = 0;
        for (int axis = 0; axis < 5; axis++) y += index[axis] * k->y_kept[axis];
        for (int first = 0; first < k->kept[5]; first += LANES) {
            const int rest = k->kept[5] - first;
            lanes_of(k, (const X_T *)k->x + x, (Y_T *)k->y + y, first, rest < LANES ? rest : LANES);
        }
    } while (advance(index, k->kept, k->x_kept, &x));
}
