#include "gather.h"

#include "halves.h"
#include "packed.h"

#include <stddef.h>
#include <stdint.h>
#include <string.h>

void KERNEL(const struct gather *k) {
    Y_T *y = (Y_T *)k->y;
    for (int o = 0; o < k->outer; o++) {
        for (int i = 0; i < k->count; i++) {
            int64_t index = ((const INDICES_T *)k->indices)[i];
            index = index < 0 ? index + k->size : index;
            /* An index that is out of range at run time must not leave the table. */
            index = index < 0 ? 0 : index >= k->size ? k->size - 1 : index;
            const X_T *const row = (const X_T *)k->x + ((ptrdiff_t)o * k->size + index) * k->inner;
#ifdef X_BITS
            for (int j = 0; j < k->inner; j++) {
                for (int part = 0; part < 8 / X_BITS; part++)
                    *y++ = (Y_T)packed_element(row[j], part, X_BITS, X_IS_SIGNED);
            }
#elif defined(X_FROM)
            for (int j = 0; j < k->inner; j++) *y++ = X_FROM(row[j]);
#else
            memcpy(y, row, (size_t)k->inner * sizeof(X_T));
            y += k->inner;
#endif
        }
    }
}
