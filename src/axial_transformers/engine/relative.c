/* Position-sensitive attention along lines (Wang et al. 2020, equation 4), and its gradients, in float32:

       out_o = sum_p softmax_p(q_o . k_p + q_o . rq_{p-o} + k_p . rk_{p-o}) (v_p + rv_{p-o}),   |p - o| <= R

   The tables rq, rk and rv hold an encoding for each offset. A band holds a number x for each pair of a query o and a
   key p that it attends to: a score, a weight or a gradient. It has a row for each of BLOCK successive queries, and a
   column for each offset d = p - o. Memory holds one band at a time. A line of 6 positions with radius 2:

       d         -2   -1    0    1    2
               +-------------------------
       o = 0   |  .    .    0    1    2       in the band: the key p = o + d
       o = 1   |  .    0    1    2    3       . no key: zero in a weight or a gradient
       o = 2   |  0    1    2    3    4
       o = 3   |  1    2    3    4    5
       o = 4   |  2    3    4    5    .
       o = 5   |  3    4    5    .    .

   In memory, MARGIN numbers lie before and behind each row, and MARGIN rows above and below: tiles read them, and they
   are zero. Rows are `distance` numbers apart. So three steps lead through the band:

       the next key of a query            one column right                    1
       the next query of an offset        one row down                        distance
       the next query of a key            one row down, one column left       distance - 1

   Follow key 3 in the drawing for the last one. Six kinds of sums run over the pairs of a band; `sum_by` lists them. All
   are products of `product`, with other steps for rows and terms. */

#include "lines.h"

enum {
    BLOCK = 64,   /* queries of a band: so many that a sum is seldom stored, so few that a band stays in cache */
    MARGIN = 16,  /* at least the rows of a tile, and a vector */
    HIGH = 8,     /* rows of a tile of scores */
    AT_ONCE_ROWS = 4, /* rows of a softmax in turns */
    BEFORE = 32,  /* columns before the first key in transposed keys: tiles of scores read them */
    FIRST = PANEL + MARGIN, /* the column of offset -R in a transposed table: tiles of scores read those before it */
    CHUNK = TALL == 12 ? 8 : TALL /* rows of a sum that share their terms */
};

/* The queries first .. first + rows - 1 of a line, with offsets low .. high. */
typedef struct { int64_t first, rows, low, high, length, distance; } Band;

static int64_t band_row(int64_t length, int64_t radius) {
    return 3 * MARGIN + 2 * WIDE + rounded_up(SMALLER(2 * radius + 1, length + BLOCK), WIDE);
}

/* Return the band of the block of queries from `first` on. Its lowest offset is that of a whole block. */
static Band band_at(int64_t first, const Sizes *sizes) {
    int64_t length = sizes->length, high = SMALLER(sizes->causal ? 0 : sizes->radius, length - 1 - first);
    return (Band){first, SMALLER(BLOCK, length - first), LARGER(-sizes->radius, -(first + BLOCK - 1)), high, length,
                  band_row(length, sizes->radius)};
}

/* Return where query o and offset d are in the memory of a band. */
static int64_t cell(const Band *band, int64_t o, int64_t d) {
    return (MARGIN + o - band->first) * band->distance + MARGIN + d - band->low;
}

/* Return the lowest offset that leads query o to a key, and the number of its keys. */
static int64_t lowest(const Band *band, int64_t o) { return LARGER(band->low, -o); }
static int64_t key_count(const Band *band, int64_t o) {
    return SMALLER(band->high, band->length - 1 - o) - lowest(band, o) + 1;
}

enum { QUERIES_BY_KEYS, QUERIES_BY_OFFSETS, KEYS_BY_QUERIES, KEYS_BY_OFFSETS, OFFSETS_BY_QUERIES, OFFSETS_BY_KEYS };

/* A sum over the pairs of a band, out[i] = sum of x[i, s] w[s] over s. Number x[i, s] is i x_row + s x_step behind the
   cell of query 0 and offset 0. Row i has the steps from the greater of least and least_of_row + sign i to the lesser of
   most and most_of_row + sign i. */
typedef struct {
    int64_t x_row, x_step, first, last, least, most, sign, least_of_row, most_of_row;
} Sum;

