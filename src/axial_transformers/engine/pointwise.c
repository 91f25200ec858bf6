/* Quick GELU and dropout, in one pass over memory.

   Random bits are those of SplitMix64 (Steele et al. 2014), as in ops/elementwise.py: its outputs 0, 1, .. are 64 bits
   each, and number j has 16 of them.

       output     0                                           1
       bits       0 .. 15    16 .. 31   32 .. 47   48 .. 63   0 .. 15   ..
       number     0          1          2          3          4         ..                            */

#include "lines.h"

typedef uint64_t Longs __attribute__((vector_size(4 * WIDE)));
typedef int32_t Integers __attribute__((vector_size(4 * WIDE)));
typedef int16_t Parts __attribute__((vector_size(2 * WIDE)));

/* Load or store a vector of float32, or of bfloat16. */
INLINED Floats load_numbers(const void *x, int64_t at, int bfloat16) {
    return bfloat16 ? load_half((const uint16_t *)x + at) : vector_at((const float *)x + at);
}

INLINED void store_to(void *x, int64_t at, int bfloat16, Floats numbers) {
    if (bfloat16) store_half((uint16_t *)x + at, numbers);
    else put((float *)x + at, numbers);
}

/* Copy what is left behind the last whole block, `count` numbers from `at` on. */
static void copy(void *to, const void *from, int64_t at, int64_t count, int bfloat16, int back) {
    size_t bytes = bfloat16 ? 2 : 4, size = (size_t)count * bytes, offset = (size_t)at * bytes;
    if (from) memcpy((char *)to + (back ? offset : 0), (const char *)from + (back ? 0 : offset), size);
}

/* Write PANEL numbers x s, or with a gradient, grad s (1 + z (1 - s)), where z = 1.702 x and s its sigmoid. */
INLINED void activate_block(const void *x, const void *grad, void *out, int64_t at, int bfloat16) {
    UNROLLED
    for (int half = 0; half < 2; half++, at += WIDE) {
        Floats number = load_numbers(x, at, bfloat16), z = number * 1.702f;
        Floats below = chosen((Words)(z < -87.0f), filled(-87.0f), z);
        Floats s = 1.0f / (1.0f + power(chosen((Words)(z > 87.0f), filled(-87.0f), -below)));
        if (grad) number = load_numbers(grad, at, bfloat16) * multiply_add(z, 1.0f - s, filled(1));
        store_to(out, at, bfloat16, number * s);
    }
}

INLINED void activate(const void *x, const void *grad, void *out, int bfloat16, int64_t first, int64_t last) {
    for (; first + PANEL <= last; first += PANEL)
        activate_block(x, grad, out, first, bfloat16);
    if (first < last) {
        float some_x[PANEL] = {0}, some_grad[PANEL] = {0};
        copy(some_x, x, first, last - first, bfloat16, 0);
        copy(some_grad, grad, first, last - first, bfloat16, 0);
        activate_block(some_x, grad ? some_grad : NULL, some_x, 0, bfloat16);
        copy(out, some_x, first, last - first, bfloat16, 1);
    }
}

/* Write quick GELU of the numbers first .. last - 1, x / (1 + exp(-1.702 x)). */
EXPORTED(quick_gelu)(const void *x, void *out, int bfloat16, int64_t first, int64_t last) {
    if (bfloat16) activate(x, NULL, out, 1, first, last);
    else activate(x, NULL, out, 0, first, last);
    return FINE;
}

/* Write grad times the derivative of quick GELU. */
EXPORTED(quick_gelu_backward)(const void *x, const void *grad, void *out, int bfloat16, int64_t first, int64_t last) {
    if (bfloat16) activate(x, grad, out, 1, first, last);
    else activate(x, grad, out, 0, first, last);
    return FINE;
}

/* What dropout does to number j: random bits of `seed` below `least` drop it. */
typedef struct { uint64_t seed; int32_t least; float scale; } Dropout;

/* Add PANEL numbers y that are kept to x; x is NULL for zeros. The random bits are those from number j on. */
INLINED void drop_block(const void *x, const void *y, Dropout by, void *out, int64_t at, int64_t j, int x_bfloat16,
                        int y_bfloat16, int out_bfloat16) {
    Longs z;
    Parts parts[2];
    for (int i = 0; i < WIDE / 2; i++)
        z[i] = (uint64_t)i + 1;
    z = (z + (uint64_t)j / 4) * 0x9E3779B97F4A7C15u + by.seed;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    z ^= z >> 31;
    memcpy(parts, &z, sizeof(z)); /* numbers in order, since all processors here have the lower bits first */
    UNROLLED
    for (int half = 0; half < 2; half++, at += WIDE) {
        Words kept = (Words)(__builtin_convertvector(parts[half], Integers) >= by.least);
        Floats added = chosen(kept, load_numbers(y, at, y_bfloat16) * by.scale, filled(0));
        store_to(out, at, out_bfloat16, x ? load_numbers(x, at, x_bfloat16) + added : added);
    }
}

INLINED void drop(const void *x, const void *y, Dropout by, void *out, int64_t first, int64_t last, int x_bfloat16,
                  int y_bfloat16, int out_bfloat16) {
    for (; first + PANEL <= last; first += PANEL)
        drop_block(x, y, by, out, first, first, x_bfloat16, y_bfloat16, out_bfloat16);
    if (first < last) {
        float some_x[PANEL] = {0}, some_y[PANEL] = {0}, some_out[PANEL];
        copy(some_x, x, first, last - first, x_bfloat16, 0);
        copy(some_y, y, first, last - first, y_bfloat16, 0);
        drop_block(x ? some_x : NULL, some_y, by, some_out, 0, first, x_bfloat16, y_bfloat16, out_bfloat16);
        copy(out, some_out, first, last - first, out_bfloat16, 1);
    }
}

/* Write x + scale y where random bits are at least `least`, x elsewhere, for the numbers first .. last - 1. `first` is a
   multiple of 4. x is NULL for zeros; `bfloat16` has bit 0 for x, bit 1 for y, bit 2 for out. */
EXPORTED(add_dropped)(const void *x, const void *y, uint64_t seed, int32_t least, float scale, void *out, int bfloat16,
                      int64_t first, int64_t last) {
    Dropout by = {seed, least, scale};
    if (!bfloat16 && x) drop(x, y, by, out, first, last, 0, 0, 0);
    else if (!bfloat16) drop(NULL, y, by, out, first, last, 0, 0, 0);
    else if (bfloat16 == (x ? 7 : 6)) drop(x, y, by, out, first, last, 1, 1, 1);
    else drop(x, y, by, out, first, last, bfloat16 & 1, bfloat16 & 2, bfloat16 & 4);
    return FINE;
}
