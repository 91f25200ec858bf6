/* The layers of the exact network, on rows of numbers: layer norm, attention, convolution, LSTM.

   x is [rows, D] in C order. Attention is along lines inside x, where all keys are there:

       x, rows of one example    line 0   line 1   ..       a line has `length` rows, `stride` apart
         position 0              row 0    row 1
         position 1              row s    row s + 1         s = stride
         ..

   or through a cache: x is slab i, and a row attends to itself in the slabs 0 .. i. In both, SIDE lines, or rows, attend
   side by side, to keys and values that lie ready for vectors of LANES numbers:

       keys   [length / PLACES, D, PLACES, SIDE]    one number of the keys of PLACES positions
       values [length, D, SIDE]                     PLACES numbers of the values of one position

   for each SIDE lines. `length` is rounded up to a multiple of PLACES; behind the last, there is room for a vector more. */

#ifndef LAYERS_H
#define LAYERS_H

#include "linear.h"

/* Sums of attention that fit the registers: CHAINS vectors. QUERIES positions of a line attend together, which saves
   reading its keys and values. */
enum {
    PLACES = LANES / SIDE,
#if defined(__AVX512F__)
    CHAINS = 8, QUERIES = 4
#else
    CHAINS = 4, QUERIES = 2
#endif
};

typedef struct { float *gain, *bias; } Norm;

/* A residual layer: x + last(f(first(y))), y = LayerNorm(x).

     attention     first gives queries, keys and values, f attends; `heads` is above 0
     feedforward   f is the quick GELU
     convolution   first takes the window of a row, f is a / (1 + e^-b): a and b are the halves; `slabs` is above 0

   A window has y of the `near` neighbours of the row, in each of the slabs i - slabs + 1 .. i. */
typedef struct {
    uint64_t dim, heads, slabs;
    Norm norm;
    Linear first, last;
    float *rotations; /* of attention, [positions, K]: cosines, then sines; or NULL */
} Layer;

/* Where a layer attends: `length` rows, `stride` apart; if causal, to no later ones. Length 0: through the cache. */
typedef struct { uint64_t length, stride, causal; } Line;

/* Keys and values of the slabs so far, of a masked layer; or of SIDE lines. */
typedef struct {
    float *keys, *values;
    uint64_t length; /* positions that there is room for */
} Cache;

/* How the rows of x make slabs, for convolutions. Either all slabs of each example are in x, and `length` is their
   number. Or x is slab i of some examples, `length` is 0, and y of the slabs of a window is kept. */
typedef struct {
    const int64_t *neighbours; /* [positions, near]: rows of the same slab; negative: outside */
    uint64_t positions, near;
    uint64_t length;
    float *kept;   /* [slabs, rows, D], y of slab i at i % slabs; those of the next convolution are behind it */
    uint64_t rows; /* of a slab: x has all, or some of them */
} Grid;

/* Memory of one thread. */
typedef struct {
    float *normed;   /* [BLOCK_ROWS, D] */
    float *wide;     /* [rows, 3 D], or [BLOCK_ROWS, outputs of first], or the gates of an LSTM [2, BLOCK_ROWS, 4 D] */
    float *window;   /* [BLOCK_ROWS, inputs of first], or of last, in a convolution */
    float *attended; /* [rows, D]; then y of a convolution, if all slabs are there */
    float *queries;  /* [QUERIES, K, PLACES, SIDE]: each query PLACES times */
    float *powers;   /* [QUERIES, longest line, SIDE] */
    float *results;  /* [QUERIES, K, SIDE] */
    float *keys, *values; /* of SIDE lines, as in a cache */
    uint8_t *rounded; /* [BLOCK_ROWS, inputs], for layers of integers */
} Work;

/* Let the parts point into memory, one behind the other, each at a cache line if memory begins at one; return how many
   numbers they take. If memory is NULL, only count. */
static uint64_t place(float *memory, const uint64_t *sizes, float **const *parts, int count) {
    uint64_t at = 0;
    for (int i = 0; i < count; i++) {
        if (memory) *parts[i] = memory + at;
        at += (sizes[i] + LANES - 1) / LANES * LANES;
    }
    return at;
}

static uint64_t whole_vectors(uint64_t count) { return (count + PLACES - 1) / PLACES; }

/* Return how many numbers the keys of some rows take, or their values. */
static uint64_t cache_size(uint64_t rows, uint64_t length, uint64_t dim) {
    return (rows + SIDE - 1) / SIDE * whole_vectors(length) * LANES * dim;
}

