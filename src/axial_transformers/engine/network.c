/* What Python calls of the exact network: slabs through transformer blocks, and rows of positions to values.

   A slab is what an outer decoder computes in one step: a row of an image, a frame of a video; or the whole grid, for the
   channel encoder. Slabs come one by one, through a cache, or all at once, where all values are known. Rows of positions
   go through the inner decoder and the head, and their values are read from a stream, known, or sampled (sampling.c).

   Examples do not depend on each other: Python gives some of them to each thread. */

#include "door.h"
#include "rows.h"

enum { KNOWN_ROWS = 784 }; /* rows of known values that go through a layer together, at least one example */

/* The linear prediction of ordinal values along a row, from values before; positions is NULL if there is none. */
typedef struct {
    int64_t *values;            /* [B, P], all values so far; those of the row are written */
    uint64_t size;              /* P */
    const int64_t *positions;   /* [L]: where the values of the row are */
    const int64_t *neighbours;  /* [L, n]: where the neighbours of each position are; negative: one is missing */
    const int64_t *coefficients; /* [L, n + 1], in units of 2^-24: of the neighbours, and a constant */
    uint64_t count;             /* n */
} Centring;

/* Where an ordinal value is expected: example b, position i. */
static int64_t centre_of(const Centring *centring, uint64_t b, uint64_t i, int64_t count) {
    if (!centring->positions) return (count - 1) / 2;
    const int64_t *neighbours = centring->neighbours + i * centring->count;
    const int64_t *coefficients = centring->coefficients + i * (centring->count + 1);
    uint64_t sum = (uint64_t)coefficients[centring->count];
    for (uint64_t n = 0; n < centring->count; n++)
        if (neighbours[n] >= 0)
            sum += (uint64_t)coefficients[n] * (uint64_t)centring->values[b * centring->size + (uint64_t)neighbours[n]];
    if (sum >> 63) return 0;
    return (int64_t)(sum >> 24) < count ? (int64_t)(sum >> 24) : count - 1;
}

/* Write the value of example b at position i, and return its code. */
static int64_t keep_value(const Centring *centring, uint64_t b, uint64_t i, int64_t value, int64_t centre, int64_t count) {
    if (!centring->positions) return value;
    centring->values[b * centring->size + (uint64_t)centring->positions[i]] = value;
    return value + count * centre;
}

/* Return `size` numbers that begin at a cache line, within *block, which is to be freed; NULL: there is no memory. */
static float *take(uint64_t size, void **block) {
    uint64_t bytes = size * sizeof(float) + 64;
    *block = bytes / sizeof(float) >= size ? malloc((size_t)bytes) : NULL;
    return *block ? (float *)((char *)*block + (64 - (uintptr_t)*block % 64) % 64) : NULL;
}

static uint64_t longest_of(const Line *lines, uint64_t layers, uint64_t longest) {
    for (uint64_t n = 0; n < layers; n++)
        longest = most_of(longest, lines[n].length);
    return longest;
}

NOT_INLINED int dense(const Linear *layer, const float *x, uint64_t rows, float *y) {
    for (uint64_t r = 0; r < rows; r += BLOCK_ROWS)
        apply_linear(layer, x + r * layer->inputs, rows - r < BLOCK_ROWS ? rows - r : BLOCK_ROWS, y + r * layer->outputs, 0);
    return FINE;
}

/* y [rows, outputs] = bias + x [rows, inputs] W. */
EXPORTED(dense)(const Linear *layer, const float *x, uint64_t rows, float *y) {
    uint64_t before = enter();
    int result = dense(layer, x, rows, y);
    leave(before);
    return result;
}

/* Transformer blocks, and the lines along which each attends. */
typedef struct {
    const Block *blocks;
    const Line *lines;
    uint64_t layers;
} Slabs;

NOT_INLINED int step(const Slabs *slabs, float *x, uint64_t first, uint64_t last, uint64_t part, uint64_t i, float *keys,
                     float *values, uint64_t rows, uint64_t length) {
    uint64_t dim = slabs->blocks->dim;
    uint64_t hidden = slabs->blocks->hidden, longest = longest_of(slabs->lines, slabs->layers, length);
    Work work;
    void *block;
    float *memory = take(place_work(NULL, part, dim, hidden, longest, &work), &block);
    if (!memory) return NO_MEMORY;
    place_work(memory, part, dim, hidden, longest, &work);
    for (uint64_t r = first; r < last; r += part) {
        uint64_t some = last - r < part ? last - r : part, masked = 0;
        for (uint64_t n = 0; n < slabs->layers; n++) {
            uint64_t at = (masked * ((rows + part - 1) / part) + r / part) * cache_size(part, length, dim);
            Cache cache = {keys + at, values + at, length};
            apply_block(&slabs->blocks[n], slabs->lines[n], x + r * dim, some, i, &cache, &work);
            masked += !slabs->lines[n].length;
        }
    }
    free(block);
    return FINE;
}

