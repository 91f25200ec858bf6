/* The layers of the exact network, on rows of numbers: layer norm, linear layer, attention, transformer block, LSTM.

   x is [rows, D] in C order. A linear layer's weights are packed in tiles of TILE outputs,

       weight [outputs / TILE, inputs, TILE]      the last tile is filled with zeros, as is the bias

   so that a product reads them from first to last. One output is one chain: bias + x0 w0 + x1 w1 + .., each step fused.
   Chains of several rows and TILE columns run side by side, in registers.

   Attention has two forms. Along lines inside x, all keys are there:

       x, rows of one example    line 0   line 1   ..       a line has `length` rows, `stride` apart
         position 0              row 0    row 1
         position 1              row s    row s + 1         s = stride
         ..

   Through a cache, x is slab i, and a row attends to itself in the slabs 0 .. i. For each row, the cache holds

       keys   [D, length]: of each number k of a head, one vector over positions, so that scores are vectors
       values [length, D]: of each position, one vector over numbers, so that results are vectors

   and 2 LANES numbers more behind the last, since whole lanes are read. */

#ifndef LAYERS_H
#define LAYERS_H

#include "arithmetic.h"

/* Sums that fit the registers. Of a product, they take 24 of 32 (AVX-512), 12 of 16 (AVX2), or 24 of 32 (NEON).
   QUERIES attend to the keys of a line at a time. */
enum {
    TILE = 32,
#if defined(__AVX512F__)
    TILE_ROWS = 12, VECTORS = 2, MAX_VECTORS = 8, QUERIES = 4,
#else
    TILE_ROWS = 6, VECTORS = 1, MAX_VECTORS = 4, QUERIES = 2,
#endif
    TILE_COLUMNS = VECTORS * LANES,
    FEW_ROWS = TILE_ROWS / 3,
    BLOCK_ROWS = 48 /* rows that are multiplied while the weights of a tile are in the first cache */
};

typedef struct {
    uint64_t inputs, outputs;
    float *weight, *bias;
} Linear;

typedef struct { float *gain, *bias; } Norm;

typedef struct {
    uint64_t dim, heads, hidden;
    Norm attention_norm, feedforward_norm;
    Linear qkv, out, expand, contract;
    float *rotations; /* [positions, K]: cosines, then sines; or NULL */
} Block;

/* Where a layer attends: `length` rows, `stride` apart; if causal, to no later ones. Length 0: through the cache. */
typedef struct { uint64_t length, stride, causal; } Line;

/* Keys and values of the slabs so far, of a masked layer. */
typedef struct {
    float *keys, *values;
    uint64_t length; /* slabs that there is room for */
} Cache;

/* Memory of one thread. */
typedef struct {
    float *normed;   /* [BLOCK_ROWS, D] */
    float *wide;     /* [rows, 3 D], or [BLOCK_ROWS, hidden], or the gates of an LSTM [2, BLOCK_ROWS, 4 D] */
    float *attended; /* [rows, D] */
    float *powers;   /* [QUERIES, longest line] */
    float *keys, *values; /* of one line, as in a cache */
} Work;

static uint64_t most_of(uint64_t a, uint64_t b) { return a > b ? a : b; }

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

/* `place` the memory of a thread, for layers of at most these sizes, and lines of at most `longest`. */
static uint64_t place_work(float *memory, uint64_t rows, uint64_t dim, uint64_t hidden, uint64_t longest, Work *work) {
    const uint64_t sizes[] = {
        BLOCK_ROWS * dim, rows * dim, most_of(3 * rows * dim, BLOCK_ROWS * most_of(8 * dim, hidden)), QUERIES * (longest + LANES),
        longest * dim + 2 * LANES, longest * dim + 2 * LANES,
    };
    float **const parts[] = {
        &work->normed, &work->attended, &work->wide, &work->powers, &work->keys, &work->values,
    };
    return place(memory, sizes, parts, 6);
}

/* Compute a constant number of rows, and of vectors of outputs: y = bias + x W, or y += that. Weights of successive steps
   are TILE numbers apart; vector c is c % (TILE / LANES) of tile c / (TILE / LANES), and tiles are `tile` numbers apart. */
