/* From the outputs of a network to integer frequencies, and the entropy coder that reads by them.

   The frequencies of the values of a position add up to 2^PRECISION. They come from float32 numbers by integers only:

     categorical   e^(logit - largest) in units of 2^-28, rounded down; their sums before a value, times a factor with
                   RECIPROCAL bits behind the point, are the lower ends of intervals
     ordinal       a mixture of logistic distributions around a centre: the lower end of value v is the sum over
                   components of share * F((v - centre - 1/2 - unit mean) precision), where F is a table with straight
                   lines between its rows

   The coder is an asymmetric numeral system with one state in [2^31, 2^63) and words of 32 bits. */

#ifndef CODER_H
#define CODER_H

#include "arithmetic.h"

enum { PRECISION = 28, RECIPROCAL = 34, FRACTION = 20, STEPS = 64, END = 24, TABLE_SIZE = END * STEPS + 2 };
enum { STREAM_FINE, STREAM_TOO_SHORT, STREAM_NOT_FINITE };
#define MIN_STATE ((uint64_t)1 << 31)
#define SLOTS ((uint64_t)1 << PRECISION)
#define MAX_OUTPUT 1.2676506002282294e30f /* 2^100 */

static uint64_t little(const unsigned char *bytes, int size) {
    uint64_t number = 0;
    while (size--)
        number = number << 8 | bytes[size];
    return number;
}

/* A stream that is read: words of 4 bytes, lowest first. */
typedef struct {
    const unsigned char *words;
    uint64_t count, at, state;
    int status;
} Stream;

/* Take the value with the interval start .. end - 1 out of the state. */
static void advance(Stream *stream, int64_t start, int64_t end) {
    uint64_t slot = stream->state & (SLOTS - 1);
    stream->state = (uint64_t)(end - start) * (stream->state >> PRECISION) + slot - (uint64_t)start;
    if (stream->state < MIN_STATE) {
        uint64_t word = stream->at < stream->count ? little(stream->words + 4 * stream->at, 4) : 0;
        if (stream->at++ >= stream->count) stream->status = STREAM_TOO_SHORT;
        stream->state = stream->state << 32 | word;
    }
}

/* Write e^(x - the largest) in units of 2^-28, rounded down, and return their sum, at least 1; 0 if one is not finite. */
static int64_t fixed_points(const float *x, uint64_t count, int32_t *numbers) {
    float most = largest(x, count);
    int64_t sum = 0;
    int wrong = 0;
    for (uint64_t i = 0; i < count; i++) {
        float difference = x[i] - most, power = exponential(difference) * 268435456.0f;
        int is_number = difference <= 0.0f;
        numbers[i] = is_number ? (int32_t)(is_number ? power : 0.0f) : 0;
        wrong |= !is_number;
    }
    for (uint64_t i = 0; i < count; i++)
        sum += numbers[i];
    return wrong ? 0 : LARGER(sum, 1);
}

/* Return the factor that turns fixed-point numbers with this sum into frequencies; each value has at least 1. */
static int64_t frequency_factor(int64_t sum, int64_t values) {
    return (((int64_t)1 << PRECISION) - values) * ((int64_t)1 << RECIPROCAL) / LARGER(sum, 1);
}

/* Read a value whose distribution has these fixed-point numbers. */
static int64_t read_categorical(const int32_t *numbers, int64_t count, int64_t sum, Stream *stream) {
    int64_t factor = frequency_factor(sum, count), slot = (int64_t)(stream->state & (SLOTS - 1));
    int64_t before = numbers[0], start = 0, end = (int64_t)SLOTS, value = 0;
    for (int64_t i = 1; i < count; before += numbers[i++]) {
        int64_t at = i + (before * factor >> RECIPROCAL);
        if (at > slot) {
            end = at;
            break;
        }
        value = i;
        start = at;
    }
    advance(stream, start, end);
    return value;
}

/* The scale of a level 8 n + m of an activity: (17 + 2 m) / 32 * 2^n. */
static float level_scale(uint64_t level) {
    return (float)(17 + 2 * (level % 8)) * (float)((uint64_t)1 << level / 8) * 0.03125f;
}

/* The logarithm of the scale, in float64, rounded once. */
static float level_logarithm(uint64_t level) {
    static const double logarithms[] = {
        -0.6325225587435105, -0.5212969236332861, -0.42121346507630353, -0.33024168687057687,
        -0.24686007793152578, -0.16989903679539747, -0.09844007281325252, -0.0317486983145803,
    };
    double octaves = (double)(level / 8) * 0.6931471805599453;
    return (float)(logarithms[level % 8] + octaves);
}

/* The level of a sum of sizes in units of 2^-24, for values below `count`. */
static uint64_t level_of_sum(uint64_t sum, uint64_t count) {
    uint64_t sixteenths = sum >> 63 ? 8 : LARGER(sum >> 20, 8), octave = 0, most = count << 4;
    sixteenths = SMALLER(sixteenths, most);
    while (sixteenths >> octave >= 16)
        octave++;
    return 8 * octave + (sixteenths >> octave) - 8;
}

