/* Attention of bfloat16 lines by instructions that multiply pairs of bfloat16 and add to float32 (AVX512_BF16).

   They do twice the multiply-adds of float32 at a time. A word holds a pair, the first number in its lower half. What
   the words of a product are pairs of, is what the product sums over:

       scores = k q^T     dP = v grad^T     pairs along the width: rows as they lie in memory
       out = P^T v        dq = dS^T k       pairs of keys
       dk = dS q          dv = P grad       pairs of queries

   Exponentials and sums are float32. P and dS are rounded to bfloat16, as in torch's fused attention. The scale is that
   of the scores, not of the queries, which would be rounded once more. */

#ifndef PAIRS_H
#define PAIRS_H

#include "lines.h"

#if defined(__AVX512F__) && defined(__x86_64__) && defined(__GNUC__)
#define HAS_PAIRS 1
#include <immintrin.h>

#define OF_PAIRS __attribute__((target("avx512bf16")))

typedef Words UnalignedWords __attribute__((aligned(2), may_alias));
INLINED Words words_at(const uint32_t *x) { return *(const UnalignedWords *)x; }
INLINED void put_words(uint32_t *x, Words words) { *(UnalignedWords *)x = words; }

/* Return words of the halves of two rows. */
INLINED Words paired(Halves first, Halves second) {
    return __builtin_convertvector(first, Words) | __builtin_convertvector(second, Words) << 16;
}

OF_PAIRS static inline Halves halved(Floats x) { return (Halves)_mm512_cvtneps_pbh((__m512)x); }

/* A tensor of heads, see `Lines`: rows [at_once, padded, wide words], pairs along the width. */
typedef struct {
    Lines lines;
    int64_t wide;
    uint32_t *rows;
} PairLines;

static PairLines make_pair_lines(Lines lines) { return (PairLines){lines, rounded_up(lines.width / 2, WIDE), NULL}; }
static int64_t pair_size(const PairLines *x, int64_t padded) { return x->lines.at_once * padded * x->wide; }

static void load_pairs(const PairLines *pairs, const Sizes *sizes, int64_t m, int64_t padded) {
    const PairLines x = *pairs;
    const int64_t first = beginning(&x.lines, sizes, m), length = sizes->length;
    const int64_t width = x.lines.width, whole = width / 2 / WIDE * WIDE;
    for (int64_t row = 0; row < length; row++) {
        int64_t from = first + row * x.lines.by.position;
        uint32_t *to = x.rows + row * x.wide;
        for (int64_t head = 0; head < x.lines.at_once; head++, from += x.lines.by.head, to += padded * x.wide) {
            const uint16_t *numbers = (const uint16_t *)x.lines.data + from;
            prefetch_row(x.lines.data, from + AHEAD * x.lines.by.position, width, 2);
            for (int64_t c = 0; c < whole; c += WIDE)
                put_words(to + c, *(const UnalignedWords *)(numbers + 2 * c));
            if (2 * whole < width) memcpy(to + whole, numbers + 2 * whole, (size_t)(width - 2 * whole) * 2);
        }
    }
}

/* `store_heads` of bfloat16. */
OF_PAIRS static void store_halves(const Lines *lines, const Sizes *sizes, int64_t m, float scale, const float *sums,
                                  int64_t padded) {
    const Lines x = *lines;
    const int64_t first = beginning(lines, sizes, m), length = sizes->length, whole = x.width / WIDE * WIDE;
    for (int64_t row = 0; row < length; row++) {
        int64_t to = first + row * x.by.position;
        const float *from = x.copy + row * x.wide;
        for (int64_t head = 0; head < x.at_once; head++, to += x.by.head, from += padded * x.wide) {
            float factor = sums ? sums[2 * ((m + head) * length + row)] : scale;
            uint16_t *numbers = (uint16_t *)x.data + to;
            prefetch_row(x.data, to + AHEAD * x.by.position, x.width, 2);
            for (int64_t j = 0; j < whole; j += WIDE)
                *(UnalignedHalves *)(numbers + j) = halved(vector_at(from + j) * factor);
            for (int64_t j = whole; j < x.width; j++)
                numbers[j] = narrowed_one(from[j] * factor);
        }
    }
}

