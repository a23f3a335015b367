/* y[n, 0, ow, c] = epilogue(sum over taps of x[n, 0, ow*sw + fw*dw, c] * w[c, fw]), of bytes, for windows of one line
 * inside of it.
 *
 * x and y are channels-last images; lines of w are filled up to whole words. Four positions of a channel take 9
 * instructions for a word of taps, 16 products at most, and turning the line before that some 20 for 16 bytes. Few
 * positions are bound by the epilogue and by instructions that are not cached, of which there are few.
 */
#include "pulp_positions.h"

/* `count` elements of four channels, or of fewer `lanes`, become one plane for each; what words reach beyond is any. */
OUT_OF_LINE void load_line(const X_T *x, int step, int count, X_T *planes, int plane, int lanes) {
    const uint8_t *from = (const uint8_t *)x, *const last = from + (count - 1) * step;
    if (lanes < 4) {
        for (int i = 0; i < count; i++, x += step) {
            for (int lane = 0; lane < lanes; lane++) planes[lane * plane + i] = x[lane];
        }
        return;
    }
    for (; count > 3; count -= 4, planes += 4) {
        const uint8_t *const second = from + step, *const third = second + step, *const fourth = third + step;
        turn(from, second, third, fourth, planes, plane);
        from = fourth + step;
    }
    if (count) turn(from, count > 1 ? from + step : last, last, last, planes, plane);
}

/* Columns that are `dilation` apart are lines of their own. */
void KERNEL(const struct pulp_depthwise_any *k) {
    const int dilation = k->along.dilation, stride = k->along.stride, taps = k->along.taps, row = (taps + 3) & ~3;
    const int lanes = least(k->channels, 4), x_step = dilation * k->along.x_step;
    const struct walk lines = {1, 0, 0};
    X_T *const planes = (X_T *)k->planes;
    for (int line = 0; line < k->batch * dilation; line++) {
        const int n = dilation == 1 ? line : line / dilation, first = line - n * dilation;
        const int left = k->along.out - first, count = dilation == 1 ? left : (left + dilation - 1) / dilation;
        const struct walk ahead = {count, stride, dilation * k->along.y_step};
        const int columns = (count - 1) * stride + taps, plane = (columns + 7) & ~3;
        const X_T *const x = (const X_T *)k->x + n * k->x_batch + first * k->along.x_step;
        Y_T *const y = (Y_T *)k->y + n * k->y_batch + first * k->along.y_step;
        for (int begin = 0; begin < k->channels && count > 0; begin += 4) {
            const int channel = least(begin, k->channels - lanes);
            load_line(x + channel, x_step, columns, planes, plane, lanes);
            for (int lane = 0; lane < lanes; lane++) {
                const int number = channel + lane;
                const struct words s = {1, row >> 2, 0, (const W_T *)k->w + number * row};
                const struct stages stages = stages_of(operands_at(&k->epilogue, &k->requantisation, number), 0);
                positions(k, &s, planes + lane * plane, &ahead, &lines, y + number, &stages);
            }
        }
    }
}
