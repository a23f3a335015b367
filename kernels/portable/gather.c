/* y[outer, i] = x[outer, indices[i]], rows that may be packed or of 16 bits.
 *
 * x is [outer, size, inner], y [outer, count, inner]. A row is copied, widened or unpacked: loads and stores bound it,
 * of packed ones what unpacks.
 */
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
            enum { UNIT = PACKED_UNIT(X_BITS), PER_UNIT = PACKED_PER_UNIT(X_BITS) };
            const X_T *unit = row;
            for (const X_T *const end = row + k->inner; unit < end; y += k->elements) {
                int j = 0;
                for (; j + PER_UNIT <= k->elements; j += PER_UNIT, unit += UNIT) {
                    for (int part = 0; part < PER_UNIT; part++)
                        y[j + part] = (Y_T)packed_element(unit, part, X_BITS, X_IS_SIGNED);
                }
                const int rest = k->elements - j;
                for (int part = 0; part < rest; part++)
                    y[j + part] = (Y_T)packed_element(unit, part, X_BITS, X_IS_SIGNED);
                unit += PACKED_BYTES(rest, X_BITS);
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
