/* The taps (elements of a filter's window) that lie inside an image, along one axis. */
#ifndef DEEPLOY_WINDOW_H
#define DEEPLOY_WINDOW_H

/* Taps first <= f < last are inside. */
struct span {
    int first, last;
};

/* The span of `taps` taps, `dilation` apart, the first of which lies at `origin`, in an image of `size`. */
static inline struct span inside(int origin, int dilation, int taps, int size) {
    struct span s = {0, taps};
    /*@ loop unroll taps; */
    while (s.first < taps && origin + s.first * dilation < 0) s.first++;
    /*@ loop unroll taps; */
    while (s.last > s.first && origin + (s.last - 1) * dilation >= size) s.last--;
    return s;
}

#endif