/* The distribution of an ordinal value. */
typedef struct {
    int64_t count;    /* V */
    uint64_t mixtures;
    float unit, max_log_precision;
    uint64_t activity;    /* 1: components 1, 3, .. count in units of the scale of a level */
    const int64_t *table; /* [TABLE_SIZE]: 2^30 / (1 + e^(i / 64)), rounded */
    float scale, log_scale;
    int64_t centre;
    const float *means;
    float *precisions; /* [mixtures] */
    int64_t *shares;   /* [mixtures]: they add up to 2^PRECISION - V */
} Mixture;

/* Centre a mixture on what is expected: a prediction or, with an activity, prediction + V * level. */
static void centre_on(Mixture *mixture, int64_t expected) {
    mixture->centre = expected;
    if (!mixture->activity) return;
    uint64_t level = (uint64_t)(expected / mixture->count);
    mixture->centre = expected % mixture->count;
    mixture->scale = level_scale(level);
    mixture->log_scale = level_logarithm(level);
}

/* 1 if a component counts in units of the scale. */
static int is_in_scale(const Mixture *mixture, uint64_t k) {
    return mixture->activity && k % 2 == 1;
}

/* The mean of a component is a multiple of this. */
static float unit_of(const Mixture *mixture, uint64_t k) {
    return is_in_scale(mixture, k) ? mixture->scale : mixture->unit;
}

/* 1 / (1 + e^-z) in units of 2^-30. */
INLINED int64_t logistic(const int64_t *table, float z) {
    float at_least_0 = LARGER(fabsf(z), 0.0f), size = SMALLER(at_least_0, (float)END);
    int64_t n = (int64_t)(size * 67108864.0f);
    int64_t upper = table[n >> FRACTION], lower = table[(n >> FRACTION) + 1];
    int64_t below = upper - ((upper - lower) * (n & ((1 << FRACTION) - 1)) >> FRACTION);
    return z < 0.0f ? below : ((int64_t)1 << 30) - below;
}

/* Return the lower end of the interval of a value from 1 to V - 1. */
static int64_t count_below(const Mixture *mixture, int64_t value) {
    float below = (float)(value - mixture->centre) - 0.5f;
    int64_t sum = 0;
    for (uint64_t k = 0; k < mixture->mixtures; k++) {
        float z = fused(mixture->means[k], -unit_of(mixture, k), below) * mixture->precisions[k];
        sum += mixture->shares[k] * logistic(mixture->table, z);
    }
    return value + (sum >> 30);
}

/* Read a value of a mixture, by bisection. */
static int64_t read_mixture(const Mixture *mixture, Stream *stream) {
    int64_t slot = (int64_t)(stream->state & (SLOTS - 1)), value = 0, beyond = mixture->count;
    int64_t start = 0, end = (int64_t)SLOTS;
    while (beyond - value > 1) {
        int64_t middle = (value + beyond) / 2, at = count_below(mixture, middle);
        if (at <= slot) {
            value = middle;
            start = at;
        } else {
            beyond = middle;
            end = at;
        }
    }
    advance(stream, start, end);
    return value;
}

/* Write the precisions that the outputs [3, mixtures] of a head state: weights, means, log precisions. */
static int write_precisions(const float *outputs, Mixture *mixture) {
    uint64_t count = mixture->mixtures;
    int usable = 1;
    for (uint64_t k = 0; k < 3 * count; k++)
        usable &= fabsf(outputs[k]) < MAX_OUTPUT;
    mixture->means = outputs + count;
    for (uint64_t k = 0; k < count; k++) {
        float log_scale = is_in_scale(mixture, k) ? mixture->log_scale : 0.0f;
        float log_precision = LARGER(outputs[2 * count + k] - log_scale, -12.0f);
        mixture->precisions[k] = exponential(SMALLER(log_precision, mixture->max_log_precision));
    }
    return usable;
}

/* Make a mixture ready for `count_below`, with memory for `numbers`; return 0 if the outputs cannot be used. */
static int prepare_mixture(const float *outputs, Mixture *mixture, int32_t *numbers) {
    int64_t available = (int64_t)SLOTS - mixture->count, before = 0, used = 0;
    if (!write_precisions(outputs, mixture)) return 0;
    int64_t factor = frequency_factor(fixed_points(outputs, mixture->mixtures, numbers), mixture->count);
    for (uint64_t k = 0; k < mixture->mixtures; k++) {
        before += numbers[k];
        int64_t end = k == mixture->mixtures - 1 ? available : before * factor >> RECIPROCAL;
        mixture->shares[k] = end - used;
        used = end;
    }
    return 1;
}

#endif