/*     kind                   row i     step s     used for
       queries_by_keys        query     key        out += weights v,      dq += d_scores k
       queries_by_offsets     query     offset     out += weights rv,     dq += d_scores rq
       keys_by_queries        key       query      dv += weights grad,    dk += d_scores q
       keys_by_offsets        key       offset     dk += d_scores rk
       offsets_by_queries     offset    query      drv += weights grad,   drq += d_scores q
       offsets_by_keys        offset    key        drk += d_scores k              */
static Sum sum_by(const Band *b, int kind) {
    int64_t down = b->distance, o = b->first, end = o + b->rows - 1, low = b->low, high = b->high, p = b->length - 1;
    int64_t first_key = LARGER(0, o + low), last_key = SMALLER(p, end + high);
    switch (kind) {
    case QUERIES_BY_KEYS: return (Sum){down - 1, 1, o, end, 0, p, 1, low, high};
    case QUERIES_BY_OFFSETS: return (Sum){down, 1, o, end, low, high, -1, 0, p};
    case KEYS_BY_QUERIES: return (Sum){1, down - 1, first_key, last_key, o, end, 1, -high, -low};
    case KEYS_BY_OFFSETS: return (Sum){down, 1 - down, first_key, last_key, low, high, 1, -end, -o};
    case OFFSETS_BY_QUERIES: return (Sum){1, down, low, high, o, end, -1, 0, p};
    default: return (Sum){1 - down, down, low, high, 0, p, 1, o, end};
    }
}

/* Add `vectors` columns of the sum out[i] += sum_s x[i, s] w[s], of rows of `wide` numbers. A tile takes the steps of all
   its rows; x is zero where a row has no pair. */
INLINED void add_columns(const int vectors, const Band *band, Sum sum, const float *x, const float *w, float *out,
                         int64_t wide) {
    for (int64_t i = sum.first; i <= sum.last; i += CHUNK) {
        int64_t end = SMALLER(i + CHUNK - 1, sum.last);
        int64_t from = LARGER(sum.least, sum.least_of_row + (sum.sign > 0 ? i : -end));
        int64_t count = SMALLER(sum.most, sum.most_of_row + (sum.sign > 0 ? end : -i)) - from + 1;
        const float *first = x + (cell(band, 0, 0) + i * sum.x_row + from * sum.x_step);
        if (count > 0 && end - i + 1 == CHUNK)
            product_tile(CHUNK, vectors, 1, first, sum.x_row, sum.x_step, count, w + from * wide, wide, out + i * wide,
                         wide);
        else if (count > 0)
            product(1, first, sum.x_row, sum.x_step, count, w + from * wide, wide, out + i * wide, wide, end - i + 1,
                    vectors * WIDE);
    }
}

static void add_sum(const Band *band, int kind, const float *x, const float *w, float *out, int64_t wide) {
    Sum sum = sum_by(band, kind);
    int64_t c = 0;
    for (; c + PANEL <= wide; c += PANEL)
        add_columns(2, band, sum, x, w + c, out + c, wide);
    if (c < wide) add_columns(1, band, sum, x, w + c, out + c, wide);
}

/* Write the scores of HIGH successive queries r for WIDE successive offsets c; query r with offset c has key r + c:

       out[r, c] = sum_s keys[s, r + c] (x[r, s] + of_keys[s, c]) + x[r, s] of_queries[s, c] */
static void score_tile(const float *x, int64_t x_row, int64_t count, const float *keys, int64_t keys_row,
                       const float *of_queries, const float *of_keys, int64_t table_row, float *out, int64_t out_row) {
    Floats sums[HIGH];
    UNROLLED
    for (int r = 0; r < HIGH; r++)
        sums[r] = filled(0);
    for (int64_t s = 0; s < count; s++, x++, keys += keys_row, of_queries += table_row, of_keys += table_row) {
        Floats of_query = vector_at(of_queries), of_key = vector_at(of_keys);
        const float *here = x;
        __asm__("" : "+r"(here));
        UNROLLED
        for (int r = 0; r < HIGH; r++) {
            Floats number = filled(here[r * x_row]);
            sums[r] = multiply_add(number, of_query, sums[r]);
            sums[r] = multiply_add(vector_at(keys + r), number + of_key, sums[r]);
        }
    }
    UNROLLED
    for (int r = 0; r < HIGH; r++)
        put(out + r * out_row, sums[r]);
}