/* Sizes of what a thread computes: rows at once, the longest line, the widest layer, and the most inputs of one. */
typedef struct { uint64_t rows, dim, longest, wide, window, inputs; } Extent;

/* Make an extent wide enough for some layers. */
static void include_layers(Extent *extent, const Layer *layers, uint64_t count) {
    for (uint64_t n = 0; n < count; n++) {
        const Layer *layer = &layers[n];
        uint64_t window = layer->slabs ? LARGER(layer->first.inputs, layer->last.inputs) : 0;
        extent->wide = LARGER(extent->wide, layer->first.outputs);
        extent->window = LARGER(extent->window, window);
        extent->inputs = LARGER(extent->inputs, LARGER(layer->first.inputs, layer->last.inputs));
    }
}

/* `place` the memory of a thread. */
static uint64_t place_work(float *memory, const Extent *extent, Work *work) {
    uint64_t rows = extent->rows, dim = extent->dim, longest = extent->longest;
    uint64_t of_lines = cache_size(SIDE, longest, dim) + LANES;
    const uint64_t sizes[] = {
        BLOCK_ROWS * dim, rows * dim, LARGER(3 * rows * dim, BLOCK_ROWS * LARGER(8 * dim, extent->wide)),
        BLOCK_ROWS * extent->window, QUERIES * dim * LANES, QUERIES * (longest * SIDE + LANES),
        QUERIES * (dim * SIDE + LANES), of_lines, of_lines,
        bytes_of_rows(LARGER(dim, extent->inputs)) / sizeof(float),
    };
    float *bytes = NULL;
    float **const parts[] = {
        &work->normed, &work->attended, &work->wide, &work->window, &work->queries, &work->powers, &work->results,
        &work->keys, &work->values, &bytes,
    };
    uint64_t size = place(memory, sizes, parts, 10);
    work->rounded = (uint8_t *)(void *)bytes;
    return size;
}

/* Return the sum of x [count], or of its squares. */
INLINED float sum_row(const float *x, uint64_t count, const int squares) {
    Lanes sum = spread(0.0f);
    float rest[LANES] = {0};
    for (uint64_t i = 0; i + LANES <= count; i += LANES)
        sum = squares ? fused_lanes(load(x + i), load(x + i), sum) : add_lanes(sum, load(x + i));
    if (count % LANES == 0) return sum_lanes(sum);
    memcpy(rest, x + count / LANES * LANES, (size_t)(count % LANES) * sizeof(float));
    return sum_lanes(squares ? fused_lanes(load(rest), load(rest), sum) : add_lanes(sum, load(rest)));
}

static void apply_norm(const Norm *norm, const float *x, uint64_t rows, uint64_t dim, float *y) {
    float size = (float)dim;
    for (uint64_t r = 0; r < rows; r++, x += dim, y += dim) {
        float mean = sum_row(x, dim, 0) / size;
        for (uint64_t i = 0; i < dim; i++)
            y[i] = x[i] - mean;
        float scale = 1.0f / sqrtf(sum_row(y, dim, 1) / size + 1e-5f);
        for (uint64_t i = 0; i < dim; i++)
            y[i] = fused(y[i] * scale, norm->gain[i], norm->bias[i]);
    }
}

/* What `combine` adds up, for several queries: those of query q are the sums over steps s of factor(q, s) x[s row ..], one
   for each number of some vectors, which are `next` apart. Factors of query q begin at factors[q size]; a step has LANES of
   them, or SIDE that repeat. Query q has q `more` steps than the first. */
typedef struct {
    const float *factors, *x;
    uint64_t size, steps, more, row, next;
    int repeats;
} Sums;

INLINED Lanes factor_at(const Sums *sums, int q, uint64_t step) {
    const float *own = sums->factors + (uint64_t)q * sums->size;
    return sums->repeats ? repeat(load_side(own + step * SIDE)) : load(own + step * LANES);
}

/* Write `vectors` vectors from `first` on to y; those of the next query are `apart`. The numbers of queries and vectors
   are constant: several chains keep a core busy, since each step of one waits for the step before. */
