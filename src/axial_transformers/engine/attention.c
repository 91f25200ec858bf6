/* Attention along lines, out_o = sum_p softmax_p(q_o . k_p / sqrt(K) + bias_op) v_p, and its gradients.

   A piece of work is one head of one line, see lines.h. Its queries come in panels of PANEL. Scores are columns, so that
   narrow heads and short lines fill vectors too:

       scores    query b   b + 1   ..   b + PANEL - 1
       key 0        .        .     ..        .            one vector of queries, or two
       key 1        .        .     ..        .
       ..                                                 keys that a query does not attend to have minus infinity

   The softmax of a column is a loop over keys, of whole vectors. sums [pieces times L, 2] keeps for each query the
   reciprocal of the sum of exponentials (zero without keys), and the largest score, which is subtracted before. The
   backward pass computes the same weights P from them. With dP = grad v^T:

       dv = P^T grad      dS = P (dP - sum(P dP))      dq = dS k / sqrt(K)      dk = dS^T q / sqrt(K)      dbias = sum dS */

#include "pairs.h"

/* Replace scores [keys, vectors] by their exponentials; write reciprocal sums and the largest scores. */
INLINED void column_exponentials(const int vectors, float *scores, int64_t keys, float *inverses, float *largest) {
    Floats most[2], total[2];
    for (int c = 0; c < vectors; c++)
        most[c] = filled(-1e30f), total[c] = filled(0);
    for (int64_t key = 0; key < keys; key++)
        for (int c = 0; c < vectors; c++)
            most[c] = larger(vector_at(scores + key * PANEL + c * WIDE), most[c]);
    for (int64_t key = 0; key < keys; key++)
        for (int c = 0; c < vectors; c++) {
            Floats e = power(vector_at(scores + key * PANEL + c * WIDE) - most[c]);
            total[c] += e;
            put(scores + key * PANEL + c * WIDE, e);
        }
    for (int c = 0; c < vectors; c++) {
        Words none = (Words)(total[c] == 0.0f);
        put(inverses + c * WIDE, chosen(none, filled(0), 1.0f / total[c]));
        put(largest + c * WIDE, most[c]);
    }
}

/* Replace scores by weights P, and d_weights dP by dS. */
INLINED void column_softmax_backward(const int vectors, float *scores, float *d_weights, int64_t keys,
                                         const float *inverses, const float *largest) {
    Floats total[2];
    for (int c = 0; c < vectors; c++)
        total[c] = filled(0);
    for (int64_t key = 0; key < keys; key++)
        for (int c = 0; c < vectors; c++) {
            int64_t at = key * PANEL + c * WIDE;
            Floats p = power(vector_at(scores + at) - vector_at(largest + c * WIDE)) * vector_at(inverses + c * WIDE);
            total[c] = multiply_add(p, vector_at(d_weights + at), total[c]);
            put(scores + at, p);
        }
    for (int64_t key = 0; key < keys; key++)
        for (int c = 0; c < vectors; c++) {
            int64_t at = key * PANEL + c * WIDE;
            put(d_weights + at, vector_at(scores + at) * (vector_at(d_weights + at) - total[c]));
        }
}

/* x += y, of `count` numbers. */
static void add_row(float *x, const float *y, int64_t count) {
    int64_t j = 0;
    for (; j + WIDE <= count; j += WIDE)
        put(x + j, vector_at(x + j) + vector_at(y + j));
    for (; j < count; j++)
        x[j] += y[j];
}

/* Rotate each position of each head by its row of rotations [L, K], cosines, then sines: numbers j and j + K / 2 are a
   point of the plane. `sign` -1 rotates back, gradients too: the inverse of a rotation is its transpose. */
static void rotate_heads(const Lines *x, int64_t length, int64_t padded, const float *rotations, float sign) {
    int64_t half = x->width / 2;
    for (int64_t head = 0; rotations && head < x->at_once; head++)
        for (int64_t row = 0; row < length; row++) {
            float *restrict a = x->copy + (head * padded + row) * x->wide, *restrict b = a + half;
            const float *cosines = rotations + row * x->width, *sines = cosines + half;
            for (int64_t j = 0; j < half; j++) {
                float first = a[j] * cosines[j] - b[j] * sign * sines[j];
                b[j] = b[j] * cosines[j] + a[j] * sign * sines[j];
                a[j] = first;
            }
        }
}

