/* What training attention is made of: vectors, products that stay in registers, lines of a tensor in a core's cache.

   Arithmetic here is free: sums may be taken in any order, unlike those of arithmetic.h. A vector has WIDE numbers.

   A tensor [outer, length, inner, heads, width] lies in memory by strides; the numbers of a head adjoin. One head of one
   line is a piece of work. Pieces count by head first, then inner, then outer:

       piece m = (outer index * inner + inner index) * heads + head

   A core works on copies, float32, padded with zeros to whole vectors. Successive positions of a line may be far apart
   in memory, often by a power of two. Then they share a few sets of a cache, and evict each other before the next head
   is read. So each position is visited once for `at_once` heads, which lie beside each other:

       copy of head 0   position 0      width numbers, zeros     `wide` numbers in a row
                        ..
                        length          zeros                    `padded` rows
       copy of head 1   ..                                                                       */

#ifndef LINES_H
#define LINES_H

#include "arithmetic.h"
#include "door.h"

#if defined(__AVX512F__)
#define WIDE 16
#elif defined(__AVX__)
#define WIDE 8
#else
#define WIDE 4
#endif
#if defined(__AVX512F__) || defined(__aarch64__)
#define TALL 12 /* rows of the product whose sums fill the registers: 24 of 32, or 12 of 16 */
#else
#define TALL 6
#endif
enum { PANEL = 2 * WIDE, CACHE_LINE = 64, AHEAD = 8 /* positions on their way from memory: a cache set holds few */ };

typedef float Floats __attribute__((vector_size(4 * WIDE)));
typedef uint32_t Words __attribute__((vector_size(4 * WIDE)));
typedef uint16_t Halves __attribute__((vector_size(2 * WIDE)));
typedef float Unaligned __attribute__((vector_size(4 * WIDE), aligned(4), may_alias));
typedef uint16_t UnalignedHalves __attribute__((vector_size(2 * WIDE), aligned(2), may_alias));

INLINED Floats vector_at(const float *x) { return *(const Unaligned *)x; }
INLINED void put(float *x, Floats numbers) { *(Unaligned *)x = numbers; }
INLINED Floats filled(float x) { return x - (Floats){0}; }
INLINED Floats chosen(Words where, Floats a, Floats b) { return (Floats)((where & (Words)a) | (~where & (Words)b)); }
INLINED Floats larger(Floats a, Floats b) { return chosen((Words)(a > b), a, b); } /* b if one is NaN */

/* Return a b + c: fused where there is an instruction for that. */
INLINED Floats multiply_add(Floats a, Floats b, Floats c) {
#if defined(__clang__) && (defined(__FMA__) || defined(__aarch64__))
    return __builtin_elementwise_fma(a, b, c);
#else
    return a * b + c;
#endif
}

/* Return e^x to a millionth: 0 below -88. A coefficient of 1 ends the series, so that e^0 is 1. */
INLINED Floats power(Floats x) {
    const float log2_e = 1.4426950408889634f, round = 12582912.0f + 127;
    x = larger(filled(-127 / log2_e), x);
    Floats shifted = multiply_add(x, filled(log2_e), filled(round)), n = shifted - round;
    Floats r = multiply_add(x, filled(log2_e), -n), p = filled(0.00132647273f);
    p = multiply_add(p, r, filled(0.00967151299f));
    p = multiply_add(p, r, filled(0.0555073358f));
    p = multiply_add(p, r, filled(0.240222424f));
    p = multiply_add(p, r, filled(0.693147004f));
    p = multiply_add(p, r, filled(1.0f));
    return p * (Floats)((Words)shifted << 23);
}

/* Return the sum, or the greatest, of the numbers of a vector. */
INLINED float sum_vector(Floats x) {
    float lanes[WIDE];
    put(lanes, x);
    UNROLLED
    for (int half = WIDE / 2; half; half /= 2)
        for (int j = 0; j < half; j++)
            lanes[j] += lanes[j + half];
    return lanes[0];
}

INLINED float largest_number(Floats x) {
    float lanes[WIDE];
    put(lanes, x);
    UNROLLED
    for (int half = WIDE / 2; half; half /= 2)
        for (int j = 0; j < half; j++)
            lanes[j] = lanes[j] > lanes[j + half] ? lanes[j] : lanes[j + half];
    return lanes[0];
}

