/* What Python calls of the exact network: slabs through transformer blocks, and rows of positions to values.

   A slab is what an outer decoder computes in one step: a row of an image, a frame of a video; or the whole grid, for the
   channel encoder. Slabs come one by one, through a cache, or all at once, where all values are known. Rows of positions
   go through the inner decoder and the head, and their values are read from a stream, known, or sampled (sampling.h).

   Examples do not depend on each other: Python gives some of them to each thread. */

#include "door.h"
#include "sampling.h"

enum { KNOWN_ROWS = 784 }; /* rows of known values that go through a layer together, at least one example */

/* The linear prediction of the N = L P ordinal values of a row, from values before; positions is NULL if there is none. */
typedef struct {
    int64_t *values;            /* [B, size], all values so far; those of the row are written */
    uint64_t size;
    const int64_t *positions;   /* [N]: where the values of the row are */
    const int64_t *neighbours;  /* [N, n]: where the neighbours of each value are; negative: one is missing */
    const int64_t *coefficients; /* [N, n + 1], in units of 2^-24: of the neighbours, and a constant */
    uint64_t count;             /* n */
    int64_t *sizes;             /* [B, size], of the differences so far, written too; NULL without an activity */
    const int64_t *size_neighbours, *size_coefficients; /* [N, k] and [N, k + 1] */
    uint64_t size_count;        /* k */
} Centring;

/* Return the sum of `count` neighbours times their coefficients, and the constant behind these. */
static uint64_t weighted_sum(const int64_t *numbers, const int64_t *neighbours, const int64_t *coefficients,
                             uint64_t count) {
    uint64_t sum = (uint64_t)coefficients[count];
    for (uint64_t n = 0; n < count; n++)
        if (neighbours[n] >= 0) sum += (uint64_t)coefficients[n] * (uint64_t)numbers[neighbours[n]];
    return sum;
}

/* Where ordinal value i of the row of example b is expected; see `centre_on`. */
static int64_t expected_value(const Centring *centring, uint64_t b, uint64_t i, int64_t count) {
    if (!centring->positions) return (count - 1) / 2;
    uint64_t n = centring->count, k = centring->size_count, first = b * centring->size;
    uint64_t sum = weighted_sum(centring->values + first, centring->neighbours + i * n,
                                centring->coefficients + i * (n + 1), n);
    int64_t predicted = (int64_t)(sum >> 24);
    predicted = sum >> 63 ? 0 : SMALLER(predicted, count - 1);
    if (!centring->sizes) return predicted;
    sum = weighted_sum(centring->sizes + first, centring->size_neighbours + i * k,
                       centring->size_coefficients + i * (k + 1), k);
    return predicted + count * (int64_t)level_of_sum(sum, (uint64_t)count);
}

/* Write value i of the row of example b, and return its code. */
static int64_t keep_value(const Centring *centring, uint64_t b, uint64_t i, int64_t value, int64_t expected,
                          int64_t count) {
    if (!centring->positions) return value;
    uint64_t at = b * centring->size + (uint64_t)centring->positions[i];
    int64_t difference = value - expected % count;
    centring->values[at] = value;
    if (centring->sizes) centring->sizes[at] = difference < 0 ? -difference : difference;
    return value + count * expected;
}

/* Return `size` numbers that begin at a cache line, within *block, which is to be freed; NULL: there is no memory. */
static float *take(uint64_t size, void **block) {
    uint64_t bytes = size * sizeof(float) + 64;
    *block = bytes / sizeof(float) >= size ? malloc((size_t)bytes) : NULL;
    return *block ? (float *)((char *)*block + (64 - (uintptr_t)*block % 64) % 64) : NULL;
}

/* Write how many bytes the weights of a layer of integers take. */
EXPORTED(size_of_integers)(uint64_t inputs, uint64_t outputs, uint64_t *bytes) {
    *bytes = bytes_of_weights(inputs, outputs);
    return FINE;
}

/* Put integers [outputs, inputs] into the tiles of a layer, whose memory is zeros. */
EXPORTED(pack)(Linear *layer, const int8_t *integers) {
    for (uint64_t o = 0; o < layer->outputs; o++)
        pack_integers(layer, o, integers + o * layer->inputs);
    return FINE;
}

