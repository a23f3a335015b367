/* y = condition ? a : b, of bytes, four elements at a time: b ^ ((a ^ b) & mask).
 *
 * All operands have any strides along six axes. Dense rows, and operands that are one for a row, take 16 instructions
 * for eight elements, half of them loads and stores: instructions bound it. Others are loops over elements.
 */
#include "../portable/select.h"

#include "pulp_rows.h"
#include "xpulp.h"

/* A row of dense elements of y; those of the operands are dense, or one for all. */
static inline void dense_row(const CONDITION_T *c, int c_step, const A_T *a, int a_step, const B_T *b, int b_step,
                             Y_T *y, int count) {
    int done = 0;
    const uint32_t c_all = (uint8_t)c[0] * 0x01010101u, a_all = (uint8_t)a[0] * 0x01010101u,
                   b_all = (uint8_t)b[0] * 0x01010101u;
    const uint32_t *p = c_step ? (const uint32_t *)c : &c_all, *q = a_step ? (const uint32_t *)a : &a_all,
                   *r = b_step ? (const uint32_t *)b : &b_all;
    uint8_t *to = (uint8_t *)y;
#define LOAD(to, from, step) ".insn r 0x0b, 7, 0x10, " to ", %[" from "], %[" step "]\n"
#define LOADS(c, a, b) LOAD(c, "p", "p_step") LOAD(a, "q", "q_step") LOAD(b, "r", "r_step")
#define FIND(c, a, b)                                                                                               \
    ".insn r 0x57, 1, %[differ], " c ", " c ", x0\nxor " a ", " a ", " b "\nand " c ", " c ", " a "\nxor " b ", " b \
    ", " c "\n"
#define STORES ".insn s 0x2b, 2, t2, 4(%[to])\n.insn s 0x2b, 2, t5, 4(%[to])\n"
    if (XPULP_INSN && count >> 3) {
        XP_BLOCK(BEGIN LOOP("%[n]", 16) LOADS("t0", "t1", "t2") LOADS("t3", "t4", "t5") FIND("t0", "t1", "t2")
                     FIND("t3", "t4", "t5") STORES END : [p] "+r"(p),
                 [q] "+r"(q), [r] "+r"(r), [to] "+r"(to) : [n] "r"(count >> 3), [p_step] "r"(4 * c_step),
                 [q_step] "r"(4 * a_step), [r_step] "r"(4 * b_step), [differ] "i"(XP_DIFFER4) : "t0", "t1", "t2", "t3",
                 "t4", "t5", "memory");
    }
    if (XPULP_INSN) done = count & ~7;
    for (int i = done; i < count; i++) y[i] = (Y_T)(c[i * c_step] ? a[i * a_step] : b[i * b_step]);
}

static inline void row(const struct select *k, const CONDITION_T *c, const A_T *a, const B_T *b, Y_T *y) {
    const int c_step = k->condition_step[LAST], a_step = k->a_step[LAST], b_step = k->b_step[LAST],
              y_step = k->y_step[LAST], count = k->extent[LAST];
    if ((unsigned)c_step <= 1 && (unsigned)a_step <= 1 && (unsigned)b_step <= 1 && y_step == 1) {
        dense_row(c, c_step, a, a_step, b, b_step, y, count);
        return;
    }
    for (int i = 0; i < count; i++) y[i * y_step] = (Y_T)(c[i * c_step] ? a[i * a_step] : b[i * b_step]);
}

void KERNEL(const struct select *k) {
    int index[AXES] = {0}, axis;
    const CONDITION_T *c = k->condition;
    const A_T *a = k->a;
    const B_T *b = k->b;
    Y_T *y = k->y;
    do {
        row(k, c, a, b, y);
        axis = LAST - 1;
        XP_UNKNOWN(axis);
        for (; axis >= 0; axis--) {
            if (k->extent[axis] == 1) continue;
            const int is_last = ++index[axis] == k->extent[axis], steps = is_last ? 1 - k->extent[axis] : 1;
            c += steps * k->condition_step[axis], a += steps * k->a_step[axis];
            b += steps * k->b_step[axis], y += steps * k->y_step[axis];
            if (!is_last) break;
            index[axis] = 0;
        }
    } while (axis >= 0);
}
