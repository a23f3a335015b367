/* Copies of inputs for products of unsigned with signed bytes on x86-64. Included behind x86.h; needs X_T. */
#ifndef DEEPLOY_BYTES_X86_H
#define DEEPLOY_BYTES_X86_H

enum { WIDE_BYTES = 64 }; /* of a vector */

/* Bytes as unsigned ones; up to 63 bytes behind them are overwritten. */
WIDE_PART void wide_copy(const X_T *x, int count, uint8_t *to) {
    const __m512i flip = _mm512_set1_epi8((X_T)-1 < 0 ? (char)0x80 : 0);
    for (int i = 0; i < count; i += WIDE_BYTES) {
        const __mmask64 mask = count - i < WIDE_BYTES ? ((__mmask64)1 << (count - i)) - 1 : ~(__mmask64)0;
        _mm512_storeu_si512(to + i, _mm512_xor_si512(_mm512_maskz_loadu_epi8(mask, x + i), flip));
    }
}

WIDE_PART void wide_fill(int zero_point, int count, uint8_t *to) {
    const __m512i value = _mm512_set1_epi8((char)(zero_point ^ ((X_T)-1 < 0 ? 0x80 : 0)));
    for (int i = 0; i < count; i += WIDE_BYTES) _mm512_storeu_si512(to + i, value);
}

#endif
