/* Requantisation of the elements of one or two operands of bytes, OPERANDS, by one multiplier for all. */
#ifndef DEEPLOY_PULP_SCALE_ROWS_H
#define DEEPLOY_PULP_SCALE_ROWS_H

/* The constants were stored in 32 bits, whatever the network's were. */
#undef MUL_T
#undef ADD_T
#undef EPILOGUE_REQUANTISE
#define MUL_T int32_t
#define ADD_T int32_t
#define EPILOGUE_REQUANTISE 1

#include "pulp_finish.h"
#include "pulp_scale.h"

enum { AXES = 6, LAST = AXES - 1, HAS_B = OPERANDS == 2 };

/* Instructions between the loads and the requantisation: the second one waits for its load. */
#define COMBINE                                                                   \
    EITHER("%[zeros]", "sub t3, t3, %[a_zero]\nsub t1, t1, %[b_zero]\n", "nop\n") \
    EITHER("%[is_product]", "mul t3, t3, t1\n", "add t3, t3, t1\n")
enum { LENGTH = 2 + (HAS_B ? 3 + ZERO_POINTS : 0) + STAGES_OF_1 };

/* A row whose elements lie `a_step`, `b_step` and `y_step` apart. */
static inline void scale_row(const struct pulp_scale *k, const A_T *a, const B_T *b, Y_T *y) {
    const struct stages stages = {0, k->requantisation.mul, k->requantisation.add};
    const int count = k->extent[LAST], a_step = k->a_step[LAST], b_step = k->b_step[LAST], y_step = k->y_step[LAST];
    if (ALONE_IN_ASSEMBLY) {
        XP_BLOCK(BEGIN ".insn i 0x7b, 4, x0, %[n], %[length]\n.insn r 0x0b, 7, %[a_load], t3, %[a], %[a_step]\n" IF(
                     "%[has_b]", ".insn r 0x0b, 7, %[b_load], t1, %[b], %[b_step]\n" COMBINE)
                     XP_STAGES("t3", "t4") ".insn r 0x2b, 4, 0, %[y_step], %[y], t4\n" END : [a] "+r"(a),
                 [b] "+r"(b), [y] "+r"(y) : [n] "r"(count), [length] "i"(2 * LENGTH), [has_b] "i"(HAS_B),
                 [zeros] "i"(ZERO_POINTS), [is_product] "i"(PRODUCT), [a_load] "i"((A_T)-1 < 0 ? 0 : 0x20),
                 [b_load] "i"((B_T)-1 < 0 ? 0 : 0x20), [a_zero] "r"(k->a_zero_point), [b_zero] "r"(k->b_zero_point),
                 [a_step] "r"(a_step), [b_step] "r"(b_step), [y_step] "r"(y_step),
                 XP_OPERANDS_OF_1(stages, &k->epilogue, &k->requantisation) : "t1", "t3", "t4", "memory");
        return;
    }
    for (int i = 0; i < count; i++) {
        int32_t acc = a[i * a_step] - k->a_zero_point;
        const int32_t other = HAS_B ? b[i * b_step] - k->b_zero_point : 0;
        acc = PRODUCT ? acc * other : acc + other;
        y[i * y_step] = (Y_T)finish_with(acc, &stages, &k->epilogue, &k->requantisation);
    }
}

static inline void scale_rows(const struct pulp_scale *k) {
    int index[AXES] = {0};
    for (;;) {
        int a = 0, b = 0, y = 0;
        for (int axis = 0; axis < LAST; axis++)
            a += index[axis] * k->a_step[axis], b += index[axis] * k->b_step[axis], y += index[axis] * k->y_step[axis];
        scale_row(k, (const A_T *)k->a + a, HAS_B ? (const B_T *)k->b + b : 0, (Y_T *)k->y + y);
        int axis = LAST - 1;
        while (axis >= 0 && ++index[axis] == k->extent[axis]) index[axis--] = 0;
        if (axis < 0) return;
    }
}

#endif