enum {
    BESIDE = WIDE == 16 ? 4 : 2, /* successive rows in a group of rows of `line_tile` */
    GROUPS = 2                   /* groups of rows, WIDE rows apart */
};

/* Write sums over all keys j of a line, whose offset from query r is j - r:

       scores      out[r, j] = sum_s keys[s, j] (x[r, s] + of_keys[s, j - r]) + x[r, s] of_queries[s, j - r]
       products    out[r, j] = sum_s x[r, s] (keys[s, j] + of_queries[s, j - r])

   A tile has the rows 0 .. BESIDE - 1 and WIDE .. WIDE + BESIDE - 1, and two vectors of keys. A vector of a table begins
   anywhere in a cache line, which takes two loads. But a row WIDE further needs the vector before: three vectors of a
   table serve four sums. */
INLINED void line_tile(const int scores, const float *x, int64_t x_row, int64_t count, const float *keys,
                       int64_t keys_row, const float *of_queries, const float *of_keys, int64_t table_row, float *out,
                       int64_t out_row) {
    Floats sums[GROUPS][4][2];
    UNROLLED
    for (int r = 0; r < BESIDE; r++)
        for (int group = 0; group < GROUPS; group++)
            sums[group][r][0] = sums[group][r][1] = filled(0);
    for (int64_t s = 0; s < count; s++, x++, keys += keys_row, of_queries += table_row, of_keys += table_row) {
        Floats key[2] = {vector_at(keys), vector_at(keys + WIDE)};
        const float *here = x;
        __asm__("" : "+r"(here));
        UNROLLED
        for (int r = 0; r < BESIDE; r++) {
            Floats of_query[3], of_key[3];
            for (int i = 0; i < 3; i++) {
                of_query[i] = vector_at(of_queries + (i - 1) * WIDE - r);
                if (scores) of_key[i] = vector_at(of_keys + (i - 1) * WIDE - r);
            }
            UNROLLED
            for (int group = 0; group < GROUPS; group++) {
                Floats number = filled(here[(group * WIDE + r) * x_row]);
                for (int i = 0; i < 2; i++) {
                    Floats *sum = &sums[group][r][i];
                    if (scores) {
                        *sum = multiply_add(number, of_query[1 + i - group], *sum);
                        *sum = multiply_add(key[i], number + of_key[1 + i - group], *sum);
                    } else {
                        *sum = multiply_add(number, key[i] + of_query[1 + i - group], *sum);
                    }
                    USED_BEFORE(here, *sum);
                }
            }
        }
    }
    UNROLLED
    for (int r = 0; r < BESIDE; r++)
        for (int group = 0; group < GROUPS; group++)
            for (int i = 0; i < 2; i++)
                put(out + (group * WIDE + r) * out_row + i * WIDE, sums[group][r][i]);
}

/* The encodings of a kind: as rows [tables, 2R + 1, wide], transposed [tables, width, columns], and their gradients, as
   rows. Both are times the scale of scores for keys. */
typedef struct { int64_t width, wide, columns; float scale, *rows, *transposed, *gradient; } Table;

static int64_t table_size(const Table *table, const Sizes *sizes) {
    return sizes->tables * ((2 * sizes->radius + 1) * table->wide * 2 + table->width * table->columns) + 48;
}

static Table make_table(const Sizes *sizes, int64_t width, float scale) {
    return (Table){.width = width, .wide = rounded_up(width, WIDE), .scale = scale,
                   .columns = rounded_up(FIRST + 2 * sizes->radius + 1 + PANEL, WIDE)};
}

/* Copy encodings [2R + 1, tables, width]. */
static void load_table(Table *table, const Sizes *sizes, const float *encodings, float **memory) {
    int64_t count = 2 * sizes->radius + 1, width = table->width;
    table->rows = taken(memory, sizes->tables * count * table->wide);
    table->gradient = taken(memory, sizes->tables * count * table->wide);
    table->transposed = taken(memory, sizes->tables * width * table->columns);
    for (int64_t i = 0; i < count; i++)
        for (int64_t t = 0; t < sizes->tables; t++)
            for (int64_t j = 0; j < width; j++) {
                float number = encodings[(i * sizes->tables + t) * width + j] * table->scale;
                table->rows[(t * count + i) * table->wide + j] = number;
                table->transposed[(t * width + j) * table->columns + FIRST + i] = number;
            }
}

