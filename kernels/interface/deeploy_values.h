/* Real numbers, images and sound as the inputs and outputs of a network: quantised where these are integers.
 *
 * For integers, real value = scale * (stored value - zero_point), with the scale and zero point of the tensor; stored
 * values are rounded to the nearest one, halves to the even one, and limited to those of the type. `data` is an array
 * of the tensor, `index` an element in it.
 */
#ifndef DEEPLOY_VALUES_H
#define DEEPLOY_VALUES_H

#include <math.h>

#include "deeploy_network.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How many elements a tensor has. */
static inline size_t deeploy_elements(const struct deeploy_tensor *tensor) {
    size_t count = 1;
    for (int i = 0; i < tensor->rank; i++) count *= (size_t)tensor->shape[i];
    return count;
}

/* The real value of an element. */
static inline float deeploy_value(const struct deeploy_tensor *tensor, const void *data, size_t index) {
    double stored = 0;
    switch (tensor->type) {
        case DEEPLOY_INT8:
            stored = ((const int8_t *)data)[index];
            break;
        case DEEPLOY_UINT8:
            stored = ((const uint8_t *)data)[index];
            break;
        case DEEPLOY_INT16:
            stored = ((const int16_t *)data)[index];
            break;
        case DEEPLOY_UINT16:
            stored = ((const uint16_t *)data)[index];
            break;
        case DEEPLOY_INT32:
            stored = ((const int32_t *)data)[index];
            break;
        case DEEPLOY_UINT32:
            stored = ((const uint32_t *)data)[index];
            break;
        case DEEPLOY_INT64:
            stored = (double)((const int64_t *)data)[index];
            break;
        case DEEPLOY_BOOL:
            return ((const uint8_t *)data)[index] ? 1.0f : 0.0f;
        case DEEPLOY_FLOAT32:
            return ((const float *)data)[index];
    }
    return (float)((stored - tensor->zero_point) * (double)tensor->scale);
}

/* Stores a real value in an element. */
static inline void deeploy_store(const struct deeploy_tensor *tensor, void *data, size_t index, float value) {
    const double stored = nearbyint((double)value / (double)tensor->scale) + tensor->zero_point;
#define DEEPLOY_CLIPPED(low, high) (stored<(low) ? (low) : stored>(high) ? (high) : stored)
    switch (tensor->type) {
        case DEEPLOY_INT8:
            ((int8_t *)data)[index] = (int8_t)DEEPLOY_CLIPPED(-128.0, 127.0);
            break;
        case DEEPLOY_UINT8:
            ((uint8_t *)data)[index] = (uint8_t)DEEPLOY_CLIPPED(0.0, 255.0);
            break;
        case DEEPLOY_INT16:
            ((int16_t *)data)[index] = (int16_t)DEEPLOY_CLIPPED(-32768.0, 32767.0);
            break;
        case DEEPLOY_UINT16:
            ((uint16_t *)data)[index] = (uint16_t)DEEPLOY_CLIPPED(0.0, 65535.0);
            break;
        case DEEPLOY_INT32:
            ((int32_t *)data)[index] = (int32_t)DEEPLOY_CLIPPED(-2147483648.0, 2147483647.0);
            break;
        case DEEPLOY_UINT32:
            ((uint32_t *)data)[index] = (uint32_t)DEEPLOY_CLIPPED(0.0, 4294967295.0);
            break;
        case DEEPLOY_INT64:
            ((int64_t *)data)[index] = (int64_t)DEEPLOY_CLIPPED(-9223372036854774784.0, 9223372036854774784.0);
            break;
        case DEEPLOY_BOOL:
            ((uint8_t *)data)[index] = value != 0;
            break;
        case DEEPLOY_FLOAT32:
            ((float *)data)[index] = value;
            break;
    }
#undef DEEPLOY_CLIPPED
}

/* Stores as many real values as the tensor has elements. */
static inline void deeploy_quantize(const struct deeploy_tensor *tensor, const float *values, void *data) {
    const size_t count = deeploy_elements(tensor);
    for (size_t i = 0; i < count; i++) deeploy_store(tensor, data, i, values[i]);
}

/* The real values of all elements. */
static inline void deeploy_dequantize(const struct deeploy_tensor *tensor, const void *data, float *values) {
    const size_t count = deeploy_elements(tensor);
    for (size_t i = 0; i < count; i++) values[i] = deeploy_value(tensor, data, i);
}

/* The first of the largest elements: the class that a classifier takes for the most probable one. */
static inline size_t deeploy_largest(const struct deeploy_tensor *tensor, const void *data) {
    const size_t count = deeploy_elements(tensor);
    size_t largest = 0;
    for (size_t i = 1; i < count; i++) {
        if (deeploy_value(tensor, data, i) > deeploy_value(tensor, data, largest)) largest = i;
    }
    return largest;
}

/* Stores an image of bytes, row by row with the channels of a pixel side by side, as real values (pixel - mean) /
 * deviation of its channel. The tensor has the shape [1, channels, height, width], or, where channels_last is not 0,
 * [1, height, width, channels].
 */
static inline void deeploy_image(const struct deeploy_tensor *tensor, const uint8_t *pixels, const float *mean,
                                 const float *deviation, int channels_last, void *data) {
    const size_t channels = (size_t)tensor->shape[channels_last ? 3 : 1], count = deeploy_elements(tensor) / channels;
    for (size_t pixel = 0; pixel < count; pixel++) {
        for (size_t channel = 0; channel < channels; channel++) {
            const float value = ((float)pixels[pixel * channels + channel] - mean[channel]) / deviation[channel];
            deeploy_store(tensor, data, channels_last ? pixel * channels + channel : channel * count + pixel, value);
        }
    }
}

/* Stores as many samples of sound as the tensor has elements, as real values from -1 to below 1. */
static inline void deeploy_audio(const struct deeploy_tensor *tensor, const int16_t *samples, void *data) {
    const size_t count = deeploy_elements(tensor);
    for (size_t i = 0; i < count; i++) deeploy_store(tensor, data, i, (float)samples[i] / 32768.0f);
}

#ifdef __cplusplus
}
#endif

#endif
