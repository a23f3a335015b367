/* y = epilogue(a + b, a - b or a * b), element by element, of floats.
 *
 * All operands have any strides along six axes; y is dense along the last one. Four elements are computed together, of
 * operands that are dense or one for all: 8 loads, 4 operations and 4 stores, besides which a loop takes 5
 * instructions. Loads and stores bound it.
 */
#include "../portable/binary.h"

#include "../portable/loops.h"
#include "xpulp.h"

enum { TOGETHER = 4 };

/* Where a row's elements lie; of operands that are one for all, steps are 0. */
struct elements {
    const float *a, *b;
    float *y;
    int count, a_step, b_step;
};

FOLDED float combine(enum binary_operation operation, float a, float b) {
    return operation == BINARY_ADD ? a + b : operation == BINARY_SUB ? a - b : a * b;
}

FOLDED float limit_result(float value, const struct epilogue *e) {
    if (!HAS_CLAMP) return value;
    const float least = value < e->low_f ? e->low_f : value;
    return least > e->high_f ? e->high_f : least;
}

/* Constants choose instructions. */
FOLDED void combine_row(const struct elements *row, const struct epilogue *e, enum binary_operation operation,
                        int a_step, int b_step) {
    const float *a = row->a, *b = row->b;
    float *y = row->y;
    int left = row->count;
    for (; left >= TOGETHER; left -= TOGETHER, a += TOGETHER * a_step, b += TOGETHER * b_step, y += TOGETHER) {
        const float a0 = a[0], a1 = a[a_step], a2 = a[2 * a_step], a3 = a[3 * a_step];
        const float b0 = b[0], b1 = b[b_step], b2 = b[2 * b_step], b3 = b[3 * b_step];
        y[0] = limit_result(combine(operation, a0, b0), e);
        y[1] = limit_result(combine(operation, a1, b1), e);
        y[2] = limit_result(combine(operation, a2, b2), e);
        y[3] = limit_result(combine(operation, a3, b3), e);
    }
    XP_UNKNOWN(left);
    for (; left > 0; left--, a += a_step, b += b_step, y++) y[0] = limit_result(combine(operation, a[0], b[0]), e);
}

FOLDED void combine_by_step(const struct elements *row, const struct epilogue *e, enum binary_operation operation) {
    if (row->a_step == 1 && row->b_step == 1)
        combine_row(row, e, operation, 1, 1);
    else if (row->a_step == 1 && row->b_step == 0)
        combine_row(row, e, operation, 1, 0);
    else if (row->a_step == 0 && row->b_step == 1)
        combine_row(row, e, operation, 0, 1);
    else
        combine_row(row, e, operation, row->a_step, row->b_step);
}

OUT_OF_LINE void add_row(const struct elements *row, const struct epilogue *e) {
    combine_by_step(row, e, BINARY_ADD);
}

OUT_OF_LINE void subtract_row(const struct elements *row, const struct epilogue *e) {
    combine_by_step(row, e, BINARY_SUB);
}

OUT_OF_LINE void multiply_row(const struct elements *row, const struct epilogue *e) {
    combine_by_step(row, e, BINARY_MUL);
}

void KERNEL(const struct binary *k) {
    int index[AXES] = {0};
    do {
        const struct elements row = {
            (const float *)k->a + row_offset(index, k->a_step),
            (const float *)k->b + row_offset(index, k->b_step),
            (float *)k->y + row_offset(index, k->y_step),
            k->extent[LAST],
            k->a_step[LAST],
            k->b_step[LAST],
        };
        if (k->operation == BINARY_ADD)
            add_row(&row, &k->epilogue);
        else if (k->operation == BINARY_SUB)
            subtract_row(&row, &k->epilogue);
        else
            multiply_row(&row, &k->epilogue);
    } while (next_row(index, k->extent));
}