/* Run the rows first .. last - 1 of slab i, x [rows, D], through all blocks, in place, `part` rows at a time.

   keys, values: [masked layers, parts] caches and LANES numbers more, see `layers.h`: what the slabs before have left. */
EXPORTED(step)(const Slabs *slabs, float *x, uint64_t first, uint64_t last, uint64_t part, uint64_t i, float *keys,
               float *values, uint64_t rows, uint64_t length) {
    uint64_t before = enter();
    int result = step(slabs, x, first, last, part, i, keys, values, rows, length);
    leave(before);
    return result;
}

NOT_INLINED int add_upper(const Slabs *slabs, float *context, const int64_t *values, const Embedding *embedding,
                          uint64_t first, uint64_t last, uint64_t example, uint64_t positions) {
    uint64_t dim = embedding->dim, part = most_of(KNOWN_ROWS / example, 1) * example;
    uint64_t hidden = slabs->blocks->hidden, longest = longest_of(slabs->lines, slabs->layers, 0);
    Work work;
    void *block;
    uint64_t size = place_work(NULL, part, dim, hidden, longest, &work);
    float *memory = take(size + part * dim, &block), *own = memory + size;
    if (!memory) return NO_MEMORY;
    place_work(memory, part, dim, hidden, longest, &work);
    for (uint64_t r = first; r < last; r += part) {
        uint64_t some = last - r < part ? last - r : part;
        memcpy(own, context + r * dim, (size_t)(some * dim) * sizeof(float));
        for (uint64_t row = 0; row < some; row++)
            add_embedding(embedding, (uint64_t)values[r + row], own + row * dim);
        for (uint64_t n = 0; n < slabs->layers; n++)
            apply_block(&slabs->blocks[n], slabs->lines[n], own, some, 0, NULL, &work);
        for (uint64_t row = 0; row < some; row++)
            if ((row + positions) % example >= positions)
                add(context + (r + row + positions) * dim, own + row * dim, dim);
    }
    free(block);
    return FINE;
}

/* Add to the context [rows, D] of each slab what the blocks make of the slab before, whose values are known; masked
   layers attend along the lines across slabs. The rows first .. last - 1 are whole examples of `example` rows, a slab of
   which has `positions`. */
EXPORTED(add_upper)(const Slabs *slabs, float *context, const int64_t *values, const Embedding *embedding,
                    uint64_t first, uint64_t last, uint64_t example, uint64_t positions) {
    uint64_t before = enter();
    int result = add_upper(slabs, context, values, embedding, first, last, example, positions);
    leave(before);
    return result;
}

/* Return memory of the rows of `count` examples, of all their positions if at_once, which is to be freed; or NULL. `own`
   becomes the rows with a mixture that has memory. */
static void *take_rows(const Rows *rows, uint64_t count, uint64_t length, int at_once, Rows *own, RowMemory *memory,
                       float **x) {
    uint64_t dim = rows->embedding.dim, outputs = rows->head.outputs, mixtures = rows->mixture.mixtures;
    uint64_t hidden = rows->layers ? rows->blocks->hidden : 1, together = at_once ? count * length : count;
    uint64_t cache = at_once ? 0 : cache_size(count, length, dim) + LANES, layers = rows->layers;
    float *caches, *shares, *of_caches, *numbers;
    const uint64_t sizes[] = {
        together * dim, count * dim, count * dim, most_of(count, BLOCK_ROWS) * outputs, mixtures, 2 * mixtures, outputs,
        layers * sizeof(Cache) / sizeof(float), 2 * layers * cache,
    };
    float **const parts[] = {
        x, &memory->cell, &memory->hidden, &memory->logits, &own->mixture.precisions, &shares, &numbers, &of_caches,
        &caches,
    };
    uint64_t work = place_work(NULL, together, dim, hidden, length, &memory->work);
    void *block;
    float *all = take(work + place(NULL, sizes, parts, 9), &block);
    if (!all) return NULL;
    *own = *rows;
    place_work(all, together, dim, hidden, length, &memory->work);
    place(all + work, sizes, parts, 9);
    own->mixture.shares = (int64_t *)(void *)shares;
    memory->numbers = (int32_t *)(void *)numbers;
    memory->caches = (Cache *)(void *)of_caches;
    for (uint64_t n = 0; n < layers; n++)
        memory->caches[n] = (Cache){caches + 2 * n * cache, caches + (2 * n + 1) * cache, length};
    return block;
}

