/* A sampled value. It is chosen by noise, so that a seed gives the same samples on every processor:

     Gumbel noise [V]   the value with the largest logit + temperature * noise, among those that top_k and top_p allow
     one uniform number first a component of the mixture, then its quantile; or a categorical value, by sums of
                        probabilities. In float64, with an exp and a log of its own: those of libm differ */

#ifndef SAMPLING_H
#define SAMPLING_H

#include "rows.h"

/* How to sample rows. */
typedef struct {
    const float *noise;     /* [B, L, P, V] or NULL */
    const double *uniforms; /* [B, L, P], from 0 to 1, in its place */
    const int64_t *known;   /* [B, L, P], negative where unknown */
    float temperature, top_p;
    uint64_t top_k;         /* V: all */
} Sampling;

/* Return e^x in float64, x <= 0: 0 below -700. */
static double exact_exponential(double x) {
    double shifted = x * 1.4426950408889634 + 6755399441055744.0, n = shifted - 6755399441055744.0, p = 1.0;
    double r = (x - n * 0.6931471803691238) - n * 1.9082149292705877e-10;
    if (!(x >= -700.0)) return x < -700.0 ? 0.0 : x;
    for (int k = 14; k; k--)
        p = 1.0 + p * r / k;
    uint64_t bits = (uint64_t)((int64_t)n + 1023) << 52;
    double scale;
    memcpy(&scale, &bits, sizeof(scale));
    return p * scale;
}

/* Return the natural logarithm of a normal number x > 0 in float64: x = 2^n m, log m = 2 artanh((m - 1) / (m + 1)). */
static double natural_logarithm(double x) {
    uint64_t bits;
    memcpy(&bits, &x, sizeof(bits));
    int64_t n = (int64_t)(bits - 0x3fe6a09e667f3bcdu) >> 52;
    bits -= (uint64_t)n << 52;
    memcpy(&x, &bits, sizeof(x));
    double s = (x - 1.0) / (x + 1.0), square = s * s, sum = 0.0;
    for (int k = 27; k > 1; k -= 2)
        sum = (sum + 1.0 / k) * square;
    return (double)n * 0.6931471805599453 + (2.0 * s + 2.0 * s * sum);
}

static uint64_t largest_index(const float *x, uint64_t count) {
    uint64_t best = 0;
    for (uint64_t j = 1; j < count; j++)
        if (x[j] > x[best]) best = j;
    return best;
}

/* Return the number whose part of the sum of the powers contains `uniform` of it, or what it did not use of `rest`. */
static uint64_t choose_share(const double *powers, uint64_t count, uint64_t chosen, double uniform, double *rest) {
    double sum = 0.0;
    for (uint64_t j = 0; j < count; j++)
        sum += powers[j];
    *rest = uniform * sum;
    for (uint64_t j = 0; j < count; j++) {
        if (!(powers[j] > 0.0)) continue;
        chosen = j;
        if (*rest < powers[j]) break;
        *rest -= powers[j];
    }
    return chosen;
}

/* Choose a value of a mixture, after `write_precisions`. The temperature divides the logarithms of weights, and
   multiplies the spread of each component; at 0, it is the mean of the component with the largest weight. */
static int64_t choose_ordinal(const float *outputs, const Mixture *mixture, double uniform, float temperature,
                              double *powers) {
    uint64_t count = mixture->mixtures, chosen = largest_index(outputs, count);
    double found = (double)mixture->centre + 0.5, rest, last = (double)(mixture->count - 1), least = 0x1p-53;
    if (temperature > 0.0f) {
        double most = outputs[chosen];
        for (uint64_t k = 0; k < count; k++)
            powers[k] = exact_exponential((outputs[k] - most) / temperature);
        chosen = choose_share(powers, count, chosen, uniform, &rest);
        double quantile = rest / powers[chosen];
        quantile = LARGER(quantile, least);
        quantile = SMALLER(quantile, 1.0 - least);
        found += (double)temperature * natural_logarithm(quantile / (1.0 - quantile)) / mixture->precisions[chosen];
    }
    found += (double)unit_of(mixture, chosen) * outputs[count + chosen];
    if (!(found >= 0.0)) return 0; /* or not a number, of weights that overflow: a value must stay an index */
    return (int64_t)SMALLER(found, last);
}

static int64_t choose_by_uniform(const float *logits, uint64_t count, double uniform, float temperature, float least,
                                 double *powers) {
    uint64_t best = largest_index(logits, count);
    double most = logits[best], rest;
    if (temperature == 0.0f) return (int64_t)best;
    for (uint64_t j = 0; j < count; j++)
        powers[j] = logits[j] >= least ? exact_exponential((logits[j] - most) / temperature) : 0.0;
    return (int64_t)choose_share(powers, count, best, uniform, &rest);
}

static int64_t choose_by_noise(const float *logits, uint64_t count, const float *noise, float temperature, float least) {
    float most = -INFINITY;
    int64_t best = 0;
    for (uint64_t j = 0; j < count; j++) {
        float product = temperature * noise[j], number = logits[j] >= least ? logits[j] + product : -INFINITY;
        if (number > most) best = (int64_t)j;
        most = LARGER(number, most);
    }
    return best;
}

static int by_descent(const void *a, const void *b) {
    float x = *(const float *)a, y = *(const float *)b;
    return (x < y) - (x > y);
}

/* Return the least logit that top_k and top_p allow: the fewest values that together reach probability top_p. */
static float least_allowed(const float *logits, uint64_t count, const Sampling *sampling, float *ordered) {
    float least = -INFINITY, total = 0.0f, reached = 0.0f, temperature = sampling->temperature;
    int cuts = sampling->top_p < 1.0f && temperature > 0.0f;
    if (sampling->top_k >= count && !cuts) return least;
    memcpy(ordered, logits, (size_t)count * sizeof(float));
    qsort(ordered, (size_t)count, sizeof(float), by_descent);
    if (sampling->top_k < count) least = ordered[sampling->top_k - 1];
    for (uint64_t j = 0; cuts && j < count; j++)
        total += exponential((ordered[j] - ordered[0]) / temperature);
    for (uint64_t j = 0; cuts && j < count; j++) {
        reached += exponential((ordered[j] - ordered[0]) / temperature);
        if (reached >= sampling->top_p * total || j + 1 == count) return LARGER(ordered[j], least);
    }
    return least;
}

/* Return value number `at` of [B, L, P]: the known one, or a sample by the outputs of the head. */
static int64_t sample_value(const float *outputs, Mixture *mixture, const Sampling *sampling, uint64_t at,
                            RowMemory *memory) {
    uint64_t count = (uint64_t)mixture->count;
    float temperature = sampling->temperature;
    if (sampling->known[at] >= 0) return sampling->known[at];
    if (mixture->mixtures) {
        write_precisions(outputs, mixture);
        return choose_ordinal(outputs, mixture, sampling->uniforms[at], temperature, memory->powers);
    }
    float least = least_allowed(outputs, count, sampling, memory->ordered);
    if (sampling->noise) return choose_by_noise(outputs, count, sampling->noise + at * count, temperature, least);
    return choose_by_uniform(outputs, count, sampling->uniforms[at], temperature, least, memory->powers);
}

#endif
