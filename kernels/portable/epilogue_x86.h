/* Epilogues of neighbouring outputs of several positions, whose constants are repeated, sixteen at a time on x86-64
 * with AVX-512. Included behind epilogue.h and x86.h by kernels that compute many outputs at once. */
#ifndef DEEPLOY_EPILOGUE_X86_H
#define DEEPLOY_EPILOGUE_X86_H

enum { WIDE_LANES = 16, WIDE_OUTPUTS = 256 }; /* sums of a vector; the most outputs of one call */

/* Constants of every output. */
struct wide_epilogue {
    struct epilogue each;
    BIAS_T bias[HAS_BIAS ? WIDE_OUTPUTS : 1];
    MUL_T mul[HAS_REQUANTISATION ? WIDE_OUTPUTS : 1];
    ADD_T add[HAS_REQUANTISATION ? WIDE_OUTPUTS : 1];
};

/* The constants of `count` channels from `channel` on, again and again up to `outputs`. */
static inline void wide_repeat(struct wide_epilogue *to, const struct epilogue *e, int channel, int count,
                               int outputs) {
    to->each = *e;
    for (int i = 0; i < outputs && HAS_BIAS; i++)
        to->bias[i] = ((const BIAS_T *)e->bias)[e->bias_step * (channel + i % count)];
    to->each.bias = to->bias, to->each.bias_step = 1;
    for (int i = 0, j = 0; i < outputs && HAS_REQUANTISATION; i++, j = j + 1 == count ? 0 : j + 1) {
        to->mul[i] = ((const MUL_T *)e->mul)[e->mul_step * (channel + j)];
        to->add[i] = ((const ADD_T *)e->add)[e->add_step * (channel + j)];
    }
    to->each.mul = to->mul, to->each.mul_step = 1;
    to->each.add = to->add, to->each.add_step = 1;
}

/* The upper words of sums of 64 bits, which hold all that shifts of 32 and more leave. */
WIDE_PART void wide_requantise(const int32_t *acc, Y_T *y, const struct wide_epilogue *e, int count) {
    const __m512i odd = _mm512_set_epi32(31, 29, 27, 25, 23, 21, 19, 17, 15, 13, 11, 9, 7, 5, 3, 1);
    const __m512i low = _mm512_set1_epi32(e->each.low), high = _mm512_set1_epi32(e->each.high);
    const __m128i shift = _mm_cvtsi32_si128(e->each.shift - 32);
    for (int i = 0; i < count; i += WIDE_LANES) {
        const __mmask16 mask = count - i < WIDE_LANES ? (__mmask16)((1u << (count - i)) - 1) : (__mmask16)~0u;
        __m512i sums = _mm512_maskz_loadu_epi32(mask, acc + i);
        if (HAS_BIAS) {
            int32_t bias[WIDE_LANES];
            for (int j = 0; j < WIDE_LANES; j++) bias[j] = i + j < count ? (int32_t)e->bias[i + j] : 0;
            sums = _mm512_add_epi32(sums, _mm512_loadu_si512(bias));
        }
        const __m512i mul = _mm512_maskz_loadu_epi32(mask, e->mul + i);
        __m512i front = _mm512_mul_epi32(_mm512_cvtepi32_epi64(_mm512_castsi512_si256(sums)),
                                         _mm512_cvtepi32_epi64(_mm512_castsi512_si256(mul)));
        __m512i back = _mm512_mul_epi32(_mm512_cvtepi32_epi64(_mm512_extracti64x4_epi64(sums, 1)),
                                        _mm512_cvtepi32_epi64(_mm512_extracti64x4_epi64(mul, 1)));
        front = _mm512_add_epi64(front, _mm512_maskz_loadu_epi64((__mmask8)mask, e->add + i));
        back = _mm512_add_epi64(back, _mm512_maskz_loadu_epi64((__mmask8)(mask >> 8), e->add + i + 8));
        const __m512i upper = _mm512_sra_epi32(_mm512_permutex2var_epi32(front, odd, back), shift);
        const __m128i bytes = _mm512_cvtepi32_epi8(_mm512_min_epi32(_mm512_max_epi32(upper, low), high));
        if (count - i < WIDE_LANES)
            _mm_mask_storeu_epi8(y + i, mask, bytes);
        else
            _mm_storeu_si128((__m128i *)(void *)(y + i), bytes);
    }
}

/* The epilogue of `count` sums, which lie one behind the other as their outputs do. */
WIDE_PART void wide_finish(int32_t *acc, Y_T *y, const struct wide_epilogue *e, int count) {
    const int is_word = HAS_REQUANTISATION && EVEN < 0 && !HAS_TABLE && sizeof(MUL_T) == 4 && (MUL_T)-1 < 0 &&
                        sizeof(ADD_T) == 8 && sizeof(Y_T) == 1;
    if (is_word && e->each.shift >= 32) {
        wide_requantise(acc, y, e, count);
        return;
    }
    finish_row(acc, y, &e->each, 0, count);
}

#endif
