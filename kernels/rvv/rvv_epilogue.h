/* Epilogues of kernels with RISC-V's vectors, of neighbouring channels. With REQUANT_WORDS a requantisation is the
 * upper word of (acc + bias) * mul, to which a word is added: `add` holds the bias below and that word above, one entry
 * per channel. Included before the header of a kernel. */
#ifndef RVV_EPILOGUE_H
#define RVV_EPILOGUE_H

#ifdef REQUANT_WORDS
#undef EPILOGUE_BIAS
#endif
#include "../portable/epilogue.h"
#include "rvv.h"

static inline void finish_words(words sums, Y_T *y, const struct epilogue *e, int channel, size_t lanes) {
#ifdef REQUANT_WORDS
    const struct limits limits = {e->shift - 32, e->low, e->high};
    words_requantise(y, sums, (const MUL_T *)e->mul + channel, (const ADD_T *)e->add + channel, limits, lanes);
#else
    int32_t acc[MOST];
    words_store(acc, sums, lanes);
    finish_row(acc, y, e, channel, (int)lanes);
#endif
}

#endif
