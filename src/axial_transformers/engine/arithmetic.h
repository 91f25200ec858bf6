/* float32 arithmetic with the same bits on every processor: each operation is rounded once, in the order written.

   `engine/reference.py` is the specification. A sum over a row has LANES partial sums, number j in lane j mod LANES, and
   then a tree: lanes j and j + 8, j and j + 4, and so on. Loops over lanes have a fixed count, so that a compiler makes
   vectors of any width of them; that changes no bit. */

#ifndef ARITHMETIC_H
#define ARITHMETIC_H

#include <float.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#ifdef __FAST_MATH__
#error "compile without -ffast-math: each float32 operation must round as IEEE 754 says"
#endif
#if FLT_EVAL_METHOD != 0
#error "this compiler computes in other precisions than it stores: on 32-bit x86, compile with -msse2 -mfpmath=sse"
#endif
#ifdef __clang__
#pragma STDC FP_CONTRACT OFF
#define UNROLLED _Pragma("clang loop unroll(full)")
#elif defined(__GNUC__)
#define UNROLLED _Pragma("GCC unroll 64")
#else
#define UNROLLED
#endif
#ifdef __GNUC__
#define INLINED static inline __attribute__((always_inline))
#else
#define INLINED static inline
#endif

/* The larger, or the smaller, of two numbers: b if one is NaN. The one that is taken is computed twice. */
#define LARGER(a, b) ((a) > (b) ? (a) : (b))
#define SMALLER(a, b) ((a) < (b) ? (a) : (b))

enum { LANES = 16, SIDE = 4 };

static float from_bits(uint32_t bits) { return (union { uint32_t bits; float value; }){.bits = bits}.value; }
static uint32_t float_bits(float value) { return (union { uint32_t bits; float value; }){.value = value}.bits; }

/* Return a b + c, rounded once. Without an instruction for that, float64 holds the product, and rounds the sum to odd:
   rounding it again is rounding once. */
INLINED float fused(float a, float b, float c) {
#if defined(FP_FAST_FMAF) || defined(__FMA__) || defined(__aarch64__)
    return fmaf(a, b, c);
#else
    double exact = (double)a * b, sum = exact + c, back = sum - c, error = (c - (sum - back)) + (exact - back);
    uint64_t bits;
    memcpy(&bits, &sum, sizeof(bits));
    if ((error < 0 || error > 0) && !(bits & 1)) bits += (error > 0) == (sum > 0) ? 1 : UINT64_MAX;
    memcpy(&sum, &bits, sizeof(sum));
    return (float)sum;
#endif
}

/* LANES numbers, and SIDE numbers. Where a compiler has vectors with a fused multiply-add, they are one, and stay in
   registers; elsewhere they are an array. The bits are the same. `repeat` fills the lanes with SIDE numbers; `transpose_side`
   makes columns of SIDE rows. */
#if defined(__clang__) && (defined(__FMA__) || defined(__aarch64__))
typedef float Lanes __attribute__((vector_size(64)));
typedef float Side __attribute__((vector_size(16)));
INLINED Lanes fused_lanes(Lanes a, Lanes b, Lanes c) { return __builtin_elementwise_fma(a, b, c); }
INLINED Lanes spread(float x) { return (Lanes){x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x}; }
INLINED Lanes add_lanes(Lanes a, Lanes b) { return a + b; }
INLINED float sum_lanes(Lanes x) {
    x += __builtin_shufflevector(x, x, 8, 9, 10, 11, 12, 13, 14, 15, 8, 9, 10, 11, 12, 13, 14, 15);
    Side y = __builtin_shufflevector(x, x, 0, 1, 2, 3) + __builtin_shufflevector(x, x, 4, 5, 6, 7);
    y += __builtin_shufflevector(y, y, 2, 3, 2, 3);
    return y[0] + y[1];
}
INLINED Lanes repeat(Side x) { return __builtin_shufflevector(x, x, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3); }
INLINED void transpose_side(Side *x) {
    Side a = __builtin_shufflevector(x[0], x[1], 0, 4, 1, 5), b = __builtin_shufflevector(x[0], x[1], 2, 6, 3, 7);
    Side c = __builtin_shufflevector(x[2], x[3], 0, 4, 1, 5), d = __builtin_shufflevector(x[2], x[3], 2, 6, 3, 7);
    x[0] = __builtin_shufflevector(a, c, 0, 1, 4, 5);
    x[1] = __builtin_shufflevector(a, c, 2, 3, 6, 7);
    x[2] = __builtin_shufflevector(b, d, 0, 1, 4, 5);
    x[3] = __builtin_shufflevector(b, d, 2, 3, 6, 7);
}
#else
typedef struct { float number[LANES]; } Lanes;
typedef struct { float number[SIDE]; } Side;
INLINED Lanes fused_lanes(Lanes a, Lanes b, Lanes c) {
    for (int j = 0; j < LANES; j++)
        c.number[j] = fused(a.number[j], b.number[j], c.number[j]);
    return c;
}
INLINED Lanes spread(float x) {
    Lanes found;
    for (int j = 0; j < LANES; j++)
        found.number[j] = x;
    return found;
}
INLINED Lanes add_lanes(Lanes a, Lanes b) {
    for (int j = 0; j < LANES; j++)
        a.number[j] += b.number[j];
    return a;
}
INLINED float sum_lanes(Lanes x) {
    for (int half = LANES / 2; half; half /= 2)
        for (int j = 0; j < half; j++)
            x.number[j] += x.number[j + half];
    return x.number[0];
}
INLINED Lanes repeat(Side x) {
    Lanes found;
    for (int j = 0; j < LANES; j++)
        found.number[j] = x.number[j % SIDE];
    return found;
}
INLINED void transpose_side(Side *x) {
    for (int r = 0; r < SIDE; r++)
        for (int c = 0; c < r; c++) {
            float number = x[r].number[c];
            x[r].number[c] = x[c].number[r];
            x[c].number[r] = number;
        }
}
#endif

