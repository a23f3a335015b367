/* Products of four vectors with rows of bytes on x86-64 with AVX-512: pairs are multiplied and added by one instruction
 * (vpdpwssd), and the lanes of four sums are joined together, since joining is most of the work where rows are short.
 * Included by dot.h, which defines DOT_T, BLOCK and DEPTH. */
#ifndef DEEPLOY_DOT_X86_H
#define DEEPLOY_DOT_X86_H

enum { WIDE = 32 }; /* elements at a time */

/* Up to WIDE elements of a row, widened; zeros behind them. */
WIDE_PART __m512i wide_row(const DOT_T *row, __mmask32 mask) {
    const __m256i bytes = _mm256_maskz_loadu_epi8(mask, row);
    return (DOT_T)-1 < 0 ? _mm512_cvtepi8_epi16(bytes) : _mm512_cvtepu8_epi16(bytes);
}

/* The sums of the lanes of four vectors. */
WIDE_PART __m128i joined(__m512i a, __m512i b, __m512i c, __m512i d) {
    const __m512i ab = _mm512_add_epi32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
    const __m512i cd = _mm512_add_epi32(_mm512_unpacklo_epi32(c, d), _mm512_unpackhi_epi32(c, d));
    const __m512i all = _mm512_add_epi32(_mm512_unpacklo_epi64(ab, cd), _mm512_unpackhi_epi64(ab, cd));
    const __m256i half = _mm256_add_epi32(_mm512_castsi512_si256(all), _mm512_extracti64x4_epi64(all, 1));
    return _mm_add_epi32(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
}

/* As dots_of_4. What the vectors hold behind `depth` is multiplied by zeros. */
WIDE_FUNCTION void wide_dots_of_4(int32_t (*restrict acc)[BLOCK], const int16_t (*restrict vectors)[DEPTH],
                                  const DOT_T *restrict w, int w_row, int depth, int rows) {
    for (int j = 0; j < rows; j += 4) {
        __m512i sum[4][4];
        for (int v = 0; v < 4; v++) {
            for (int row = 0; row < 4; row++) sum[v][row] = _mm512_setzero_si512();
        }
        for (int at = 0; at < depth; at += WIDE) {
            const int left = depth - at;
            const __mmask32 mask = left < WIDE ? (1u << left) - 1 : ~(__mmask32)0;
            __m512i y[4];
            for (int row = 0; row < 4; row++) y[row] = wide_row(w + (j + row) * w_row + at, mask);
            for (int v = 0; v < 4; v++) {
                const __m512i x = _mm512_loadu_si512(vectors[v] + at);
                for (int row = 0; row < 4; row++) sum[v][row] = _mm512_dpwssd_epi32(sum[v][row], x, y[row]);
            }
        }
        for (int v = 0; v < 4; v++) {
            __m128i *const to = (__m128i *)(acc[v] + j);
            const __m128i found = joined(sum[v][0], sum[v][1], sum[v][2], sum[v][3]);
            _mm_storeu_si128(to, _mm_add_epi32(_mm_loadu_si128(to), found));
        }
    }
}

#endif