/* bfloat16 is the upper half of float32; rounding is to the nearest, ties to even. */
INLINED Floats widened(Halves x) { return (Floats)(__builtin_convertvector(x, Words) << 16); }
INLINED float widened_one(uint16_t x) { return from_bits((uint32_t)x << 16); }
INLINED Halves narrowed(Floats x) {
    Words bits = (Words)x, rounded = (bits + ((bits >> 16) & 1) + 0x7fff) >> 16, number = (Words)(x == x);
    return __builtin_convertvector((number & rounded) | (~number & 0x7fc0), Halves);
}
INLINED uint16_t narrowed_one(float x) {
    uint32_t bits = float_bits(x);
    return x == x ? (uint16_t)((bits + ((bits >> 16) & 1) + 0x7fff) >> 16) : 0x7fc0;
}

INLINED Floats load_half(const uint16_t *x) { return widened(*(const UnalignedHalves *)x); }
INLINED void store_half(uint16_t *x, Floats numbers) { *(UnalignedHalves *)x = narrowed(numbers); }

/* Compute `rows` rows and `vectors` vectors, both constants:

       out[r, c] = sum over s of x[r x_row + s x_step] w[s w_row + c], or out[r, c] += that

   The barriers keep the compiler from a pointer to each row, and from loading all rows before it uses one. */
#if defined(__AVX512F__)
#define USED_BEFORE(pointer, vector) __asm__("" : "+r"(pointer), "+v"(vector))
#else
#define USED_BEFORE(pointer, vector)
#endif
INLINED void product_tile(const int rows, const int vectors, int adds, const float *x, int64_t x_row, int64_t x_step,
                          int64_t count, const float *w, int64_t w_row, float *out, int64_t out_row) {
    Floats sums[12][2];
    UNROLLED
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < vectors; c++)
            sums[r][c] = adds ? vector_at(out + r * out_row + c * WIDE) : filled(0);
    for (int64_t s = 0; s < count; s++, x += x_step, w += w_row) {
        Floats beside[2];
        const float *here = x;
        __asm__("" : "+r"(here));
        for (int c = 0; c < vectors; c++)
            beside[c] = vector_at(w + c * WIDE);
        UNROLLED
        for (int r = 0; r < rows; r++) {
            Floats number = filled(here[r * x_row]);
            for (int c = 0; c < vectors; c++) {
                sums[r][c] = multiply_add(number, beside[c], sums[r][c]);
                USED_BEFORE(here, sums[r][c]);
            }
        }
    }
    UNROLLED
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < vectors; c++)
            put(out + r * out_row + c * WIDE, sums[r][c]);
}

INLINED void multiply_rows(const int vectors, int adds, const float *x, int64_t x_row, int64_t x_step, int64_t count,
                             const float *w, int64_t w_row, float *out, int64_t out_row, int64_t rows) {
#define PRODUCT(height) product_tile(height, vectors, adds, x, x_row, x_step, count, w, w_row, out, out_row)
    for (; rows >= TALL; rows -= TALL, x += TALL * x_row, out += TALL * out_row)
        PRODUCT(TALL);
    for (; TALL > 8 && rows >= 8; rows -= 8, x += 8 * x_row, out += 8 * out_row)
        PRODUCT(8);
    for (; rows >= 4; rows -= 4, x += 4 * x_row, out += 4 * out_row)
        PRODUCT(4);
    switch (rows) {
    case 3: PRODUCT(3); break;
    case 2: PRODUCT(2); break;
    case 1: PRODUCT(1); break;
    }
#undef PRODUCT
}

/* `product_tile` of any number of rows, and of columns, a multiple of WIDE. */
static void product(int adds, const float *x, int64_t x_row, int64_t x_step, int64_t count, const float *w,
                    int64_t w_row, float *out, int64_t out_row, int64_t rows, int64_t columns) {
    for (; columns >= PANEL; columns -= PANEL, w += PANEL, out += PANEL)
        multiply_rows(2, adds, x, x_row, x_step, count, w, w_row, out, out_row, rows);
    if (columns)
        multiply_rows(1, adds, x, x_row, x_step, count, w, w_row, out, out_row, rows);
}

/* out [columns, rows] = x [rows, columns], both multiples of WIDE. To take the rows i and i + WIDE / 2 number by number
   in turns, log2(WIDE) times, is to transpose. */
