/* Layers of a network by CMSIS-NN's functions, called by hand: `layers.h` calls one of the macros below for each.
 * Values are arbitrary, for the number of instructions does not depend on them. Sums of weights that CMSIS-NN wants are
 * computed before. */
#include "arm_nnfunctions.h"
#include "program.h"
#include "semihost.h"

enum { MOST_CHANNELS = 1024, MOST_WEIGHTS = 320 * 1024, MOST_ELEMENTS = 96 * 1024, MOST_SCRATCH = 64 * 1024 };

static int8_t weights[MOST_WEIGHTS], x[MOST_ELEMENTS], y[MOST_ELEMENTS];
static int32_t bias[MOST_CHANNELS], multipliers[MOST_CHANNELS], shifts[MOST_CHANNELS], sums[MOST_CHANNELS];
static int32_t scratch[MOST_SCRATCH / 4];
static const cmsis_nn_activation all = {-128, 127};

void program_fail(const char *what) {
    semihost_print("error: ");
    semihost_print(what);
    semihost_print("\n");
    semihost_exit(1);
}

static void check(int is_right) {
    if (!is_right) program_fail("CMSIS-NN refuses a layer");
}

#define DIMS(n, h, w, c) &(const cmsis_nn_dims){n, h, w, c}
#define PER_CHANNEL &(const cmsis_nn_per_channel_quant_params){multipliers, shifts}
#define SCRATCH &(const cmsis_nn_context){scratch, MOST_SCRATCH}

#define CONV(h, w, c, oh, ow, k, fh, fw, sh, sw, top, left)                                                            \
    do {                                                                                                               \
        const cmsis_nn_conv_params params = {1, -1, {sw, sh}, {left, top}, {1, 1}, all};                               \
        check(arm_convolve_wrapper_s8(SCRATCH, &params, PER_CHANNEL, DIMS(1, h, w, c), x, DIMS(k, fh, fw, c), weights, \
                                      DIMS(1, 1, 1, k), bias, DIMS(1, oh, ow, k), y) == ARM_CMSIS_NN_SUCCESS);         \
    } while (0)
#define DEPTHWISE(h, w, c, oh, ow, k, fh, fw, sh, sw, top, left)                                                    \
    do {                                                                                                            \
        const cmsis_nn_dw_conv_params params = {1, -1, 1, {sw, sh}, {left, top}, {1, 1}, all};                      \
        check(arm_depthwise_conv_wrapper_s8(SCRATCH, &params, PER_CHANNEL, DIMS(1, h, w, c), x, DIMS(1, fh, fw, k), \
                                            weights, DIMS(1, 1, 1, k), bias, DIMS(1, oh, ow, k),                    \
                                            y) == ARM_CMSIS_NN_SUCCESS);                                            \
    } while (0)
#define DENSE(depth, k)                                                                                               \
    do {                                                                                                              \
        const cmsis_nn_fc_params params = {1, 0, -1, all};                                                            \
        const cmsis_nn_per_tensor_quant_params one = {1 << 30, -7};                                                   \
        const cmsis_nn_context context = {sums, sizeof sums};                                                         \
        check(arm_fully_connected_s8(&context, &params, &one, DIMS(1, 1, 1, depth), x, DIMS(depth, 1, 1, k), weights, \
                                     DIMS(1, 1, 1, k), bias, DIMS(1, 1, 1, k), y) == ARM_CMSIS_NN_SUCCESS);           \
    } while (0)
#define ADD(count)                                                                                                  \
    check(arm_elementwise_add_s8(x, y, 1, 1 << 30, 0, 2, 1 << 30, -1, 20, y, -1, 1 << 30, -18, -128, 127, count) == \
          ARM_CMSIS_NN_SUCCESS)
#define POOL(h, w, c, oh, ow, fh, fw, sh, sw)                                                                     \
    do {                                                                                                          \
        const cmsis_nn_pool_params params = {{sw, sh}, {0, 0}, all};                                              \
        check(arm_avgpool_s8(SCRATCH, &params, DIMS(1, h, w, c), x, DIMS(1, fh, fw, 1), DIMS(1, oh, ow, c), y) == \
              ARM_CMSIS_NN_SUCCESS);                                                                              \
    } while (0)
#define SOFTMAX(rows, count) arm_softmax_s8(x, rows, count, 1 << 30, 23, -128, y)

__attribute__((noinline)) static void network_run(void) {
#include "layers.h"
}

int main(void) {
    uint32_t random = 1;
    for (int i = 0; i < MOST_WEIGHTS; i++) weights[i] = (int8_t)((random = random * 1664525u + 1013904223u) >> 24);
    for (int i = 0; i < MOST_ELEMENTS; i++) x[i] = (int8_t)((random = random * 1664525u + 1013904223u) >> 24);
    for (int i = 0; i < MOST_CHANNELS; i++) multipliers[i] = 1 << 30, shifts[i] = -7;
    network_run();
    semihost_exit(0);
}
