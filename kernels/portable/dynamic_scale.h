/* The scale and the zero point that bytes have for floats from low to high, as DynamicQuantizeLinear of ONNX. */
#ifndef DEEPLOY_DYNAMIC_SCALE_H
#define DEEPLOY_DYNAMIC_SCALE_H

struct dynamic_scale {
    const void *low;
    const void *high;
    void *scale;
    void *zero_point;
    int count, low_step, high_step, scale_step, zero_point_step;
};

#endif