INLINED Lanes load(const float *x) {
    Lanes found;
    memcpy(&found, x, sizeof(found));
    return found;
}
INLINED void store(float *x, Lanes lanes) { memcpy(x, &lanes, sizeof(lanes)); }
INLINED Side load_side(const float *x) {
    Side found;
    memcpy(&found, x, sizeof(found));
    return found;
}
INLINED void store_side(float *x, Side side) { memcpy(x, &side, sizeof(side)); }

/* Return e^x: 0 below -87, e^88 above 88, NaN of NaN. */
INLINED float exponential(float x) {
    float at_least = LARGER(x, -87.0f), near = SMALLER(at_least, 88.0f);
    float shifted = fused(near, 1.4426950216293335f, 12582912.0f), n = shifted - 12582912.0f;
    float r = fused(n, 1.9046542121259336e-09f, fused(n, -0.6931471824645996f, near));
    float p = fused(0.0013751150108873844f, r, 0.00836898759007454f);
    p = fused(p, r, 0.04166954383254051f);
    p = fused(p, r, 0.166665181517601f);
    p = fused(p, r, 0.49999988079071045f);
    p = fused(fused(p, r, 1.0f), r, 1.0f);
    p *= from_bits((float_bits(shifted) - 0x4b400000u + 127u) << 23);
    p = x < -87.0f ? 0.0f : p;
    return x == x ? p : x;
}

INLINED float sigmoid(float x) { return 1.0f / (1.0f + exponential(-x)); }
INLINED float hyperbolic_tangent(float x) { return 1.0f - 2.0f / (1.0f + exponential(x + x)); }

/* Return the largest number, minus infinity of none; NaN counts as smaller. */
INLINED float largest(const float *x, uint64_t count) {
    float lanes[LANES];
    uint64_t whole = count / LANES * LANES;
    for (int j = 0; j < LANES; j++)
        lanes[j] = -INFINITY;
    for (uint64_t i = 0; i < whole; i += LANES)
        for (uint64_t j = 0; j < LANES; j++)
            lanes[j] = LARGER(x[i + j], lanes[j]);
    for (uint64_t i = whole; i < count; i++)
        lanes[i % LANES] = LARGER(x[i], lanes[i % LANES]);
    UNROLLED
    for (int half = LANES / 2; half; half /= 2)
        for (int j = 0; j < half; j++)
            lanes[j] = LARGER(lanes[j], lanes[j + half]);
    return lanes[0];
}

/* Return 1 if fused multiply-add rounds once and denormal numbers stay: a compiler that contracts or flushes fails. */
static int is_ieee(void) {
    volatile float a = 0x1.0002p-24f, b = 0x1.fffcp-1f, c = 1.0f + FLT_EPSILON, small = FLT_MIN, half = 0.5f;
    volatile float third = 1.0f / 3.0f, three = 3.0f, rounded = third * three, minus = -1.0f;
    return fused(a, b, c) == c && small * half != 0.0f && fused(small, half, 0.0f) != 0.0f &&
           fused(third, three, minus) != third * three + minus && rounded == 1.0f;
}

#endif
