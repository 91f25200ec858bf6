/* Linear layers, of rows x [rows, inputs], in C order. Weights are packed in tiles of TILE outputs, so that a product reads
   them from first to last; the last tile is filled with zeros, as are bias, steps and totals.

       weight   [outputs / TILE, inputs, TILE]          of float32: one output is one chain, bias + x0 w0 + x1 w1 + ..,
                                                        each step fused
       integers [outputs / TILE, inputs / STEP, TILE, STEP]   archives have layers of integers: x is rounded, row by row,
                                                        and a sum is exact in any order

   Chains, or sums, of several rows and TILE columns run side by side, in registers. */

#ifndef LINEAR_H
#define LINEAR_H

#include "arithmetic.h"
#include "products.h"

/* Sums that fit the registers: they take 24 of 32 (AVX-512), 12 of 16 (AVX2), or 24 of 32 (NEON). */
enum {
    TILE = 32,
#if defined(__AVX512F__)
    TILE_ROWS = 12, VECTORS = 2, MAX_VECTORS = 8,
#else
    TILE_ROWS = 6, VECTORS = 1, MAX_VECTORS = 4,
#endif
    TILE_COLUMNS = VECTORS * LANES,
    FEW_ROWS = TILE_ROWS / 3,
    BLOCK_ROWS = 48, /* rows that are multiplied while the weights of a tile are in the first cache */
    MAX_INPUTS = 0x7fffffff / (2 * MAX_INTEGER * MAX_INTEGER) /* of a layer of integers: sums have 32 bits */
};

typedef struct {
    uint64_t inputs, outputs;
    float *weight, *bias; /* no weight in a layer of integers */
    int8_t *integers;     /* or NULL */
    float *steps;         /* [outputs]: a weight is an integer times the step of its output */
    int32_t *totals;      /* [outputs]: the sum of the integers of an output */
} Linear;

/* Rows that a layer reads: numbers; or integers plus OFFSET, of the unit of each row. */
typedef struct {
    const float *numbers;
    const uint8_t *integers;
    const float *units;
    uint64_t size; /* from one row to the next */
} Input;

/* Return how many steps the inputs of a layer of integers take, and the bytes of its rounded rows and of its weights. */
static uint64_t steps_of(uint64_t inputs) { return (inputs + STEP - 1) / STEP; }
static uint64_t bytes_of_rows(uint64_t inputs) { return BLOCK_ROWS * steps_of(inputs) * STEP * sizeof(uint8_t); }
static uint64_t bytes_of_weights(uint64_t inputs, uint64_t outputs) {
    return (outputs + TILE - 1) / TILE * steps_of(inputs) * TILE * STEP;
}

/* Round numbers to integers from -MAX_INTEGER to MAX_INTEGER, half to even; write them plus OFFSET, and return the unit that
   they count: largest / MAX_INTEGER. If the unit were no normal number, all are zeros, and the unit is 0. If one is not
   finite, it is NaN. */
static float round_row(const float *restrict x, uint64_t count, uint8_t *restrict integers) {
    const float to_integer = 12582912.0f; /* 1.5 * 2^23: a sum is whole, and its lowest byte the integer */
    uint32_t most = 0;
    for (uint64_t k = 0; k < count; k++) {
        uint32_t size = float_bits(x[k]) & 0x7fffffffu;
        most = LARGER(most, size);
    }
    float largest = from_bits(most), unit = largest / (float)MAX_INTEGER, factor = (float)MAX_INTEGER / largest;
    if (most >= 0x7f800000u || unit < FLT_MIN) {
        memset(integers, OFFSET, (size_t)count);
        return most >= 0x7f800000u ? NAN : 0.0f;
    }
    for (uint64_t k = 0; k < count; k++)
        integers[k] = (uint8_t)(float_bits(x[k] * factor + to_integer) + OFFSET);
    return unit;
}