INLINED void multiply_tile(const int rows, const int vectors, const float *restrict x, uint64_t inputs,
                           const float *restrict weight, uint64_t tile, const float *restrict bias, float *restrict y,
                           uint64_t outputs, int adds) {
    Lanes sums[TILE_ROWS][MAX_VECTORS];
    UNROLLED
    for (int r = 0; r < rows; r++) {
        UNROLLED
        for (int c = 0; c < vectors; c++)
            sums[r][c] = load(bias + c * LANES);
    }
    for (uint64_t k = 0; k < inputs; k++, weight += TILE) {
        UNROLLED
        for (int r = 0; r < rows; r++) {
            Lanes number = spread(x[(uint64_t)r * inputs + k]);
            UNROLLED
            for (int c = 0; c < vectors; c++) {
                const float *from = weight + (uint64_t)(c * LANES / TILE) * tile + c * LANES % TILE;
                sums[r][c] = fused_lanes(number, load(from), sums[r][c]);
            }
        }
    }
    UNROLLED
    for (int r = 0; r < rows; r++, y += outputs) {
        UNROLLED
        for (int c = 0; c < vectors; c++)
            store(y + c * LANES, adds ? add_lanes(load(y + c * LANES), sums[r][c]) : sums[r][c]);
    }
}

/* One tile of columns of `apply_linear`, which are all there. */
INLINED void multiply_columns(const float *x, uint64_t rows, uint64_t inputs, const float *weight, const float *bias,
                              float *y, uint64_t outputs, int adds) {
    uint64_t r = 0;
    for (; r + TILE_ROWS <= rows; r += TILE_ROWS)
        multiply_tile(TILE_ROWS, VECTORS, x + r * inputs, inputs, weight, 0, bias, y + r * outputs, outputs, adds);
    for (; r + FEW_ROWS <= rows; r += FEW_ROWS)
        multiply_tile(FEW_ROWS, VECTORS, x + r * inputs, inputs, weight, 0, bias, y + r * outputs, outputs, adds);
    for (; r < rows; r++)
        multiply_tile(1, VECTORS, x + r * inputs, inputs, weight, 0, bias, y + r * outputs, outputs, adds);
}

/* y [rows, outputs] = bias + x [rows, inputs] W, or y += that; at most BLOCK_ROWS rows. */
static void apply_linear(const Linear *layer, const float *x, uint64_t rows, float *y, int adds) {
    uint64_t inputs = layer->inputs, outputs = layer->outputs, o = 0;
    float last[BLOCK_ROWS * TILE_COLUMNS];
    for (; rows == 1 && o + MAX_VECTORS * LANES <= outputs; o += MAX_VECTORS * LANES)
        multiply_tile(1, MAX_VECTORS, x, inputs, layer->weight + o * inputs, inputs * TILE, layer->bias + o, y + o, 0,
                      adds); /* with few sums, each step of a chain would wait for the one before */
    for (; o < outputs; o += TILE_COLUMNS) {
        const float *weight = layer->weight + o / TILE * TILE * inputs + o % TILE, *bias = layer->bias + o;
        if (o + TILE_COLUMNS <= outputs) {
            multiply_columns(x, rows, inputs, weight, bias, y + o, outputs, adds);
            continue;
        }
        multiply_columns(x, rows, inputs, weight, bias, last, TILE_COLUMNS, 0);
        for (uint64_t r = 0; r < rows; r++)
            for (uint64_t j = 0; j < outputs - o; j++)
                y[r * outputs + o + j] = adds ? y[r * outputs + o + j] + last[r * TILE_COLUMNS + j]
                                              : last[r * TILE_COLUMNS + j];
    }
}

static void apply_norm(const Norm *norm, const float *x, uint64_t rows, uint64_t dim, float *y) {
    float size = (float)dim;
    uint64_t whole = dim / LANES * LANES;
    for (uint64_t r = 0; r < rows; r++, x += dim, y += dim) {
        float lanes[LANES] = {0}, squares[LANES] = {0};
        for (uint64_t i = 0; i < whole; i += LANES)
            for (uint64_t j = 0; j < LANES; j++)
                lanes[j] += x[i + j];
        for (uint64_t i = whole; i < dim; i++)
            lanes[i % LANES] += x[i];
        float mean = sum_of_lanes(lanes) / size;
        for (uint64_t i = 0; i < dim; i++)
            y[i] = x[i] - mean;
        for (uint64_t i = 0; i < whole; i += LANES)
            for (uint64_t j = 0; j < LANES; j++)
                squares[j] = fused(y[i + j], y[i + j], squares[j]);
        for (uint64_t i = whole; i < dim; i++)
            squares[i % LANES] = fused(y[i], y[i], squares[i % LANES]);
        float scale = 1.0f / sqrtf(sum_of_lanes(squares) / size + 1e-5f);
        for (uint64_t i = 0; i < dim; i++)
            y[i] = fused(y[i] * scale, norm->gain[i], norm->bias[i]);
    }
}

/* Replace `count` scores, a multiple of LANES, by e^((score - the largest) / sqrt(K)); return the sum. */
INLINED float exponentials(float *scores, uint64_t count, float scale) {
    float most = largest(scores, count), lanes[LANES] = {0};
    for (uint64_t j = 0; j < count; j += LANES)
        for (uint64_t l = 0; l < LANES; l++) {
            scores[j + l] = exponential((scores[j + l] - most) * scale);
            lanes[l] += scores[j + l];
        }
    return sum_of_lanes(lanes);
}