/* What both passes hold of some heads of a line. */
typedef struct {
    const Sizes *sizes;
    Lines q, k, v;
    const uint8_t *key_mask; /* [outer, inner, L], 0 where a key is absent, or NULL */
    const float *bias;       /* [heads, outer inner / lines_to_bias, L, L], keys before queries; or NULL */
    const float *rotations;  /* of queries and keys, see `rotate_heads`; or NULL */
    int64_t padded;
    float scale, *queries_transposed, *scores, *inverses, *largest;
} Attention;

static Lines make_lines(const void *data, Strides by, int64_t heads, int64_t at_once, int64_t width) {
    return (Lines){(void *)(uintptr_t)data, by, heads, at_once, width, rounded_up(width, WIDE), NULL};
}

static int64_t copy_size(const Lines *x, int64_t padded) { return rounded_up(x->at_once * padded * x->wide, 16); }

static Attention make_attention(const Sizes *sizes, const Strides *strides, const void *q, const void *k, const void *v,
                              const uint8_t *key_mask, const float *bias, const float *rotations) {
    int64_t heads = sizes->heads, shared = sizes->heads / sizes->group, at_once = sizes->at_once;
    Attention x = {.sizes = sizes, .key_mask = key_mask, .bias = bias, .rotations = rotations};
    x.q = make_lines(q, strides[0], heads, at_once, sizes->width);
    x.k = make_lines(k, strides[1], shared, at_once / sizes->group, sizes->width);
    x.v = make_lines(v, strides[2], shared, at_once / sizes->group, sizes->value_width);
    x.padded = rounded_up(sizes->length, WIDE);
    x.scale = 1.0f / sqrtf((float)sizes->width);
    return x;
}

static int64_t attention_size(const Attention *x) {
    return copy_size(&x->q, x->padded) + copy_size(&x->k, x->padded) + copy_size(&x->v, x->padded) +
           (x->q.wide + x->padded + 2) * PANEL + 64;
}

static void take_attention(Attention *x, float **memory) {
    x->q.copy = taken(memory, copy_size(&x->q, x->padded));
    x->k.copy = taken(memory, copy_size(&x->k, x->padded));
    x->v.copy = taken(memory, copy_size(&x->v, x->padded));
    x->queries_transposed = taken(memory, x->q.wide * PANEL);
    x->scores = taken(memory, x->padded * PANEL);
    x->inverses = taken(memory, PANEL);
    x->largest = taken(memory, PANEL);
}

/* Where work number p is. With a bias, heads count last: successive pieces then find the same bias in cache. */
typedef struct { int64_t m, head, key_head; const float *bias; int64_t bias_at; const uint8_t *present; } Piece;

static Piece find_piece(const Attention *x, int64_t p) {
    const Sizes *sizes = x->sizes;
    int64_t lines = sizes->outer * sizes->inner, length = sizes->length;
    int64_t m = x->bias ? p % lines * sizes->heads + p / lines : p;
    Piece piece = {.m = m, .head = m % sizes->at_once, .key_head = m % sizes->at_once / sizes->group};
    piece.bias_at = p / sizes->lines_to_bias * length * length;
    piece.bias = x->bias ? x->bias + piece.bias_at : NULL;
    piece.present = x->key_mask ? x->key_mask + m / sizes->heads * length : NULL;
    return piece;
}

/* Load the heads that begin with this piece. */
static void load_pieces(const Attention *x, const Piece *piece) {
    const Sizes *sizes = x->sizes;
    int64_t of_group = piece->m / sizes->group;
    load_heads(&x->q, sizes, piece->m, x->scale, piece->present, FINITE_IF_ABSENT, x->padded);
    load_heads(&x->k, sizes, of_group, 1.0f, piece->present, NOTHING_IF_ABSENT, x->padded);
    load_heads(&x->v, sizes, of_group, 1.0f, piece->present, NOTHING_IF_ABSENT, x->padded);
    rotate_heads(&x->q, sizes->length, x->padded, x->rotations, 1.0f);
    rotate_heads(&x->k, sizes->length, x->padded, x->rotations, 1.0f);
}

