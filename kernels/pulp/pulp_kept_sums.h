/* What begins sums that stay between tiles along a reduction, and what makes outputs of them. */
#ifndef DEEPLOY_PULP_KEPT_SUMS_H
#define DEEPLOY_PULP_KEPT_SUMS_H

#include "pulp_result.h"
#include "pulp_sums.h"

static inline void clear_sums(const struct pulp_sums *k, int32_t *sums, int filters) {
    for (int oh = 0; oh < k->high; oh++) {
        for (int ow = 0; ow < k->wide; ow++) {
            int32_t *const row = sums + oh * k->sums_row + ow * k->sums_column;
            for (int i = 0; i < filters; i++) row[i] = 0;
        }
    }
}

OUT_OF_LINE void finish_sums(const struct pulp_sums *k, const int32_t *sums, const struct pulp_product *given) {
    const struct pulp_product p = *given;
    const struct operands s = operands_of(&p, 0);
    for (int oh = 0; oh < k->high; oh++) {
        for (int ow = 0; ow < k->wide; ow++) {
            const int32_t *const row = sums + oh * k->sums_row + ow * k->sums_column;
            Y_T *const y = (Y_T *)k->y + oh * k->y_row + ow * k->y_column;
            for (int i = 0; i < p.filters; i++) y[i] = (Y_T)finish(row[i], i, s, &p);
        }
    }
}

#endif