/* Put the integers of the weights of output o into their tile, and keep their sum. */
static void pack_integers(Linear *layer, uint64_t o, const int8_t *integers) {
    int8_t *tile = layer->integers + o / TILE * steps_of(layer->inputs) * TILE * STEP;
    layer->totals[o] = 0;
    for (uint64_t k = 0; k < layer->inputs; k++) {
        tile[(k / STEP * TILE + o % TILE) * STEP + k % STEP] = integers[k];
        layer->totals[o] += integers[k];
    }
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

/* The same with integers: y = bias + (sum of products) (unit step), or y += that. */
INLINED void multiply_integers(const int rows, const int vectors, const Input *x, const Linear *layer, uint64_t o, float *y,
                               uint64_t apart, int adds) {
    enum { PER = LANES / WIDTH };
    const uint64_t steps = steps_of(layer->inputs), tile = steps * TILE * STEP;
    const int8_t *weights = layer->integers + o / TILE * tile + o % TILE * STEP;
    IntegerSums sums[TILE_ROWS][MAX_VECTORS * PER];
    UNROLLED
    for (int r = 0; r < rows; r++) {
        UNROLLED
        for (int c = 0; c < vectors * PER; c++)
            sums[r][c] = zero_sums();
    }
    for (uint64_t k = 0; k < steps; k++, weights += TILE * STEP) {
        UNROLLED
        for (int r = 0; r < rows; r++) {
            int32_t four;
            memcpy(&four, x->integers + (uint64_t)r * x->size + STEP * k, sizeof(four));
            Inputs inputs = spread_inputs(four);
            UNROLLED
            for (int c = 0; c < vectors * PER; c++) {
                const int8_t *from = weights + (uint64_t)(c * WIDTH / TILE) * tile + c * WIDTH % TILE * STEP;
                sums[r][c] = add_products(sums[r][c], inputs, from);
            }
        }
    }
    UNROLLED
    for (int r = 0; r < rows; r++, y += apart) {
        UNROLLED
        for (int c = 0; c < vectors; c++) {
            const uint64_t first = o + (uint64_t)c * LANES;
            int32_t whole[LANES];
            float numbers[LANES], factors[LANES];
            UNROLLED
            for (int part = 0; part < PER; part++)
                store_sums(whole + part * WIDTH, sums[r][c * PER + part]);
            for (int j = 0; j < LANES; j++) {
                numbers[j] = (float)(whole[j] - OFFSET * layer->totals[first + (uint64_t)j]);
                factors[j] = x->units[r] * layer->steps[first + (uint64_t)j];
            }
            Lanes result = fused_lanes(load(numbers), load(factors), load(layer->bias + first));
            store(y + c * LANES, adds ? add_lanes(load(y + c * LANES), result) : result);
        }
    }
}

/* Some rows, and vectors of outputs from o on, whose numbers are constant. */
INLINED void multiply_vectors(const int rows, const int vectors, const Input *x, const Linear *layer, uint64_t o, float *y,
                           uint64_t apart, int adds) {
    if (layer->integers) {
        multiply_integers(rows, vectors, x, layer, o, y, apart, adds);
        return;
    }
    const float *weight = layer->weight + o / TILE * TILE * layer->inputs + o % TILE;
    multiply_tile(rows, vectors, x->numbers, layer->inputs, weight, layer->inputs * TILE, layer->bias + o, y, apart, adds);
}

static Input rows_from(const Input *x, uint64_t r) {
    if (x->integers) return (Input){NULL, x->integers + r * x->size, x->units + r, x->size};
    return (Input){x->numbers + r * x->size, NULL, NULL, x->size};
}

/* One tile of columns of `apply_linear`, which are all there. */
INLINED void multiply_columns(const Input *x, uint64_t rows, const Linear *layer, uint64_t o, float *y, uint64_t apart,
                              int adds) {
    uint64_t r = 0;
    for (; r + TILE_ROWS <= rows; r += TILE_ROWS) {
        Input some = rows_from(x, r);
        multiply_vectors(TILE_ROWS, VECTORS, &some, layer, o, y + r * apart, apart, adds);
    }
    for (; r + FEW_ROWS <= rows; r += FEW_ROWS) {
        Input some = rows_from(x, r);
        multiply_vectors(FEW_ROWS, VECTORS, &some, layer, o, y + r * apart, apart, adds);
    }
    for (; r < rows; r++) {
        Input some = rows_from(x, r);
        multiply_vectors(1, VECTORS, &some, layer, o, y + r * apart, apart, adds);
    }
}

/* y [rows, outputs] = bias + x [rows, inputs] W, or y += that; at most BLOCK_ROWS rows. Layers of integers need memory for
   the rounded rows; else it may be NULL. */
static void apply_linear(const Linear *layer, const float *x, uint64_t rows, float *y, int adds, uint8_t *rounded) {
    uint64_t inputs = layer->inputs, outputs = layer->outputs, o = 0;
    float last[BLOCK_ROWS * TILE_COLUMNS], units[BLOCK_ROWS];
    Input input = {x, NULL, NULL, inputs};
    if (layer->integers) {
        input = (Input){NULL, rounded, units, STEP * steps_of(inputs)};
        for (uint64_t r = 0; r < rows; r++) {
            uint8_t *row = rounded + r * input.size;
            units[r] = round_row(x + r * inputs, inputs, row);
            memset(row + inputs, OFFSET, (size_t)(input.size - inputs)); /* their weights are 0 */
        }
    }
    /* Of one row, many columns: with few sums, each step of a chain would wait for the one before. */
    for (; rows == 1 && o + MAX_VECTORS * LANES <= outputs; o += MAX_VECTORS * LANES)
        multiply_vectors(1, MAX_VECTORS, &input, layer, o, y + o, 0, adds);
    for (; o < outputs; o += TILE_COLUMNS) {
        if (o + TILE_COLUMNS <= outputs) {
            multiply_columns(&input, rows, layer, o, y + o, outputs, adds);
            continue;
        }
        multiply_columns(&input, rows, layer, o, last, TILE_COLUMNS, 0);
        for (uint64_t r = 0; r < rows; r++)
            for (uint64_t j = 0; j < outputs - o; j++)
                y[r * outputs + o + j] = adds ? y[r * outputs + o + j] + last[r * TILE_COLUMNS + j]
                                              : last[r * TILE_COLUMNS + j];
    }
}

#endif
