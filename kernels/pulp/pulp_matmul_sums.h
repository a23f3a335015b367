/* The product of a part of the columns of a with as many of b, added to sums: see pulp_matmul.h, whose y are the sums,
 * and pulp_sums.h. */
#ifndef DEEPLOY_PULP_MATMUL_SUMS_H
#define DEEPLOY_PULP_MATMUL_SUMS_H

#include "pulp_matmul.h"
#include "pulp_sums.h"

struct pulp_matmul_sums {
    struct pulp_matmul part;
    struct pulp_sums kept;
};

#endif