/* Write the gradient of part `part`, and begin anew. */
static void store_gradient(const Table *table, const Sizes *sizes, float *out, int64_t part) {
    int64_t count = 2 * sizes->radius + 1, width = table->width;
    out += part * count * sizes->tables * width;
    for (int64_t i = 0; i < count; i++)
        for (int64_t t = 0; t < sizes->tables; t++)
            for (int64_t j = 0; j < width; j++)
                out[(i * sizes->tables + t) * width + j] =
                    table->gradient[(t * count + i) * table->wide + j] * table->scale;
    memset(table->gradient, 0, (size_t)(sizes->tables * count * table->wide) * sizeof(float));
}

/* What both passes hold. */
typedef struct {
    const Sizes *sizes;
    Lines q, k, v;
    Table query, key, value;
    const uint8_t *key_mask;
    float scale;
    int64_t padded, row; /* rows of a copied head; distance of rows of transposed keys and values */
    float *keys_transposed, *weights;
    float *hidden; /* [L], minus infinity where a key of the line is absent, else zero */
} Relative;

static Lines relative_lines(const void *data, Strides by, const Sizes *sizes, int64_t width) {
    return (Lines){(void *)(uintptr_t)data, by, sizes->heads, sizes->at_once, width, rounded_up(width, WIDE), NULL};
}

static Relative make_relative(const Sizes *sizes, const Strides *strides, const void *q, const void *k, const void *v,
                            const uint8_t *key_mask, float scale) {
    Relative x = {.sizes = sizes, .key_mask = key_mask, .scale = scale};
    x.q = relative_lines(q, strides[0], sizes, sizes->width);
    x.k = relative_lines(k, strides[1], sizes, sizes->width);
    x.v = relative_lines(v, strides[2], sizes, sizes->value_width);
    x.query = make_table(sizes, sizes->width, 1.0f);
    x.key = make_table(sizes, sizes->width, scale);
    x.value = make_table(sizes, sizes->value_width, 1.0f);
    x.padded = rounded_up(sizes->length + HIGH, WIDE);
    x.row = BEFORE + x.padded + WIDE;
    return x;
}

static int64_t band_size(const Relative *x) {
    return (BLOCK + 2 * MARGIN) * band_row(x->sizes->length, x->sizes->radius);
}

static int64_t head_size(const Relative *x, const Lines *lines) {
    return rounded_up((x->sizes->at_once * x->padded + PANEL) * lines->wide, 16); /* tiles read rows behind the last */
}

static int64_t relative_size(const Relative *x) {
    return 2 * head_size(x, &x->q) + head_size(x, &x->v) + x->q.wide * x->row + band_size(x) + x->padded +
           table_size(&x->query, x->sizes) + table_size(&x->key, x->sizes) + table_size(&x->value, x->sizes) + 64;
}

static void take_relative(Relative *x, const float *const *tables, float **memory) {
    x->q.copy = taken(memory, head_size(x, &x->q));
    x->k.copy = taken(memory, head_size(x, &x->k));
    x->v.copy = taken(memory, head_size(x, &x->v));
    x->keys_transposed = taken(memory, x->q.wide * x->row);
    x->weights = taken(memory, band_size(x));
    x->hidden = taken(memory, x->padded);
    load_table(&x->query, x->sizes, tables[0], memory);
    load_table(&x->key, x->sizes, tables[1], memory);
    load_table(&x->value, x->sizes, tables[2], memory);
}

/* Load the heads that begin with piece m. */
static const uint8_t *load_relative(const Relative *x, int64_t m) {
    const Sizes *sizes = x->sizes;
    const uint8_t *present = x->key_mask ? x->key_mask + m / sizes->heads * sizes->length : NULL;
    load_heads(&x->q, sizes, m, x->scale, present, FINITE_IF_ABSENT, x->padded);
    load_heads(&x->k, sizes, m, 1.0f, present, NOTHING_IF_ABSENT, x->padded);
    load_heads(&x->v, sizes, m, 1.0f, present, NOTHING_IF_ABSENT, x->padded);
    for (int64_t p = 0; present && p < sizes->length; p++)
        x->hidden[p] = present[p] ? 0.0f : -INFINITY;
    return present;
}