/* Write context + the embedding of the value before to row `to` of x. */
static void enter_position(const Rows *rows, const float *context, const int64_t *values, uint64_t b, uint64_t i,
                           uint64_t length, float *to) {
    uint64_t dim = rows->embedding.dim;
    memcpy(to, context + (b * length + i) * dim, (size_t)dim * sizeof(float));
    if (i) add_embedding(&rows->embedding, (uint64_t)values[b * length + i - 1], to);
}

NOT_INLINED int read_rows(const Rows *given, const float *context, uint64_t examples, uint64_t length,
                          const Centring *centring, int64_t *values, Stream *stream) {
    RowMemory memory;
    Rows rows;
    float *x;
    uint64_t dim = given->embedding.dim, group = examples < GROUP ? examples : GROUP;
    void *block = take_rows(given, group, length, 0, &rows, &memory, &x);
    if (!block) return NO_MEMORY;
    for (uint64_t first = 0; first < examples; first += group) {
        uint64_t count = examples - first < group ? examples - first : group;
        for (uint64_t i = 0; i < length; i++) {
            for (uint64_t b = 0; b < count; b++)
                enter_position(&rows, context, values, first + b, i, length, x + b * dim);
            position_outputs(&rows, x, count, i, &memory);
            for (uint64_t b = 0; b < count; b++) {
                int64_t of_values = rows.mixture.count, centre = rows.mixture.centre =
                    rows.mixture.mixtures ? centre_of(centring, first + b, i, of_values) : 0;
                int64_t value = read_value(memory.logits + b * rows.head.outputs, &rows.mixture, memory.numbers, stream);
                values[(first + b) * length + i] = keep_value(centring, first + b, i, value, centre, of_values);
            }
        }
    }
    free(block);
    return FINE;
}

/* Read the values, or codes, [B, L] of a row with context [B, L, D], GROUP examples at a time. */
EXPORTED(read_rows)(const Rows *rows, const float *context, uint64_t examples, uint64_t length,
                    const Centring *centring, int64_t *values, Stream *stream) {
    uint64_t before = enter();
    int result = read_rows(rows, context, examples, length, centring, values, stream);
    leave(before);
    return result;
}

/* Return log x = n log 2 + log(1 + f) of positive x = 2^n (1 + f); NaN of NaN. */
INLINED float logarithm(float x) {
    int32_t n = (int32_t)(bits_of(x) - 0x3f3504f3u) >> 23;
    float f = from_bits(bits_of(x) - ((uint32_t)n << 23)) - 1.0f, whole = (float)n;
    float p = fused(-0.07634496688842773f, f, 0.1276157647371292f);
    p = fused(p, f, -0.13160182535648346f);
    p = fused(p, f, 0.14201757311820984f);
    p = fused(p, f, -0.16623356938362122f);
    p = fused(p, f, 0.20001226663589478f);
    p = fused(p, f, -0.2500081956386566f);
    p = fused(p, f, 0.3333333134651184f);
    p = fused(p, f, -0.5f);
    float result = fused(f * f, p, f);
    result = fused(whole, -1.9046542121259336e-09f, result);
    result = fused(whole, 0.6931471824645996f, result);
    return x == x ? result : x;
}

/* Return log(1 / (1 + e^-x)). */
INLINED float log_logistic(float x) {
    float size = x > -x ? x : -x;
    return (x < 0.0f ? x : 0.0f) - logarithm(1.0f + exponential(-size));
}

/* Return log(1 - e^-x), x > 0, without cancellation: from x (e^-x - 1) / -x up to log(2) / 2. */
INLINED float log_of_rest(float x) {
    int is_near = x < 0.3465735912322998f;
    float near = is_near ? x : 0.0f, r = -near, p = fused(0.0013751150108873844f, r, 0.00836898759007454f);
    p = fused(p, r, 0.04166954383254051f);
    p = fused(p, r, 0.166665181517601f);
    p = fused(p, r, 0.49999988079071045f);
    p = fused(p, r, 1.0f);
    return logarithm(is_near ? x * p : 1.0f - exponential(-x));
}

/* Return the sum of e^(x - most). */
static float sum_of_powers(const float *x, uint64_t count, float most) {
    float lanes[LANES] = {0};
    uint64_t whole = count / LANES * LANES;
    for (uint64_t i = 0; i < whole; i += LANES)
        for (uint64_t j = 0; j < LANES; j++)
            lanes[j] += exponential(x[i + j] - most);
    for (uint64_t i = whole; i < count; i++)
        lanes[i % LANES] += exponential(x[i] - most);
    return sum_of_lanes(load(lanes));
}

