#include "pairwise.h"

#include <math.h>

#include "loops.h"

#ifdef A_IS_FLOAT
#define kept(a) isnan(a) /* a NaN stays */
#else
#define kept(a) 0
#endif
#define larger(a, b) ((a) > (b) || kept(a) ? (a) : (b))
#define smaller(a, b) ((a) < (b) || kept(a) ? (a) : (b))
#define power(a, b) powf(a, b)
#define equal(a, b) ((a) == (b))
#define differ(a, b) ((a) != (b))
#define less(a, b) ((a) < (b))
#define at_most(a, b) ((a) <= (b))
#define greater(a, b) ((a) > (b))
#define at_least(a, b) ((a) >= (b))
#define both(a, b) ((a) && (b))
#define either(a, b) ((a) || (b))
/* 64-bit arithmetic is modulo 2^64; a divisor of 0 gives 0. */
#define sum(a, b) ((uint64_t)(a) + (uint64_t)(b))
#define difference(a, b) ((uint64_t)(a) - (uint64_t)(b))
#define product(a, b) ((uint64_t)(a) * (uint64_t)(b))
#define quotient(a, b) ((b) == 0 ? 0 : (b) == -1 ? difference(0, a) : (uint64_t)((a) / (b)))

void KERNEL(const struct pairwise *k) {
    const int a_step = k->a_step[LAST], b_step = k->b_step[LAST], y_step = k->y_step[LAST];
    int index[AXES] = {0};
    do {
        const A_T *const a = (const A_T *)k->a + row_offset(index, k->a_step);
        const B_T *const b = (const B_T *)k->b + row_offset(index, k->b_step);
        Y_T *const y = (Y_T *)k->y + row_offset(index, k->y_step);
        for (int i = 0; i < k->extent[LAST]; i++) {
            const A_T left = a[i * a_step];
            const B_T right = b[i * b_step];
            y[i * y_step] = (Y_T)FUNCTION(left, right);
        }
    } while (next_row(index, k->extent));
}