static void transpose(const float *x, int64_t x_row, int64_t rows, int64_t columns, float *out, int64_t out_row) {
    for (int64_t r = 0; r < rows; r += WIDE)
        for (int64_t c = 0; c < columns; c += WIDE) {
            Floats tile[WIDE], next[WIDE];
            UNROLLED
            for (int i = 0; i < WIDE; i++)
                tile[i] = vector_at(x + (r + i) * x_row + c);
            UNROLLED
            for (int step = 1; step < WIDE; step *= 2) {
                UNROLLED
                for (int i = 0; i < WIDE / 2; i++) {
                    Floats a = tile[i], b = tile[i + WIDE / 2];
#if WIDE == 16
                    next[2 * i] = __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
                    next[2 * i + 1] =
                        __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
#elif WIDE == 8
                    next[2 * i] = __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11);
                    next[2 * i + 1] = __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15);
#else
                    next[2 * i] = __builtin_shufflevector(a, b, 0, 4, 1, 5);
                    next[2 * i + 1] = __builtin_shufflevector(a, b, 2, 6, 3, 7);
#endif
                }
                memcpy(tile, next, sizeof(tile));
            }
            UNROLLED
            for (int i = 0; i < WIDE; i++)
                put(out + (c + i) * out_row + r, tile[i]);
        }
}

/* Numbers from one to the next in a tensor. */
typedef struct { int64_t outer, inner, head, position; } Strides;

/* Sizes of a call; Python fills them in this order (ops/engine_attention.py). */
typedef struct {
    int64_t outer, inner;  /* there are outer times inner lines */
    int64_t heads;         /* of queries */
    int64_t length;        /* L, positions of a line */
    int64_t width;         /* K, of queries and keys */
    int64_t value_width;
    int64_t lines_to_bias; /* lines that share a bias */
    int64_t group;         /* heads of queries that share keys and values */
    int64_t at_once;       /* heads that are loaded together: whole groups of a line; one with a bias */
    int64_t radius;        /* R < L: relative encodings are those of the offsets -R .. R */
    int64_t tables;        /* tables of relative encodings: 1, or one for each head */
    int64_t causal;
    int64_t bfloat16;      /* 0 for float32, 1, or PAIRS: the processor has the instructions of pairs.h */
} Sizes;

enum { PAIRS = 2 };

/* A tensor of `heads` heads, of which `at_once` are copied together. */
typedef struct {
    void *data;
    Strides by;
    int64_t heads, at_once, width, wide;
    float *copy; /* [at_once, padded, wide] */
} Lines;

static int64_t rounded_up(int64_t size, int64_t multiple) { return (size + multiple - 1) / multiple * multiple; }

/* Return where piece m begins. */
static int64_t beginning(const Lines *x, const Sizes *sizes, int64_t m) {
    int64_t line = m / x->heads;
    return line / sizes->inner * x->by.outer + line % sizes->inner * x->by.inner + m % x->heads * x->by.head;
}

/* Run VECTOR for each vector j of a row, and NUMBER for each number i of the rest, four at a time: heads are narrow. */
#define IN_PARTS(width, VECTOR, NUMBER)                                                                                \
    do {                                                                                                               \
        int64_t j = 0;                                                                                                 \
        for (; j + WIDE <= (width); j += WIDE)                                                                         \
            VECTOR;                                                                                                    \
        for (; j + 4 <= (width); j += 4)                                                                               \
            for (int64_t i = j; i < j + 4; i++)                                                                        \
                NUMBER;                                                                                                \
        for (int64_t i = j; i < (width); i++)                                                                          \
            NUMBER;                                                                                                    \
    } while (0)

INLINED void load_row(const void *data, int64_t at, int bfloat16, int64_t width, float scale, float *restrict out) {
    const uint16_t *halves = (const uint16_t *)data + at;
    const float *restrict x = (const float *)data + at;
    if (bfloat16)
        IN_PARTS(width, put(out + j, load_half(halves + j) * scale), out[i] = widened_one(halves[i]) * scale);
    else
        IN_PARTS(width, put(out + j, vector_at(x + j) * scale), out[i] = x[i] * scale);
}

INLINED void store_row(const float *restrict x, int64_t width, float scale, int bfloat16, void *data, int64_t at) {
    uint16_t *halves = (uint16_t *)data + at;
    float *restrict out = (float *)data + at;
    if (bfloat16)
        IN_PARTS(width, store_half(halves + j, vector_at(x + j) * scale), halves[i] = narrowed_one(x[i] * scale));
    else
        IN_PARTS(width, put(out + j, vector_at(x + j) * scale), out[i] = x[i] * scale);
}