/* y [rows, outputs] = bias + x [rows, inputs] W. */
EXACT(dense, (const Linear *layer, const float *x, uint64_t rows, float *y), (layer, x, rows, y)) {
    void *block;
    float *memory = take(bytes_of_rows(layer->inputs) / sizeof(float), &block);
    if (!memory) return NO_MEMORY;
    for (uint64_t r = 0; r < rows; r += BLOCK_ROWS)
        apply_linear(layer, x + r * layer->inputs, SMALLER(rows - r, BLOCK_ROWS), y + r * layer->outputs, 0,
                     (uint8_t *)(void *)memory);
    free(block);
    return FINE;
}

/* y [rows, D] = the embeddings of positions, with P values or codes each. */
EXACT(embed, (const Embedding *embedding, const int64_t *codes, uint64_t rows, float *y), (embedding, codes, rows, y)) {
    float features[BLOCK_ROWS * MAX_CHANNELS * MAX_FEATURES];
    uint64_t dim = embedding->dim, inputs = embedding->of_features.inputs;
    for (uint64_t r = 0; embedding->table && r < rows; r++)
        memcpy(y + r * dim, embedding->table + (uint64_t)codes[r] * dim, (size_t)dim * sizeof(float));
    for (uint64_t r = 0; !embedding->table && r < rows; r += BLOCK_ROWS) {
        uint64_t some = SMALLER(rows - r, BLOCK_ROWS);
        for (uint64_t n = 0; n < some; n++)
            write_position(embedding, codes + (r + n) * embedding->channels, features + n * inputs);
        apply_linear(&embedding->of_features, features, some, y + r * dim, 0, NULL);
    }
    return FINE;
}

/* Residual layers, the line along which each attends, and the neighbours that convolutions read, see `Grid`. */
typedef struct {
    const Layer *layers;
    const Line *lines;
    uint64_t count;
    const int64_t *neighbours;
    uint64_t positions, near;
} Slabs;

static Extent extent_of(const Slabs *slabs, uint64_t rows, uint64_t longest) {
    Extent extent = {.rows = rows, .dim = slabs->layers->dim, .longest = longest};
    include_layers(&extent, slabs->layers, slabs->count);
    for (uint64_t n = 0; n < slabs->count; n++)
        extent.longest = LARGER(extent.longest, slabs->lines[n].length);
    return extent;
}

/* Run the rows first .. last - 1 of slab i, x [rows, D], through all layers, in place, `part` rows at a time.

   What the slabs before have left: keys, values: [masked layers, parts] caches and LANES numbers more, see `layers.h`;
   kept: y of convolutions, see `Grid`. */
EXACT(step, (const Slabs *slabs, float *x, uint64_t first, uint64_t last, uint64_t part, uint64_t i, float *keys,
             float *values, float *kept, uint64_t rows, uint64_t length),
      (slabs, x, first, last, part, i, keys, values, kept, rows, length)) {
    uint64_t dim = slabs->layers->dim;
    Extent extent = extent_of(slabs, part, length);
    Work work;
    void *block;
    float *memory = take(place_work(NULL, &extent, &work), &block);
    if (!memory) return NO_MEMORY;
    place_work(memory, &extent, &work);
    for (uint64_t r = first; r < last; r += part) {
        uint64_t some = SMALLER(last - r, part), masked = 0;
        Grid grid = {slabs->neighbours, slabs->positions, slabs->near, 0, kept + r * dim, rows};
        for (uint64_t n = 0; n < slabs->count; n++) {
            uint64_t at = (masked * ((rows + part - 1) / part) + r / part) * cache_size(part, length, dim);
            Cache cache = {keys + at, values + at, length};
            apply_layer(&slabs->layers[n], slabs->lines[n], &grid, x + r * dim, some, i, &cache, &work);
            masked += slabs->layers[n].heads && !slabs->lines[n].length;
        }
    }
    free(block);
    return FINE;
}

/* Add to the context [rows, D] of each slab what the layers make of the slab before, whose values [rows, P] are known;
   masked layers attend along the lines across slabs. The rows first .. last - 1 are whole examples of `example` rows, a
   slab of which has `positions`. */