INLINED void combine(const int queries, const int vectors, const Sums *sums, uint64_t first, float *y, uint64_t apart) {
    const float *x = sums->x + first * sums->next;
    Lanes chains[QUERIES][CHAINS];
    UNROLLED
    for (int q = 0; q < queries; q++) {
        UNROLLED
        for (int c = 0; c < vectors; c++)
            chains[q][c] = spread(0.0f);
    }
    for (uint64_t step = 0; step < sums->steps; step++, x += sums->row) {
        UNROLLED
        for (int q = 0; q < queries; q++) {
            Lanes factor = factor_at(sums, q, step);
            UNROLLED
            for (int c = 0; c < vectors; c++)
                chains[q][c] = fused_lanes(factor, load(x + (uint64_t)c * sums->next), chains[q][c]);
        }
    }
    UNROLLED
    for (int later = 1; later < queries; later++, x += sums->row) {
        if (!sums->more) break;
        UNROLLED
        for (int q = later; q < queries; q++) {
            Lanes factor = factor_at(sums, q, sums->steps + (uint64_t)later - 1);
            UNROLLED
            for (int c = 0; c < vectors; c++)
                chains[q][c] = fused_lanes(factor, load(x + (uint64_t)c * sums->next), chains[q][c]);
        }
    }
    UNROLLED
    for (int q = 0; q < queries; q++) {
        UNROLLED
        for (int c = 0; c < vectors; c++)
            store(y + (uint64_t)q * apart + (first + (uint64_t)c) * LANES, chains[q][c]);
    }
}

/* `combine` any number of vectors. */
INLINED void combine_all(const int queries, uint64_t vectors, Sums sums, float *y) {
    const int most = queries == 1 ? CHAINS : CHAINS / 2;
    uint64_t v = 0;
    for (; v + (uint64_t)most <= vectors; v += (uint64_t)most)
        combine(queries, most, &sums, v, y, vectors * LANES);
    for (; most > 4 && v + 4 <= vectors; v += 4)
        combine(queries, 4, &sums, v, y, vectors * LANES);
    for (; most > 2 && v + 2 <= vectors; v += 2)
        combine(queries, 2, &sums, v, y, vectors * LANES);
    if (v < vectors) combine(queries, 1, &sums, v, y, vectors * LANES);
}

/* Replace scores [count, SIDE] by e^((score - the largest of its line) / sqrt(K)); write their sums [SIDE], repeated.
   Whole vectors are computed: what is behind the last counts as minus infinity. */
static void exponentials(float *scores, uint64_t count, float scale, float *sums) {
    float most[LANES], lanes[SIDE][LANES] = {{0}};
    uint64_t vectors = whole_vectors(count);
    for (uint64_t j = count * SIDE; j < vectors * LANES; j++)
        scores[j] = -INFINITY; /* whose power is 0 */
    for (int l = 0; l < LANES; l++)
        most[l] = -INFINITY;
    for (uint64_t j = 0; j < vectors * LANES; j += LANES)
        for (uint64_t l = 0; l < LANES; l++)
            most[l] = scores[j + l] > most[l] ? scores[j + l] : most[l];
    for (int l = 0; l < SIDE; l++)
        for (int p = SIDE; p < LANES; p += SIDE)
            most[l] = LARGER(most[l], most[l + p]);
    for (int l = SIDE; l < LANES; l++)
        most[l] = most[l % SIDE];
    for (uint64_t j = 0; j < vectors; j++, scores += LANES)
        for (int l = 0; l < LANES; l++) {
            scores[l] = exponential((scores[l] - most[l]) * scale);
            lanes[j % SIDE][l] += scores[l];
        }
    for (int l = 0; l < LANES; l++)
        sums[l] = (lanes[0][l] + lanes[2][l]) + (lanes[1][l] + lanes[3][l]); /* positions p + 8, then p + 4 */
    for (int half = 2 * SIDE; half >= SIDE; half /= 2)
        for (int l = 0; l < half; l++)
            sums[l] += sums[l + half];
    for (int l = SIDE; l < LANES; l++)
        sums[l] = sums[l % SIDE];
}

/* Rotate numbers j and j + K/2 of each head as a vector. */
static void rotate(float *x, uint64_t heads, uint64_t width, const float *angles) {
    uint64_t half = width / 2;
    for (uint64_t h = 0; h < heads; h++, x += width)
        for (uint64_t j = 0; j < half; j++) {
            float a = x[j], b = x[j + half], cosine = angles[j], sine = angles[j + half];
            x[j] = fused(a, cosine, -(b * sine));
            x[j + half] = fused(b, cosine, a * sine);
        }
}

