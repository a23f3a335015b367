/* Sum, difference or product of floats, eight pairs at a time where rows are neighbours or one number. Other rows are
 * computed one by one. */
#include "../portable/binary.h"

#include "../portable/loops.h"
#include "snitch_products.h"
#include "snitch_rows.h"

#define COMBINE_DEVICE(name, number)                                                           \
    static inline void name##_group(struct streams *streams, float *y, const struct ends *e) { \
        (void)streams;                                                                         \
        __asm__ volatile(".insn i 0x0B, 7, x3, %[each], 0\n .insn r 0x33, 0, " #number         \
                         ", f8, ft0, ft1\n" CLAMP_SUMS(8) SUMS_8(STORE_SUM)                    \
                         :                                                                     \
                         : [each] "r"(GROUP - 1), [y] "r"(y), CLAMP_OPERANDS                   \
                         : CLOBBERED);                                                         \
    }
#define COMBINE_HOST(name, number)                                                             \
    static inline void name##_group(struct streams *streams, float *y, const struct ends *e) { \
        for (int i = 0; i < 2 * GROUP; i += 2) {                                               \
            const pair a = stream_next(streams, FIRST);                                        \
            pair_store(y + i, clamped(name(a, stream_next(streams, SECOND)), e));              \
        }                                                                                      \
    }
#ifdef __riscv
#define COMBINE COMBINE_DEVICE
#else
#define COMBINE COMBINE_HOST
#endif
COMBINE(pair_add, 0x41)
COMBINE(pair_sub, 0x42)
COMBINE(pair_mul, 0x43)

static inline float combine(enum binary_operation operation, float a, float b) {
    return operation == BINARY_ADD ? a + b : operation == BINARY_SUB ? a - b : a * b;
}

/* Groups of a row: where a step is 0, the operand is one number. */
static void groups_of(const struct binary *k, const float *a, const float *b, float *y, int groups,
                      const struct ends *e) {
    const int a_step = k->a_step[LAST], b_step = k->b_step[LAST];
    float one[4] __attribute__((aligned(8))) = {*a, *a, *b, *b};
    struct streams streams;
    STREAM_BEGIN(&streams, FIRST, 1, {a_step ? (float *)a : one, 1, {groups * GROUP}, {2 * a_step}});
    STREAM_BEGIN(&streams, SECOND, 1, {b_step ? (float *)b : one + 2, 1, {groups * GROUP}, {2 * b_step}});
    streams_on();
    for (int i = 0; i < groups; i++, y += 2 * GROUP) {
        if (k->operation == BINARY_ADD)
            pair_add_group(&streams, y, e);
        else if (k->operation == BINARY_SUB)
            pair_sub_group(&streams, y, e);
        else
            pair_mul_group(&streams, y, e);
    }
    streams_off();
}

void KERNEL(const struct binary *k) {
    const int a_step = k->a_step[LAST], b_step = k->b_step[LAST], count = k->extent[LAST];
    const struct ends e = ends_of(&k->epilogue);
    const int is_dense = (a_step | b_step) <= 1 && (a_step | b_step) >= 0;
    int index[AXES] = {0};
    do {
        const float *const a = (const float *)k->a + row_offset(index, k->a_step);
        const float *const b = (const float *)k->b + row_offset(index, k->b_step);
        float *const y = (float *)k->y + row_offset(index, k->y_step);
        const int paired = is_dense && is_paired(y) && (!a_step || is_paired(a)) && (!b_step || is_paired(b));
        const int groups = paired ? count / (2 * GROUP) : 0;
        if (groups > 0) groups_of(k, a, b, y, groups, &e);
        for (int i = groups * 2 * GROUP; i < count; i++)
            pair_store_low(y + i, clamped(pair_both(combine(k->operation, a[i * a_step], b[i * b_step])), &e));
    } while (next_row(index, k->extent));
}