/* Write the sums over steps s of factor[q][s] x[q][at + s row + l], l < vectors LANES, of a constant number of queries;
   query q has q `more` steps than the first. With x shared, all have that of the first. Several sums side by side keep a
   core busy: each step of one waits for the step before. */
INLINED void combine(const int queries, const int vectors, const int shared, const float *const *factors,
                     const float *const *x, uint64_t at, uint64_t row, uint64_t terms, uint64_t more,
                     float (*results)[2 * LANES]) {
    Lanes sums[QUERIES][2];
    UNROLLED
    for (int q = 0; q < queries; q++) {
        UNROLLED
        for (int c = 0; c < vectors; c++)
            sums[q][c] = spread(0.0f);
    }
    for (uint64_t s = 0; s < terms; s++) {
        UNROLLED
        for (int q = 0; q < queries; q++) {
            Lanes factor = spread(factors[q][s]);
            UNROLLED
            for (int c = 0; c < vectors; c++)
                sums[q][c] = fused_lanes(factor, load(x[shared ? 0 : q] + at + s * row + c * LANES), sums[q][c]);
        }
    }
    UNROLLED
    for (int later = 1; later < queries; later++) {
        uint64_t s = terms + (uint64_t)later - 1;
        UNROLLED
        for (int q = later; more && q < queries; q++) {
            UNROLLED
            for (int c = 0; c < vectors; c++)
                sums[q][c] = fused_lanes(spread(factors[q][s]), load(x[shared ? 0 : q] + at + s * row + c * LANES),
                                         sums[q][c]);
        }
    }
    UNROLLED
    for (int q = 0; q < queries; q++) {
        UNROLLED
        for (int c = 0; c < vectors; c++)
            store(results[q] + c * LANES, sums[q][c]);
    }
}

/* Some queries [D], a constant number, attend with all heads to keys [D, length] and values [length, D], each to its own
   or, if shared, all to the first: the first query to `count` positions, each next one to `more` (0 or 1) further. Whole
   lanes are computed; what is behind a query's last key counts as minus infinity, and what is behind the last number of a
   head is not used. */
