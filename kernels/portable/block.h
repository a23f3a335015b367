/* Blocks of output channels: the inner loops that products share. Included by kernel sources, once per instance.
 *
 * A block is at most LANES neighbouring output channels of one output position, accumulated in a local array while the
 * reduction runs outside. Its loops have a width known at compile time, so that compilers keep it in vector registers;
 * several positions at a time were measured to be no faster.
 */
#ifndef DEEPLOY_BLOCK_H
#define DEEPLOY_BLOCK_H

enum { LANES = 64 };

/* Width of the block that begins at channel *first of `channels`. The last block may begin earlier, at channels that
 * are then computed twice: cheaper than a narrow loop. A width below 8 is returned only if there are fewer channels. */
static inline int block_width(int *first, int channels) {
    const int rest = channels - *first;
    if (rest >= LANES) return LANES;
    const int width = rest > 8 && channels >= 16 ? 16 : 8;
    if (channels < 8) return rest;
    if (rest < width) *first = channels - width;
    return width;
}

/* Calls `function(..., width)` with a literal where the width is a usual one. */
#define WITH_WIDTH(width, function, ...)                  \
    do {                                                  \
        if ((width) == LANES) {                           \
            function(__VA_ARGS__, LANES);                 \
        } else if ((width) == 16) {                       \
            function(__VA_ARGS__, 16);                    \
        } else if ((width) == 8) {                        \
            function(__VA_ARGS__, 8);                     \
        } else {                                          \
            function(__VA_ARGS__, (width));               \
        }                                                 \
    } while (0)

#endif
