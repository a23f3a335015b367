/* y = epilogue(a + b, a - b, a * b or a / b), element by element, less zero points.
 *
 * All operands have any strides along six axes. An element is two loads, two subtractions of zero points and the
 * operation, in blocks on the stack that the epilogue takes: loads and stores bound it, of quotients the division.
 */
#include "binary.h"

#include "loops.h"

/* Accumulators are a local array: vectors are filled where there are any, else stacks are short. */
#if defined(__riscv) && !defined(__riscv_vector)
#define BLOCK 32
#else
#define BLOCK 64
#endif

static inline ACC_T combine(enum binary_operation operation, ACC_T a, ACC_T b) {
    switch (operation) {
        case BINARY_ADD:
            return a + b;
        case BINARY_SUB:
            return a - b;
        case BINARY_MUL:
            return a * b;
        default:
            return IS_FLOAT || b != 0 ? a / b : 0;
    }
}

/* Called with constant operations and steps, so that each case becomes a loop of its own that vectorises. */
static inline void fill(ACC_T *restrict acc, const struct binary *k, enum binary_operation operation, const A_T *a,
                        int a_step, const B_T *b, int b_step, int count) {
    const ACC_T a_zero = (ACC_T)k->a_zero_point, b_zero = (ACC_T)k->b_zero_point;
    /*@ loop unroll BLOCK; */
    for (int i = 0; i < count; i++)
        acc[i] = combine(operation, (ACC_T)a[i * a_step] - a_zero, (ACC_T)b[i * b_step] - b_zero);
}

static inline void fill_by_step(ACC_T *restrict acc, const struct binary *k, enum binary_operation operation,
                                const A_T *a, const B_T *b, int count) {
    const int a_step = k->a_step[LAST], b_step = k->b_step[LAST];
    if (a_step == 1 && b_step == 1)
        fill(acc, k, operation, a, 1, b, 1, count);
    else if (a_step == 1 && b_step == 0)
        fill(acc, k, operation, a, 1, b, 0, count);
    else
        fill(acc, k, operation, a, a_step, b, b_step, count);
}

void KERNEL(const struct binary *k) {
    int index[AXES] = {0};
    do {
        const A_T *const a = (const A_T *)k->a + row_offset(index, k->a_step);
        const B_T *const b = (const B_T *)k->b + row_offset(index, k->b_step);
        Y_T *const y = (Y_T *)k->y + row_offset(index, k->y_step);
        for (int first = 0; first < k->extent[LAST]; first += BLOCK) {
            const int count = k->extent[LAST] - first < BLOCK ? k->extent[LAST] - first : BLOCK;
            /*@ split count; */
            const A_T *const from_a = a + (ptrdiff_t)first * k->a_step[LAST];
            const B_T *const from_b = b + (ptrdiff_t)first * k->b_step[LAST];
            ACC_T acc[BLOCK];
            switch (k->operation) {
                case BINARY_ADD:
                    fill_by_step(acc, k, BINARY_ADD, from_a, from_b, count);
                    break;
                case BINARY_SUB:
                    fill_by_step(acc, k, BINARY_SUB, from_a, from_b, count);
                    break;
                case BINARY_MUL:
                    fill_by_step(acc, k, BINARY_MUL, from_a, from_b, count);
                    break;
                default:
                    fill_by_step(acc, k, BINARY_DIV, from_a, from_b, count);
                    break;
            }
            finish_row(acc, y + first, &k->epilogue, first, count);
        }
    } while (next_row(index, k->extent));
}
