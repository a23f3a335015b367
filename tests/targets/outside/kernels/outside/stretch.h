/* Rows of a product, each repeated. */
#ifndef STRETCH_H
#define STRETCH_H

struct stretch {
    const void *x; /* [rows, depth] */
    const void *w; /* [depth, columns] */
    void *y;       /* [rows * factor, columns] */
    int rows, depth, columns, factor;
};

#endif