/* Return -log softmax(logits)[value]; NaN if the logits are not finite. */
static float nats_of(const float *logits, uint64_t count, uint64_t value) {
    float most = largest(logits, count);
    return logarithm(sum_of_powers(logits, count, most)) - (logits[value] - most);
}

/* Return -log of the probability of a value; NaN if the outputs cannot be used. See `reference.nats_of_mixture`. */
static float nats_of_mixture(const float *outputs, Mixture *mixture, int64_t value) {
    float terms[256], distance = (float)(value - mixture->centre), most = largest(outputs, mixture->mixtures);
    if (!write_precisions(outputs, mixture)) return NAN;
    for (uint64_t k = 0; k < mixture->mixtures; k++) {
        float precision = mixture->precisions[k], mean = mixture->means[k];
        float upper = log_logistic(fused(mean, -mixture->unit, distance + 0.5f) * precision);
        float lower = log_logistic(-(fused(mean, -mixture->unit, distance - 0.5f) * precision));
        float inner = upper + lower + log_of_rest(precision);
        terms[k] = outputs[k] - most + (value == 0 ? upper : value == mixture->count - 1 ? lower : inner);
    }
    float whole = logarithm(sum_of_powers(outputs, mixture->mixtures, most));
    most = largest(terms, mixture->mixtures);
    return whole - (most + logarithm(sum_of_powers(terms, mixture->mixtures, most)));
}

/* Write start and frequency of a value's interval; zeros if the outputs cannot be used. */
static void write_interval(const float *outputs, Mixture *mixture, int64_t value, int32_t *numbers, int64_t *interval) {
    int64_t start = 0, end = 0, count = mixture->count;
    if (mixture->mixtures) {
        if (prepare_mixture(outputs, mixture, numbers)) {
            start = value ? count_below(mixture, value) : 0;
            end = value + 1 < count ? count_below(mixture, value + 1) : (int64_t)SLOTS;
        }
    } else {
        int64_t sum = fixed_points(outputs, (uint64_t)count, numbers), factor = factor_of(sum, count), below = 0;
        for (int64_t v = 0; v < value; v++)
            below += numbers[v];
        if (sum) {
            start = value + (below * factor >> RECIPROCAL);
            end = value + 1 < count ? value + 1 + ((below + numbers[value]) * factor >> RECIPROCAL) : (int64_t)SLOTS;
        }
    }
    interval[0] = start;
    interval[1] = end - start;
}

/* Write what is asked of one known value, by its row of outputs. */
static void take_known(Rows *rows, const float *outputs, int64_t code, int32_t *numbers, float *nats, int64_t *interval) {
    Mixture *mixture = &rows->mixture;
    int64_t value = mixture->mixtures ? code % mixture->count : code;
    mixture->centre = rows->embedding.centred ? code / mixture->count : (mixture->count - 1) / 2;
    if (nats && mixture->mixtures) *nats = nats_of_mixture(outputs, mixture, value);
    if (nats && !mixture->mixtures) *nats = nats_of(outputs, (uint64_t)mixture->count, (uint64_t)value);
    if (interval) write_interval(outputs, mixture, value, numbers, interval);
}

NOT_INLINED int known_rows(const Rows *given, const float *context, uint64_t first, uint64_t last, uint64_t length,
                           const int64_t *values, float *nats, int64_t *intervals) {
    RowMemory memory;
    Rows rows;
    float *x;
    int at_once = given->layers > 0;
    uint64_t dim = given->embedding.dim, outputs = given->head.outputs;
    uint64_t group = at_once ? most_of(KNOWN_ROWS / length, 1) : GROUP;
    Line line = {length, 1, 1};
    if (group > last - first) group = last - first;
    void *block = take_rows(given, group, length, at_once, &rows, &memory, &x);
    if (!block) return NO_MEMORY;
    for (; first < last; first += group) {
        uint64_t count = last - first < group ? last - first : group, all = count * length;
        for (uint64_t i = 0; i < length && !at_once; i++) {
            for (uint64_t b = 0; b < count; b++)
                enter_position(&rows, context, values, first + b, i, length, x + b * dim);
            position_outputs(&rows, x, count, i, &memory);
            for (uint64_t b = 0; b < count; b++) {
                uint64_t at = (first + b) * length + i;
                take_known(&rows, memory.logits + b * outputs, values[at], memory.numbers, nats ? nats + at : NULL,
                           intervals ? intervals + 2 * at : NULL);
            }
        }
        for (uint64_t r = 0; r < all && at_once; r++)
            enter_position(&rows, context, values, first + r / length, r % length, length, x + r * dim);
        for (uint64_t n = 0; n < rows.layers; n++)
            apply_block(&rows.blocks[n], line, x, all, 0, NULL, &memory.work);
        for (uint64_t r = 0; r < all && at_once; r += BLOCK_ROWS) {
            uint64_t some = all - r < BLOCK_ROWS ? all - r : BLOCK_ROWS;
            apply_norm(&rows.head_norm, x + r * dim, some, dim, memory.work.normed);
            apply_linear(&rows.head, memory.work.normed, some, memory.logits, 0);
            for (uint64_t row = 0; row < some; row++) {
                uint64_t at = first * length + r + row;
                take_known(&rows, memory.logits + row * outputs, values[at], memory.numbers, nats ? nats + at : NULL,
                           intervals ? intervals + 2 * at : NULL);
            }
        }
    }
    free(block);
    return FINE;
}

