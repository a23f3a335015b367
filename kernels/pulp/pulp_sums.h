/* Sums of 32 bits that stay between tiles along a reduction: the first tile begins with zeros, the last one makes
 * outputs of them. Rows of positions, one sum for each filter. */
#ifndef DEEPLOY_PULP_SUMS_H
#define DEEPLOY_PULP_SUMS_H

struct pulp_sums {
    void *y;
    int is_first, is_last;
    int high, wide;                             /* rows of positions, positions of a row */
    int sums_row, sums_column, y_row, y_column; /* strides in elements; filters are dense */
};

#endif
