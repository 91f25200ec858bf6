/* Quick GELU and dropout, in one pass over memory.

   Random bits are those of SplitMix64 (Steele et al. 2014), as in ops/elementwise.py: its outputs 0, 1, .. are 64 bits
   each, and number j has 16 of them.

       output     0                                           1
       bits       0 .. 15    16 .. 31   32 .. 47   48 .. 63   0 .. 15   ..
       number     0          1          2          3          4         ..                            */

#include "lines.h"

enum { AT_ONCE = 64 /* numbers of a block that stays in registers or the first cache */ };

/* Load or store `count` numbers of float32, or of bfloat16. */
INLINED void load_block(const void *x, int64_t at, int64_t count, int bfloat16, float *out) {
    if (bfloat16)
        for (int64_t j = 0; j < count; j++)
            out[j] = widened_one(((const uint16_t *)x)[at + j]);
    else
        memcpy(out, (const float *)x + at, (size_t)count * sizeof(float));
}

INLINED void store_block(const float *x, int64_t count, int bfloat16, void *out, int64_t at) {
    if (bfloat16)
        for (int64_t j = 0; j < count; j++)
            ((uint16_t *)out)[at + j] = narrowed_one(x[j]);
    else
        memcpy((float *)out + at, x, (size_t)count * sizeof(float));
}

/* 1 / (1 + e^-z). */
INLINED Floats sigmoid_of(Floats z) {
    z = chosen((Words)(z < -87.0f), spread(-87.0f), z);
    return 1.0f / (1.0f + power(chosen((Words)(z > 87.0f), spread(-87.0f), -z)));
}

/* out = x s, or with a gradient, out = grad s (1 + z (1 - s)), where z = 1.702 x and s its sigmoid. */
INLINED void activate_block(const void *x, const void *grad, void *out, int64_t at, int64_t count, int bfloat16,
                            int backward) {
    float numbers[AT_ONCE] = {0}, grads[AT_ONCE] = {0};
    load_block(x, at, count, bfloat16, numbers);
    if (backward) load_block(grad, at, count, bfloat16, grads);
    for (int j = 0; j < AT_ONCE; j += WIDE) {
        Floats number = load(numbers + j), z = number * 1.702f, s = sigmoid_of(z);
        Floats slope = s * multiply_add(z, 1.0f - s, spread(1));
        store(numbers + j, backward ? load(grads + j) * slope : number * s);
    }
    store_block(numbers, count, bfloat16, out, at);
}

INLINED void activate(const void *x, const void *grad, void *out, int bfloat16, int backward, int64_t first,
                      int64_t last) {
    for (; first + AT_ONCE <= last; first += AT_ONCE)
        activate_block(x, grad, out, first, AT_ONCE, bfloat16, backward);
    if (first < last) activate_block(x, grad, out, first, last - first, bfloat16, backward);
}

/* Write quick GELU of the numbers first .. last - 1, x / (1 + exp(-1.702 x)). */
EXPORTED(quick_gelu)(const void *x, void *out, int bfloat16, int64_t first, int64_t last) {
    if (bfloat16) activate(x, NULL, out, 1, 0, first, last);
    else activate(x, NULL, out, 0, 0, first, last);
    return FINE;
}

/* Write grad times the derivative of quick GELU. */
EXPORTED(quick_gelu_backward)(const void *x, const void *grad, void *out, int bfloat16, int64_t first, int64_t last) {
    if (bfloat16) activate(x, grad, out, 1, 1, first, last);
    else activate(x, grad, out, 0, 1, first, last);
    return FINE;
}

INLINED void drop_block(const void *x, const void *y, uint64_t seed, int32_t least, float scale, void *out, int64_t at,
                        int64_t count, int x_bfloat16, int y_bfloat16, int out_bfloat16) {
    uint64_t bits[AT_ONCE / 4];
    int16_t parts[AT_ONCE];
    float base[AT_ONCE] = {0}, added[AT_ONCE] = {0};
    for (int j = 0; j < AT_ONCE / 4; j++) {
        uint64_t z = ((uint64_t)at / 4 + (uint64_t)j + 1) * 0x9E3779B97F4A7C15u + seed;
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
        z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
        bits[j] = z ^ (z >> 31);
    }
    for (int j = 0; j < AT_ONCE; j++) /* not a copy of memory, so that the order of bytes does not matter */
        parts[j] = (int16_t)(bits[j / 4] >> (j % 4 * 16));
    if (x) load_block(x, at, count, x_bfloat16, base);
    load_block(y, at, count, y_bfloat16, added);
    for (int j = 0; j < AT_ONCE; j++)
        base[j] += parts[j] >= least ? added[j] * scale : 0.0f;
    store_block(base, count, out_bfloat16, out, at);
}

/* Write x + scale y where random bits are at least `least`, x elsewhere, for the numbers first .. last - 1. `first` is a
   multiple of 4. x is NULL for zeros; `bfloat16` has bit 0 for x, bit 1 for y, bit 2 for out. */
EXPORTED(add_dropped)(const void *x, const void *y, uint64_t seed, int32_t least, float scale, void *out, int bfloat16,
                      int64_t first, int64_t last) {
    int x_half = bfloat16 & 1, y_half = bfloat16 & 2, out_half = bfloat16 & 4;
    for (; first + AT_ONCE <= last; first += AT_ONCE)
        if (!bfloat16) drop_block(x, y, seed, least, scale, out, first, AT_ONCE, 0, 0, 0);
        else if (bfloat16 == 7) drop_block(x, y, seed, least, scale, out, first, AT_ONCE, 1, 1, 1);
        else drop_block(x, y, seed, least, scale, out, first, AT_ONCE, x_half, y_half, out_half);
    if (first < last) drop_block(x, y, seed, least, scale, out, first, last - first, x_half, y_half, out_half);
    return FINE;
}
