/* Blocks of adjacent channels, into which kernels divide the innermost axis. */
#ifndef DEEPLOY_BLOCK_H
#define DEEPLOY_BLOCK_H

/* Accumulators of a block that registers of cores without vectors hold; sums of a block that Eva follows one by one: of
 * floats none, which cannot overflow. */
#ifdef ACC_IS_FLOAT
#define IN_REGISTERS 16
#define EXACT 0
#else
#define IN_REGISTERS 8
#define EXACT LANES
#endif

/* The widest block; its accumulators are a local array. Where no vectors hold them, it is as many as registers hold,
 * and stacks are short. */
#if !defined(__riscv) || defined(__riscv_vector)
#define LANES 64
#else
#define LANES IN_REGISTERS
#endif

/* Width of the block that begins at channel *first of `channels`: LANES, 32, 16 or 8. The last block may begin earlier,
 * at channels that are then computed twice: cheaper than a narrow loop. Only fewer than 8 channels give another width.
 */
static inline int block_width(int *first, int channels) {
    const int rest = channels - *first;
    if (rest >= LANES) return LANES;
    if (rest >= 32) return 32;
    if (channels < 8) return rest;
    const int width = rest > 8 && channels >= 16 ? 16 : 8;
    if (rest < width) *first = channels - width;
    return width;
}

/* Calls `function(..., width)` with a literal where the width is a usual one. */
#define WITH_WIDTH(width, function, ...)    \
    do {                                    \
        if ((width) == LANES) {             \
            function(__VA_ARGS__, LANES);   \
        } else if ((width) == 16) {         \
            function(__VA_ARGS__, 16);      \
        } else if ((width) == 8) {          \
            function(__VA_ARGS__, 8);       \
        } else {                            \
            function(__VA_ARGS__, (width)); \
        }                                   \
    } while (0)

#endif
