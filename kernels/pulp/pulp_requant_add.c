/* y = epilogue(a' + b'), of bytes, where a' = clip((a*a_mul + a_add) >> a_shift, a_low, a_high) and b' is the same of
 * b.
 *
 * All operands have any strides along six axes. The inner loop takes 4 instructions to load, add and store, at most 5
 * for each operand's scale and limits, and STAGES_OF_1 for the requantisation (pulp_finish.h), 3 to 7: instructions
 * bound it.
 *
 * An instance has A_SCALED where a is not added as it is; and where results leave the limits: A_BELOW, A_ABOVE, or
 * A_EITHER for both where the lower limit is that of a signed number. The same for b. */
#include "pulp_requant_add.h"

#include "pulp_finish.h"
#include "pulp_rows.h"

/* The same as flags of the assembly, the lower four for a; the next two, where bytes have no sign. */
enum {
    OF_A = A_SCALED | A_EITHER << 1 | A_BELOW << 2 | A_ABOVE << 3,
    OF_B = B_SCALED << 4 | B_EITHER << 5 | B_BELOW << 6 | B_ABOVE << 7,
    IS_UNSIGNED = ((A_T)-1 > 0) << 8 | ((B_T)-1 > 0) << 9,
    SCALES = 3 * A_SCALED + A_EITHER + A_BELOW + A_ABOVE + 3 * B_SCALED + B_EITHER + B_BELOW + B_ABOVE
};
#define LOAD_BYTE(to, from, bit) ".insn i 0x0b, 4 * (%[of] >> " bit " & 1), " to ", %[" from "], 1\n"
#define SCALE(x, of, is_scaled) \
    IF("%[of] & " is_scaled,    \
       "mv t4, %[" of "_add]\n" XP_MAC("t4", x, "%[" of "_mul]") "sra " x ", t4, %[" of "_shift]\n")
#define LIMIT(x, of, either, below, above)                 \
    IF("%[of] & " either, XP_CLIP(x, x, "%[" of "_high]")) \
    IF("%[of] & " below, XP_MAX(x, x, "%[" of "_low]"))    \
    IF("%[of] & " above, XP_MIN(x, x, "%[" of "_high]"))

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

OUT_OF_LINE void dense_row(const struct pulp_requant_add *k, const A_T *a, const B_T *b, Y_T *y) {
    const struct pulp_scaled *const s = &k->a_scale, *const t = &k->b_scale;
    const struct stages stages = {0, k->requantisation.mul, k->requantisation.add};
    XP_BLOCK(
        BEGIN ".insn i 0x7b, 4, x0, %[n], %[length]\n" LOAD_BYTE("t3", "a", "8") LOAD_BYTE("t5", "b", "9")
            SCALE("t3", "a", "1") LIMIT("t3", "a", "2", "4", "8") SCALE("t5", "b", "16")
                LIMIT("t5", "b", "32", "64", "128") "add t3, t3, t5\n" XP_STAGES(
                    "t3", "t4") ".insn s 0x2b, 0, t4, 1(%[y])\n" END : [a] "+r"(a),
        [b] "+r"(b), [y] "+r"(y) : [n] "r"(k->extent[LAST]), [length] "i"(2 * (4 + SCALES + STAGES_OF_1)),
        [of] "i"(OF_A | OF_B | IS_UNSIGNED), [a_mul] "ri"(A_SCALED ? s->mul : 0), [a_add] "ri"(A_SCALED ? s->add : 0),
        [a_shift] "ri"(A_SCALED ? s->shift : 0), [a_low] "ri"(A_BELOW ? s->low : 0),
        [a_high] "ri"(A_EITHER || A_ABOVE ? s->high : 0), [b_mul] "ri"(B_SCALED ? t->mul : 0),
        [b_add] "ri"(B_SCALED ? t->add : 0), [b_shift] "ri"(B_SCALED ? t->shift : 0),
        [b_low] "ri"(B_BELOW ? t->low : 0), [b_high] "ri"(B_EITHER || B_ABOVE ? t->high : 0),
        XP_OPERANDS_OF_1(stages, &k->epilogue, &k->requantisation) : "t3", "t4", "t5", "memory");
}

void KERNEL(const struct pulp_requant_add *k) {
    const int is_dense = k->a_step[LAST] == 1 && k->b_step[LAST] == 1 && k->y_step[LAST] == 1;
    int index[AXES] = {0}, a_at = 0, b_at = 0, y_at = 0;
    do {
        const A_T *const a = (const A_T *)k->a + a_at;
        const B_T *const b = (const B_T *)k->b + b_at;
        Y_T *const y = (Y_T *)k->y + y_at;
        if (ALONE_IN_ASSEMBLY && is_dense)
            dense_row(k, a, b, y);
        else
            strided_row(k, a, b, y);
    } while (next_rows(index, k->extent, k->a_step, &a_at, k->b_step, &b_at, k->y_step, &y_at));
}
