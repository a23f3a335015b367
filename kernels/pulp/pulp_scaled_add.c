/* y = clip((add + a*a_mul + b*b_mul) >> shift, low, high), of bytes; with SUM_HALVES factors have 16 further bits below
 * these, whose products are added first.
 *
 * All operands have any strides along six axes. The inner loop takes 7 instructions and one or two for the limits, 11
 * with SUM_HALVES: instructions bound it.
 */
#include "../portable/scaled_sum.h"

#include "pulp_rows.h"
#include "xpulp.h"

OUT_OF_LINE void strided_row(const struct scaled_sum *given, const A_T *a, const B_T *b, Y_T *y) {
    const struct scaled_sum k = *given;
    const int a_step = k.a_step[LAST], b_step = k.b_step[LAST], y_step = k.y_step[LAST];
    for (int i = k.extent[LAST]; i > 0; i--, a += a_step, b += b_step, y += y_step) {
        int32_t sum = k.add;
        if (SUM_HALVES) sum += xp_mac(xp_mac(k.add_low, *a, k.a_low), *b, k.b_low) >> 16;
        sum = xp_mac(xp_mac(sum, *a, k.a_mul), *b, k.b_mul) >> k.shift;
        *y = (Y_T)xp_max(k.low, xp_min(k.high, sum));
    }
}

enum { LONG = 128 /* elements of a row that is begun elsewhere */, LENGTH = 8 + 4 * SUM_HALVES - CLIP_WHOLE + 1 };
#define HALVES \
    "mv t4, %[add_low]\n" XP_MAC("t4", "t3", "%[a_low]") XP_MAC("t4", "t5", "%[b_low]") "srai t4, t4, 16\n" \
    "add t4, t4, %[add]\n"
#define SUMMAND EITHER("%[has_halves]", HALVES, "mv t4, %[add]\n")
#define RANGE                                                               \
    EITHER("%[is_whole]", ".insn r 0x33, %[clip], 0x0a, t4, t4, %[high]\n", \
           XP_MAX("t4", "t4", "%[low]") XP_MIN("t4", "t4", "%[high]"))

OUT_OF_LINE void dense_part(const struct scaled_sum *k, const A_T *a, const B_T *b, Y_T *y, int count) {
    XP_BLOCK(
        BEGIN
        ".insn i 0x7b, 4, x0, %[n], %[length]\n"
        ".insn i 0x0b, %[a_load], t3, %[a], 1\n.insn i 0x0b, %[b_load], t5, %[b], 1\n" SUMMAND XP_MAC(
            "t4", "t3", "%[a_mul]") XP_MAC("t4", "t5", "%[b_mul]") "sra t4, t4, %[shift]\n" RANGE
                                                                   ".insn s 0x2b, 0, t4, 1(%[y])\n" END : [a] "+r"(a),
        [b] "+r"(b), [y] "+r"(y) : [n] "r"(count), [length] "i"(2 * LENGTH), [has_halves] "i"(SUM_HALVES),
        [is_whole] "i"(CLIP_WHOLE), [a_load] "i"((A_T)-1 < 0 ? 0 : 4), [b_load] "i"((B_T)-1 < 0 ? 0 : 4),
        [a_mul] "r"(k->a_mul), [b_mul] "r"(k->b_mul), [add] "r"(k->add), [a_low] "ri"(SUM_HALVES ? k->a_low : 0),
        [b_low] "ri"(SUM_HALVES ? k->b_low : 0), [add_low] "ri"(SUM_HALVES ? k->add_low : 0), [shift] "r"(k->shift),
        [low] "ri"(CLIP_WHOLE ? 0 : k->low), [high] "r"(k->high), [clip] "i"((Y_T)-1 < 0 ? 5 : 6) : "t3", "t4", "t5",
        "memory");
}

/* Parts of cores may begin in one bank of L1, where all would meet all the time: each core begins some words further,
 * and ends with those. */
OUT_OF_LINE void dense_row(const struct scaled_sum *k, const A_T *a, const B_T *b, Y_T *y) {
    const int count = k->extent[LAST], first = count >= LONG ? 4 * xp_core() : 0;
    dense_part(k, a + first, b + first, y + first, count - first);
    if (first) dense_part(k, a, b, y, first);
}

void KERNEL(const struct scaled_sum *k) {
    const int is_dense = k->a_step[LAST] == 1 && k->b_step[LAST] == 1 && k->y_step[LAST] == 1;
    int index[AXES] = {0}, a_at = 0, b_at = 0, y_at = 0;
    do {
        const A_T *const a = (const A_T *)k->a + a_at;
        const B_T *const b = (const B_T *)k->b + b_at;
        Y_T *const y = (Y_T *)k->y + y_at;
        if (XPULP_INSN && is_dense)
            dense_row(k, a, b, y);
        else
            strided_row(k, a, b, y);
    } while (next_rows(index, k->extent, k->a_step, &a_at, k->b_step, &b_at, k->y_step, &y_at));
}
