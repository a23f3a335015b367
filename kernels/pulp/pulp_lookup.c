/* y = table[x - smallest], of bytes: a function by a table of 256 entries.
 *
 * x and y have any strides along six axes. Two elements take 6 instructions, half of each a load: instructions bound
 * it.
 */
#include "../portable/lookup.h"

#include "pulp_rows.h"
#include "xpulp.h"

static inline void row(const struct lookup *k, const X_T *x, Y_T *y) {
    const int count = k->extent[LAST], x_step = k->x_step[LAST], y_step = k->y_step[LAST];
    if (!XPULP_INSN) {
        for (int i = 0; i < count; i++) y[i * y_step] = (Y_T)((const TABLE_T *)k->table)[x[i * x_step] - k->smallest];
        return;
    }
#define LOAD(to) ".insn r 0x0b, 7, %[load], " to ", %[x], %[x_step]\n"
#define FIND(at) ".insn r 0x03, 7, 0x20, " at ", %[zero], " at "\n"
#define STORE(from) ".insn r 0x2b, 4, 0, %[y_step], %[y], " from "\n"
#define OPERANDS                                                                                              \
    [load] "i"((X_T) - 1 < 0 ? 0 : 0x20), [zero] "r"((uintptr_t)k->table - (uintptr_t)(intptr_t)k->smallest), \
        [x_step] "r"(x_step), [y_step] "r"(y_step)
    if (count & 1) {
        XP_BLOCK(LOAD("t0") FIND("t0") STORE("t0") : [x] "+r"(x), [y] "+r"(y) : OPERANDS : "t0", "memory");
    }
    if (count > 1) {
        XP_BLOCK(BEGIN LOOP("%[n]", 6) LOAD("t0") LOAD("t1") FIND("t0") FIND("t1") STORE("t0") STORE("t1") END :
                 [x] "+r"(x), [y] "+r"(y) : [n] "r"(count >> 1), OPERANDS : "t0", "t1", "memory");
    }
}

void KERNEL(const struct lookup *k) {
    int index[AXES] = {0}, x_at = 0, y_at = 0;
    do {
        row(k, (const X_T *)k->x + x_at, (Y_T *)k->y + y_at);
    } while (next_rows(index, k->extent, k->x_step, &x_at, k->y_step, &y_at, 0, 0));
}
