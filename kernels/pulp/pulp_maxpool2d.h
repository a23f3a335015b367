/* Maximum over windows of a channels-last image of bytes. */
#ifndef DEEPLOY_PULP_MAXPOOL2D_H
#define DEEPLOY_PULP_MAXPOOL2D_H

struct pulp_maxpool2d {
    const void *x; /* [batch, height, width, channels] */
    void *y;       /* [batch, out_height, out_width, channels] */
    int batch, height, width, channels;
    int out_height, out_width;
    int kernel_h, kernel_w, stride_h, stride_w, dilation_h, dilation_w;
    int top, left;                /* rows and columns read before the first one of x */
    int x_batch, x_row, x_column; /* strides in elements; channels are dense */
    int y_batch, y_row, y_column;
};

#endif