/* Run `line_tile` for all queries and keys of a band. */
INLINED void multiply_lines(const int scores, const float *x, int64_t wide, int64_t width, const float *keys,
                            int64_t keys_row, const float *of_queries, const float *of_keys, int64_t table_row,
                            const Band *band, float *out) {
    int64_t count = SMALLER(band->length, band->first + band->rows + band->high), end = band->first + band->rows;
    for (int64_t key = 0; key < count; key += PANEL)
        for (int64_t o = band->first; o < end; o += PANEL)
            for (int64_t r = o; r < SMALLER(o + WIDE, end); r += BESIDE)
                line_tile(scores, x + r * wide, wide, width, keys + BEFORE + key, keys_row, of_queries + (key - r),
                          of_keys + (key - r), table_row, out + cell(band, r, key - r), band->distance - 1);
}

/* Write the scores of a band: three terms. Where there is no key, they are of any value. Offsets are the outer loop: what
   tiles read of the tables stays in cache for all queries. With an encoding for every offset, tiles are made of keys: on
   short lines, tiles of offsets would compute half as much again. */
static void score_band(const Relative *x, const float *queries, int64_t table, const Band *band) {
    int64_t columns = x->query.columns, at = table * x->q.width * columns + FIRST + x->sizes->radius;
    if (x->sizes->radius == band->length - 1) {
        multiply_lines(1, queries, x->q.wide, x->q.width, x->keys_transposed, x->row, x->query.transposed + at,
                       x->key.transposed + at, columns, band, x->weights);
        return;
    }
    for (int64_t c = 0; c <= band->high - band->low; c += WIDE)
        for (int64_t o = band->first; o < band->first + band->rows; o += HIGH) {
            int64_t d = LARGER(band->low, -(o + HIGH - 1)) + c;
            if (d <= SMALLER(band->high, band->length - 1 - o))
                score_tile(queries + o * x->q.wide, x->q.wide, x->q.width, x->keys_transposed + BEFORE + o + d, x->row,
                           x->query.transposed + at + d, x->key.transposed + at + d, columns,
                           x->weights + cell(band, o, d), band->distance);
        }
}

/* Write grad_o . v_p + grad_o . rv_{p-o} in a band, of any value where there is no key. In a product with keys, the next
   query's columns are those of the same keys: its row begins `distance - 1` further. */
static void multiply_band(const Relative *x, const float *grads, const float *values_transposed, int64_t table,
                          const Band *band, float *out) {
    int64_t wide = x->v.wide, width = x->v.width, columns = x->value.columns, end = band->first + band->rows;
    const float *encodings = x->value.transposed + table * width * columns + FIRST + x->sizes->radius;
    if (x->sizes->radius == band->length - 1) {
        multiply_lines(0, grads, wide, width, values_transposed, x->row, encodings, encodings, columns, band, out);
        return;
    }
    for (int64_t o = band->first; o < end; o += HIGH) {
        int64_t rows = SMALLER(HIGH, end - o), p = LARGER(0, o + band->low);
        int64_t keys = SMALLER(band->length - 1, o + rows - 1 + band->high) - p + 1;
        product(0, grads + o * wide, wide, 1, width, values_transposed + BEFORE + p, x->row, out + cell(band, o, p - o),
                band->distance - 1, rows, rounded_up(keys, WIDE));
    }
    for (int64_t o = band->first; o < end; o += HIGH) {
        int64_t rows = SMALLER(HIGH, end - o), d = LARGER(band->low, -(o + rows - 1));
        int64_t count = SMALLER(band->high, band->length - 1 - o) - d + 1;
        product(1, grads + o * wide, wide, 1, width, encodings + d, columns, out + cell(band, o, d), band->distance, rows,
                rounded_up(count, WIDE));
    }
}