/* Write the scores of the queries b .. b + columns - 1 for the keys 0 .. reach - 1. */
static void score(const Attention *x, const Piece *piece, int64_t b, int64_t columns, int64_t reach) {
    int64_t length = x->sizes->length, wide = x->q.wide, rows = length - b < PANEL ? length - b : PANEL;
    float *scores = x->scores;
    transpose(x->q.copy + (piece->head * x->padded + b) * wide, wide, columns, wide, x->queries_transposed, PANEL);
    product(0, x->k.copy + piece->key_head * x->padded * wide, wide, 1, x->q.width, x->queries_transposed, PANEL, scores,
            PANEL, reach, columns);
    for (int64_t key = 0; piece->bias && key < reach; key++)
        add_row(scores + key * PANEL, piece->bias + key * length + b, rows);
    for (int64_t key = b + 1; x->sizes->causal && key < reach; key++)
        for (int64_t o = 0; o < key - b; o++)
            scores[key * PANEL + o] = -INFINITY;
    for (int64_t key = 0; piece->present && key < reach; key++)
        for (int64_t o = 0; !piece->present[key] && o < PANEL; o++)
            scores[key * PANEL + o] = -INFINITY;
}

/* Return 1 if pairs of bfloat16 can be multiplied: `pairs.h` has no bias, masks or rotations. */
#ifdef HAS_PAIRS
static int takes_pairs(const Attention *x) {
    int even = x->q.width % 2 == 0 && x->v.width % 2 == 0;
    return x->sizes->bfloat16 == PAIRS && even && !x->key_mask && !x->bias && !x->rotations;
}
#endif

/* Write the attention of the pieces first .. last - 1, whole groups of `at_once`; see `Attention` for the arguments.
   `strides` are those of q, k, v and out. */
EXPORTED(attend_forward)(const void *q, const void *k, const void *v, void *out, const Strides *strides,
                         const Sizes *sizes, const uint8_t *key_mask, const float *bias, const float *rotations,
                         float *sums, int64_t first, int64_t last) {
    Attention x = make_attention(sizes, strides, q, k, v, key_mask, bias, rotations);
    Lines attended = make_lines(out, strides[3], sizes->heads, sizes->at_once, sizes->value_width);
#ifdef HAS_PAIRS
    if (takes_pairs(&x)) return pair_forward(x.q, x.k, x.v, attended, sizes, x.scale, sums, first, last);
#endif
    int64_t length = sizes->length, padded = x.padded, wide = attended.wide;
    float *next;
    void *memory = zeros(attention_size(&x) + copy_size(&attended, padded), &next);
    if (!memory) return NO_MEMORY;
    take_attention(&x, &next);
    attended.copy = taken(&next, copy_size(&attended, padded));
    for (int64_t p = first; p < last; p++) {
        Piece piece = find_piece(&x, p);
        if (piece.head == 0) load_pieces(&x, &piece);
        for (int64_t b = 0; b < length; b += PANEL) {
            int64_t rows = length - b < PANEL ? length - b : PANEL, columns = padded - b < PANEL ? padded - b : PANEL;
            int64_t reach = sizes->causal ? b + rows : length;
            score(&x, &piece, b, columns, reach);
            if (columns == PANEL)
                column_exponentials(2, x.scores, reach, x.inverses, x.largest);
            else
                column_exponentials(1, x.scores, reach, x.inverses, x.largest);
            for (int64_t o = 0; o < rows; o++) {
                sums[2 * (piece.m * length + b + o)] = x.inverses[o];
                sums[2 * (piece.m * length + b + o) + 1] = x.largest[o];
            }
            product(0, x.scores, 1, PANEL, reach, x.v.copy + piece.key_head * padded * wide, wide,
                    attended.copy + (piece.head * padded + b) * wide, wide, rows, wide);
        }
        if (piece.head == sizes->at_once - 1) store_heads(&attended, sizes, piece.m - piece.head, 1.0f, sums, padded);
    }
    free(memory);
    return FINE;
}

/* Write the gradients dq, dk and dv, and add to d_bias [L, L] unless it is NULL: then the pieces share one bias.
   `strides` are those of q, k, v, grad, dq, dk and dv. */