/* Write pairs of positions of a head: out [padded / 2, columns] of rows [padded, row words]. */
static void pair_positions(const uint32_t *rows, int64_t row, int64_t positions, int64_t columns, uint32_t *out) {
    for (int64_t s = 0; s < positions; s += 2, rows += 2 * row, out += columns)
        for (int64_t c = 0; c < columns; c += WIDE) {
            const uint16_t *first = (const uint16_t *)rows + c, *second = (const uint16_t *)(rows + row) + c;
            put_words(out + c, paired(*(const UnalignedHalves *)first, *(const UnalignedHalves *)second));
        }
}

/* `product_tile` of pairs, times a scale unless it adds. */
OF_PAIRS static inline __attribute__((always_inline)) void
pair_tile(const int rows, const int vectors, int adds, float scale, const uint32_t *x, int64_t x_row, int64_t x_step,
          int64_t count, const uint32_t *w, int64_t w_row, float *out, int64_t out_row) {
    Floats sums[12][2];
    UNROLLED
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < vectors; c++)
            sums[r][c] = filled(0);
    for (int64_t s = 0; s < count; s++, x += x_step, w += w_row) {
        Words beside[2];
        const uint32_t *here = x;
        __asm__("" : "+r"(here));
        for (int c = 0; c < vectors; c++)
            beside[c] = words_at(w + c * WIDE);
        UNROLLED
        for (int r = 0; r < rows; r++) {
            Words pair = here[r * x_row] - (Words){0};
            for (int c = 0; c < vectors; c++) {
                sums[r][c] = (Floats)_mm512_dpbf16_ps((__m512)sums[r][c], (__m512bh)pair, (__m512bh)beside[c]);
                USED_BEFORE(here, sums[r][c]);
            }
        }
    }
    UNROLLED
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < vectors; c++) {
            float *to = out + r * out_row + c * WIDE;
            put(to, adds ? vector_at(to) + sums[r][c] : sums[r][c] * scale);
        }
}