/* Return x of number j of a row, and `otherwise` behind its `count` numbers. */
INLINED Floats load_present(const float *x, int64_t j, int64_t count, float otherwise) {
    typedef int32_t Lanes __attribute__((vector_size(4 * WIDE)));
    Lanes lanes;
    for (int i = 0; i < WIDE; i++)
        lanes[i] = i;
    return chosen((Words)(lanes < (int32_t)(count - j)), vector_at(x + j), filled(otherwise));
}

/* Write zeros around the `count` numbers of a row: tiles read them, and what is there may be NaN. */
INLINED void isolate(float *x, int64_t count) {
    memset(x - MARGIN, 0, MARGIN * sizeof(float));
    memset(x + rounded_up(count, WIDE), 0, MARGIN * sizeof(float));
}

/* Replace the scores of the queries o .. o + rows - 1 by exponentials; write the reciprocals of their sums, and the
   largest scores. To find the largest of a row, to sum its exponentials, and to compute one, each step waits for the step
   before. Several rows in turns use that time. */
INLINED void weigh_rows(const int rows, const Band *band, int64_t o, float *weights, const float *hidden, float *sums) {
    float *x[AT_ONCE_ROWS];
    const float *out_of_sight[AT_ONCE_ROWS];
    int64_t counts[AT_ONCE_ROWS], fewest = INT64_MAX, most_keys = 0;
    Floats most[AT_ONCE_ROWS], total[AT_ONCE_ROWS];
    UNROLLED
    for (int r = 0; r < rows; r++) {
        x[r] = weights + cell(band, o + r, lowest(band, o + r));
        out_of_sight[r] = hidden ? hidden + o + r + lowest(band, o + r) : NULL;
        counts[r] = key_count(band, o + r);
        fewest = SMALLER(fewest, counts[r]), most_keys = LARGER(most_keys, counts[r]);
        most[r] = filled(-1e30f), total[r] = filled(0);
    }
    for (int64_t j = 0; j < most_keys; j += WIDE) {
        UNROLLED
        for (int r = 0; r < rows; r++) {
            Floats score = j + WIDE <= fewest ? vector_at(x[r] + j) : load_present(x[r], j, counts[r], -INFINITY);
            if (hidden) put(x[r] + j, score += vector_at(out_of_sight[r] + j));
            most[r] = larger(score, most[r]);
        }
    }
    UNROLLED
    for (int r = 0; r < rows; r++)
        most[r] = filled(sums[2 * (o + r) + 1] = largest_number(most[r]));
    for (int64_t j = 0; j < most_keys; j += WIDE) {
        UNROLLED
        for (int r = 0; r < rows; r++) {
            Floats score = j + WIDE <= fewest ? vector_at(x[r] + j) : load_present(x[r], j, counts[r], -INFINITY);
            Floats e = power(score - most[r]);
            total[r] += e;
            put(x[r] + j, e);
        }
    }
    UNROLLED
    for (int r = 0; r < rows; r++) {
        float sum = sum_vector(total[r]);
        sums[2 * (o + r)] = sum == 0.0f ? 0.0f : 1.0f / sum;
        isolate(x[r], counts[r]);
    }
}

static void weigh_band(const Band *band, float *weights, const float *hidden, float *sums) {
    int64_t o = band->first, end = o + band->rows;
    for (; o + AT_ONCE_ROWS <= end; o += AT_ONCE_ROWS)
        weigh_rows(AT_ONCE_ROWS, band, o, weights, hidden, sums);
    for (; o < end; o++)
        weigh_rows(1, band, o, weights, hidden, sums);
}

/* Replace the scores of a row by weights P, and dP by dS = P (dP - sum(P dP)). */
INLINED void row_softmax_backward(float *x, float *d_x, int64_t count, const float *hidden, const float *sums) {
    Floats total = filled(0);
    for (int64_t j = 0; j < count; j += WIDE) {
        Floats score = j + WIDE <= count ? vector_at(x + j) : load_present(x, j, count, -INFINITY);
        if (hidden) score += vector_at(hidden + j);
        Floats p = power(score - sums[1]) * sums[0], d_p = load_present(d_x, j, count, 0.0f);
        put(x + j, p);
        put(d_x + j, d_p);
        total = multiply_add(p, d_p, total);
    }
    float mean = sum_vector(total);
    for (int64_t j = 0; j < count; j += WIDE)
        put(d_x + j, vector_at(x + j) * (vector_at(d_x + j) - mean));
    isolate(x, count);
    isolate(d_x, count);
}