EXPORTED(attend_backward)(const void *q, const void *k, const void *v, const void *grad, void *dq, void *dk, void *dv,
                          const Strides *strides, const Sizes *sizes, const uint8_t *key_mask, const float *bias,
                          const float *rotations, const float *sums, float *d_bias, int64_t first, int64_t last) {
    Attention x = make_attention(sizes, strides, q, k, v, key_mask, bias, rotations);
    Lines g = make_lines(grad, strides[3], sizes->heads, sizes->at_once, sizes->value_width);
    Lines d_q = make_lines(dq, strides[4], x.q.heads, x.q.at_once, x.q.width);
    Lines d_k = make_lines(dk, strides[5], x.k.heads, x.k.at_once, x.k.width);
    Lines d_v = make_lines(dv, strides[6], x.v.heads, x.v.at_once, x.v.width);
#ifdef HAS_PAIRS
    if (takes_pairs(&x)) return pair_backward(x.q, x.k, x.v, g, d_q, d_k, d_v, sizes, x.scale, sums, first, last);
#endif
    int64_t length = sizes->length, padded = x.padded, wide = x.q.wide, value_wide = g.wide, of_keys, of_values;
    of_keys = copy_size(&d_k, padded), of_values = copy_size(&d_v, padded);
    float *next;
    void *memory = zeros(attention_size(&x) + copy_size(&g, padded) + copy_size(&d_q, padded) + of_keys + of_values +
                             (value_wide + padded) * PANEL, &next);
    if (!memory) return NO_MEMORY;
    take_attention(&x, &next);
    g.copy = taken(&next, copy_size(&g, padded));
    d_q.copy = taken(&next, copy_size(&d_q, padded));
    d_k.copy = taken(&next, of_keys);
    d_v.copy = taken(&next, of_values);
    float *grads_transposed = taken(&next, value_wide * PANEL), *d_scores = taken(&next, padded * PANEL);
    for (int64_t p = first; p < last; p++) {
        Piece piece = find_piece(&x, p);
        if (piece.head == 0) {
            load_pieces(&x, &piece);
            load_heads(&g, sizes, piece.m, 1.0f, NULL, ALL, padded);
            memset(d_k.copy, 0, (size_t)of_keys * sizeof(float));
            memset(d_v.copy, 0, (size_t)of_values * sizeof(float));
        }
        int64_t at = piece.key_head * padded * wide, value_at = piece.key_head * padded * value_wide;
        for (int64_t b = 0; b < length; b += PANEL) {
            int64_t rows = length - b < PANEL ? length - b : PANEL, columns = padded - b < PANEL ? padded - b : PANEL;
            int64_t reach = sizes->causal ? b + rows : length;
            const float *queries = x.q.copy + (piece.head * padded + b) * wide;
            const float *grads = g.copy + (piece.head * padded + b) * value_wide;
            score(&x, &piece, b, columns, reach);
            transpose(grads, value_wide, columns, value_wide, grads_transposed, PANEL);
            product(0, x.v.copy + value_at, value_wide, 1, g.width, grads_transposed, PANEL, d_scores, PANEL, reach,
                    columns);
            for (int64_t o = 0; o < PANEL; o++) {
                const float *of_query = sums + 2 * (piece.m * length + b + o);
                x.inverses[o] = o < rows ? of_query[0] : 0.0f;
                x.largest[o] = o < rows ? of_query[1] : 0.0f;
            }
            if (columns == PANEL)
                column_softmax_backward(2, x.scores, d_scores, reach, x.inverses, x.largest);
            else
                column_softmax_backward(1, x.scores, d_scores, reach, x.inverses, x.largest);
            for (int64_t key = 0; d_bias && key < reach; key++)
                add_row(d_bias + key * length + b, d_scores + key * PANEL, rows);
            product(0, d_scores, 1, PANEL, reach, x.k.copy + at, wide, d_q.copy + (piece.head * padded + b) * wide, wide,
                    rows, wide);
            product(1, d_scores, PANEL, 1, rows, queries, wide, d_k.copy + at, wide, reach, wide);
            product(1, x.scores, PANEL, 1, rows, grads, value_wide, d_v.copy + value_at, value_wide, reach, value_wide);
        }
        if (piece.head == sizes->at_once - 1) {
            int64_t m = piece.m - piece.head, of_group = m / sizes->group;
            rotate_heads(&d_q, length, padded, rotations, -1.0f);
            rotate_heads(&d_k, length, padded, rotations, -1.0f);
            store_heads(&d_q, sizes, m, x.scale, NULL, padded);
            store_heads(&d_k, sizes, of_group, 1.0f, NULL, padded);
            store_heads(&d_v, sizes, of_group, 1.0f, NULL, padded);
            clear_absent(&d_q, &x.q, sizes, m, piece.present);
            clear_absent(&d_k, NULL, sizes, of_group, piece.present);
            clear_absent(&d_v, NULL, sizes, of_group, piece.present);
        }
    }
    free(memory);
    return FINE;
}
