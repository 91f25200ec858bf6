/* Sums of products of integers, by the instructions of a processor. Integers are exact: every processor gets the same sums.

   `IntegerSums` are WIDTH sums of 32 bits. A step adds to each the products of STEP inputs, the same for all of them, and of
   weights that lie in memory as [WIDTH, STEP]. Inputs and weights are integers of -90 .. 90, and inputs have OFFSET more:
   instructions of x86 multiply bytes without a sign by bytes with one. Some add two products in 16 bits, which hold
   2 * 180 * 90 = 32,400. */

#ifndef PRODUCTS_H
#define PRODUCTS_H

#include "arithmetic.h"

enum { MAX_INTEGER = 90, STEP = 4 };

#if defined(__AVX512BW__)

#include <immintrin.h>
enum { WIDTH = 16, OFFSET = MAX_INTEGER };
typedef __m512i IntegerSums, Inputs;
INLINED IntegerSums zero_sums(void) { return _mm512_setzero_si512(); }
INLINED Inputs spread_inputs(int32_t four) { return _mm512_set1_epi32(four); }
INLINED void store_sums(int32_t *to, IntegerSums sums) { _mm512_storeu_si512(to, sums); }
INLINED IntegerSums add_products(IntegerSums sums, Inputs inputs, const int8_t *weights) {
    __m512i loaded = _mm512_loadu_si512(weights);
#if defined(__AVX512VNNI__)
    return _mm512_dpbusd_epi32(sums, inputs, loaded);
#else
    __m512i of_two = _mm512_maddubs_epi16(inputs, loaded);
    return _mm512_add_epi32(sums, _mm512_madd_epi16(of_two, _mm512_set1_epi16(1)));
#endif
}

#elif defined(__AVX2__)

#include <immintrin.h>
enum { WIDTH = 8, OFFSET = MAX_INTEGER };
typedef __m256i IntegerSums, Inputs;
INLINED IntegerSums zero_sums(void) { return _mm256_setzero_si256(); }
INLINED Inputs spread_inputs(int32_t four) { return _mm256_set1_epi32(four); }
INLINED void store_sums(int32_t *to, IntegerSums sums) { _mm256_storeu_si256((__m256i *)(void *)to, sums); }
INLINED IntegerSums add_products(IntegerSums sums, Inputs inputs, const int8_t *weights) {
    __m256i loaded = _mm256_loadu_si256((const __m256i *)(const void *)weights);
#if defined(__AVXVNNI__)
    return _mm256_dpbusd_avx_epi32(sums, inputs, loaded);
#else
    __m256i of_two = _mm256_maddubs_epi16(inputs, loaded);
    return _mm256_add_epi32(sums, _mm256_madd_epi16(of_two, _mm256_set1_epi16(1)));
#endif
}

#elif defined(__SSSE3__)

#include <tmmintrin.h>
enum { WIDTH = 4, OFFSET = MAX_INTEGER };
typedef __m128i IntegerSums, Inputs;
INLINED IntegerSums zero_sums(void) { return _mm_setzero_si128(); }
INLINED Inputs spread_inputs(int32_t four) { return _mm_set1_epi32(four); }
INLINED void store_sums(int32_t *to, IntegerSums sums) { _mm_storeu_si128((__m128i *)(void *)to, sums); }
INLINED IntegerSums add_products(IntegerSums sums, Inputs inputs, const int8_t *weights) {
    __m128i of_two = _mm_maddubs_epi16(inputs, _mm_loadu_si128((const __m128i *)(const void *)weights));
    return _mm_add_epi32(sums, _mm_madd_epi16(of_two, _mm_set1_epi16(1)));
}

#elif defined(__aarch64__) && defined(__ARM_NEON)

#include <arm_neon.h>
enum { WIDTH = 4, OFFSET = 0 };
typedef int32x4_t IntegerSums;
typedef int8x16_t Inputs;
INLINED IntegerSums zero_sums(void) { return vdupq_n_s32(0); }
INLINED Inputs spread_inputs(int32_t four) { return vreinterpretq_s8_s32(vdupq_n_s32(four)); }
INLINED void store_sums(int32_t *to, IntegerSums sums) { vst1q_s32(to, sums); }
INLINED IntegerSums add_products(IntegerSums sums, Inputs inputs, const int8_t *weights) {
    int8x16_t loaded = vld1q_s8(weights);
#if defined(__ARM_FEATURE_DOTPROD)
    return vdotq_s32(sums, inputs, loaded);
#else
    int16x8_t low = vmull_s8(vget_low_s8(inputs), vget_low_s8(loaded)), high = vmull_high_s8(inputs, loaded);
    return vpadalq_s16(sums, vpaddq_s16(low, high));
#endif
}

#else

enum { WIDTH = 8, OFFSET = 0 };
typedef struct { int32_t number[WIDTH]; } IntegerSums;
typedef struct { int8_t number[STEP]; } Inputs;
INLINED IntegerSums zero_sums(void) { return (IntegerSums){{0}}; }
INLINED Inputs spread_inputs(int32_t four) {
    Inputs inputs;
    memcpy(&inputs, &four, sizeof(inputs));
    return inputs;
}
INLINED void store_sums(int32_t *to, IntegerSums sums) { memcpy(to, &sums, sizeof(sums)); }
INLINED IntegerSums add_products(IntegerSums sums, Inputs inputs, const int8_t *weights) {
    for (int j = 0; j < WIDTH; j++)
        for (int i = 0; i < STEP; i++)
            sums.number[j] += inputs.number[i] * weights[STEP * j + i];
    return sums;
}

#endif

#endif
