/* Linear interpolation between four neighbours in a channels-last image of floats. */
#ifndef DEEPLOY_INTERPOLATE_H
#define DEEPLOY_INTERPOLATE_H

struct interpolate {
    const void *x; /* [batch, height, width, channels] */
    void *y;       /* [batch, out_height, out_width, channels] */
    /* Of each row and column of y: the first neighbour, its weight and that of the next. */
    const void *rows, *columns;
    int batch, height, width, channels;
    int out_height, out_width;
    int x_batch, x_row, x_column; /* strides in elements; channels are dense */
    int y_batch, y_row, y_column;
};

#endif
