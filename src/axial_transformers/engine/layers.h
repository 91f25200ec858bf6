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

   and LANES numbers more behind the last, since whole lanes are read. */

#ifndef LAYERS_H
#define LAYERS_H

#include "arithmetic.h"

enum {
    TILE = 32,
#if defined(__AVX512F__)
    TILE_ROWS = 12, TILE_COLUMNS = 32, ROW_TILES = 4, /* the sums of a tile: 24 of 32 registers */
#else
    TILE_ROWS = 6, TILE_COLUMNS = 16, ROW_TILES = 2, /* 12 of 16 registers of AVX2, 24 of 32 of NEON */
#endif
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
    float *wide;     /* [rows, 3 D], or [BLOCK_ROWS, hidden], or the gates of an LSTM [2, rows, 4 D] */
    float *attended; /* [rows, D] */
    float *powers;   /* [longest line] */
    float *keys, *values; /* of one line, as in a cache */
} Work;

static uint64_t most_of(uint64_t a, uint64_t b) { return a > b ? a : b; }

/* Return how many numbers the memory of a thread has, for layers of at most these sizes; see `lay_out`. */
static uint64_t work_size(uint64_t rows, uint64_t dim, uint64_t hidden, uint64_t longest) {
    return (rows + BLOCK_ROWS) * dim + most_of(8 * rows * dim, BLOCK_ROWS * hidden) + longest + LANES +
           2 * (longest * dim + LANES);
}

static Work lay_out(float *memory, uint64_t rows, uint64_t dim, uint64_t hidden, uint64_t longest) {
    Work work = {.normed = memory};
    work.attended = work.normed + BLOCK_ROWS * dim;
    work.wide = work.attended + rows * dim;
    work.powers = work.wide + most_of(8 * rows * dim, BLOCK_ROWS * hidden);
    work.keys = work.powers + longest + LANES;
    work.values = work.keys + longest * dim + LANES;
    return work;
}

/* Compute `rows` rows of `columns` outputs, both constants: y = bias + x W, or y += that. */
INLINED void multiply_tile(const int rows, const int columns, const float *restrict x, uint64_t inputs,
                           const float *restrict weight, const float *restrict bias, float *restrict y,
                           uint64_t outputs, uint64_t width, int adds) {
    float sums[12][32];
    UNROLLED
    for (int r = 0; r < rows; r++)
        memcpy(sums[r], bias, (size_t)columns * sizeof(float));
    for (uint64_t k = 0; k < inputs; k++, weight += TILE) {
        UNROLLED
        for (int r = 0; r < rows; r++) {
            float number = x[(uint64_t)r * inputs + k];
            for (int j = 0; j < columns; j++)
                sums[r][j] = fused(number, weight[j], sums[r][j]);
        }
    }
    UNROLLED
    for (int r = 0; r < rows; r++, y += outputs) {
        if (width >= (uint64_t)columns) {
            for (int j = 0; j < columns; j++)
                y[j] = adds ? y[j] + sums[r][j] : sums[r][j];
        } else {
            for (uint64_t j = 0; j < width; j++)
                y[j] = adds ? y[j] + sums[r][j] : sums[r][j];
        }
    }
}

/* One row of x, ROW_TILES tiles of outputs: with few sums, each step of a chain would wait for the one before. */
INLINED void multiply_row(const float *restrict x, uint64_t inputs, const float *restrict weight,
                          const float *restrict bias, float *restrict y, int adds) {
    float sums[ROW_TILES][TILE];
    memcpy(sums, bias, sizeof(sums));
    for (uint64_t k = 0; k < inputs; k++, weight += TILE) {
        UNROLLED
        for (int t = 0; t < ROW_TILES; t++)
            for (int j = 0; j < TILE; j++)
                sums[t][j] = fused(x[k], weight[(uint64_t)t * inputs * TILE + (uint64_t)j], sums[t][j]);
    }
    for (int t = 0; t < ROW_TILES; t++, y += TILE)
        for (int j = 0; j < TILE; j++)
            y[j] = adds ? y[j] + sums[t][j] : sums[t][j];
}