static void add(float *to, const float *from, uint64_t count) {
    for (uint64_t k = 0; k < count; k++)
        to[k] += from[k];
}

/* Write `count` numbers of SIDE rows of x side by side, `copies` times; the next number is `next` further. */
INLINED void interleave(const float *x, uint64_t wide, const uint64_t *rows, uint64_t count, float *to, uint64_t next,
                        const int copies) {
    Side side[SIDE];
    for (uint64_t k = 0; k < count / SIDE * SIDE; k += SIDE) {
        for (int l = 0; l < SIDE; l++)
            side[l] = load_side(x + rows[l] * wide + k);
        transpose_side(side);
        for (int n = 0; n < SIDE; n++, to += next)
            for (int copy = 0; copy < copies; copy++)
                store_side(to + copy * SIDE, side[n]);
    }
    for (uint64_t k = count / SIDE * SIDE; k < count; k++, to += next)
        for (int l = 0; l < copies * SIDE; l++)
            to[l] = x[rows[l % SIDE] * wide + k];
}

/* Write `count` numbers of SIDE rows, side by side in x, to those rows of y. */
INLINED void separate(const float *x, uint64_t count, const uint64_t *rows, float *y, uint64_t wide) {
    Side side[SIDE];
    for (uint64_t k = 0; k < count / SIDE * SIDE; k += SIDE) {
        for (int n = 0; n < SIDE; n++, x += SIDE)
            side[n] = load_side(x);
        transpose_side(side);
        for (int l = 0; l < SIDE; l++)
            store_side(y + rows[l] * wide + k, side[l]);
    }
    for (uint64_t k = count / SIDE * SIDE; k < count; k++, x += SIDE)
        for (int l = 0; l < SIDE; l++)
            y[rows[l] * wide + k] = x[l];
}

/* Put keys and values of SIDE rows into their cache, as position i. */
static void keep(const Layer *layer, const float *qkv, const uint64_t *rows, uint64_t i, const Cache *cache) {
    uint64_t dim = layer->dim;
    interleave(qkv + dim, 3 * dim, rows, dim, cache->keys + i / PLACES * dim * LANES + i % PLACES * SIDE, LANES, 1);
    interleave(qkv + 2 * dim, 3 * dim, rows, dim, cache->values + i * dim * SIDE, SIDE, 1);
}

/* Attend with the head that begins with number `head`, from some queries, a constant number; each has SIDE rows of qkv.
   The first attends to `count` positions of their cache, each next one to `more` (0 or 1) further. */
INLINED void attend(const int queries, const Layer *layer, uint64_t head, const float *qkv, const uint64_t *rows,
                    uint64_t count, uint64_t more, const Cache *cache, const Work *work) {
    uint64_t dim = layer->dim, width = dim / layer->heads, of_width = whole_vectors(width);
    uint64_t of_count = whole_vectors(count + more * (uint64_t)(queries - 1));
    float scale = 1.0f / sqrtf((float)width), totals[QUERIES][LANES];
    Sums scores = {.factors = work->queries, .size = width * LANES, .steps = width,
                   .x = cache->keys + head * LANES, .row = LANES, .next = dim * LANES};
    Sums results = {.factors = work->powers, .size = of_count * LANES, .steps = count, .more = more, .repeats = 1,
                    .x = cache->values + head * SIDE, .row = dim * SIDE, .next = LANES};
    for (int q = 0; q < queries; q++)
        interleave(qkv + head, 3 * dim, rows + q * SIDE, width, work->queries + (uint64_t)q * width * LANES, LANES,
                   PLACES);
    combine_all(queries, of_count, scores, work->powers);
    for (uint64_t q = 0; q < (uint64_t)queries; q++)
        exponentials(work->powers + q * of_count * LANES, count + more * q, scale, totals[q]);
    combine_all(queries, of_width, results, work->results);
    for (int q = 0; q < queries; q++) {
        float *own = work->results + (uint64_t)q * of_width * LANES;
        for (uint64_t k = 0; k < width * SIDE; k++)
            own[k] /= totals[q][k % LANES];
        separate(own, width, rows + q * SIDE, work->attended + head, dim);
    }
}

/* Write the rows of SIDE lines, from line n on, at position p. */
static void line_rows(Line line, uint64_t lines, uint64_t n, uint64_t p, uint64_t *rows) {
    for (uint64_t l = 0; l < SIDE; l++) {
        uint64_t own = SMALLER(n + l, lines - 1);
        rows[l] = (own / line.stride * line.length + p) * line.stride + own % line.stride;
    }
}

