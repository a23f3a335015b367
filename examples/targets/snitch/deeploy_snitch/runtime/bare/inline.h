/* What of deeploy_rt.h is inlined: RT_HEADER names this file. */
#ifndef INLINE_H
#define INLINE_H

extern inline __attribute__((gnu_inline, always_inline)) int rt_core(void) {
    int hart;
    __asm__("csrr %0, mhartid" : "=r"(hart)); /* always the same: not volatile */
    return hart;
}

#endif
