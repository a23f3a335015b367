#include "pulp_scaled_add.h"

#include "xpulp.h"

enum { AXES = 6, LAST = AXES - 1 };

static inline void row(const struct pulp_scaled_add *given, const A_T *a, const B_T *b, Y_T *y) {
    const struct pulp_scaled_add k = *given;
    const int a_step = k.a_step[LAST], b_step = k.b_step[LAST], y_step = k.y_step[LAST];
    for (int i = k.extent[LAST]; i > 0; i--, a += a_step, b += b_step, y += y_step) {
        const int32_t carry = xp_mac(xp_mac(k.add_low, *a, k.a_low), *b, k.b_low) >> 16;
        const int32_t sum = xp_mac(xp_mac(k.add_high + carry, *a, k.a_high), *b, k.b_high);
        *y = (Y_T)xp_max(k.low, xp_min(k.high, sum >> k.shift));
    }
}

void KERNEL(const struct pulp_scaled_add *k) {
    int index[AXES] = {0};
    for (;;) {
        int a = 0, b = 0, y = 0;
        for (int i = 0; i < LAST; i++)
            a += index[i] * k->a_step[i], b += index[i] * k->b_step[i], y += index[i] * k->y_step[i];
        row(k, (const A_T *)k->a + a, (const B_T *)k->b + b, (Y_T *)k->y + y);
        int axis = LAST - 1;
        while (axis >= 0 && ++index[axis] == k->extent[axis]) index[axis--] = 0;
        if (axis < 0) return;
    }
}