/* y [rows, outputs] = bias + x [rows, inputs] W, or y += that. */
static void apply_linear(const Linear *layer, const float *x, uint64_t rows, float *y, int adds) {
    uint64_t inputs = layer->inputs, outputs = layer->outputs, o = 0;
    for (; rows == 1 && o + ROW_TILES * TILE <= outputs; o += ROW_TILES * TILE)
        multiply_row(x, inputs, layer->weight + o * inputs, layer->bias + o, y + o, adds);
    for (; o < outputs; o += TILE_COLUMNS) {
        const float *weight = layer->weight + o / TILE * TILE * inputs + o % TILE, *bias = layer->bias + o;
        uint64_t r = 0, width = outputs - o;
        for (; r + TILE_ROWS <= rows; r += TILE_ROWS)
            multiply_tile(TILE_ROWS, TILE_COLUMNS, x + r * inputs, inputs, weight, bias, y + r * outputs + o, outputs,
                          width, adds);
        for (; r + FEW_ROWS <= rows; r += FEW_ROWS)
            multiply_tile(FEW_ROWS, TILE_COLUMNS, x + r * inputs, inputs, weight, bias, y + r * outputs + o, outputs,
                          width, adds);
        for (; r < rows; r++)
            multiply_tile(1, TILE_COLUMNS, x + r * inputs, inputs, weight, bias, y + r * outputs + o, outputs, width,
                          adds);
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

/* Write e^((score - the largest) / sqrt(K)) for `count` scores, a multiple of LANES; return the sum. */
static float exponentials(float *scores, uint64_t count, float scale) {
    float most = largest(scores, count), lanes[LANES] = {0};
    for (uint64_t j = 0; j < count; j += LANES)
        for (int l = 0; l < LANES; l++) {
            scores[j + (uint64_t)l] = exponential((scores[j + (uint64_t)l] - most) * scale);
            lanes[l] += scores[j + (uint64_t)l];
        }
    return sum_of_lanes(lanes);
}

/* All heads of q [D] attend to keys [D, length] and values [count, D]. Whole lanes are computed; what is behind the last
   key counts as minus infinity, and what is behind the last number of a head is not used. */
static void attend(const float *restrict q, const float *restrict keys, uint64_t length, const float *restrict values,
                   uint64_t count, uint64_t dim, uint64_t heads, float *restrict powers, float *restrict result) {
    uint64_t width = dim / heads, full = (count + LANES - 1) / LANES * LANES;
    float scale = 1.0f / sqrtf((float)width);
    for (uint64_t head = 0; head < dim; head += width) {
        for (uint64_t j = 0; j < full; j += LANES) {
            float scores[LANES] = {0};
            for (uint64_t k = head; k < head + width; k++)
                for (int l = 0; l < LANES; l++)
                    scores[l] = fused(q[k], keys[k * length + j + (uint64_t)l], scores[l]);
            memcpy(powers + j, scores, sizeof(scores));
        }
        for (uint64_t j = count; j < full; j++)
            powers[j] = -INFINITY; /* whose power is 0 */
        float sum = exponentials(powers, full, scale);
        for (uint64_t k = head; k < head + width; k += LANES) {
            float sums[LANES] = {0};
            for (uint64_t j = 0; j < count; j++)
                for (int l = 0; l < LANES; l++)
                    sums[l] = fused(powers[j], values[j * dim + k + (uint64_t)l], sums[l]);
            uint64_t some = head + width - k < LANES ? head + width - k : LANES;
            for (uint64_t l = 0; l < some; l++)
                result[k + l] = sums[l] / sum;
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

/* Attend along the lines inside qkv [rows, 3 D]. */
static void attend_lines(const Block *block, const float *qkv, uint64_t rows, Line line, const Work *work) {
    uint64_t dim = block->dim, length = line.length, stride = line.stride;
    for (uint64_t n = 0; n < rows / length; n++) {
        uint64_t first = n / stride * stride * length + n % stride;
        for (uint64_t j = 0; j < length; j++)
            keep_row(qkv + (first + j * stride) * 3 * dim, j, dim, length, work->keys, work->values);
        for (uint64_t j = 0, r = first; j < length; j++, r += stride)
            attend(qkv + r * 3 * dim, work->keys, length, work->values, line.causal ? j + 1 : length, dim, block->heads,
                   work->powers, work->attended + r * dim);
    }
}

/* Attend from each row of slab i to itself in the slabs 0 .. i; the cache begins with row 0. */
static void attend_slabs(const Block *block, const float *qkv, uint64_t rows, uint64_t i, const Cache *cache,
                         const Work *work) {
    uint64_t dim = block->dim, length = cache->length;
    for (uint64_t r = 0; r < rows; r++, qkv += 3 * dim) {
        float *keys = cache->keys + r * dim * length, *values = cache->values + r * dim * length;
        keep_row(qkv, i, dim, length, keys, values);
        attend(qkv, keys, length, values, i + 1, dim, block->heads, work->powers, work->attended + r * dim);
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

/* One step of the LSTM: x [rows, D] += its output; cell and hidden [rows, D] go on. */
static void apply_lstm(const Lstm *lstm, float *x, uint64_t rows, float *cell, float *hidden, const Work *work) {
    uint64_t dim = lstm->of_input.inputs;
    float *gates = work->wide, *of_hidden = gates + rows * 4 * dim;
    for (uint64_t r = 0; r < rows; r += BLOCK_ROWS) {
        uint64_t some = rows - r < BLOCK_ROWS ? rows - r : BLOCK_ROWS;
        apply_norm(&lstm->norm, x + r * dim, some, dim, work->normed);
        apply_linear(&lstm->of_input, work->normed, some, gates + r * 4 * dim, 0);
    }
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