/* Attend along the lines inside qkv [rows, 3 D]. Where fewer than SIDE lines are left, one counts several times. */
static void attend_lines(const Layer *layer, const float *qkv, uint64_t rows, Line line, const Work *work) {
    uint64_t length = line.length, lines = rows / length, at[QUERIES * SIDE], width = layer->dim / layer->heads;
    Cache own = {work->keys, work->values, length};
    for (uint64_t n = 0; n < lines; n += SIDE) {
        for (uint64_t p = 0; p < length; p++) {
            line_rows(line, lines, n, p, at);
            keep(layer, qkv, at, p, &own);
        }
        for (uint64_t head = 0; head < layer->dim; head += width)
            for (uint64_t p = 0, some; p < length; p += some) {
                some = length - p < QUERIES ? 1 : QUERIES;
                for (uint64_t q = 0; q < some; q++)
                    line_rows(line, lines, n, p + q, at + q * SIDE);
                if (some == QUERIES)
                    attend(QUERIES, layer, head, qkv, at, line.causal ? p + 1 : length, line.causal, &own, work);
                else
                    attend(1, layer, head, qkv, at, line.causal ? p + 1 : length, 0, &own, work);
            }
    }
}

/* Attend from each row of slab i to itself in the slabs 0 .. i; the cache begins with row 0. */
static void attend_slabs(const Layer *layer, const float *qkv, uint64_t rows, uint64_t i, const Cache *cache,
                         const Work *work) {
    for (uint64_t r = 0; r < rows; r += SIDE) {
        uint64_t at[SIDE], before = cache_size(r, cache->length, layer->dim);
        Cache own = {cache->keys + before, cache->values + before, cache->length};
        for (uint64_t l = 0; l < SIDE; l++)
            at[l] = SMALLER(r + l, rows - 1);
        keep(layer, qkv, at, i, &own);
        for (uint64_t head = 0; head < layer->dim; head += layer->dim / layer->heads)
            attend(1, layer, head, qkv, at, i + 1, 0, &own, work);
    }
}

static void quick_gelu(float *x, uint64_t count) {
    for (uint64_t k = 0; k < count; k++)
        x[k] = x[k] / (1.0f + exponential(-(x[k] * 1.702f)));
}

/* y [rows, hidden] = a / (1 + e^-b), x [rows, 2 hidden]: a, then b. */
static void apply_gates(const float *restrict x, uint64_t rows, uint64_t hidden, float *restrict y) {
    for (uint64_t r = 0; r < rows; r++, x += 2 * hidden, y += hidden)
        for (uint64_t k = 0; k < hidden; k++)
            y[k] = x[k] / (1.0f + exponential(-x[hidden + k]));
}

/* Add the output of a feedforward layer to x [rows, D]. */
static void apply_feedforward(const Layer *layer, float *x, uint64_t rows, const Work *work) {
    uint64_t dim = layer->dim;
    for (uint64_t r = 0; r < rows; r += BLOCK_ROWS) {
        uint64_t some = SMALLER(rows - r, BLOCK_ROWS);
        apply_norm(&layer->norm, x + r * dim, some, dim, work->normed);
        apply_linear(&layer->first, work->normed, some, work->wide, 0, work->rounded);
        quick_gelu(work->wide, some * layer->first.outputs);
        apply_linear(&layer->last, work->wide, some, x + r * dim, 1, work->rounded);
    }
}

/* Write the window of row r: slabs from the oldest to slab i, zeros where there is none, neighbour by neighbour. `from`
   has y of all slabs in x, or of those that are kept. */
static void write_window(const Grid *grid, const float *from, uint64_t slabs, uint64_t r, uint64_t i, uint64_t dim,
                         float *window) {
    uint64_t size = grid->positions * dim, number = r / grid->positions; /* of a slab in x, or of an example */
    const int64_t *neighbours = grid->neighbours + r % grid->positions * grid->near;
    if (grid->length) i = number % grid->length;
    for (uint64_t back = slabs; back--;) {
        const float *slab = NULL;
        if (back <= i) slab = grid->length ? from + (number - back) * size
                                           : from + (i - back) % slabs * grid->rows * dim + number * size;
        for (uint64_t n = 0; n < grid->near; n++, window += dim)
            if (slab && neighbours[n] >= 0)
                memcpy(window, slab + (uint64_t)neighbours[n] * dim, (size_t)dim * sizeof(float));
            else
                memset(window, 0, (size_t)dim * sizeof(float));
    }
}