EXACT(add_upper, (const Slabs *slabs, float *context, const int64_t *values, const Embedding *embedding, uint64_t first,
                  uint64_t last, uint64_t example, uint64_t positions),
      (slabs, context, values, embedding, first, last, example, positions)) {
    uint64_t dim = embedding->dim, part = LARGER(KNOWN_ROWS / example, 1) * example;
    Extent extent = extent_of(slabs, part, 0);
    Grid grid = {.neighbours = slabs->neighbours, .positions = positions, .near = slabs->near,
                 .length = example / positions};
    Work work;
    void *block;
    uint64_t size = place_work(NULL, &extent, &work);
    float *memory = take(size + part * dim, &block), *own = memory + size;
    if (!memory) return NO_MEMORY;
    place_work(memory, &extent, &work);
    for (uint64_t r = first; r < last; r += part) {
        uint64_t some = SMALLER(last - r, part);
        memcpy(own, context + r * dim, (size_t)(some * dim) * sizeof(float));
        for (uint64_t row = 0; row < some; row++)
            add_embedding(embedding, values + (r + row) * embedding->channels, own + row * dim);
        for (uint64_t n = 0; n < slabs->count; n++)
            apply_layer(&slabs->layers[n], slabs->lines[n], &grid, own, some, 0, NULL, &work);
        for (uint64_t row = 0; row < some; row++)
            if ((row + positions) % example >= positions)
                add(context + (r + row + positions) * dim, own + row * dim, dim);
    }
    free(block);
    return FINE;
}

/* Rows of a group of examples on their way to values. */
typedef struct {
    Rows rows; /* with a mixture that has memory */
    RowMemory memory;
    float *x;  /* [examples, D], or [examples, L, D] if all positions go together */
    void *block;
} Group;

/* Make a group of `count` examples, all of whose positions go together or one after the other; return 0 without memory.
   Its block is to be freed. */
static int take_group(const Rows *rows, uint64_t count, uint64_t length, int together, Group *group) {
    RowMemory *memory = &group->memory;
    const Embedding *embedding = &rows->embedding;
    uint64_t dim = embedding->dim, outputs = rows->heads->contract.outputs, mixtures = rows->mixture.mixtures;
    uint64_t x_rows = together ? count * length : count, layers = rows->count, features = embedding->of_features.inputs;
    uint64_t cache = together ? 0 : cache_size(count, length, dim) + LANES, attentions = 0, slabs = 0, expanded = 0;
    float *cached, *shares, *caches, *numbers, *powers;
    Extent extent = {.rows = x_rows, .dim = dim, .longest = length};
    include_layers(&extent, rows->layers, layers);
    for (uint64_t n = 0; n < layers && !together; n++) {
        attentions += rows->layers[n].heads > 0;
        slabs += rows->layers[n].slabs;
    }
    for (uint64_t p = 0; p < embedding->channels; p++) {
        const Head *head = &rows->heads[p];
        expanded = LARGER(expanded, head->expand.outputs);
        extent.inputs = LARGER(extent.inputs, LARGER(head->expand.inputs, head->contract.inputs));
    }
    group->rows = *rows;
    const uint64_t sizes[] = {
        x_rows * dim, count * dim, count * dim, BLOCK_ROWS * outputs, mixtures, 2 * mixtures, outputs,
        layers * sizeof(Cache) / sizeof(float), 2 * attentions * cache, 2 * outputs, outputs, slabs * count * dim,
        BLOCK_ROWS * features, BLOCK_ROWS * (dim + features), BLOCK_ROWS * expanded,
    };
    float **const parts[] = {
        &group->x, &memory->cell, &memory->hidden, &memory->logits, &group->rows.mixture.precisions, &shares, &numbers,
        &caches, &cached, &powers, &memory->ordered, &memory->kept, &memory->features, &memory->entered,
        &memory->expanded,
    };
    const int count_of_parts = sizeof(sizes) / sizeof(*sizes);
    uint64_t work = place_work(NULL, &extent, &memory->work);
    float *all = take(work + place(NULL, sizes, parts, count_of_parts), &group->block);
    if (!all) return 0;
    place_work(all, &extent, &memory->work);
    place(all + work, sizes, parts, count_of_parts);
    group->rows.mixture.shares = (int64_t *)(void *)shares;
    memory->numbers = (int32_t *)(void *)numbers;
    memory->powers = (double *)(void *)powers;
    memory->caches = (Cache *)(void *)caches;
    for (uint64_t n = 0; n < layers; n++) {
        memory->caches[n] = (Cache){cached, cached + cache, length};
        if (rows->layers[n].heads) cached += 2 * cache;
    }
    return 1;
}

