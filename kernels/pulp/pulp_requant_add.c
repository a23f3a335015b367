#include "pulp_requant_add.h"

#include "pulp_rows.h"

/* An instance defines A_SCALED where a is not added as it is; and where results leave the limits: A_BELOW, A_ABOVE, or
 * A_EITHER for both where the lower limit is that of a signed number. The same for b. */
#ifdef A_SCALED
#define SCALE_A "mv t4, %[a_add]\n.insn r 0x33, 0, 0x21, t4, t3, %[a_mul]\nsra t3, t4, %[a_shift]\n"
enum { SCALES_A = 3 };
#else
#define SCALE_A
enum { SCALES_A = 0 };
#endif
#ifdef B_SCALED
#define SCALE_B "mv t4, %[b_add]\n.insn r 0x33, 0, 0x21, t4, t5, %[b_mul]\nsra t5, t4, %[b_shift]\n"
enum { SCALES_B = 3 };
#else
#define SCALE_B
enum { SCALES_B = 0 };
#endif
#if defined(A_EITHER)
#define LIMIT_A ".insn r 0x33, 5, 0x0a, t3, t3, %[a_high]\n"
enum { LIMITS_A = 1 };
#elif defined(A_BELOW) && defined(A_ABOVE)
#define LIMIT_A ".insn r 0x33, 6, 2, t3, t3, %[a_low]\n.insn r 0x33, 4, 2, t3, t3, %[a_high]\n"
enum { LIMITS_A = 2 };
#elif defined(A_BELOW)
#define LIMIT_A ".insn r 0x33, 6, 2, t3, t3, %[a_low]\n"
enum { LIMITS_A = 1 };
#elif defined(A_ABOVE)
#define LIMIT_A ".insn r 0x33, 4, 2, t3, t3, %[a_high]\n"
enum { LIMITS_A = 1 };
#else
#define LIMIT_A
enum { LIMITS_A = 0 };
#endif
#if defined(B_EITHER)
#define LIMIT_B ".insn r 0x33, 5, 0x0a, t5, t5, %[b_high]\n"
enum { LIMITS_B = 1 };
#elif defined(B_BELOW) && defined(B_ABOVE)
#define LIMIT_B ".insn r 0x33, 6, 2, t5, t5, %[b_low]\n.insn r 0x33, 4, 2, t5, t5, %[b_high]\n"
enum { LIMITS_B = 2 };
#elif defined(B_BELOW)
#define LIMIT_B ".insn r 0x33, 6, 2, t5, t5, %[b_low]\n"
enum { LIMITS_B = 1 };
#elif defined(B_ABOVE)
#define LIMIT_B ".insn r 0x33, 4, 2, t5, t5, %[b_high]\n"
enum { LIMITS_B = 1 };
#else
#define LIMIT_B
enum { LIMITS_B = 0 };
#endif

/* In the general form. */
static inline int32_t scaled(int32_t x, const struct pulp_scaled *s) {
    return xp_max(s->low, xp_min(s->high, xp_mac(s->add, x, s->mul) >> s->shift));
}

OUT_OF_LINE void strided_row(const struct pulp_requant_add *k, const A_T *a, const B_T *b, Y_T *y) {
    const struct pulp_scaled a_scale = k->a_scale, b_scale = k->b_scale;
    const struct stages stages = {0, k->requantisation.mul, k->requantisation.add};
    const int a_step = k->a_step[LAST], b_step = k->b_step[LAST], y_step = k->y_step[LAST];
    for (int i = k->extent[LAST]; i > 0; i--, a += a_step, b += b_step, y += y_step) {
        const int32_t sum = scaled(*a, &a_scale) + scaled(*b, &b_scale);
        *y = (Y_T)finish_with(sum, &stages, &k->epilogue, &k->requantisation);
    }
}

#ifdef XP_STAGES
OUT_OF_LINE void dense_row(const struct pulp_requant_add *k, const A_T *a, const B_T *b, Y_T *y) {
    const struct pulp_scaled *const s = &k->a_scale, *const t = &k->b_scale;
    const struct stages stages = {0, k->requantisation.mul, k->requantisation.add};
    __asm__ volatile(
        ".option push\n.option norvc\n.insn i 0x7b, 4, x0, %[n], %[length]\n"
        ".insn i 0x0b, %[a_load], t3, %[a], 1\n.insn i 0x0b, %[b_load], t5, %[b], 1\n" SCALE_A LIMIT_A SCALE_B LIMIT_B
        "add t3, t3, t5\n" XP_STAGES("t3", "t4") ".insn s 0x2b, 0, t4, 1(%[y])\n.option pop\n"
        : [a] "+r"(a), [b] "+r"(b), [y] "+r"(y)
        : [n] "r"(k->extent[LAST]), [length] "i"(2 * (4 + SCALES_A + LIMITS_A + SCALES_B + LIMITS_B + STAGES_OF_1)),
          [a_load] "i"((A_T)-1 < 0 ? 0 : 4), [b_load] "i"((B_T)-1 < 0 ? 0 : 4), [a_mul] "r"(s->mul),
          [a_add] "r"(s->add), [a_shift] "r"(s->shift), [a_low] "r"(s->low), [a_high] "r"(s->high), [b_mul] "r"(t->mul),
          [b_add] "r"(t->add), [b_shift] "r"(t->shift), [b_low] "r"(t->low), [b_high] "r"(t->high),
          XP_STAGE_OPERANDS(stages, &k->epilogue, &k->requantisation)
        : "t3", "t4", "t5", "memory");
}
#else
#define dense_row strided_row
#endif

void KERNEL(const struct pulp_requant_add *k) {
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
