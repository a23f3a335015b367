/* Windows over a channels-last image of bytes: which taps lie inside along one axis. */
#ifndef DEEPLOY_PULP_WINDOW_H
#define DEEPLOY_PULP_WINDOW_H

/* Taps first <= f < first + count are inside. */
struct taps {
    int first, count;
};

/* Of `taps` taps, `dilation` apart, the first of which lies at `origin`, in an image of `size`. */
static inline struct taps taps_inside(int origin, int dilation, int taps, int size) {
    int first = 0, last = taps;
    while (first < taps && origin + first * dilation < 0) first++;
    while (last > first && origin + (last - 1) * dilation >= size) last--;
    return (struct taps){first, last - first};
}

#endif