/* Write equation 4 for the pieces first .. last - 1, whole groups of `at_once`. `strides` are those of q, k, v and out;
   q and the table of keys count times `scale`; tables are [2R + 1, tables, width]; for sums see attention.c. */
EXPORTED(relative_forward)(const void *q, const void *k, const void *v, void *out, const Strides *strides,
                           const Sizes *sizes, const uint8_t *key_mask, const float *query_table, const float *key_table,
                           const float *value_table, float scale, float *sums, int64_t first, int64_t last) {
    Relative x = make_relative(sizes, strides, q, k, v, key_mask, scale);
    Lines attended = relative_lines(out, strides[3], sizes, sizes->value_width);
    int64_t length = sizes->length, count = 2 * sizes->radius + 1, size = head_size(&x, &attended);
    float *next;
    void *memory = zeros(relative_size(&x) + size, &next);
    if (!memory) return NO_MEMORY;
    take_relative(&x, (const float *const[]){query_table, key_table, value_table}, &next);
    attended.copy = taken(&next, size);
    const uint8_t *present = NULL;
    for (int64_t m = first; m < last; m++) {
        int64_t head = m % sizes->at_once, table = m % sizes->heads % sizes->tables;
        int64_t at = head * x.padded * x.q.wide, value_at = head * x.padded * x.v.wide;
        if (head == 0) {
            present = load_relative(&x, m);
            memset(attended.copy, 0, (size_t)size * sizeof(float));
        }
        transpose(x.k.copy + at, x.k.wide, rounded_up(length, WIDE), x.k.wide, x.keys_transposed + BEFORE, x.row);
        const float *encodings = x.value.rows + (table * count + sizes->radius) * x.v.wide;
        for (int64_t b = 0; b < length; b += BLOCK) {
            Band band = band_at(b, sizes);
            score_band(&x, x.q.copy + at, table, &band);
            weigh_band(&band, x.weights, present ? x.hidden : NULL, sums + 2 * m * length);
            add_sum(&band, QUERIES_BY_KEYS, x.weights, x.v.copy + value_at, attended.copy + value_at, x.v.wide);
            add_sum(&band, QUERIES_BY_OFFSETS, x.weights, encodings, attended.copy + value_at, x.v.wide);
        }
        if (head == sizes->at_once - 1) store_heads(&attended, sizes, m - head, 1.0f, sums, x.padded);
    }
    free(memory);
    return FINE;
}

/* Write the gradients dq, dk and dv, and what each part adds to those of the tables, [parts, 2R + 1, tables, width].
   Queries of all lines add to the gradient of a table. So the groups of `at_once` pieces are divided into parts with sums
   of their own, whatever the number of threads; this call computes the parts first .. last - 1. `strides` are those of q,
   k, v, grad, dq, dk and dv. */