INLINED void attend(const int queries, const int shared, const float *const *q, const float *const *keys,
                    uint64_t length, const float *const *values, uint64_t count, uint64_t more, const Block *block,
                    float *restrict powers, float *const *results) {
    uint64_t dim = block->dim, width = dim / block->heads, last = count + more * (uint64_t)(queries - 1);
    uint64_t full = (last + LANES - 1) / LANES * LANES;
    float scale = 1.0f / sqrtf((float)width), divisors[QUERIES], sums[QUERIES][2 * LANES];
    const float *factors[QUERIES];
    for (uint64_t head = 0; head < dim; head += width) {
        for (int i = 0; i < queries; i++)
            factors[i] = q[i] + head;
        for (uint64_t j = 0; j < full; j += 2 * LANES) {
            uint64_t at = head * length + j, some = full - j > LANES ? 2 * LANES : LANES;
            if (some > LANES)
                combine(queries, 2, shared, factors, keys, at, length, width, 0, sums);
            else
                combine(queries, 1, shared, factors, keys, at, length, width, 0, sums);
            for (int i = 0; i < queries; i++)
                memcpy(powers + (uint64_t)i * full + j, sums[i], (size_t)some * sizeof(float));
        }
        for (int i = 0; i < queries; i++) {
            float *own = powers + (uint64_t)i * full;
            for (uint64_t j = count + more * (uint64_t)i; j < full; j++)
                own[j] = -INFINITY; /* whose power is 0 */
            divisors[i] = exponentials(own, full, scale);
            factors[i] = own;
        }
        for (uint64_t k = 0; k < width; k += 2 * LANES) {
            uint64_t some = width - k < 2 * LANES ? width - k : 2 * LANES;
            if (some > LANES)
                combine(queries, 2, shared, factors, values, head + k, dim, count, more, sums);
            else
                combine(queries, 1, shared, factors, values, head + k, dim, count, more, sums);
            for (int i = 0; i < queries; i++)
                for (uint64_t l = 0; l < some; l++)
                    results[i][head + k + l] = sums[i][l] / divisors[i];
        }
    }
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

/* Put keys and values of one row beside those of its line, as number i. */
static void keep_row(const float *qkv, uint64_t i, uint64_t dim, uint64_t length, float *keys, float *values) {
    for (uint64_t k = 0; k < dim; k++)
        keys[k * length + i] = qkv[dim + k];
    memcpy(values + i * dim, qkv + 2 * dim, (size_t)dim * sizeof(float));
}

static void add(float *to, const float *from, uint64_t count) {
    for (uint64_t k = 0; k < count; k++)
        to[k] += from[k];
}

/* Attend along the lines inside qkv [rows, 3 D], QUERIES positions at a time. */
static void attend_lines(const Block *block, const float *qkv, uint64_t rows, Line line, const Work *work) {
    uint64_t dim = block->dim, length = line.length, stride = line.stride;
    const float *keys = work->keys, *values = work->values, *q[QUERIES];
    float *results[QUERIES];
    for (uint64_t n = 0; n < rows / length; n++) {
        uint64_t first = n / stride * stride * length + n % stride, some;
        for (uint64_t p = 0; p < length; p++)
            keep_row(qkv + (first + p * stride) * 3 * dim, p, dim, length, work->keys, work->values);
        for (uint64_t j = 0; j < length; j += some) {
            some = length - j < QUERIES ? 1 : QUERIES;
            for (uint64_t i = 0; i < some; i++) {
                q[i] = qkv + (first + (j + i) * stride) * 3 * dim;
                results[i] = work->attended + (first + (j + i) * stride) * dim;
            }
            if (some == QUERIES)
                attend(QUERIES, 1, q, &keys, length, &values, line.causal ? j + 1 : length, line.causal, block,
                       work->powers, results);
            else
                attend(1, 1, q, &keys, length, &values, line.causal ? j + 1 : length, 0, block, work->powers, results);
        }
    }
}

/* Attend from each row of slab i to itself in the slabs 0 .. i, QUERIES rows at a time; the cache begins with row 0. */
static void attend_slabs(const Block *block, const float *qkv, uint64_t rows, uint64_t i, const Cache *cache,
                         const Work *work) {
    uint64_t dim = block->dim, length = cache->length, some;
    const float *q[QUERIES], *keys[QUERIES], *values[QUERIES];
    float *results[QUERIES];
    for (uint64_t r = 0; r < rows; r += some) {
        some = rows - r < QUERIES ? 1 : QUERIES;
        for (uint64_t n = 0; n < some; n++) {
            float *of_keys = cache->keys + (r + n) * dim * length, *of_values = cache->values + (r + n) * dim * length;
            q[n] = qkv + (r + n) * 3 * dim;
            keep_row(q[n], i, dim, length, of_keys, of_values);
            keys[n] = of_keys;
            values[n] = of_values;
            results[n] = work->attended + (r + n) * dim;
        }
        if (some == QUERIES)
            attend(QUERIES, 0, q, keys, length, values, i + 1, 0, block, work->powers, results);
        else
            attend(1, 0, q, keys, length, values, i + 1, 0, block, work->powers, results);
    }
}

/* Change x [rows, D] to the block's output. With lines, rows are whole lines; else x is slab i. */
static void apply_block(const Block *block, Line line, float *x, uint64_t rows, uint64_t i, const Cache *cache,
                        const Work *work) {
    uint64_t dim = block->dim, width = dim / block->heads;
    for (uint64_t r = 0; r < rows; r += BLOCK_ROWS) {
        uint64_t some = rows - r < BLOCK_ROWS ? rows - r : BLOCK_ROWS;
        apply_norm(&block->attention_norm, x + r * dim, some, dim, work->normed);
        apply_linear(&block->qkv, work->normed, some, work->wide + r * 3 * dim, 0);
    }
    for (uint64_t r = 0; block->rotations && r < rows; r++)
        rotate(work->wide + r * 3 * dim, 2 * block->heads, width,
               block->rotations + (line.length ? r / line.stride % line.length : i) * width);
    if (line.length)
        attend_lines(block, work->wide, rows, line, work);
    else
        attend_slabs(block, work->wide, rows, i, cache, work);
    for (uint64_t r = 0; r < rows; r += BLOCK_ROWS) {
        uint64_t some = rows - r < BLOCK_ROWS ? rows - r : BLOCK_ROWS;
        float *hidden = work->wide;
        apply_linear(&block->out, work->attended + r * dim, some, x + r * dim, 1);
        apply_norm(&block->feedforward_norm, x + r * dim, some, dim, work->normed);
        apply_linear(&block->expand, work->normed, some, hidden, 0);
        for (uint64_t k = 0; k < some * block->hidden; k++)
            hidden[k] = hidden[k] / (1.0f + exponential(-(hidden[k] * 1.702f))); /* quick GELU */
        apply_linear(&block->contract, hidden, some, x + r * dim, 1);
    }
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
    apply_linear(&lstm->of_input, work->normed, rows, gates, 0);
    apply_linear(&lstm->of_hidden, hidden, rows, of_hidden, 0);
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