/* Add the output of a convolution to x [rows, D], and move on in what is kept. */
static void apply_convolution(const Layer *layer, Grid *grid, float *x, uint64_t rows, uint64_t i, const Work *work) {
    uint64_t dim = layer->dim, slabs = layer->slabs, inputs = layer->first.inputs;
    float *from = grid->length ? work->attended : grid->kept;
    apply_norm(&layer->norm, x, rows, dim, grid->length ? from : from + i % slabs * grid->rows * dim);
    for (uint64_t r = 0; r < rows; r += BLOCK_ROWS) {
        uint64_t some = SMALLER(rows - r, BLOCK_ROWS);
        for (uint64_t n = 0; n < some; n++)
            write_window(grid, from, slabs, r + n, i, dim, work->window + n * inputs);
        apply_linear(&layer->first, work->window, some, work->wide, 0, work->rounded);
        apply_gates(work->wide, some, layer->last.inputs, work->window);
        apply_linear(&layer->last, work->window, some, x + r * dim, 1, work->rounded);
    }
    if (!grid->length) grid->kept += slabs * grid->rows * dim;
}

/* Add the output of attention to x [rows, D]. With lines, rows are whole lines; else x is slab i. */
static void apply_attention(const Layer *layer, Line line, float *x, uint64_t rows, uint64_t i, const Cache *cache,
                            const Work *work) {
    uint64_t dim = layer->dim, width = dim / layer->heads;
    for (uint64_t r = 0; r < rows; r += BLOCK_ROWS) {
        uint64_t some = SMALLER(rows - r, BLOCK_ROWS);
        apply_norm(&layer->norm, x + r * dim, some, dim, work->normed);
        apply_linear(&layer->first, work->normed, some, work->wide + r * 3 * dim, 0, work->rounded);
    }
    for (uint64_t r = 0; layer->rotations && r < rows; r++)
        rotate(work->wide + r * 3 * dim, 2 * layer->heads, width,
               layer->rotations + (line.length ? r / line.stride % line.length : i) * width);
    if (line.length)
        attend_lines(layer, work->wide, rows, line, work);
    else
        attend_slabs(layer, work->wide, rows, i, cache, work);
    for (uint64_t r = 0; r < rows; r += BLOCK_ROWS)
        apply_linear(&layer->last, work->attended + r * dim, SMALLER(rows - r, BLOCK_ROWS), x + r * dim, 1, work->rounded);
}

/* Add the output of a layer to x [rows, D]. */
static void apply_layer(const Layer *layer, Line line, Grid *grid, float *x, uint64_t rows, uint64_t i,
                        const Cache *cache, const Work *work) {
    if (layer->heads)
        apply_attention(layer, line, x, rows, i, cache, work);
    else if (layer->slabs)
        apply_convolution(layer, grid, x, rows, i, work);
    else
        apply_feedforward(layer, x, rows, work);
}

/* An LSTM with its norm; gates are input, forget, cell, output. */
typedef struct {
    Norm norm;
    Linear of_input, of_hidden;
} Lstm;

/* One step of the LSTM: x [rows, D] += its output; cell and hidden [rows, D] go on. At most BLOCK_ROWS rows. */
static void apply_lstm(const Lstm *lstm, float *x, uint64_t rows, float *cell, float *hidden, const Work *work) {
    uint64_t dim = lstm->of_input.inputs;
    float *gates = work->wide, *of_hidden = gates + rows * 4 * dim;
    apply_norm(&lstm->norm, x, rows, dim, work->normed);
    apply_linear(&lstm->of_input, work->normed, rows, gates, 0, work->rounded);
    apply_linear(&lstm->of_hidden, hidden, rows, of_hidden, 0, work->rounded);
    add(gates, of_hidden, rows * 4 * dim);
    for (uint64_t r = 0; r < rows; r++, gates += 4 * dim, cell += dim, hidden += dim, x += dim)
        for (uint64_t k = 0; k < dim; k++) {
            float entered = sigmoid(gates[k]) * hyperbolic_tangent(gates[2 * dim + k]);
            cell[k] = fused(sigmoid(gates[dim + k]), cell[k], entered);
            hidden[k] = sigmoid(gates[3 * dim + k]) * hyperbolic_tangent(cell[k]);
            x[k] += hidden[k];
        }
}

#endif