EXPORTED(relative_backward)(const void *q, const void *k, const void *v, const void *grad, void *dq, void *dk, void *dv,
                            const Strides *strides, const Sizes *sizes, const uint8_t *key_mask,
                            const float *query_table, const float *key_table, const float *value_table, float scale,
                            const float *sums, float *d_query, float *d_key, float *d_value, int64_t parts,
                            int64_t first, int64_t last) {
    Relative x = make_relative(sizes, strides, q, k, v, key_mask, scale);
    Lines g = relative_lines(grad, strides[3], sizes, sizes->value_width);
    Lines d_q = relative_lines(dq, strides[4], sizes, sizes->width);
    Lines d_k = relative_lines(dk, strides[5], sizes, sizes->width);
    Lines d_v = relative_lines(dv, strides[6], sizes, sizes->value_width);
    int64_t length = sizes->length, count = 2 * sizes->radius + 1, wide = x.q.wide, value_wide = x.v.wide;
    int64_t size = head_size(&x, &d_q), value_size = head_size(&x, &d_v);
    float *next;
    void *memory = zeros(relative_size(&x) + 2 * size + 2 * value_size + value_wide * x.row + band_size(&x) + 64, &next);
    if (!memory) return NO_MEMORY;
    take_relative(&x, (const float *const[]){query_table, key_table, value_table}, &next);
    g.copy = taken(&next, value_size);
    d_q.copy = taken(&next, size);
    d_k.copy = taken(&next, size);
    d_v.copy = taken(&next, value_size);
    float *values_transposed = taken(&next, value_wide * x.row), *d_scores = taken(&next, band_size(&x));
    const uint8_t *present = NULL;
    int64_t groups = sizes->outer * sizes->inner * sizes->heads / sizes->at_once, part = first;
    for (int64_t m = groups * first / parts * sizes->at_once; part < last; m++) {
        int64_t head = m % sizes->at_once, table = m % sizes->heads % sizes->tables;
        int64_t at = head * x.padded * wide, value_at = head * x.padded * value_wide;
        if (head == 0) {
            present = load_relative(&x, m);
            load_heads(&g, sizes, m, 1.0f, NULL, ALL, x.padded);
            memset(d_q.copy, 0, (size_t)size * sizeof(float));
            memset(d_k.copy, 0, (size_t)size * sizeof(float));
            memset(d_v.copy, 0, (size_t)value_size * sizeof(float));
        }
        const float *queries = x.q.copy + at, *keys = x.k.copy + at, *grads = g.copy + value_at;
        transpose(keys, wide, rounded_up(length, WIDE), wide, x.keys_transposed + BEFORE, x.row);
        transpose(x.v.copy + value_at, value_wide, rounded_up(length, WIDE), value_wide, values_transposed + BEFORE,
                  x.row);
        int64_t centre = (table * count + sizes->radius) * wide, value_centre = centre / wide * value_wide;
        for (int64_t b = 0; b < length; b += BLOCK) {
            Band band = band_at(b, sizes);
            float *weights = x.weights;
            score_band(&x, queries, table, &band);
            multiply_band(&x, grads, values_transposed, table, &band, d_scores);
            for (int64_t o = b; o < b + band.rows; o++) {
                int64_t d = lowest(&band, o), to = cell(&band, o, d);
                row_softmax_backward(weights + to, d_scores + to, key_count(&band, o),
                                        present ? x.hidden + o + d : NULL, sums + 2 * (m * length + o));
            }
            int64_t below = (MARGIN + band.rows) * band.distance;
            memset(weights + below, 0, (size_t)(HIGH * band.distance) * sizeof(float));
            memset(d_scores + below, 0, (size_t)(HIGH * band.distance) * sizeof(float));
            add_sum(&band, KEYS_BY_QUERIES, weights, grads, d_v.copy + value_at, value_wide);
            add_sum(&band, OFFSETS_BY_QUERIES, weights, grads, x.value.gradient + value_centre, value_wide);
            add_sum(&band, QUERIES_BY_KEYS, d_scores, keys, d_q.copy + at, wide);
            add_sum(&band, QUERIES_BY_OFFSETS, d_scores, x.query.rows + centre, d_q.copy + at, wide);
            add_sum(&band, KEYS_BY_QUERIES, d_scores, queries, d_k.copy + at, wide);
            add_sum(&band, KEYS_BY_OFFSETS, d_scores, x.key.rows + centre, d_k.copy + at, wide);
            add_sum(&band, OFFSETS_BY_QUERIES, d_scores, queries, x.query.gradient + centre, wide);
            add_sum(&band, OFFSETS_BY_KEYS, d_scores, keys, x.key.gradient + centre, wide);
        }
        if (head == sizes->at_once - 1) {
            store_heads(&d_q, sizes, m - head, scale, NULL, x.padded);
            store_heads(&d_k, sizes, m - head, 1.0f, NULL, x.padded);
            store_heads(&d_v, sizes, m - head, 1.0f, NULL, x.padded);
            clear_absent(&d_q, &x.q, sizes, m - head, present);
            clear_absent(&d_k, NULL, sizes, m - head, present);
            clear_absent(&d_v, NULL, sizes, m - head, present);
        }
        if (m + 1 == groups * (part + 1) / parts * sizes->at_once) {
            store_gradient(&x.query, sizes, d_query, part);
            store_gradient(&x.key, sizes, d_key, part);
            store_gradient(&x.value, sizes, d_value, part);
            part++;
        }
    }
    free(memory);
    return FINE;
}
