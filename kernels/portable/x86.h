/* Functions for x86-64 with AVX-512 and its products of bytes and pairs (VNNI), beside which others run on other
 * machines. Where the build does not name such a machine, callers ask at run time. Defines HAS_WIDE where the compiler
 * can. */
#ifndef DEEPLOY_X86_H
#define DEEPLOY_X86_H

#if defined(VECTORISED_FOR) && defined(__x86_64__) && \
    (defined(BY_MACHINE) || (defined(__AVX512VNNI__) && defined(__AVX512BW__) && defined(__AVX512VL__)))
#include <immintrin.h>

#define HAS_WIDE
#define WIDE_TARGET target("avx512f,avx512bw,avx512vl,avx512vnni")
#define WIDE_FUNCTION VECTORISED_FOR(WIDE_TARGET)
#define WIDE_PART static inline __attribute__((always_inline, optimize("O3", "fp-contract=off"), WIDE_TARGET))

/* Whether this machine has these instructions. */
static inline int has_wide(void) {
#ifdef BY_MACHINE
    return __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl");
#else
    return 1;
#endif
}
#else
static inline int has_wide(void) {
    return 0;
}
#endif

#endif