/* Write what is asked of the known values, or codes, [B, L] of rows with context [B, L, D], of the examples first ..
   last - 1: nats [B, L], -log of their probabilities; intervals [B, L, 2], start and frequency. NULL: not asked.

   All positions of a row go through a block at once. An LSTM goes from position to position. */
EXPORTED(known_rows)(const Rows *rows, const float *context, uint64_t first, uint64_t last, uint64_t length,
                     const int64_t *values, float *nats, int64_t *intervals) {
    uint64_t before = enter();
    int result = known_rows(rows, context, first, last, length, values, nats, intervals);
    leave(before);
    return result;
}

/* Read `count` values of one distribution, whose value v has the interval starts[v] .. starts[v + 1] - 1; v < size. */
EXPORTED(read_from)(const int32_t *starts, uint64_t size, Stream *stream, int64_t *values, uint64_t count) {
    for (uint64_t k = 0; k < count; k++) {
        int64_t slot = (int64_t)(stream->state & (SLOTS - 1));
        uint64_t value = 0, beyond = size;
        while (beyond - value > 1) {
            uint64_t middle = (value + beyond) / 2;
            if (starts[middle] <= slot) value = middle;
            else beyond = middle;
        }
        advance(stream, starts[value], starts[value + 1]);
        values[k] = (int64_t)value;
    }
    return FINE;
}

/* Write the words of `count` symbols with intervals [count, 2] behind words[at], in the order in which they are read;
   reading ends with the state. words has count + 2 numbers. The last symbol is coded first: reading undoes writing. */
EXPORTED(write_stream)(const int64_t *intervals, uint64_t count, uint64_t state, uint32_t *words, uint64_t *at) {
    uint64_t first = count + 2;
    while (count--) {
        uint64_t start = (uint64_t)intervals[2 * count], frequency = (uint64_t)intervals[2 * count + 1];
        if (state >= frequency << (63 - PRECISION)) {
            words[--first] = (uint32_t)state;
            state >>= 32;
        }
        state = (state / frequency << PRECISION) + state % frequency + start;
    }
    words[--first] = (uint32_t)state;
    words[--first] = (uint32_t)(state >> 32);
    *at = first;
    return FINE;
}

NOT_INLINED int apply_function(int which, const float *x, uint64_t count, float *y) {
    for (uint64_t i = 0; i < count; i++)
        y[i] = which == 0 ? exponential(x[i]) : which == 1 ? logarithm(x[i]) : which == 2 ? sigmoid(x[i])
               : which == 3 ? hyperbolic_tangent(x[i]) : x[i] / (1.0f + exponential(-(x[i] * 1.702f)));
    return FINE;
}

/* Write a function of each number, for tests: e^x, log x, the sigmoid, the hyperbolic tangent, quick GELU. */
EXPORTED(apply_function)(int which, const float *x, uint64_t count, float *y) {
    uint64_t before = enter();
    int result = apply_function(which, x, count, y);
    leave(before);
    return result;
}

/* Set this thread's floating-point environment to IEEE's and write what it was, or (ieee: 0) set what is given. */
EXPORTED(environment)(uint64_t *word, int ieee) {
    if (ieee) *word = enter();
    else leave(*word);
    return FINE;
}

NOT_INLINED int check_arithmetic(int *right) {
    *right = is_ieee();
    return FINE;
}

/* Write 1 if this build rounds as IEEE 754 says, within the environment that all functions here set. */
EXPORTED(check_arithmetic)(int *right) {
    uint64_t before = enter();
    int result = check_arithmetic(right);
    leave(before);
    return result;
}