/* Return log x = n log 2 + log(1 + f) of positive x = 2^n (1 + f); NaN of NaN. */
INLINED float logarithm(float x) {
    int32_t n = (int32_t)(float_bits(x) - 0x3f3504f3u) >> 23;
    float f = from_bits(float_bits(x) - ((uint32_t)n << 23)) - 1.0f, whole = (float)n;
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
INLINED float log_one_minus_power(float x) {
    int is_near = x < 0.3465735912322998f;
    float near = is_near ? x : 0.0f, r = -near, p = fused(0.0013751150108873844f, r, 0.00836898759007454f);
    p = fused(p, r, 0.04166954383254051f);
    p = fused(p, r, 0.166665181517601f);
    p = fused(p, r, 0.49999988079071045f);
    p = fused(p, r, 1.0f);
    return logarithm(is_near ? x * p : 1.0f - exponential(-x));
}

/* Return the sum of e^(x - most). */
static float sum_powers(const float *x, uint64_t count, float most) {
    float lanes[LANES] = {0};
    uint64_t whole = count / LANES * LANES;
    for (uint64_t i = 0; i < whole; i += LANES)
        for (uint64_t j = 0; j < LANES; j++)
            lanes[j] += exponential(x[i + j] - most);
    for (uint64_t i = whole; i < count; i++)
        lanes[i % LANES] += exponential(x[i] - most);
    return sum_lanes(load(lanes));
}

/* Return -log softmax(logits)[value]; NaN if the logits are not finite. */
static float categorical_nats(const float *logits, uint64_t count, uint64_t value) {
    float most = largest(logits, count);
    return logarithm(sum_powers(logits, count, most)) - (logits[value] - most);
}

/* Return -log of the probability of a value; NaN if the outputs cannot be used. See `reference.mixture_nats`. */
static float mixture_nats(const float *outputs, Mixture *mixture, int64_t value) {
    float terms[256], distance = (float)(value - mixture->centre), most = largest(outputs, mixture->mixtures);
    if (!write_precisions(outputs, mixture)) return NAN;
    for (uint64_t k = 0; k < mixture->mixtures; k++) {
        float precision = mixture->precisions[k], mean = mixture->means[k], unit = unit_of(mixture, k);
        float upper = log_logistic(fused(mean, -unit, distance + 0.5f) * precision);
        float lower = log_logistic(-(fused(mean, -unit, distance - 0.5f) * precision));
        float inner = upper + lower + log_one_minus_power(precision);
        terms[k] = outputs[k] - most + (value == 0 ? upper : value == mixture->count - 1 ? lower : inner);
    }
    float whole = logarithm(sum_powers(outputs, mixture->mixtures, most));
    most = largest(terms, mixture->mixtures);
    return whole - (most + logarithm(sum_powers(terms, mixture->mixtures, most)));
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
        int64_t sum = fixed_points(outputs, (uint64_t)count, numbers), factor = frequency_factor(sum, count), below = 0;
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
    centre_on(mixture, rows->embedding.centred ? code / mixture->count : (mixture->count - 1) / 2);
    if (nats)
        *nats = mixture->mixtures ? mixture_nats(outputs, mixture, value)
                                  : categorical_nats(outputs, (uint64_t)mixture->count, (uint64_t)value);
    if (interval) write_interval(outputs, mixture, value, numbers, interval);
}

/* What to do with rows: read values from a stream, sample them, or write nats and intervals of known ones. What is not
   done is NULL. */
typedef struct {
    const float *context; /* [B, L, D] */
    uint64_t length;
    int64_t *values;      /* [B, L, P], or codes: written, or known */
    const Centring *centring;
    Stream *stream;
    const Sampling *sampling;
    float *nats;          /* [B, L, P]: -log of the probability of each value */
    int64_t *intervals;   /* [B, L, P, 2]: start and frequency */
} Task;

/* Write context + the embedding of the position before to x [D], at position number `at` of [B, L]. */
static void enter_position(const Rows *rows, const Task *task, uint64_t at, float *x) {
    uint64_t dim = rows->embedding.dim;
    memcpy(x, task->context + at * dim, (size_t)dim * sizeof(float));
    if (at % task->length) add_embedding(&rows->embedding, task->values + (at - 1) * rows->embedding.channels, x);
}

/* Choose value number `at` of [B, L, P], by its outputs, and return its code. */
static int64_t choose_code(Group *group, const Task *task, uint64_t at, const float *outputs) {
    Mixture *mixture = &group->rows.mixture;
    uint64_t of_row = task->length * group->rows.embedding.channels, b = at / of_row, i = at % of_row;
    int64_t expected = mixture->mixtures ? expected_value(task->centring, b, i, mixture->count) : 0;
    centre_on(mixture, expected);
    int64_t value = task->stream ? read_value(outputs, mixture, group->memory.numbers, task->stream)
                                 : sample_value(outputs, mixture, task->sampling, at, &group->memory);
    return keep_value(task->centring, b, i, value, expected, mixture->count);
}

/* Do the task at value number `at` of [B, L, P], by its outputs. */
static void leave_value(Group *group, const Task *task, uint64_t at, const float *outputs) {
    if (task->stream || task->sampling)
        task->values[at] = choose_code(group, task, at, outputs);
    else
        take_known(&group->rows, outputs, task->values[at], group->memory.numbers, task->nats ? task->nats + at : NULL,
                   task->intervals ? task->intervals + 2 * at : NULL);
}

/* Do the task at `count` positions, at most BLOCK_ROWS, by what the inner decoder made of them, x [count, D]. They are
   the numbers at, at + apart, .. of [B, L]. */
static void leave_positions(Group *group, const Task *task, uint64_t at, uint64_t apart, const float *x, uint64_t count) {
    const Rows *rows = &group->rows;
    RowMemory *memory = &group->memory;
    uint64_t outputs = rows->heads->contract.outputs, channels = rows->embedding.channels;
    apply_norm(&rows->head_norm, x, count, rows->embedding.dim, memory->work.normed);
    for (uint64_t p = 0; p < channels; p++) {
        apply_head(rows, p, memory->work.normed, count, memory);
        for (uint64_t r = 0; r < count; r++) {
            uint64_t value = (at + r * apart) * channels + p;
            leave_value(group, task, value, memory->logits + r * outputs);
            keep_features(rows, p, r, task->values[value], memory);
        }
    }
}

/* Go through the rows of `count` examples position by position. */
static void walk_rows(Group *group, const Task *task, uint64_t first, uint64_t count) {
    uint64_t dim = group->rows.embedding.dim, length = task->length;
    for (uint64_t i = 0; i < length; i++) {
        for (uint64_t b = 0; b < count; b++)
            enter_position(&group->rows, task, (first + b) * length + i, group->x + b * dim);
        apply_inner(&group->rows, group->x, count, i, &group->memory);
        leave_positions(group, task, first * length + i, length, group->x, count);
    }
}

/* Take known rows of `count` examples through one layer after the other, all positions at once. */
static void pass_rows(Group *group, const Task *task, uint64_t first, uint64_t count) {
    const Rows *rows = &group->rows;
    uint64_t dim = rows->embedding.dim, length = task->length, all = count * length, at = first * length;
    Line line = {length, 1, 1};
    Grid grid = {.neighbours = &ITSELF, .positions = 1, .near = 1, .length = length};
    for (uint64_t r = 0; r < all; r++)
        enter_position(rows, task, at + r, group->x + r * dim);
    for (uint64_t n = 0; n < rows->count; n++)
        apply_layer(&rows->layers[n], line, &grid, group->x, all, 0, NULL, &group->memory.work);
    for (uint64_t r = 0; r < all; r += BLOCK_ROWS)
        leave_positions(group, task, at + r, 1, group->x + r * dim, SMALLER(all - r, BLOCK_ROWS));
}

/* Do a task with the rows of the examples first .. last - 1, a group at a time. */
static int do_task(const Rows *rows, const Task *task, uint64_t first, uint64_t last) {
    int together = rows->count && !task->stream && !task->sampling;
    uint64_t most = together ? LARGER(KNOWN_ROWS / task->length, 1) : GROUP, size = SMALLER(most, last - first);
    Group group;
    if (!take_group(rows, size, task->length, together, &group)) return NO_MEMORY;
    for (; first < last; first += size) {
        uint64_t count = SMALLER(size, last - first);
        if (together)
            pass_rows(&group, task, first, count);
        else
            walk_rows(&group, task, first, count);
    }
    free(group.block);
    return FINE;
}

/* Read the values, or codes, [B, L, P] of a row with context [B, L, D], GROUP examples at a time. */
EXACT(read_rows, (const Rows *rows, const float *context, uint64_t examples, uint64_t length, const Centring *centring,
                  int64_t *values, Stream *stream),
      (rows, context, examples, length, centring, values, stream)) {
    Task task = {.context = context, .length = length, .values = values, .centring = centring, .stream = stream};
    return do_task(rows, &task, 0, examples);
}

/* Write sampled values, or codes, [B, L, P] of rows with context [B, L, D], of the examples first .. last - 1. */
EXACT(sample_rows, (const Rows *rows, const float *context, uint64_t first, uint64_t last, uint64_t length,
                    const Centring *centring, int64_t *values, const Sampling *sampling),
      (rows, context, first, last, length, centring, values, sampling)) {
    Task task = {.context = context, .length = length, .values = values, .centring = centring, .sampling = sampling};
    return do_task(rows, &task, first, last);
}

/* Write what is asked of the known values, or codes, [B, L, P] of rows with context [B, L, D], of the examples first ..
   last - 1: nats [B, L, P], intervals [B, L, P, 2]. NULL: not asked.

   All positions of a row go through a layer at once. An LSTM goes from position to position. */
EXACT(known_rows, (const Rows *rows, const float *context, uint64_t first, uint64_t last, uint64_t length,
                   int64_t *values, float *nats, int64_t *intervals),
      (rows, context, first, last, length, values, nats, intervals)) {
    Task task = {.context = context, .length = length, .values = values, .nats = nats, .intervals = intervals};
    return do_task(rows, &task, first, last);
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

/* Write a function of each number, for tests: e^x, log x, the sigmoid, the hyperbolic tangent, quick GELU. */
EXACT(apply_function, (int which, const float *x, uint64_t count, float *y), (which, x, count, y)) {
    for (uint64_t i = 0; i < count; i++)
        y[i] = which == 0 ? exponential(x[i]) : which == 1 ? logarithm(x[i]) : which == 2 ? sigmoid(x[i])
               : which == 3 ? hyperbolic_tangent(x[i]) : x[i] / (1.0f + exponential(-(x[i] * 1.702f)));
    return FINE;
}

/* Set this thread's floating-point environment to IEEE's and write what it was, or (ieee: 0) set what is given. */
EXPORTED(environment)(uint64_t *word, int ieee) {
    if (ieee) *word = enter();
    else leave(*word);
    return FINE;
}

/* Write the size of a structure that Python fills; 0 for another name. */
EXPORTED(structure_size)(const char *name, uint64_t *size) {
    static const struct { const char *name; uint64_t size; } structures[] = {
        {"Linear", sizeof(Linear)}, {"Norm", sizeof(Norm)}, {"Layer", sizeof(Layer)},
        {"Line", sizeof(Line)}, {"Slabs", sizeof(Slabs)}, {"Embedding", sizeof(Embedding)}, {"Head", sizeof(Head)},
        {"Lstm", sizeof(Lstm)}, {"Mixture", sizeof(Mixture)}, {"Rows", sizeof(Rows)}, {"Stream", sizeof(Stream)},
        {"Centring", sizeof(Centring)}, {"Sampling", sizeof(Sampling)},
    };
    *size = 0;
    for (uint64_t n = 0; n < sizeof(structures) / sizeof(*structures); n++)
        if (!strcmp(name, structures[n].name)) *size = structures[n].size;
    return FINE;
}

/* Write 1 if this build rounds as IEEE 754 says, within the environment that all functions here set. */
EXACT(check_arithmetic, (int *right), (right)) {
    *right = is_ieee();
    return FINE;
}
