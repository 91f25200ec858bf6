/* Rows of positions: the inner decoder and the head, one position after the other.

   A step takes x = context + the embedding of the position before, [rows, D] with a row for each example. A position has
   P values, or channels, each with a head: it takes the output of the inner decoder and the features of the channels
   before. From the head's outputs a value is read, sampled, or its probability is measured. */

#ifndef ROWS_H
#define ROWS_H

#include "coder.h"
#include "layers.h"

enum { GROUP = 24, MAX_FEATURES = 32, MAX_CHANNELS = 8 }; /* GROUP: examples whose symbols follow each other in a stream */

/* What the network reads of a position: a row of a table [V, D]; or a linear layer of the features of its P ordinal
   codes, side by side. */
typedef struct {
    uint64_t dim, count, channels; /* D, V, P: 1 of a table */
    uint64_t centred;    /* 1 if codes hold predictions: value + V * prediction */
    float *table;        /* or NULL */
    Linear of_features;
    uint64_t activity;   /* 1 if codes hold levels, too: value + V * (prediction + V * level) */
} Embedding;

/* The head of channel p: [D + p features] -> quick GELU(expand) -> contract; expand has no inputs: contract alone. */
typedef struct { Linear expand, contract; } Head;

/* The inner decoder, the heads, and what their outputs mean. */
typedef struct {
    Embedding embedding;
    Layer *layers;
    uint64_t count;  /* of layers; 0: the inner decoder is the LSTM */
    Lstm lstm;
    Norm head_norm;
    Head *heads;     /* [P] */
    Mixture mixture; /* mixtures is 0: values are categorical */
} Rows;

/* Memory for the rows of a group. */
typedef struct {
    Work work;
    Cache *caches;   /* [layers] */
    float *kept;     /* of convolutions, see `Grid` */
    float *cell, *hidden;
    float *features; /* [rows, P features]: of the channels so far */
    float *entered, *expanded, *logits; /* of one head: inputs, outputs of expand and of contract */
    int32_t *numbers; /* [outputs of a head] */
    double *powers;   /* as many, to sample */
    float *ordered;
} RowMemory;

/* Write the numbers that the network reads of an ordinal code; return how many. */
static uint64_t write_features(const Embedding *embedding, uint64_t code, float *features) {
    uint64_t count = embedding->count, written = 1, rest = code % count, expected = code / count;
    double value = (double)rest, difference = value - (double)(embedding->activity ? expected % count : expected);
    *features = (float)(2 * value / (double)(count - 1) - 1);
    if (count > 256) {
        features[written++] = (float)(floor(value / 256) / 127.5 - 1);
        features[written++] = (float)((double)(rest % 256) / 127.5 - 1);
    }
    for (uint64_t scale = 1; embedding->centred && scale < count && scale <= 1 << 14; scale *= 4) {
        features[written++] = (float)(difference / (fabs(difference) + (double)scale));
        features[written++] = (float)(fabs(difference) / (fabs(difference) + (double)scale));
    }
    if (embedding->activity) {
        uint64_t level = expected / count;
        double relative = difference / (fabs(difference) + (double)level_scale(level));
        features[written++] = (float)relative;
        features[written++] = (float)fabs(relative);
        features[written++] = level_logarithm(level) * 0.125f;
    }
    return written;
}

/* Write what the linear layer reads of the P codes of a position. */
static void write_position(const Embedding *embedding, const int64_t *codes, float *features) {
    for (uint64_t p = 0; p < embedding->channels; p++)
        features += write_features(embedding, (uint64_t)codes[p], features);
}

/* Add the embedding of the P values, or codes, of a position to x [D]. */
static void add_embedding(const Embedding *embedding, const int64_t *codes, float *x) {
    float features[MAX_CHANNELS * MAX_FEATURES];
    if (embedding->table) {
        add(x, embedding->table + (uint64_t)*codes * embedding->dim, embedding->dim);
        return;
    }
    write_position(embedding, codes, features);
    apply_linear(&embedding->of_features, features, 1, x, 1, NULL);
}

static const int64_t ITSELF = 0; /* a position alone is its only neighbour */

/* Take position i of some rows, x [rows, D], through the inner decoder. At i = 0, the LSTM's state is cleared. */
static void apply_inner(const Rows *rows, float *x, uint64_t count, uint64_t i, RowMemory *memory) {
    uint64_t dim = rows->embedding.dim;
    Line through_cache = {0, 0, 0};
    Grid grid = {.neighbours = &ITSELF, .positions = 1, .near = 1, .kept = memory->kept, .rows = count};
    if (!rows->count) {
        if (!i) memset(memory->cell, 0, (size_t)(count * dim) * sizeof(float));
        if (!i) memset(memory->hidden, 0, (size_t)(count * dim) * sizeof(float));
        apply_lstm(&rows->lstm, x, count, memory->cell, memory->hidden, &memory->work);
    }
    for (uint64_t n = 0; n < rows->count; n++)
        apply_layer(&rows->layers[n], through_cache, &grid, x, count, i, &memory->caches[n], &memory->work);
}

/* Write the outputs of the head of channel p, from x [rows, D] behind the head's norm. */
static void apply_head(const Rows *rows, uint64_t p, const float *x, uint64_t count, RowMemory *memory) {
    const Head *head = &rows->heads[p];
    uint64_t dim = rows->embedding.dim, all = rows->embedding.of_features.inputs;
    uint64_t before = all / rows->embedding.channels * p, inputs = dim + before;
    for (uint64_t r = 0; p && r < count; r++) {
        memcpy(memory->entered + r * inputs, x + r * dim, (size_t)dim * sizeof(float));
        memcpy(memory->entered + r * inputs + dim, memory->features + r * all, (size_t)before * sizeof(float));
    }
    if (p) x = memory->entered;
    if (head->expand.inputs) {
        apply_linear(&head->expand, x, count, memory->expanded, 0, memory->work.rounded);
        quick_gelu(memory->expanded, count * head->expand.outputs);
        x = memory->expanded;
    }
    apply_linear(&head->contract, x, count, memory->logits, 0, memory->work.rounded);
}

/* Let the heads of later channels read the code of channel p, of row r. */
static void keep_features(const Rows *rows, uint64_t p, uint64_t r, int64_t code, RowMemory *memory) {
    uint64_t all = rows->embedding.of_features.inputs, channels = rows->embedding.channels;
    if (p + 1 < channels)
        write_features(&rows->embedding, (uint64_t)code, memory->features + r * all + all / channels * p);
}

/* Read a value from a stream, by one row of outputs; `mixture` has the centre of an ordinal one. */
static int64_t read_value(const float *outputs, Mixture *mixture, int32_t *numbers, Stream *stream) {
    int64_t sum;
    if (!mixture->mixtures) {
        sum = fixed_points(outputs, (uint64_t)mixture->count, numbers);
        if (!sum) stream->status = STREAM_NOT_FINITE;
        return read_categorical(numbers, mixture->count, sum, stream);
    }
    if (prepare_mixture(outputs, mixture, numbers)) return read_mixture(mixture, stream);
    stream->status = STREAM_NOT_FINITE;
    return 0;
}

#endif
