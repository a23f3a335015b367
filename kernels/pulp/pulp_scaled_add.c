#include "../portable/scaled_sum.h"

#include "pulp_rows.h"
#include "xpulp.h"

OUT_OF_LINE void strided_row(const struct scaled_sum *given, const A_T *a, const B_T *b, Y_T *y) {
    const struct scaled_sum k = *given;
    const int a_step = k.a_step[LAST], b_step = k.b_step[LAST], y_step = k.y_step[LAST];
    for (int i = k.extent[LAST]; i > 0; i--, a += a_step, b += b_step, y += y_step) {
        int32_t sum = k.add;
#ifdef SUM_HALVES
        sum += xp_mac(xp_mac(k.add_low, *a, k.a_low), *b, k.b_low) >> 16;
#endif
        sum = xp_mac(xp_mac(sum, *a, k.a_mul), *b, k.b_mul) >> k.shift;
        *y = (Y_T)xp_max(k.low, xp_min(k.high, sum));
    }
}

#ifdef XPULP_INSN
enum { LONG = 128 }; /* elements of a row that is begun elsewhere */
#define MAC(acc, x, by) ".insn r 0x33, 0, 0x21, " acc ", " x ", %[" by "]\n"
#ifdef SUM_HALVES
#define BEGIN \
    "mv t4, %[add_low]\n" MAC("t4", "t3", "a_low") MAC("t4", "t5", "b_low") "srai t4, t4, 16\nadd t4, t4, %[add]\n"
enum { BEGINS = 5 };
#else
#define BEGIN "mv t4, %[add]\n"
enum { BEGINS = 1 };
#endif
#ifdef CLIP_WHOLE
#define RANGE ".insn r 0x33, %[clip], 0x0a, t4, t4, %[high]\n"
enum { RANGES = 1 };
#else
#define RANGE ".insn r 0x33, 6, 2, t4, t4, %[low]\n.insn r 0x33, 4, 2, t4, t4, %[high]\n"
enum { RANGES = 2 };
#endif

OUT_OF_LINE void dense_part(const struct scaled_sum *k, const A_T *a, const B_T *b, Y_T *y, int count) {
    __asm__ volatile(
        ".option push\n.option norvc\n.insn i 0x7b, 4, x0, %[n], %[length]\n"
        ".insn i 0x0b, %[a_load], t3, %[a], 1\n.insn i 0x0b, %[b_load], t5, %[b], 1\n" BEGIN MAC("t4", "t3", "a_mul")
            MAC("t4", "t5", "b_mul") "sra t4, t4, %[shift]\n" RANGE ".insn s 0x2b, 0, t4, 1(%[y])\n.option pop\n"
        : [a] "+r"(a), [b] "+r"(b), [y] "+r"(y)
        : [n] "r"(count), [length] "i"(2 * (6 + BEGINS + RANGES)), [a_load] "i"((A_T)-1 < 0 ? 0 : 4),
          [b_load] "i"((B_T)-1 < 0 ? 0 : 4), [a_mul] "r"(k->a_mul), [b_mul] "r"(k->b_mul), [add] "r"(k->add),
          [a_low] "r"(k->a_low), [b_low] "r"(k->b_low), [add_low] "r"(k->add_low), [shift] "r"(k->shift),
          [low] "r"(k->low), [high] "r"(k->high), [clip] "i"((Y_T)-1 < 0 ? 5 : 6)
        : "t3", "t4", "t5", "memory");
}

/* Parts of cores may begin in one bank of L1, where all would meet all the time: each core begins some words further,
 * and ends with those. */
OUT_OF_LINE void dense_row(const struct scaled_sum *k, const A_T *a, const B_T *b, Y_T *y) {
    const int count = k->extent[LAST], first = count >= LONG ? 4 * xp_core() : 0;
    dense_part(k, a + first, b + first, y + first, count - first);
    if (first) dense_part(k, a, b, y, first);
}
#else
#define dense_row strided_row
#endif

void KERNEL(const struct scaled_sum *k) {
    const int is_dense = k->a_step[LAST] == 1 && k->b_step[LAST] == 1 && k->y_step[LAST] == 1;
    int index[AXES] = {0}, a_at = 0, b_at = 0, y_at = 0;
    do {
        const A_T *const a = (const A_T *)k->a + a_at;
        const B_T *const b = (const B_T *)k->b + b_at;
        Y_T *const y = (Y_T *)k->y + y_at;
        if (is_dense)
            dense_row(k, a, b, y);
        else
            strided_row(k, a, b, y);
    } while (next_rows(index, k->extent, k->a_step, &a_at, k->b_step, &b_at, k->y_step, &y_at));
}
