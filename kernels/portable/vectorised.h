/* How functions are compiled whose loops are worth vectors. */
#ifndef DEEPLOY_VECTORISED_H
#define DEEPLOY_VECTORISED_H

/* Functions whose loops compilers optimise best on their own. */
#ifdef __GNUC__
#define OUT_OF_LINE static __attribute__((noinline, unused))
#else
#define OUT_OF_LINE static inline
#endif

/* The same where loops are worth vectors: gcc has them from -O3 on, and otherwise keeps sums in memory; clang does so
 * from -O2 on. Where an x86 is not told how wide its vectors are, BY_MACHINE chooses among several versions when the
 * program starts; all of them round alike. */
#if defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) && \
    (defined(__SSE2__) || defined(__ARM_NEON) || defined(__riscv_vector))
#define VECTORISED_FOR(...) static __attribute__((noinline, unused, optimize("O3", "fp-contract=off"), ##__VA_ARGS__))
#if defined(__x86_64__) && defined(__gnu_linux__) && !defined(__AVX2__)
#define BY_MACHINE
#define VECTORISED VECTORISED_FOR(target_clones("avx2", "default"))
#else
#define VECTORISED VECTORISED_FOR()
#endif
#else
#define VECTORISED OUT_OF_LINE
#endif

/* Before a loop whose body is long: where KERNELS_ROLLED is defined, it stays a loop, for machines whose cache of
 * instructions does not hold it unrolled. */
#ifndef KERNELS_ROLLED
#define ROLLED
#elif defined(__clang__)
#define ROLLED _Pragma("nounroll")
#else
#define ROLLED _Pragma("GCC unroll 1")
#endif

#endif
