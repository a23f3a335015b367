/* Arguments of products of rows of x with rows of w, both dense along the depth: what matrix products and convolutions
 * have in common. pulp_multiply.h computes them. */
#ifndef DEEPLOY_PULP_PRODUCT_H
#define DEEPLOY_PULP_PRODUCT_H

#include "pulp_epilogue.h"

struct pulp_product {
    int depth, filters; /* elements of a row, rows of w */
    int w_row;          /* from one row of w to the next, in elements of W_T, or bytes where these are packed */
    struct pulp_epilogue epilogue;
    struct pulp_requantisation requantisation;
};

#endif
