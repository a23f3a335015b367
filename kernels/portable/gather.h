/* Rows of a dense table by index; negative indices count from its end. */
#ifndef DEEPLOY_GATHER_H
#define DEEPLOY_GATHER_H

struct gather {
    const void *x;       /* [outer, size, inner] */
    const void *indices; /* [count] */
    void *y;             /* [outer, count, inner] */
    int outer, size, inner, count;
};

#endif
