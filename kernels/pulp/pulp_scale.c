/* The constants were stored in 32 bits, whatever the network's were. */
#undef MUL_T
#undef ADD_T
#define MUL_T int32_t
#define ADD_T int32_t
#ifndef EPILOGUE_REQUANTISE
#define EPILOGUE_REQUANTISE
#endif
#if OPERANDS == 1
#define A_T X_T
#define B_T X_T
#endif
#include "pulp_scale.h"

/* OPERANDS 2: a + b, with PRODUCT (a - a_zero_point) * (b - b_zero_point), ZEROS where these are not zero. */
#ifdef PRODUCT
#define COMBINED(a, b) ((a) * (b))
#define COMBINE "mul t3, t3, t1\n"
#else
#define COMBINED(a, b) ((a) + (b))
#define COMBINE "add t3, t3, t1\n"
#endif
#ifdef ZEROS
#define FROM_ZEROS "sub t3, t3, %[a_zero]\nsub t1, t1, %[b_zero]\n"
#define BETWEEN 2
#else
#define FROM_ZEROS "nop\n"
#define BETWEEN 1
#endif

enum { AXES = 6, LAST = AXES - 1 };

/* A row whose elements lie `a_step`, `b_step` and `y_step` apart. */
static inline void row(const struct pulp_scale *k, const A_T *a, const B_T *b, Y_T *y) {
    const struct stages stages = {0, k->requantisation.mul, k->requantisation.add};
    const int count = k->extent[LAST], a_step = k->a_step[LAST], b_step = k->b_step[LAST], y_step = k->y_step[LAST];
    (void)b, (void)b_step;
#ifdef XP_STAGES
    __asm__ volatile(
        ".option push\n.option norvc\n.insn i 0x7b, 4, x0, %[n], %[length]\n"
        ".insn r 0x0b, 7, %[a_load], t3, %[a], %[a_step]\n"
#if OPERANDS == 2
        ".insn r 0x0b, 7, %[b_load], t1, %[b], %[b_step]\n" FROM_ZEROS COMBINE
#endif
            XP_STAGES("t3", "t4") ".insn r 0x2b, 4, 0, %[y_step], %[y], t4\n.option pop\n"
        : [a] "+r"(a), [b] "+r"(b), [y] "+r"(y)
        : [n] "r"(count), [length] "i"(2 * (STAGES_OF_1 + (OPERANDS == 2 ? 4 + BETWEEN : 2))),
          [a_load] "i"((A_T)-1 < 0 ? 0 : 0x20), [b_load] "i"((B_T)-1 < 0 ? 0 : 0x20), [a_zero] "r"(k->a_zero_point),
          [b_zero] "r"(k->b_zero_point), [a_step] "r"(a_step), [b_step] "r"(b_step), [y_step] "r"(y_step),
          XP_STAGE_OPERANDS(stages, &k->epilogue, &k->requantisation)
        : "t1", "t3", "t4", "memory");
#else
    for (int i = 0; i < count; i++) {
        int32_t acc = a[i * a_step] - k->a_zero_point;
#if OPERANDS == 2
        acc = COMBINED(acc, b[i * b_step] - k->b_zero_point);
#endif
        y[i * y_step] = (Y_T)finish_with(acc, &stages, &k->epilogue, &k->requantisation);
    }
#endif
}

void KERNEL(const struct pulp_scale *k) {
    int index[AXES] = {0};
    for (;;) {
        int a = 0, b = 0, y = 0;
        for (int axis = 0; axis < LAST; axis++)
            a += index[axis] * k->a_step[axis], b += index[axis] * k->b_step[axis], y += index[axis] * k->y_step[axis];
#if OPERANDS == 2
        row(k, (const A_T *)k->a + a, (const B_T *)k->b + b, (Y_T *)k->y + y);
#else
        row(k, (const A_T *)k->a + a, 0, (Y_T *)k->y + y);
#endif
        int axis = LAST - 1;
        while (axis >= 0 && ++index[axis] == k->extent[axis]) index[axis--] = 0;
        if (axis < 0) return;
    }
}