OF_PAIRS static inline __attribute__((always_inline)) void
pairs_of_rows(const int vectors, int adds, float scale, const uint32_t *x, int64_t x_row, int64_t x_step, int64_t count,
              const uint32_t *w, int64_t w_row, float *out, int64_t out_row, int64_t rows) {
#define PRODUCT(height) pair_tile(height, vectors, adds, scale, x, x_row, x_step, count, w, w_row, out, out_row)
    for (; rows >= TALL; rows -= TALL, x += TALL * x_row, out += TALL * out_row)
        PRODUCT(TALL);
    for (; rows >= 8; rows -= 8, x += 8 * x_row, out += 8 * out_row)
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

/* `product` of pairs. */
OF_PAIRS static __attribute__((noinline)) void pair_product(int adds, float scale, const uint32_t *x, int64_t x_row,
                                                            int64_t x_step, int64_t count, const uint32_t *w, int64_t w_row,
                                                            float *out, int64_t out_row, int64_t rows, int64_t columns) {
    for (; columns >= PANEL; columns -= PANEL, w += PANEL, out += PANEL)
        pairs_of_rows(2, adds, scale, x, x_row, x_step, count, w, w_row, out, out_row, rows);
    if (columns)
        pairs_of_rows(1, adds, scale, x, x_row, x_step, count, w, w_row, out, out_row, rows);
}

/* Write exponentials of scores [keys, PANEL] as pairs of keys, [keys / 2, PANEL]; reciprocal sums, largest scores. The
   score after an odd number of keys is minus infinity. */
OF_PAIRS static void pair_exponentials(int vectors, const float *scores, int64_t keys, float *inverses, float *largest,
                                       uint32_t *pairs) {
    for (int c = 0; c < vectors; c++) {
        const float *x = scores + c * WIDE;
        Floats most = filled(-1e30f), total = filled(0);
        for (int64_t key = 0; key < keys; key++)
            most = larger(vector_at(x + key * PANEL), most);
        for (int64_t key = 0; key < keys; key += 2) {
            Floats first = power(vector_at(x + key * PANEL) - most), second = power(vector_at(x + (key + 1) * PANEL) - most);
            total += first + second;
            put_words(pairs + key / 2 * PANEL + c * WIDE, paired(halved(first), halved(second)));
        }
        Words none = (Words)(total == 0.0f);
        put(inverses + c * WIDE, chosen(none, filled(0), 1.0f / total));
        put(largest + c * WIDE, most);
    }
}

/* Of scores and dP [keys, PANEL], write P and dS as bfloat16 [keys, PANEL], and dS as pairs of keys. */
OF_PAIRS static void pair_softmax_backward(int vectors, float *scores, const float *d_weights, int64_t keys,
                                           const float *inverses, const float *largest, uint16_t *weights,
                                           uint16_t *d_scores, uint32_t *pairs) {
    for (int c = 0; c < vectors; c++) {
        Floats total = filled(0), most = vector_at(largest + c * WIDE), inverse = vector_at(inverses + c * WIDE);
        for (int64_t key = 0; key < keys; key++) {
            int64_t at = key * PANEL + c * WIDE;
            Floats p = power(vector_at(scores + at) - most) * inverse;
            total = multiply_add(p, vector_at(d_weights + at), total);
            put(scores + at, p);
        }
        for (int64_t key = 0; key < keys; key += 2) {
            int64_t at = key * PANEL + c * WIDE, next = at + PANEL;
            Floats p = vector_at(scores + at), after = key + 1 < keys ? vector_at(scores + next) : filled(0);
            Floats d_after = key + 1 < keys ? vector_at(d_weights + next) - total : filled(0);
            Halves d_first = halved(p * (vector_at(d_weights + at) - total)), d_second = halved(after * d_after);
            *(UnalignedHalves *)(weights + at) = halved(p);
            *(UnalignedHalves *)(weights + next) = halved(after);
            *(UnalignedHalves *)(d_scores + at) = d_first;
            *(UnalignedHalves *)(d_scores + next) = d_second;
            put_words(pairs + key / 2 * PANEL + c * WIDE, paired(d_first, d_second));
        }
    }
}

/* What both passes hold of some heads of a line. */
typedef struct {
    PairLines q, k, v;
    int64_t padded;
    float scale, *scores, *inverses, *largest;
    uint32_t *queries_transposed, *of_keys; /* of_keys: P or dS in pairs of keys [padded / 2, PANEL] */
} Pairs;

static int64_t pairs_size(const Pairs *x) {
    int64_t padded = x->padded;
    return pair_size(&x->q, padded) + pair_size(&x->k, padded) + pair_size(&x->v, padded) +
           (2 * x->q.wide + 2 * padded + 2) * PANEL + 128;
}

static void take_pairs(Pairs *x, float **memory) {
    x->q.rows = (uint32_t *)taken(memory, pair_size(&x->q, x->padded));
    x->k.rows = (uint32_t *)taken(memory, pair_size(&x->k, x->padded));
    x->v.rows = (uint32_t *)taken(memory, pair_size(&x->v, x->padded));
    x->queries_transposed = (uint32_t *)taken(memory, x->q.wide * PANEL);
    x->scores = taken(memory, x->padded * PANEL);
    x->of_keys = (uint32_t *)taken(memory, x->padded / 2 * PANEL);
    x->inverses = taken(memory, PANEL);
    x->largest = taken(memory, PANEL);
}

/* Write the scores of the queries b .. b + columns - 1 for the keys 0 .. reach - 1; after them, minus infinity. */
static void score_pairs(const Pairs *x, const uint32_t *queries, const uint32_t *keys, int causal, int64_t b,
                        int64_t columns, int64_t reach) {
    float *scores = x->scores;
    transpose((const float *)queries, x->q.wide, columns, x->q.wide, (float *)x->queries_transposed, PANEL);
    pair_product(0, x->scale, keys, x->k.wide, 1, x->q.lines.width / 2, x->queries_transposed, PANEL, scores, PANEL, reach,
                 columns);
    for (int64_t key = b + 1; causal && key < reach; key++)
        for (int64_t o = 0; o < key - b; o++)
            scores[key * PANEL + o] = -INFINITY;
    for (int64_t o = 0; reach % 2 && o < PANEL; o++)
        scores[reach * PANEL + o] = -INFINITY;
}

static int pair_forward(Lines q, Lines k, Lines v, Lines attended, const Sizes *sizes, float scale, float *sums,
                            int64_t first, int64_t last) {
    int64_t length = sizes->length, padded = rounded_up(length, WIDE), wide = attended.wide;
    Pairs x = {make_pair_lines(q), make_pair_lines(k), make_pair_lines(v), padded, scale, 0, 0, 0, 0, 0};
    int64_t of_result = attended.at_once * padded * wide;
    float *next;
    void *memory = zeros(pairs_size(&x) + of_result + padded / 2 * wide + 64, &next);
    if (!memory) return NO_MEMORY;
    take_pairs(&x, &next);
    attended.copy = taken(&next, of_result);
    uint32_t *values = (uint32_t *)taken(&next, padded / 2 * wide);
    for (int64_t m = first; m < last; m++) {
        int64_t head = m % sizes->at_once, key_head = head / sizes->group, of_group = m / sizes->group;
        if (head == 0) {
            load_pairs(&x.q, sizes, m, padded);
            load_pairs(&x.k, sizes, of_group, padded);
            load_pairs(&x.v, sizes, of_group, padded);
        }
        pair_positions(x.v.rows + key_head * padded * x.v.wide, x.v.wide, padded, wide, values);
        for (int64_t b = 0; b < length; b += PANEL) {
            int64_t rows = length - b < PANEL ? length - b : PANEL, columns = padded - b < PANEL ? padded - b : PANEL;
            int64_t reach = sizes->causal ? b + rows : length;
            score_pairs(&x, x.q.rows + (head * padded + b) * x.q.wide, x.k.rows + key_head * padded * x.k.wide,
                        (int)sizes->causal, b, columns, reach);
            pair_exponentials((int)(columns / WIDE), x.scores, reach, x.inverses, x.largest, x.of_keys);
            for (int64_t o = 0; o < rows; o++) {
                sums[2 * (m * length + b + o)] = x.inverses[o];
                sums[2 * (m * length + b + o) + 1] = x.largest[o];
            }
            pair_product(0, 1.0f, x.of_keys, 1, PANEL, (reach + 1) / 2, values, wide,
                         attended.copy + (head * padded + b) * wide, wide, rows, wide);
        }
        if (head == sizes->at_once - 1) store_halves(&attended, sizes, m - head, 1.0f, sums, padded);
    }
    free(memory);
    return FINE;
}

static int pair_backward(Lines q, Lines k, Lines v, Lines grad, Lines d_q, Lines d_k, Lines d_v, const Sizes *sizes,
                             float scale, const float *sums, int64_t first, int64_t last) {
    int64_t length = sizes->length, padded = rounded_up(length, WIDE), wide = d_q.wide, value_wide = d_v.wide;
    Pairs x = {make_pair_lines(q), make_pair_lines(k), make_pair_lines(v), padded, scale, 0, 0, 0, 0, 0};
    PairLines g = make_pair_lines(grad);
    int64_t of_queries = d_q.at_once * padded * wide, of_keys = d_k.at_once * padded * wide;
    int64_t of_values = d_v.at_once * padded * value_wide;
    float *next;
    void *memory = zeros(pairs_size(&x) + pair_size(&g, padded) + of_queries + of_keys + of_values + g.wide * PANEL +
                             2 * padded * PANEL + padded * wide + padded / 2 * value_wide + 256, &next);
    if (!memory) return NO_MEMORY;
    take_pairs(&x, &next);
    g.rows = (uint32_t *)taken(&next, pair_size(&g, padded));
    d_q.copy = taken(&next, of_queries), d_k.copy = taken(&next, of_keys), d_v.copy = taken(&next, of_values);
    uint32_t *grads_transposed = (uint32_t *)taken(&next, g.wide * PANEL);
    float *d_weights = taken(&next, padded * PANEL);
    uint16_t *weights = (uint16_t *)taken(&next, padded * PANEL / 2);
    uint16_t *d_scores = (uint16_t *)taken(&next, padded * PANEL / 2);
    uint32_t *queries = (uint32_t *)taken(&next, padded / 2 * wide), *keys = (uint32_t *)taken(&next, padded / 2 * wide);
    uint32_t *grads = (uint32_t *)taken(&next, padded / 2 * value_wide);
    for (int64_t m = first; m < last; m++) {
        int64_t head = m % sizes->at_once, key_head = head / sizes->group, of_group = m / sizes->group;
        if (head == 0) {
            load_pairs(&x.q, sizes, m, padded);
            load_pairs(&x.k, sizes, of_group, padded);
            load_pairs(&x.v, sizes, of_group, padded);
            load_pairs(&g, sizes, m, padded);
            memset(d_k.copy, 0, (size_t)of_keys * sizeof(float));
            memset(d_v.copy, 0, (size_t)of_values * sizeof(float));
        }
        const uint32_t *of_q = x.q.rows + head * padded * x.q.wide, *of_g = g.rows + head * padded * g.wide;
        const uint32_t *of_k = x.k.rows + key_head * padded * x.k.wide, *of_v = x.v.rows + key_head * padded * x.v.wide;
        pair_positions(of_q, x.q.wide, padded, wide, queries);
        pair_positions(of_k, x.k.wide, padded, wide, keys);
        pair_positions(of_g, g.wide, padded, value_wide, grads);
        for (int64_t b = 0; b < length; b += PANEL) {
            int64_t rows = length - b < PANEL ? length - b : PANEL, columns = padded - b < PANEL ? padded - b : PANEL;
            int64_t reach = sizes->causal ? b + rows : length, pairs_of_queries = (rows + 1) / 2;
            score_pairs(&x, of_q + b * x.q.wide, of_k, (int)sizes->causal, b, columns, reach);
            transpose((const float *)(of_g + b * g.wide), g.wide, columns, g.wide, (float *)grads_transposed, PANEL);
            pair_product(0, 1.0f, of_v, x.v.wide, 1, grad.width / 2, grads_transposed, PANEL, d_weights, PANEL, reach,
                         columns);
            for (int64_t o = 0; o < PANEL; o++) {
                const float *of_query = sums + 2 * (m * length + b + o);
                x.inverses[o] = o < rows ? of_query[0] : 0.0f;
                x.largest[o] = o < rows ? of_query[1] : 0.0f;
            }
            pair_softmax_backward((int)(columns / WIDE), x.scores, d_weights, reach, x.inverses, x.largest, weights,
                                  d_scores, x.of_keys);
            pair_product(0, 1.0f, x.of_keys, 1, PANEL, (reach + 1) / 2, keys, wide, d_q.copy + (head * padded + b) * wide,
                         wide, rows, wide);
            pair_product(1, 1.0f, (const uint32_t *)d_scores, PANEL / 2, 1, pairs_of_queries, queries + b / 2 * wide, wide,
                         d_k.copy + key_head * padded * wide, wide, reach, wide);
            pair_product(1, 1.0f, (const uint32_t *)weights, PANEL / 2, 1, pairs_of_queries, grads + b / 2 * value_wide,
                         value_wide, d_v.copy + key_head * padded * value_wide, value_wide, reach, value_wide);
        }
        if (head == sizes->at_once - 1) {
            int64_t begun = m - head;
            store_halves(&d_q, sizes, begun, scale, NULL, padded);
            store_halves(&d_k, sizes, begun / sizes->group, scale, NULL, padded);
            store_halves(&d_v, sizes, begun / sizes->group, 1.0f, NULL, padded);
        }
    }
    free(memory);
    return FINE;
}
#endif

#endif