static void prefetch_row(const void *data, int64_t at, int64_t width, int64_t bytes) {
    for (int64_t j = 0; j < width * bytes; j += CACHE_LINE)
        __builtin_prefetch((const void *)((uintptr_t)data + (uintptr_t)(at * bytes + j)));
}

/* What counts of a row at an absent position: of keys and values nothing, of queries what is finite. */
enum { ALL, NOTHING_IF_ABSENT, FINITE_IF_ABSENT };

/* Copy the heads that are loaded together, from piece m on, times `scale`. `present` is uint8 [length], or NULL. Sizes
   are copied first: a store of a vector might change them, for all that the compiler knows. */
static void load_heads(const Lines *lines, const Sizes *sizes, int64_t m, float scale, const uint8_t *present,
                       int absent, int64_t padded) {
    const Lines x = *lines;
    const int64_t first = beginning(lines, sizes, m), bytes = sizes->bfloat16 ? 2 : 4, length = sizes->length;
    for (int64_t row = 0; row < length; row++) {
        int64_t from = first + row * x.by.position;
        float *to = x.copy + row * x.wide;
        for (int64_t head = 0; head < x.at_once; head++, from += x.by.head, to += padded * x.wide) {
            prefetch_row(x.data, from + AHEAD * x.by.position, x.width, bytes);
            load_row(x.data, from, bytes == 2, x.width, scale, to);
            if (present && !present[row] && absent != ALL)
                for (int64_t j = 0; j < x.width; j++)
                    to[j] = absent == NOTHING_IF_ABSENT || !(fabsf(to[j]) <= FLT_MAX) ? 0.0f : to[j];
        }
    }
}

/* Copy back, times `scale`, or row by row times the first number of sums [pieces times L, 2]. */
static void store_heads(const Lines *lines, const Sizes *sizes, int64_t m, float scale, const float *sums,
                        int64_t padded) {
    const Lines x = *lines;
    const int64_t first = beginning(lines, sizes, m), bytes = sizes->bfloat16 ? 2 : 4, length = sizes->length;
    for (int64_t row = 0; row < length; row++) {
        int64_t to = first + row * x.by.position;
        const float *from = x.copy + row * x.wide;
        for (int64_t head = 0; head < x.at_once; head++, to += x.by.head, from += padded * x.wide) {
            float factor = sums ? sums[2 * ((m + head) * length + row)] : scale;
            prefetch_row(x.data, to + AHEAD * x.by.position, x.width, bytes);
            store_row(from, x.width, factor, bytes == 2, x.data, to);
        }
    }
}

/* Write zeros into the gradients of what `load_heads` took for zero at absent positions: of keys and values all, of
   queries what is not finite. */
static void clear_absent(const Lines *d_x, const Lines *queries, const Sizes *sizes, int64_t m,
                         const uint8_t *present) {
    for (int64_t row = 0; present && row < sizes->length; row++)
        for (int64_t head = 0; !present[row] && head < d_x->at_once; head++)
            for (int64_t j = 0; j < d_x->width; j++) {
                int64_t to = beginning(d_x, sizes, m) + row * d_x->by.position + head * d_x->by.head + j;
                float number = NAN;
                if (queries)
                    load_row(queries->data, beginning(queries, sizes, m) + row * queries->by.position +
                             head * queries->by.head + j, (int)sizes->bfloat16, 1, 1.0f, &number);
                float zero = 0.0f;
                if (!(fabsf(number) <= FLT_MAX))
                    store_row(&zero, 1, 1.0f, (int)sizes->bfloat16, d_x->data, to);
            }
}

/* Return memory of `count` zeros, or NULL, and in *start where its first cache line begins. */
static void *zeros(int64_t count, float **start) {
    void *memory = malloc((size_t)count * sizeof(float) + CACHE_LINE);
    if (!memory) return NULL;
    *start = (float *)(((uintptr_t)memory + CACHE_LINE - 1) / CACHE_LINE * CACHE_LINE);
    memset(*start, 0, (size_t)count * sizeof(float));
    return memory;
}

/* Return the next `count` numbers of what `zeros` began; all parts begin with a cache line. */
static float *taken(float **next, int64_t count) {
    float *part = *next;
    *next += rounded_up(count, 16);
    return part;
}

#endif
