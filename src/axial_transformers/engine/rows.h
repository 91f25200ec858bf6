/* Rows of positions: the inner decoder and the head, one position after the other.

   A step takes x = context + the embedding of the value before, [rows, D] with a row for each example; it gives the
   head's outputs, from which a value is read, sampled, or whose probability is measured. */

#ifndef ROWS_H
#define ROWS_H

#include "coder.h"
#include "layers.h"

enum { GROUP = 24, MAX_FEATURES = 32 }; /* GROUP: examples whose symbols follow each other in a stream */

/* What the network reads of a value: a row of a table [V, D], or a linear layer of the features of an ordinal code. */
typedef struct {
    uint64_t dim, count; /* D, V */
    uint64_t centred;    /* 1 if codes hold predictions: value + V * prediction */
    float *table;        /* or NULL */
    Linear of_features;
    uint64_t activity;   /* 1 if codes hold levels, too: value + V * (prediction + V * level) */
} Embedding;

/* The inner decoder, the head, and what its outputs mean. */
typedef struct {
    Embedding embedding;
    Block *blocks;
    uint64_t layers; /* 0: the inner decoder is the LSTM */
    Lstm lstm;
    Norm head_norm;
    Linear head;
    Mixture mixture; /* mixtures is 0: values are categorical */
} Rows;

/* Memory for the rows of a group. */
typedef struct {
    Work work;
    Cache *caches;   /* [layers] */
    float *cell, *hidden, *logits;
    int32_t *numbers; /* [outputs of the head] */
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

/* Add the embedding of a value, or code, to x [D]. */
static void add_embedding(const Embedding *embedding, uint64_t code, float *x) {
    float features[MAX_FEATURES];
    if (embedding->table) {
        add(x, embedding->table + code * embedding->dim, embedding->dim);
        return;
    }
    write_features(embedding, code, features);
    apply_linear(&embedding->of_features, features, 1, x, 1);
}

/* Write the outputs of the head for position i, from x [rows, D], which changes. At i = 0, the LSTM's state is cleared. */
static void position_outputs(const Rows *rows, float *x, uint64_t count, uint64_t i, RowMemory *memory) {
    uint64_t dim = rows->embedding.dim;
    Line through_cache = {0, 0, 0};
    if (!rows->layers) {
        if (!i) memset(memory->cell, 0, (size_t)(count * dim) * sizeof(float));
        if (!i) memset(memory->hidden, 0, (size_t)(count * dim) * sizeof(float));
        apply_lstm(&rows->lstm, x, count, memory->cell, memory->hidden, &memory->work);
    }
    for (uint64_t layer = 0; layer < rows->layers; layer++)
        apply_block(&rows->blocks[layer], through_cache, x, count, i, &memory->caches[layer], &memory->work);
    apply_norm(&rows->head_norm, x, count, dim, memory->work.normed);
    apply_linear(&rows->head, memory->work.normed, count, memory->logits, 0);
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
