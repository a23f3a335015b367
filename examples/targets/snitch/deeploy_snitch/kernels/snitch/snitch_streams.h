/* Streaming registers, and instructions for floating point that are repeated without a loop.
 *
 * Three registers (ft0, ft1, ft2) hand out the next pair of a nest of up to four loops whenever they are read. The
 * compiler leaves them alone (-ffixed-ft0 ... in bare.mk). On other machines a stream is the same nest of loops. A core
 * moves 8 bytes per cycle, whoever asks for them.
 */
#ifndef SNITCH_STREAMS_H
#define SNITCH_STREAMS_H

#include "snitch_pairs.h"

/* A nest of loops over pairs, innermost first: how often, and how many floats apart. Every pair is handed out `times`
 * times. Whoever begins one names how many loops there are, a constant: the others are not looked at. */
struct stream {
    float *from;
    int times, count[4], step[4];
};

enum { FIRST, SECOND, THIRD };

enum { CORES = 8 };

/* The core that asks, below CORES. No result may depend on it: on other machines it is always the first one. */
static inline int this_core(void) {
#ifdef __riscv
    uint32_t core;
    __asm__("csrr %0, mhartid" : "=r"(core));
    return (int)(core % CORES);
#else
    return 0;
#endif
}

#ifdef __riscv

struct streams {
    char none;
};

enum { STREAM_TIMES = 1, STREAM_COUNT = 2, STREAM_STEP = 6, STREAM_READ = 24 };

#define STREAM_SET(number, what, value) \
    __asm__ volatile(".insn i 0x2B, 2, zero, %0, %1" ::"r"(value), "i"((what) << 5 | (number)) : "memory")

/* The same within assembly: begins the first or the second stream, of four loops, at an address. */
#define FIRST_FROM "27 << 5 | 0"
#define SECOND_FROM "27 << 5 | 1"
#define STREAM_SET_IN(what, value) ".insn i 0x2B, 2, zero, " value ", " what "\n"

/* Counts and repetitions are told from 0; a step leads on from where the loops within have ended. */
#define STREAM_LOOP(number, s, loop)                                                \
    STREAM_SET(number, STREAM_COUNT + (loop), (s).count[loop] - 1);                 \
    STREAM_SET(number, STREAM_STEP + (loop), 4 * ((s).step[loop] - stream_passed)); \
    stream_passed += ((s).count[loop] - 1) * (s).step[loop]

#define STREAM_BEGIN(streams, number, loops, ...)                        \
    do {                                                                 \
        const struct stream stream_nest = __VA_ARGS__;                   \
        int stream_passed = 0;                                           \
        STREAM_SET(number, STREAM_TIMES, stream_nest.times - 1);         \
        STREAM_LOOP(number, stream_nest, 0);                             \
        if ((loops) > 1) {                                               \
            STREAM_LOOP(number, stream_nest, 1);                         \
        }                                                                \
        if ((loops) > 2) {                                               \
            STREAM_LOOP(number, stream_nest, 2);                         \
        }                                                                \
        if ((loops) > 3) {                                               \
            STREAM_LOOP(number, stream_nest, 3);                         \
        }                                                                \
        (void)stream_passed, (void)(streams);                            \
        STREAM_SET(number, STREAM_READ + (loops) - 1, stream_nest.from); \
    } while (0)

/* The same nest from another place on, between streams_off and streams_on: only that lets pairs be fetched ahead. */
#define STREAM_FROM(streams, number, loops, place)            \
    do {                                                      \
        (void)(streams);                                      \
        STREAM_SET(number, STREAM_READ + (loops) - 1, place); \
    } while (0)

static inline void streams_on(void) {
    __asm__ volatile("csrsi 0x7C0, 1" ::: "memory");
}

/* What was repeated is done when a register can be read that is written behind it. */
static inline void streams_off(void) {
    uint32_t done;
    __asm__ volatile("fmv.x.w %0, fa0\n\tmv zero, %0\n\tcsrci 0x7C0, 1" : "=r"(done)::"memory");
}

/* frep.o: so many instructions, last + 1 times. */
#define REPEAT(instructions) ".insn i 0x0B, 0, x1, %[last], " #instructions " - 1\n"
/* What is to be done with sums of so many pairs: their registers, and which pair. Sums are f8 to f23. */
#define SUMS_1(what) what("f8", 0)
#define SUMS_2(what) SUMS_1(what) what("f9", 1)
#define SUMS_4(what) SUMS_2(what) what("f10", 2) what("f11", 3)
#define SUMS_8(what) SUMS_4(what) what("f12", 4) what("f13", 5) what("f14", 6) what("f15", 7)
#define SUMS_16(what)                                                                                             \
    SUMS_8(what)                                                                                                  \
    what("f16", 8) what("f17", 9) what("f18", 10) what("f19", 11) what("f20", 12) what("f21", 13) what("f22", 14) \
        what("f23", 15)
#define CLOBBERED                                                                                                    \
    "memory", "f8", "f9", "f10", "f11", "f12", "f13", "f14", "f15", "f16", "f17", "f18", "f19", "f20", "f21", "f22", \
        "f23", "f24", "f25", "f26", "f27", "f28", "f29", "f30", "f31"
#define STORE_SUM(sum, n) "fsd " sum ", 8*" #n "(%[y])\n"
#define STORE_APART(sum, n) "fsd " sum ", 0(%[y])\n add %[y], %[y], %[y_step]\n"

#else

struct streams {
    struct stream nest[3];
    int index[3][4], given[3], loops[3];
};

#define STREAM_BEGIN(streams, number, loop_count, ...)                                                       \
    do {                                                                                                     \
        (streams)->nest[number] = (struct stream)__VA_ARGS__;                                                \
        (streams)->loops[number] = (loop_count);                                                             \
        (streams)->given[number] = 0;                                                                        \
        for (int stream_loop = 0; stream_loop < 4; stream_loop++) (streams)->index[number][stream_loop] = 0; \
    } while (0)

#define STREAM_FROM(streams, number, loop_count, place) ((streams)->nest[number].from = (place))

static inline void streams_on(void) {}

static inline void streams_off(void) {}

static inline float *stream_place(struct streams *s, int number) {
    const struct stream *const nest = &s->nest[number];
    int *const index = s->index[number], offset = 0;
    for (int loop = 0; loop < s->loops[number]; loop++) offset += index[loop] * nest->step[loop];
    if (++s->given[number] == nest->times) {
        s->given[number] = 0;
        for (int loop = 0; loop < s->loops[number] && ++index[loop] == nest->count[loop]; loop++) index[loop] = 0;
    }
    return nest->from + offset;
}

static inline pair stream_next(struct streams *s, int number) {
    return pair_load(stream_place(s, number));
}

#endif

#endif
