/* Rows of a dense table by index; negative indices count from its end. */
#ifndef DEEPLOY_GATHER_H
#define DEEPLOY_GATHER_H

struct gather {
    const void *x;       /* [outer, size, inner], bytes of packed elements */
    const void *indices; /* [count] */
    void *y;             /* [outer, count, inner], of packed elements in rows of `elements` */
    int outer, size, inner, count;
    int elements; /* of a row of packed ones */
};

#endif
