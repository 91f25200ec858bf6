/* axl: restore the values of an archive of the package axial-transformers (format version 4).

   This file is all there is: C99 and the standard library. It is written from docs/reference/archive_format.md, and
   gives the same bits as the package, on every processor.

       cc -std=c99 -O2 -ffp-contract=off -o axl axl.c -lm
       ./axl MODEL_FOLDER ARCHIVE OUTPUT [LABELS]

   With -O3 -march=native it is 20 times faster, on processors with fused multiply-add. Never use -ffast-math.

   An archive of an array: OUTPUT becomes the raw values [N, *A, C], lowest byte first; a line has their type and shape.
   An archive of files: OUTPUT is a folder that exists, as do the folders within. Stored files come back as they were,
   images and videos as raw values; a line says what each is.
   LABELS is a text file with one class for each image, if the archive was written with labels.

   An error is one line on stderr, and exit status 2. Archives and models may be hostile: sizes are checked before
   memory is taken, and the memory of the whole program has a limit. */

#include <errno.h>
#include <float.h>
#include <math.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef __FAST_MATH__
#error "compile without -ffast-math: each float32 operation must round as IEEE 754 says"
#endif
#if FLT_EVAL_METHOD != 0
#error "this compiler computes in other precisions than it stores: on 32-bit x86, compile with -msse2 -mfpmath=sse"
#endif
#ifdef __clang__
#pragma STDC FP_CONTRACT OFF
#endif

enum {
    VERSION = 4, MAX_AXES = 8, MAX_SIZE = 1 << 20, MAX_LAYERS = 1024, MAX_IMAGES = 256,
    MAX_DEPTH = 16, MAX_JSON = 1 << 20, /* levels and values of JSON */
    LANES = 16, ROWS = 4, TILE = 32, GROUP = 24, PRECISION = 28, RECIPROCAL = 34, FRACTION = 20, STEPS = 64, END = 24
};
#define MAX_MEMORY ((uint64_t)1 << 34)
#define MIN_STATE ((uint64_t)1 << 31)
#define MAX_OUTPUT 1.2676506002282294e30f /* 2^100 */

/* Memory and files ------------------------------------------------------------------------------------------------- */

typedef struct Memory {
    struct Memory *before;
    uint64_t size;
} Memory;

static Memory *memory;
static uint64_t memory_taken;
static FILE *output;
static const char *output_name;

static void release(const Memory *mark) {
    while (memory != mark) {
        Memory *before = memory->before;
        memory_taken -= memory->size;
        free(memory);
        memory = before;
    }
}

static void fail(const char *format, ...) {
    char line[400];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, sizeof(line), format, arguments);
    va_end(arguments);
    for (char *each = line; *each; each++)
        if ((unsigned char)*each < 32) *each = '?';
    fprintf(stderr, "axl: %s\n", line);
    if (output) {
        fclose(output);
        remove(output_name);
    }
    release(NULL);
    exit(2);
}

static uint64_t product(uint64_t a, uint64_t b) {
    if (a && b > UINT64_MAX / a) fail("sizes are too large: the model or the archive is damaged");
    return a * b;
}

/* Return zeroed memory, which `release` gives back. */
static void *take(uint64_t count, uint64_t size) {
    uint64_t bytes = product(count, size);
    if (bytes > MAX_MEMORY || memory_taken + bytes > MAX_MEMORY || bytes > SIZE_MAX - 64)
        fail("more than %u GiB of memory would be needed", (unsigned)(MAX_MEMORY >> 30));
    uint64_t head = (sizeof(Memory) + 31) / 32 * 32;
    Memory *block = calloc(1, (size_t)(head + bytes));
    if (!block) fail("out of memory");
    block->before = memory;
    block->size = bytes;
    memory = block;
    memory_taken += bytes;
    return (char *)block + head;
}

static float *floats(uint64_t count) { return take(count, sizeof(float)); }

typedef struct {
    unsigned char *bytes;
    uint64_t size;
} Bytes;

/* Return what a file holds, and a zero byte behind it. */
static Bytes read_file(const char *name, uint64_t most) {
    FILE *file = fopen(name, "rb");
    long size = file && !fseek(file, 0, SEEK_END) ? ftell(file) : -1;
    if (size < 0 || fseek(file, 0, SEEK_SET) || (uint64_t)size > most) {
        if (file) fclose(file);
        fail("%s: %s", name, size < 0 ? "no file that can be read" : "larger than such a file can be");
    }
    Bytes bytes = {take((uint64_t)size + 1, 1), (uint64_t)size};
    size_t got = fread(bytes.bytes, 1, (size_t)size, file);
    fclose(file);
    if (got != bytes.size) fail("%s: cannot be read", name);
    return bytes;
}

/* Return a text in the memory of the program. */
static const char *text_of(const char *format, ...) {
    va_list arguments, again;
    va_start(arguments, format);
    va_copy(again, arguments);
    int length = vsnprintf(NULL, 0, format, arguments);
    char *text = take((uint64_t)length + 1, 1);
    vsnprintf(text, (size_t)length + 1, format, again);
    va_end(again);
    va_end(arguments);
    return text;
}

static void open_output(const char *name) {
    output_name = name;
    output = fopen(name, "wb");
    if (!output) fail("%s: cannot be written: %s; make its folder first", name, strerror(errno));
}

static void write_output(const void *bytes, uint64_t size) {
    if (fwrite(bytes, 1, (size_t)size, output) != size) fail("%s: cannot be written: %s", output_name, strerror(errno));
}

static void close_output(void) {
    FILE *file = output;
    output = NULL;
    if (fclose(file)) fail("%s: cannot be written: %s", output_name, strerror(errno));
}

static uint64_t little(const unsigned char *bytes, int size) {
    uint64_t number = 0;
    while (size--)
        number = number << 8 | bytes[size];
    return number;
}

/* JSON ------------------------------------------------------------------------------------------------------------- */

/* Nodes point into the text, in which strings are decoded. */
typedef struct Json {
    enum { OBJECT, ARRAY, STRING, NUMBER, WORD } kind;
    const char *key;  /* in an object */
    const char *text; /* a string in UTF-8, with a zero behind it; a number or word as it is written */
    uint64_t length;  /* bytes of text; members of an object or array */
    struct Json *first, *next;
} Json;

typedef struct {
    char *at, *end;
    const char *name;
    Json *nodes;
    int nodes_left, nodes_taken;
} Text;

static void bad_json(const Text *text) { fail("%s: damaged: its JSON cannot be read", text->name); }

static void skip_spaces(Text *text) {
    while (text->at < text->end && strchr(" \t\r\n", *text->at) && *text->at)
        text->at++;
}

static int next_is(Text *text, char wanted) {
    skip_spaces(text);
    if (text->at == text->end || *text->at != wanted) return 0;
    text->at++;
    return 1;
}

static unsigned read_unit(Text *text) {
    unsigned unit = 0;
    for (int i = 0; i < 4; i++, text->at++) {
        const char *digits = "0123456789abcdef0123456789ABCDEF", *digit = NULL;
        if (text->at == text->end || !*text->at || !(digit = strchr(digits, *text->at))) bad_json(text);
        unit = unit * 16 + (unsigned)(digit - digits) % 16;
    }
    return unit;
}

static char *put_utf8(char *at, unsigned code) {
    int more = code < 0x80 ? 0 : code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
    *at++ = (char)(more ? (0xf0 << (3 - more) & 0xff) | code >> 6 * more : code);
    while (more--)
        *at++ = (char)(0x80 | (code >> 6 * more & 63));
    return at;
}

static char *read_string(Text *text, uint64_t *length) {
    char *close = text->at, *start = close, *to = close;
    while (close < text->end && *close != '"')
        close += *close == '\\' && close + 1 < text->end ? 2 : 1;
    if (close >= text->end) bad_json(text);
    while (text->at < close) {
        if (*text->at != '\\') {
            *to++ = *text->at++;
            continue;
        }
        const char *from = "\"\\/bfnrt", *found;
        char escape = text->at[1];
        text->at += 2;
        if (escape == 'u') {
            unsigned code = read_unit(text);
            if (code >> 10 == 0xd800 >> 10 && text->end - text->at > 6 && text->at[0] == '\\' && text->at[1] == 'u') {
                text->at += 2;
                code = 0x10000 + ((code & 1023) << 10) + (read_unit(text) & 1023);
            }
            to = put_utf8(to, code);
        } else if (escape && (found = strchr(from, escape)))
            *to++ = "\"\\/\b\f\n\r\t"[found - from];
        else bad_json(text);
    }
    text->at = close + 1;
    *to = 0;
    *length = (uint64_t)(to - start);
    return start;
}

static Json *read_json_value(Text *text, int depth) {
    if (depth > MAX_DEPTH || text->nodes_taken >= MAX_JSON) bad_json(text);
    if (!text->nodes_left) {
        text->nodes_left = 1024;
        text->nodes = take(1024, sizeof(Json));
    }
    Json *json = text->nodes++;
    text->nodes_left--;
    text->nodes_taken++;
    if (next_is(text, '"')) {
        json->kind = STRING;
        json->text = read_string(text, &json->length);
        return json;
    }
    int object = next_is(text, '{');
    if (object || next_is(text, '[')) {
        char close = object ? '}' : ']';
        Json **last = &json->first;
        json->kind = object ? OBJECT : ARRAY;
        while (!next_is(text, close)) {
            uint64_t length = 0;
            char *key = "";
            if (json->length++ && !next_is(text, ',')) bad_json(text);
            if (object && next_is(text, '"')) key = read_string(text, &length);
            if (object && (!length || strlen(key) != length || !next_is(text, ':'))) bad_json(text);
            *last = read_json_value(text, depth + 1);
            (*last)->key = key;
            last = &(*last)->next;
        }
        return json;
    }
    char *start = text->at;
    while (text->at < text->end && *text->at && strchr("+-.0123456789abcdefghijklmnopqrstuvwxyzE", *text->at))
        text->at++;
    json->length = (uint64_t)(text->at - start);
    if (!json->length) bad_json(text);
    json->text = start;
    json->kind = strchr("-0123456789", *start) ? NUMBER : WORD;
    return json;
}

static Json *read_json(Bytes bytes, const char *name) {
    Text text = {.at = (char *)bytes.bytes, .end = (char *)bytes.bytes + bytes.size, .name = name};
    Json *json = read_json_value(&text, 0);
    skip_spaces(&text);
    if (text.at != text.end) bad_json(&text);
    return json;
}

static const Json *member(const Json *object, const char *key) {
    const Json *found = NULL;
    for (const Json *each = object->kind == OBJECT ? object->first : NULL; each; each = each->next)
        if (!strcmp(each->key, key)) found = each;
    return found;
}

/* Return a number in low .. high. */
static double number_in(const char *text, uint64_t length, double low, double high, const char *what) {
    char *end;
    double number = strtod(text, &end);
    if (!length || end != text + length || !(number >= low && number <= high))
        fail("%s must be a number from %.0f to %.0f", what, low, high);
    return number;
}

static uint64_t whole(const Json *json, double low, double high, const char *what) {
    int is_number = json && json->kind == NUMBER;
    double number = number_in(is_number ? json->text : "", is_number ? json->length : 0, low, high, what);
    if (floor(number) != number) fail("%s must be a whole number", what);
    return (uint64_t)number;
}

/* Checksums -------------------------------------------------------------------------------------------------------- */

static uint32_t crc32(uint32_t crc, const unsigned char *bytes, uint64_t size) {
    static uint32_t table[256];
    if (!table[1])
        for (uint32_t i = 0; i < 256; i++) {
            table[i] = i;
            for (int bit = 0; bit < 8; bit++)
                table[i] = table[i] >> 1 ^ (table[i] & 1 ? 0xedb88320u : 0);
        }
    crc = ~crc;
    for (uint64_t i = 0; i < size; i++)
        crc = table[(crc ^ bytes[i]) & 255] ^ crc >> 8;
    return ~crc;
}

typedef struct {
    uint32_t state[8];
    unsigned char block[64];
    uint64_t size;
} Sha256;

/* The first bits behind the point of the square roots of 8 primes, and of the cube roots of 64. */
static const uint32_t SQUARE_ROOTS[8] = {
    0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
static const uint32_t CUBE_ROOTS[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

static void sha256_start(Sha256 *sha) {
    memset(sha, 0, sizeof(*sha));
    memcpy(sha->state, SQUARE_ROOTS, sizeof(SQUARE_ROOTS));
}

static uint32_t turn(uint32_t x, int by) { return x >> by | x << (32 - by); }

static void sha256_block(Sha256 *sha) {
    uint32_t w[64], s[8];
    for (int i = 0; i < 64; i++)
        if (i < 16)
            w[i] = (uint32_t)sha->block[4 * i] << 24 | (uint32_t)sha->block[4 * i + 1] << 16 |
                   (uint32_t)sha->block[4 * i + 2] << 8 | sha->block[4 * i + 3];
        else
            w[i] = w[i - 16] + w[i - 7] + (turn(w[i - 15], 7) ^ turn(w[i - 15], 18) ^ w[i - 15] >> 3) +
                   (turn(w[i - 2], 17) ^ turn(w[i - 2], 19) ^ w[i - 2] >> 10);
    memcpy(s, sha->state, sizeof(s));
    for (int i = 0; i < 64; i++) {
        uint32_t a = s[7] + (turn(s[4], 6) ^ turn(s[4], 11) ^ turn(s[4], 25)) + ((s[4] & s[5]) ^ (~s[4] & s[6])) +
                     CUBE_ROOTS[i] + w[i];
        uint32_t b = (s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]);
        memmove(s + 1, s, 7 * sizeof(*s));
        s[4] += a;
        s[0] = a + b + (turn(s[1], 2) ^ turn(s[1], 13) ^ turn(s[1], 22));
    }
    for (int i = 0; i < 8; i++)
        sha->state[i] += s[i];
}

static void sha256_add(Sha256 *sha, const void *bytes, uint64_t size) {
    const unsigned char *from = bytes;
    while (size) {
        uint64_t filled = sha->size % 64, some = size < 64 - filled ? size : 64 - filled;
        memcpy(sha->block + filled, from, (size_t)some);
        sha->size += some;
        from += some;
        size -= some;
        if (sha->size % 64 == 0) sha256_block(sha);
    }
}

static void sha256_end(Sha256 *sha, unsigned char *digest) {
    static const unsigned char padding[64] = {0x80};
    unsigned char length[8];
    for (int i = 0; i < 8; i++)
        length[i] = (unsigned char)(sha->size * 8 >> (56 - 8 * i));
    sha256_add(sha, padding, 1 + (119 - sha->size % 64) % 64);
    sha256_add(sha, length, 8);
    for (int i = 0; i < 32; i++)
        digest[i] = (unsigned char)(sha->state[i / 4] >> (24 - 8 * (i % 4)));
}

/* The model -------------------------------------------------------------------------------------------------------- */

typedef enum { CHANNELS, RASTER, COLUMNS, AXIS, LAYOUT_ROWS, FRAMES } Layout;

static struct {
    int axes, data_axes;
    uint64_t shape[MAX_AXES + 1], data_shape[MAX_AXES]; /* *A' and *A */
    uint64_t channels, data_channels;                   /* C' and C */
    uint64_t positions;                                 /* the product of *A' */
    uint64_t dim, heads, hidden;
    Layout layout;
    int64_t lowest;
    int num_values, num_classes, divisor, convolution, mixtures;
    int encoder_layers, outer_layers[MAX_AXES], inner_layers;
    int ordinal, centred, lstm, one_hot, rotary;
} config;

typedef struct {
    const char *name;
    enum { F16, BF16, F32, F64, I64 } type;
    int axes, used;
    uint64_t shape[MAX_AXES], count;
    float *values;
    int64_t *numbers; /* of I64 */
    Bytes stored;
} Tensor;

static struct {
    Tensor *tensors; /* sorted by name */
    uint64_t count;
    unsigned char fingerprint[32];
} model;

/* The fields of the configuration in the order of their names, with their defaults, as Python writes JSON. */
static struct {
    const char *name, *value;
    int real; /* a number with a point */
} fields[] = {
    {"centred", "false", 0},      {"channel_planes", "\"one_hot\"", 0}, {"channels", "1", 0},
    {"convolution", "0", 0},      {"dim", "128", 0},                    {"dropout", "0.0", 1},
    {"encoder_layers", "?", 0},   {"grid", "null", 1},                  {"heads", "4", 0},
    {"inner", "\"attention\"", 0}, {"inner_layers", "4", 0},             {"input_divisor", "null", 0},
    {"known_channels", "0", 0},   {"layout", "\"channels\"", 0},        {"lowest", "0", 0},
    {"mixtures", "10", 0},        {"mlp_ratio", "4.0", 1},              {"model", "?", 0},
    {"num_classes", "null", 0},   {"num_values", "256", 0},             {"outer_layers", "?", 0},
    {"rotary", "null", 1},        {"shape", "?", 0},                    {"values", "\"categorical\"", 0},
};
enum { FIELDS = sizeof(fields) / sizeof(*fields) };

/* Return the shortest decimal number that reads as the same float64, as Python writes it. */
static const char *real_text(double number) {
    char text[40], digits[40];
    int precision = 0, count = 0;
    do
        sprintf(text, "%.*e", precision, number);
    while (strtod(text, NULL) != number && precision++ < 17);
    const char *minus = *text == '-' ? "-" : "", *each = text + (*text == '-');
    for (; *each != 'e'; each++)
        if (*each != '.') digits[count++] = *each;
    digits[count] = 0;
    int exponent = atoi(each + 1);
    if (exponent < -4 || exponent >= 16)
        return text_of("%s%c%s%se%c%02d", minus, *digits, count > 1 ? "." : "", digits + 1, exponent < 0 ? '-' : '+',
                       abs(exponent));
    if (exponent < 0) return text_of("%s0.%.*s%s", minus, -exponent - 1, "0000", digits);
    if (count <= exponent + 1) return text_of("%s%s%.*s.0", minus, digits, exponent + 1 - count, "0000000000000000");
    return text_of("%s%.*s.%s", minus, exponent + 1, digits, digits + exponent + 1);
}

/* Return JSON as Python writes it. */
static const char *json_text(const Json *json, int is_real) {
    const char *list = "";
    if (json->kind == ARRAY && json->length <= MAX_AXES) {
        for (const Json *each = json->first; each; each = each->next)
            list = text_of("%s%s%s", list, *list ? ", " : "", each->kind == NUMBER ? json_text(each, is_real) : "?");
        return text_of("[%s]", list);
    }
    if (json->kind == STRING) return text_of("\"%s\"", json->text);
    if (json->kind == NUMBER && is_real)
        return real_text(number_in(json->text, json->length, -DBL_MAX, DBL_MAX, "a number"));
    if (json->kind != NUMBER && json->kind != WORD) fail("config.json holds what no configuration does");
    return text_of("%.*s", (int)json->length, json->text);
}

static const char *value_of(const char *name) {
    int i = 0;
    while (strcmp(fields[i].name, name))
        i++;
    return fields[i].value;
}

static int is(const char *name, const char *value) { return !strcmp(value_of(name), value); }

/* Return the number of a field from low to high; null is `none`, and refused if that is NAN. */
static double number_of(const char *name, double low, double high, double none) {
    return is(name, "null") && none == none ? none : number_in(value_of(name), strlen(value_of(name)), low, high, name);
}

static int whole_of(const char *name, double low, double high, double none) {
    double number = number_of(name, low, high, none);
    if (floor(number) != number) fail("%s must be a whole number in config.json", name);
    return (int)number;
}

static void apply_layout(void) {
    uint64_t C = config.data_channels;
    config.axes = config.data_axes;
    config.channels = config.layout == CHANNELS ? C : 1;
    memcpy(config.shape, config.data_shape, sizeof(config.data_shape));
    if (config.layout == LAYOUT_ROWS) config.shape[0] = product(config.shape[0], C);
    if (config.layout == COLUMNS) config.shape[config.axes - 1] = product(config.shape[config.axes - 1], C);
    if (config.layout == AXIS) config.shape[config.axes++] = C;
    if (config.layout == FRAMES) {
        if (!--config.axes) fail("layout frames needs at least 2 axes");
        memmove(config.shape, config.data_shape + 1, (size_t)config.axes * sizeof(uint64_t));
        config.channels = product(config.data_shape[0], C);
    }
    if (config.layout == RASTER) {
        for (*config.shape = C; config.axes > 0; config.axes--)
            *config.shape = product(*config.shape, config.data_shape[config.axes - 1]);
        config.axes = 1;
    }
    config.positions = 1;
    for (int i = 0; i < config.axes; i++)
        config.positions = product(config.positions, config.shape[i]);
    if (product(config.positions, config.channels) > (uint64_t)1 << 31 || config.channels > MAX_SIZE)
        fail("shape has too many positions");
}

/* Read a JSON object; add the fields that are not at their defaults to the fingerprint. */
static void read_config(const Json *json, Sha256 *sha) {
    static const char *const layouts[] = {"\"channels\"", "\"raster\"", "\"columns\"",
                                          "\"axis\"",     "\"rows\"",   "\"frames\""};
    const Json *shape = member(json, "shape"), *outer = member(json, "outer_layers");
    uint64_t known = 0;
    const char *before = "{";
    for (int i = 0; i < FIELDS; i++) {
        const Json *found = member(json, fields[i].name);
        const char *value = found ? json_text(found, fields[i].real) : fields[i].value;
        known += found != NULL;
        if (strcmp(value, fields[i].value)) {
            const char *added = text_of("%s\"%s\": %s", before, fields[i].name, value);
            sha256_add(sha, added, strlen(added));
            fields[i].value = value;
            before = ", ";
        }
    }
    sha256_add(sha, "}", 1);
    if (known != json->length || !is("model", "\"axial_transformer\"") || !shape || shape->kind != ARRAY || !outer)
        fail("config.json is not that of an axial_transformer, or of a later release");
    if (shape->length < 1 || shape->length > MAX_AXES) fail("shape must have 1 to %d axes in config.json", MAX_AXES);
    for (const Json *each = shape->first; each; each = each->next)
        config.data_shape[config.data_axes++] = whole(each, 1, MAX_SIZE, "shape");
    while (strcmp(value_of("layout"), layouts[config.layout]))
        if (++config.layout > FRAMES) fail("layout is none of those that are known");
    config.data_channels = (uint64_t)whole_of("channels", 1, MAX_SIZE, NAN);
    apply_layout();
    config.lowest = whole_of("lowest", -2147483648.0, 2147483647.0, NAN);
    config.num_values = whole_of("num_values", 2, 1 << 16, NAN);
    config.num_classes = whole_of("num_classes", 1, MAX_SIZE, 0);
    config.dim = whole_of("dim", 1, MAX_SIZE, NAN);
    config.heads = whole_of("heads", 1, MAX_SIZE, NAN);
    config.hidden = (int)rint(number_of("mlp_ratio", 1.0 / config.dim, 64, NAN) * config.dim);
    config.divisor = whole_of("input_divisor", 1, MAX_SIZE, config.num_values - 1);
    config.convolution = whole_of("convolution", 0, 8, NAN);
    config.mixtures = whole_of("mixtures", 1, 256, NAN);
    config.inner_layers = whole_of("inner_layers", 1, MAX_LAYERS, NAN);
    config.encoder_layers = whole_of("encoder_layers", 0, MAX_LAYERS, NAN);
    config.ordinal = is("values", "\"ordinal\"");
    config.centred = is("centred", "true");
    config.lstm = is("inner", "\"lstm\"");
    config.one_hot = is("channel_planes", "\"one_hot\"");
    config.rotary = number_of("rotary", 1, MAX_SIZE, 0) > 0;
    int layers = config.encoder_layers + config.inner_layers, is_list = outer->kind == ARRAY;
    const Json *each = is_list ? outer->first : outer;
    for (int level = 0; level < config.axes - 1; level++, each = is_list && each ? each->next : each) {
        config.outer_layers[level] = (int)whole(each, 0, MAX_LAYERS, "outer_layers");
        layers += config.outer_layers[level];
        if (config.outer_layers[level] % (config.axes - level))
            fail("outer_layers must be multiples of the number of axes");
    }
    if (layers > MAX_LAYERS || config.encoder_layers % config.axes || config.dim % config.heads ||
        (config.channels > 1 && !config.encoder_layers) || (config.lstm && config.inner_layers != 1) ||
        (config.centred && !config.ordinal) || (config.rotary && config.dim / config.heads % 2))
        fail("the fields of config.json do not fit each other");
    if (config.lowest + config.num_values > (int64_t)1 << 31 || config.hidden < 1 || !is("known_channels", "0"))
        fail("config.json is of a model that makes no archives");
}

static float from_half(uint32_t half) {
    int exponent = (int)(half >> 10 & 31);
    float size = exponent ? ldexpf((float)((half & 1023) | 1024), exponent - 25) : ldexpf((float)(half & 1023), -24);
    return exponent == 31 ? INFINITY : half >> 15 ? -size : size;
}

static float from_bits(uint32_t bits) { return (union { uint32_t bits; float value; }){.bits = bits}.value; }

static uint32_t bits_of(float value) { return (union { uint32_t bits; float value; }){.value = value}.bits; }

static void read_tensor(Tensor *tensor, const Json *json, Bytes data) {
    static const char *const types[] = {"F16", "BF16", "F32", "F64", "I64", NULL};
    static const int sizes[] = {2, 2, 4, 8, 8};
    const Json *shape = member(json, "shape"), *offsets = member(json, "data_offsets");
    const Json *dtype = member(json, "dtype");
    int type = 0;
    while (types[type] && dtype && (dtype->kind != STRING || strcmp(dtype->text, types[type])))
        type++;
    tensor->type = type;
    if (!dtype || !types[type] || !shape || shape->kind != ARRAY || shape->length > MAX_AXES || !offsets ||
        offsets->length != 2)
        fail("model.safetensors: the tensor %.80s is of no kind that is known", json->key);
    tensor->name = json->key;
    tensor->count = 1;
    for (const Json *each = shape->first; each; each = each->next) {
        tensor->shape[tensor->axes] = whole(each, 1, INT32_MAX, "a size of a tensor");
        tensor->count = product(tensor->count, tensor->shape[tensor->axes++]);
    }
    uint64_t first = whole(offsets->first, 0, 9e15, "an offset of a tensor");
    uint64_t end = whole(offsets->first->next, 0, 9e15, "an offset of a tensor");
    if (first > end || end > data.size || end - first != product(tensor->count, (uint64_t)sizes[type]))
        fail("model.safetensors: damaged or cut off at the tensor %.80s", json->key);
    unsigned char *from = data.bytes + first;
    tensor->stored = (Bytes){from, end - first};
    if (type == I64) {
        tensor->numbers = take(tensor->count, sizeof(int64_t));
        for (uint64_t i = 0; i < tensor->count; i++, from += 8) {
            uint64_t number = little(from, 8);
            memcpy(tensor->numbers + i, &number, 8);
        }
        return;
    }
    tensor->values = floats(tensor->count);
    for (uint64_t i = 0; i < tensor->count; i++, from += sizes[type]) {
        uint64_t number = little(from, sizes[type]);
        double wide;
        memcpy(&wide, &number, 8);
        tensor->values[i] = type == F16    ? from_half((uint32_t)number)
                            : type == BF16 ? from_bits((uint32_t)number << 16)
                            : type == F32  ? from_bits((uint32_t)number)
                                           : (float)wide;
        if (!(fabsf(tensor->values[i]) <= FLT_MAX)) fail("model.safetensors: %.80s holds NaN or infinity", json->key);
    }
}

static int by_name(const void *a, const void *b) {
    return strcmp(((const Tensor *)a)->name, ((const Tensor *)b)->name);
}

/* Tensors of 16 bits count as float32 in the fingerprint. */
static void add_tensor(Sha256 *sha, const Tensor *tensor) {
    const char *types[] = {"float32", "float32", "float32", "float64", "int64"}, *shape = "";
    for (int i = 0; i < tensor->axes; i++)
        shape = text_of("%s%s%llu", shape, i ? ", " : "", (unsigned long long)tensor->shape[i]);
    shape = text_of("%s torch.%s [%s]", tensor->name, types[tensor->type], shape);
    sha256_add(sha, "", 1);
    sha256_add(sha, shape, strlen(shape) + 1);
    if (tensor->type >= F32) sha256_add(sha, tensor->stored.bytes, tensor->stored.size);
    for (uint64_t i = 0; tensor->type < F32 && i < tensor->count; i++) {
        uint32_t bits = bits_of(tensor->values[i]);
        unsigned char bytes[4] = {bits & 255, bits >> 8 & 255, bits >> 16 & 255, bits >> 24};
        sha256_add(sha, bytes, 4);
    }
}

/* Read configuration and tensors of a model folder. Nothing else in this file knows where a model comes from. */
static void read_model(const char *folder) {
    Sha256 sha;
    sha256_start(&sha);
    read_config(read_json(read_file(text_of("%s/config.json", folder), 1 << 20), "config.json"), &sha);
    Bytes file = read_file(text_of("%s/model.safetensors", folder), MAX_MEMORY);
    uint64_t size = file.size < 8 ? 0 : little(file.bytes, 8);
    if (size < 2 || size > 8 << 20 || size > file.size - 8)
        fail("model.safetensors: damaged, or not the weights of a model");
    Bytes data = {file.bytes + 8 + size, file.size - 8 - size};
    const Json *header = read_json((Bytes){file.bytes + 8, size}, "model.safetensors");
    if (header->length > 1 << 15) fail("model.safetensors: more tensors than a model has");
    model.tensors = take(header->length + 1, sizeof(Tensor));
    for (const Json *each = header->first; each; each = each->next)
        if (each->key && strcmp(each->key, "__metadata__")) read_tensor(&model.tensors[model.count++], each, data);
    qsort(model.tensors, (size_t)model.count, sizeof(Tensor), by_name);
    for (uint64_t i = 0; i < model.count; i++)
        add_tensor(&sha, &model.tensors[i]);
    sha256_end(&sha, model.fingerprint);
}

/* Return the tensor of a name and of these sizes; 0: no further axis. */
static Tensor *tensor_of(const char *prefix, const char *name, uint64_t a, uint64_t b, uint64_t c) {
    Tensor wanted = {.name = text_of("%s%s", prefix, name)};
    Tensor *found = bsearch(&wanted, model.tensors, (size_t)model.count, sizeof(Tensor), by_name);
    uint64_t sizes[] = {a, b, c}, axes = 0;
    while (axes < 3 && sizes[axes])
        axes++;
    if (!found || found->used || found->axes != (int)axes || memcmp(found->shape, sizes, (size_t)axes * sizeof(a)))
        fail("model.safetensors has no %s of the shape that its configuration needs", wanted.name);
    found->used = 1;
    return found;
}

static float *matrix(const char *prefix, const char *name, uint64_t rows, uint64_t columns) {
    Tensor *found = tensor_of(prefix, name, rows, columns, 0);
    if (!found->values) fail("model.safetensors: %s holds whole numbers", found->name);
    return found->values;
}

static float *vector(const char *prefix, const char *name, uint64_t size) {
    return matrix(prefix, name, size, 0);
}

/* Arithmetic ------------------------------------------------------------------------------------------------------- */

/* Return a b + c, rounded once. Without an instruction for that, float64 holds the product, and rounds the sum to odd:
   rounding it again is rounding once. */
static float fused(float a, float b, float c) {
#if defined(FP_FAST_FMAF) || defined(__FMA__) || defined(__aarch64__)
    return fmaf(a, b, c);
#else
    double exact = (double)a * b, sum = exact + c, back = sum - c, error = (c - (sum - back)) + (exact - back);
    uint64_t bits;
    memcpy(&bits, &sum, sizeof(bits));
    if ((error < 0 || error > 0) && !(bits & 1)) bits += (error > 0) == (sum > 0) ? 1 : UINT64_MAX;
    memcpy(&sum, &bits, sizeof(sum));
    return (float)sum;
#endif
}

/* Return e^x: 0 below -87, e^88 above 88, NaN of NaN. */
static float exponential(float x) {
    float near = x > -87.0f ? x : -87.0f;
    near = near < 88.0f ? near : 88.0f;
    float shifted = fused(near, 1.4426950216293335f, 12582912.0f), n = shifted - 12582912.0f;
    float r = fused(n, 1.9046542121259336e-09f, fused(n, -0.6931471824645996f, near));
    float p = fused(0.0013751150108873844f, r, 0.00836898759007454f);
    p = fused(p, r, 0.04166954383254051f);
    p = fused(p, r, 0.166665181517601f);
    p = fused(p, r, 0.49999988079071045f);
    p = fused(fused(p, r, 1.0f), r, 1.0f);
    p *= from_bits((bits_of(shifted) - 0x4b400000u + 127u) << 23);
    p = x < -87.0f ? 0.0f : p;
    return x == x ? p : x;
}

static float sigmoid(float x) { return 1.0f / (1.0f + exponential(-x)); }

static float hyperbolic_tangent(float x) { return 1.0f - 2.0f / (1.0f + exponential(x + x)); }

static float sum_of_lanes(float *lanes) {
    for (int half = LANES / 2; half; half /= 2)
        for (int j = 0; j < half; j++)
            lanes[j] += lanes[j + half];
    return lanes[0];
}

static float largest(const float *x, uint64_t count) {
    float lanes[LANES], found = -INFINITY;
    for (int j = 0; j < LANES; j++)
        lanes[j] = -INFINITY;
    uint64_t i = 0;
    for (; i + LANES <= count; i += LANES)
        for (int j = 0; j < LANES; j++)
            lanes[j] = x[i + j] > lanes[j] ? x[i + j] : lanes[j];
    for (; i < count; i++)
        lanes[i % LANES] = x[i] > lanes[i % LANES] ? x[i] : lanes[i % LANES];
    for (int j = 0; j < LANES; j++)
        found = lanes[j] > found ? lanes[j] : found;
    return found;
}

/* Refuse a machine whose fused multiply-add rounds twice, or that flushes denormal numbers. */
static void check_arithmetic(void) {
    volatile float a = 0x1.0002p-24f, b = 0x1.fffcp-1f, c = 1.0f + FLT_EPSILON, small = FLT_MIN, half = 0.5f;
    if (fused(a, b, c) != c || small * half == 0.0f || fused(small, half, 0.0f) == 0.0f)
        fail("this machine's arithmetic is not as IEEE 754 says");
}

/* Layers ----------------------------------------------------------------------------------------------------------- */

typedef struct {
    uint64_t inputs, outputs;
    float *weight; /* tiles of TILE outputs: [outputs / TILE, inputs, TILE] */
    float *bias;   /* [outputs], with zeros up to whole tiles */
} Linear;

typedef struct {
    float *gain, *bias;
} Norm;

typedef struct {
    Norm attention_norm, feedforward_norm;
    Linear qkv, out, expand, contract;
    float *rotations;        /* [length along the axis, K] or NULL */
    int masked;              /* attention to the same position of the slabs so far; otherwise inside the slab: */
    uint64_t length, stride; /* positions of a line, and rows between them */
} Block;

/* Keys and values of a masked block. */
typedef struct {
    float *keys;   /* [rows, D, length] */
    float *values; /* [rows, length, D] */
} Cache;

/* Memory for the rows of a slab in a layer. */
static struct {
    float *normed, *wide, *attended, *powers, *keys, *values;
} work;

static Linear linear_of(const float *weight, const float *bias, uint64_t inputs, uint64_t outputs) {
    uint64_t tiles = (outputs + TILE - 1) / TILE;
    Linear layer = {inputs, outputs, floats(product(product(tiles, inputs), TILE)), floats(tiles * TILE)};
    for (uint64_t o = 0; o < outputs; o++)
        for (uint64_t k = 0; k < inputs; k++)
            layer.weight[(o / TILE * inputs + k) * TILE + o % TILE] = weight[o * inputs + k];
    if (bias) memcpy(layer.bias, bias, (size_t)outputs * sizeof(float));
    return layer;
}

static Linear read_linear(const char *prefix, uint64_t inputs, uint64_t outputs) {
    const float *weight = matrix(prefix, ".weight", outputs, inputs);
    return linear_of(weight, vector(prefix, ".bias", outputs), inputs, outputs);
}

static Norm read_norm(const char *prefix) {
    return (Norm){vector(prefix, ".weight", config.dim), vector(prefix, ".bias", config.dim)};
}

static Block read_block(const char *prefix, int masked, uint64_t length, uint64_t stride) {
    uint64_t dim = config.dim, hidden = config.hidden;
    Block block = {.masked = masked, .length = length, .stride = stride};
    block.attention_norm = read_norm(text_of("%s.attention.norm", prefix));
    block.qkv = read_linear(text_of("%s.attention.attention.qkv", prefix), dim, 3 * dim);
    block.out = read_linear(text_of("%s.attention.attention.out", prefix), dim, dim);
    if (config.rotary) block.rotations = matrix(prefix, ".attention.attention.rotations", length, dim / config.heads);
    block.feedforward_norm = read_norm(text_of("%s.feedforward.norm", prefix));
    block.expand = read_linear(text_of("%s.feedforward.expand", prefix), dim, hidden);
    block.contract = read_linear(text_of("%s.feedforward.contract", prefix), hidden, dim);
    return block;
}

/* y [rows, outputs] = x [rows, inputs] W + bias: one chain for each number, inputs in order. Chains of a tile run side
   by side, in registers; the last tile of rows repeats its first row. */
static void apply_linear(const Linear *layer, const float *x, uint64_t rows, float *y) {
    uint64_t inputs = layer->inputs, outputs = layer->outputs;
    for (uint64_t o = 0; o < outputs; o += TILE)
        for (uint64_t first = 0; first < rows; first += ROWS) {
            const float *weight = layer->weight + o * inputs, *from[ROWS];
            uint64_t left = rows - first < ROWS ? rows - first : ROWS, width = outputs - o < TILE ? outputs - o : TILE;
            float sums[ROWS][TILE];
            for (uint64_t r = 0; r < ROWS; r++) {
                from[r] = x + (first + (r < left ? r : 0)) * inputs;
                memcpy(sums[r], layer->bias + o, sizeof(sums[r]));
            }
            const float *x0 = from[0], *x1 = from[1], *x2 = from[2], *x3 = from[3];
            for (uint64_t k = 0; k < inputs; k++, weight += TILE)
                for (int j = 0; j < TILE; j++) {
                    sums[0][j] = fused(x0[k], weight[j], sums[0][j]);
                    sums[1][j] = fused(x1[k], weight[j], sums[1][j]);
                    sums[2][j] = fused(x2[k], weight[j], sums[2][j]);
                    sums[3][j] = fused(x3[k], weight[j], sums[3][j]);
                }
            for (uint64_t r = 0; r < left; r++)
                memcpy(y + (first + r) * outputs + o, sums[r], (size_t)width * sizeof(float));
        }
}

static void apply_norm(const Norm *norm, const float *x, uint64_t rows, float *y) {
    uint64_t dim = config.dim;
    float size = (float)dim;
    for (uint64_t r = 0; r < rows; r++, x += dim, y += dim) {
        float lanes[LANES] = {0}, squares[LANES] = {0};
        uint64_t i = 0;
        for (; i + LANES <= dim; i += LANES)
            for (int j = 0; j < LANES; j++)
                lanes[j] += x[i + j];
        for (; i < dim; i++)
            lanes[i % LANES] += x[i];
        float mean = sum_of_lanes(lanes) / size;
        for (i = 0; i < dim; i++)
            y[i] = x[i] - mean;
        for (i = 0; i + LANES <= dim; i += LANES)
            for (int j = 0; j < LANES; j++)
                squares[j] = fused(y[i + j], y[i + j], squares[j]);
        for (; i < dim; i++)
            squares[i % LANES] = fused(y[i], y[i], squares[i % LANES]);
        float scale = 1.0f / sqrtf(sum_of_lanes(squares) / size + 1e-5f);
        for (i = 0; i < dim; i++)
            y[i] = fused(y[i] * scale, norm->gain[i], norm->bias[i]);
    }
}

/* All heads of q [D] attend to keys [D, length] and values [count, D]. Whole lanes are computed, so there is room
   behind keys and values; what comes of it is not used. */
static void attend(const float *q, const float *keys, uint64_t length, const float *values, uint64_t count,
                   float *result) {
    uint64_t dim = config.dim, width = dim / config.heads, full = (count + LANES - 1) / LANES * LANES;
    float *powers = work.powers, scale = 1.0f / sqrtf((float)width);
    for (uint64_t head = 0; head < dim; head += width) {
        float most, sum, lanes[LANES] = {0};
        for (uint64_t j = 0; j < full; j += LANES) {
            float scores[LANES] = {0};
            for (uint64_t k = head; k < head + width; k++)
                for (int l = 0; l < LANES; l++)
                    scores[l] = fused(q[k], keys[k * length + j + l], scores[l]);
            memcpy(powers + j, scores, sizeof(scores));
        }
        for (uint64_t j = count; j < full; j++)
            powers[j] = -INFINITY; /* whose power is 0 */
        most = largest(powers, full);
        for (uint64_t j = 0; j < full; j += LANES)
            for (int l = 0; l < LANES; l++) {
                powers[j + l] = exponential((powers[j + l] - most) * scale);
                lanes[l] += powers[j + l];
            }
        sum = sum_of_lanes(lanes);
        for (uint64_t k = head; k < head + width; k += LANES) {
            float sums[LANES] = {0};
            for (uint64_t j = 0; j < count; j++)
                for (int l = 0; l < LANES; l++)
                    sums[l] = fused(powers[j], values[j * dim + k + l], sums[l]);
            for (uint64_t l = 0; l < LANES && k + l < head + width; l++)
                result[k + l] = sums[l] / sum;
        }
    }
}

static void rotate(float *heads, uint64_t count, uint64_t width, const float *angles) {
    uint64_t half = width / 2;
    for (uint64_t h = 0; h < count; h++, heads += width)
        for (uint64_t j = 0; j < half; j++) {
            float a = heads[j], b = heads[j + half], cosine = angles[j], sine = angles[j + half];
            heads[j] = fused(a, cosine, -(b * sine));
            heads[j + half] = fused(b, cosine, a * sine);
        }
}

/* Put keys and values of one row beside those of its line, as number i. */
static void keep_row(const float *qkv, uint64_t i, uint64_t length, float *keys, float *values) {
    for (uint64_t k = 0; k < config.dim; k++)
        keys[k * length + i] = qkv[config.dim + k];
    memcpy(values + i * config.dim, qkv + 2 * config.dim, (size_t)config.dim * sizeof(float));
}

static void add(float *to, const float *from, uint64_t count) {
    for (uint64_t k = 0; k < count; k++)
        to[k] += from[k];
}

/* Change x [rows, D] to the block's output. Of a masked block, it is slab i along its axis, and `cache` is of its rows
   from `first_row` on. */
static void apply_block(const Block *block, float *x, uint64_t rows, uint64_t i, const Cache *cache,
                        uint64_t first_row) {
    uint64_t dim = config.dim, width = dim / config.heads, length = block->length, stride = block->stride;
    apply_norm(&block->attention_norm, x, rows, work.normed);
    apply_linear(&block->qkv, work.normed, rows, work.wide);
    for (uint64_t r = 0; block->rotations && r < rows; r++)
        rotate(work.wide + r * 3 * dim, 2 * config.heads, width,
               block->rotations + (block->masked ? i : r / stride % length) * width);
    for (uint64_t r = 0; block->masked && r < rows; r++) {
        float *qkv = work.wide + r * 3 * dim, *keys = cache->keys + (first_row + r) * dim * length;
        float *values = cache->values + (first_row + r) * dim * length;
        keep_row(qkv, i, length, keys, values);
        attend(qkv, keys, length, values, i + 1, work.attended + r * dim);
    }
    for (uint64_t line = 0; !block->masked && line < rows / length; line++) {
        uint64_t first = line / stride * stride * length + line % stride;
        for (uint64_t j = 0; j < length; j++)
            keep_row(work.wide + (first + j * stride) * 3 * dim, j, length, work.keys, work.values);
        for (uint64_t r = first; r < first + length * stride; r += stride)
            attend(work.wide + r * 3 * dim, work.keys, length, work.values, length, work.attended + r * dim);
    }
    apply_linear(&block->out, work.attended, rows, work.normed);
    add(x, work.normed, rows * dim);
    apply_norm(&block->feedforward_norm, x, rows, work.normed);
    apply_linear(&block->expand, work.normed, rows, work.wide);
    for (uint64_t k = 0; k < rows * config.hidden; k++)
        work.wide[k] = work.wide[k] / (1.0f + exponential(-(work.wide[k] * 1.702f)));
    apply_linear(&block->contract, work.wide, rows, work.normed);
    add(x, work.normed, rows * dim);
}

/* Values and coder ------------------------------------------------------------------------------------------------- */

typedef struct {
    const unsigned char *words;
    uint64_t left, state;
} Stream;

/* Take the value with the interval start .. end - 1 out of the state. */
static void advance(Stream *stream, int64_t start, int64_t end) {
    uint64_t slot = stream->state & (((uint64_t)1 << PRECISION) - 1);
    stream->state = (uint64_t)(end - start) * (stream->state >> PRECISION) + slot - (uint64_t)start;
    if (stream->state < MIN_STATE) {
        if (!stream->left--) fail("a stream ends before its last symbol: damage, or another model");
        stream->state = stream->state << 32 | little(stream->words, 4);
        stream->words += 4;
    }
}

static void not_finite(void) { fail("the model's logits are not finite: its weights cannot be used"); }

/* Write exp(x - the largest) in units of 2^-28, rounded down, and return their sum. */
static int64_t fixed_points(const float *x, uint64_t count, int64_t *numbers) {
    float most = largest(x, count);
    int64_t sum = 0;
    for (uint64_t i = 0; i < count; i++) {
        float difference = x[i] - most;
        if (!(difference <= 0.0f)) not_finite();
        numbers[i] = (int64_t)(exponential(difference) * 268435456.0f);
        sum += numbers[i];
    }
    return sum > 0 ? sum : 1;
}

static int read_categorical(const float *logits, int count, int64_t *numbers, Stream *stream) {
    int64_t sum = fixed_points(logits, (uint64_t)count, numbers), whole_range = (int64_t)1 << PRECISION;
    int64_t factor = ((whole_range - count) << RECIPROCAL) / sum;
    int64_t slot = (int64_t)(stream->state % (uint64_t)whole_range);
    int64_t before = numbers[0], start = 0, end = count == 1 ? whole_range : 1 + (before * factor >> RECIPROCAL);
    int value = 0;
    while (end <= slot) {
        start = end;
        before += numbers[++value];
        end = value == count - 1 ? whole_range : value + 1 + (before * factor >> RECIPROCAL);
    }
    advance(stream, start, end);
    return value;
}

/* 2^30 / (1 + e^(i / 64)), rounded. Float64 suffices: no number is closer than 5e-5 to the middle of two integers. */
static int64_t logistic_table[END * STEPS + 2];

static void fill_logistic_table(void) {
    double of_whole = 1;
    for (int i = 0; i <= END * STEPS + 1; i += STEPS, of_whole *= 0.36787944117144233) {
        double power = of_whole;
        for (int j = i; j < i + STEPS && j <= END * STEPS + 1; j++, power *= 0.98449643700540845)
            logistic_table[j] = (int64_t)floor(1073741824.0 * power / (1 + power) + 0.5);
    }
}

/* 1 / (1 + e^-z) in units of 2^-30: straight lines between the rows of the table. */
static int64_t logistic(float z) {
    float size = fabsf(z) > 0.0f ? fabsf(z) : 0.0f;
    int64_t n = (int64_t)((size < (float)END ? size : (float)END) * 67108864.0f);
    int64_t upper = logistic_table[n >> FRACTION], lower = logistic_table[(n >> FRACTION) + 1];
    int64_t below = upper - ((upper - lower) * (n & ((1 << FRACTION) - 1)) >> FRACTION);
    return z < 0.0f ? below : ((int64_t)1 << 30) - below;
}

/* The distribution of an ordinal value. */
typedef struct {
    int count, mixtures;
    float unit, *means, *precisions;
    int64_t centre, *shares;
} Mixture;

static int64_t count_below(const Mixture *mixture, int64_t value) {
    float below = (float)(value - mixture->centre) - 0.5f;
    int64_t sum = 0;
    for (int k = 0; k < mixture->mixtures; k++)
        sum += mixture->shares[k] * logistic(fused(mixture->means[k], -mixture->unit, below) * mixture->precisions[k]);
    return value + (sum >> 30);
}

static int read_ordinal(float *outputs, Mixture *mixture, Stream *stream) {
    int count = mixture->mixtures;
    int64_t available = ((int64_t)1 << PRECISION) - mixture->count, before = 0, used = 0;
    for (int k = 0; k < 3 * count; k++)
        if (!(fabsf(outputs[k]) < MAX_OUTPUT)) not_finite();
    int64_t factor = (available << RECIPROCAL) / fixed_points(outputs, (uint64_t)count, mixture->shares);
    mixture->means = outputs + count;
    mixture->precisions = outputs + 2 * count;
    for (int k = 0; k < count; k++) {
        float log_precision = mixture->precisions[k] > -12.0f ? mixture->precisions[k] : -12.0f;
        mixture->precisions[k] = exponential(log_precision < 5.0f ? log_precision : 5.0f);
        before += mixture->shares[k];
        int64_t end = k == count - 1 ? available : before * factor >> RECIPROCAL;
        mixture->shares[k] = end - used;
        used = end;
    }
    int64_t slot = (int64_t)(stream->state & (((uint64_t)1 << PRECISION) - 1));
    int64_t value = 0, beyond = mixture->count, start = 0, end = (int64_t)1 << PRECISION;
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
    return (int)value;
}

/* The numbers that the network reads of an ordinal code: v + V g if values are centred, else v. */
static uint64_t number_of_features(void) {
    if (!config.ordinal) return 1;
    uint64_t count = config.num_values > 256 ? 3 : 1;
    for (int scale = 1; config.centred && scale < config.num_values && scale <= 1 << 14; scale *= 4)
        count += 2;
    return count;
}

static void write_features(uint32_t code, float *features) {
    int count = config.num_values;
    double value = code % (uint32_t)count, difference = value - code / (uint32_t)count;
    *features++ = (float)(2 * value / (count - 1) - 1);
    if (count > 256) {
        *features++ = (float)(floor(value / 256) / 127.5 - 1);
        *features++ = (float)((code % (uint32_t)count % 256) / 127.5 - 1);
    }
    for (int scale = 1; config.centred && scale < count && scale <= 1 << 14; scale *= 4) {
        *features++ = (float)(difference / (fabs(difference) + scale));
        *features++ = (float)(fabs(difference) / (fabs(difference) + scale));
    }
}

/* The network ------------------------------------------------------------------------------------------------------ */

typedef struct {
    Block *blocks;
    int layers;
    Cache *caches;      /* of masked blocks, for all images */
    uint64_t window;    /* numbers in the window of the convolution; 0: there is none */
    Linear convolution; /* [window] -> [channels of a pixel, D] */
    float *table;       /* [V, 1], what the convolution reads of values */
    Linear of_codes;    /* in its place, for ordinal values */
    float *numbers;     /* [images, positions of this level, features]: what it read so far */
    float *here, *upper, *below; /* [images, positions of a slab, D]: context, what slabs before add, their sum */
} Outer;

static struct {
    uint64_t features, slab[MAX_AXES + 2]; /* slab[i]: positions of the axes from i on */
    float *positions, *labels, *table;     /* [positions, D], [classes + 1, D], [V, D] */
    Linear of_features, head;
    Norm head_norm;
    Outer outers[MAX_AXES];
    uint64_t pixel_channels, code_numbers; /* of the convolution */
    Block *inner;
    Cache *inner_caches;
    Norm lstm_norm;
    Linear lstm_input, lstm_hidden;
    Block *encoder;
    Linear encoder_convolution;
    float *encoder_positions, *encoded; /* encoded: [images, positions, D] */
    uint64_t encoder_inputs;
    float spread;
    int neighbours, *offsets; /* [neighbours, data axes + 1] */
    int64_t *coefficients;    /* [2^axes, C, neighbours + 1] */
    uint64_t *neighbour;      /* [neighbours]: where those of one position are */
    float *x, *embedded, *logits, *hidden, *cell, *window; /* of a group of rows */
    int64_t *integers;
    /* of the images that are decoded: */
    uint64_t images;
    const int *classes;
    uint16_t *values; /* [images, *A, C] */
    uint32_t *codes;  /* [images, C', *A'] */
    Stream stream;
} network;

static float *read_positions(const char *prefix) {
    uint64_t dim = config.dim, count = 1;
    float *total = NULL;
    for (int axis = 0; axis < config.axes; axis++) {
        uint64_t size = config.shape[axis];
        const float *table = matrix(text_of("%s%d", prefix, axis), "", size, dim);
        float *next = floats(product(product(count, size), dim));
        for (uint64_t p = 0; p < count * size; p++)
            for (uint64_t k = 0; k < dim; k++)
                next[p * dim + k] = axis ? total[p / size * dim + k] + table[p % size * dim + k] : table[p * dim + k];
        total = next;
        count *= size;
    }
    return total;
}

/* Neighbours differ by one step along at most two axes, the first of them backwards; or are earlier channels. */
static void read_prediction(void) {
    int axes = config.data_axes, steps = 1, most = config.data_channels > 2 ? 2 : (int)config.data_channels - 1;
    for (int axis = 0; axis < axes; axis++)
        steps *= 3;
    network.offsets = take(product((uint64_t)steps * 3 + 1, (uint64_t)axes + 1), sizeof(int));
    for (int before = 0; before <= most; before++)
        for (int step = 0; step < steps; step++) { /* the last axis is fastest */
            int *offset = network.offsets + network.neighbours * (axes + 1), changed = 0, first = 0;
            for (int axis = axes - 1, rest = step; axis >= 0; axis--, rest /= 3) {
                offset[axis] = rest % 3 - 1;
                changed += offset[axis] != 0;
                first = offset[axis] ? offset[axis] : first;
            }
            offset[axes] = -before;
            network.neighbours += changed <= 2 && (first < 0 || (!changed && before));
        }
    network.neighbour = take((uint64_t)network.neighbours, sizeof(uint64_t));
    network.coefficients = tensor_of("values.prediction.", "coefficients", (uint64_t)1 << axes, config.data_channels,
                                     (uint64_t)network.neighbours + 1)->numbers;
    if (!network.coefficients) fail("model.safetensors: coefficients must be whole numbers");
}

static void read_network(void) {
    int axes = config.axes;
    uint64_t dim = config.dim, longest = 1, rows = GROUP;
    network.features = number_of_features();
    for (int level = axes; level >= 0; level--)
        network.slab[level] = level == axes ? 1 : network.slab[level + 1] * config.shape[level];
    for (int axis = 0; axis < axes; axis++)
        longest = config.shape[axis] > longest ? config.shape[axis] : longest;
    network.positions = read_positions("position.tables.");
    if (config.num_classes) network.labels = matrix("labels.embed.table", "", (uint64_t)config.num_classes + 1, dim);
    if (config.ordinal) {
        network.of_features = read_linear("embed_value.linear", network.features, dim);
        network.spread = *vector("values.spread", "", 0);
        fill_logistic_table();
        if (config.centred) read_prediction();
    } else
        network.table = matrix("embed_value.table", "", (uint64_t)config.num_values, dim);
    network.head_norm = read_norm("head.0");
    network.head = read_linear("head.1", dim, (uint64_t)(config.ordinal ? 3 * config.mixtures : config.num_values));

    if (config.encoder_layers) {
        uint64_t copies = 1, planes = config.one_hot ? config.channels : 1;
        for (int axis = 0; axis < axes; axis++)
            copies *= 3;
        network.encoder_inputs = config.channels * network.features + planes;
        uint64_t inputs = product(copies, network.encoder_inputs);
        network.encoder_convolution = read_linear("encoder.convolution", inputs, dim);
        network.encoder_positions = read_positions("encoder.position.tables.");
        network.encoder = take((uint64_t)config.encoder_layers, sizeof(Block));
        for (int i = 0; i < config.encoder_layers; i++) {
            int axis = axes - 1 - i % axes;
            network.encoder[i] = read_block(text_of("encoder.blocks.%d", i), 0, config.shape[axis],
                                            network.slab[axis + 1]);
        }
        rows = config.positions > rows ? config.positions : rows;
    }
    network.pixel_channels = axes == config.data_axes ? config.shape[axes - 1] / config.data_shape[axes - 1] : 1;
    network.code_numbers = config.ordinal ? 4 : 1;
    for (int level = 0; level < axes - 1; level++) {
        Outer *outer = &network.outers[level];
        const char *prefix = text_of("outer_decoders.%d", level);
        outer->layers = config.outer_layers[level];
        outer->blocks = take((uint64_t)outer->layers, sizeof(Block));
        for (int i = 0; i < outer->layers; i++) {
            int axis = axes - 1 - i % (axes - level);
            outer->blocks[i] = read_block(text_of("%s.blocks.%d", prefix, i), axis == level,
                                          config.shape[axis], network.slab[axis + 1]);
        }
        if (config.convolution && outer->layers) {
            uint64_t window = (uint64_t)config.convolution, side = 2 * window + 1;
            for (int axis = level + 1; axis < axes; axis++)
                window = product(window, side);
            if (window > 4096) fail("the window of the convolution is too large");
            outer->window = product(product(window, network.pixel_channels), network.code_numbers);
            prefix = text_of("%s.convolution", prefix);
            uint64_t outputs = product(network.pixel_channels, dim);
            outer->convolution = linear_of(matrix(prefix, ".linear.weight", outputs, outer->window), NULL,
                                           outer->window, outputs);
            if (config.ordinal)
                outer->of_codes = read_linear(text_of("%s.of_codes.linear", prefix), network.features, 4);
            else
                outer->table = matrix(prefix, ".features", (uint64_t)config.num_values, 1);
        }
        rows = network.slab[level + 1] > rows ? network.slab[level + 1] : rows;
    }
    if (config.lstm) {
        network.lstm_norm = read_norm("inner_decoder.norm");
        network.lstm_input = linear_of(matrix("inner_decoder.lstm.weight_ih_l0", "", 4 * dim, dim),
                                       vector("inner_decoder.lstm.bias_ih_l0", "", 4 * dim), dim, 4 * dim);
        network.lstm_hidden = linear_of(matrix("inner_decoder.lstm.weight_hh_l0", "", 4 * dim, dim),
                                        vector("inner_decoder.lstm.bias_hh_l0", "", 4 * dim), dim, 4 * dim);
    } else {
        network.inner = take((uint64_t)config.inner_layers, sizeof(Block));
        for (int i = 0; i < config.inner_layers; i++)
            network.inner[i] = read_block(text_of("inner_decoder.blocks.%d", i), 1, config.shape[axes - 1], 1);
    }
    for (uint64_t i = 0; i < model.count; i++)
        if (!model.tensors[i].used)
            fail("model.safetensors: the tensor %.80s is not one of its configuration", model.tensors[i].name);
    uint64_t wide = (config.lstm ? 8 : 3) * dim > config.hidden ? (config.lstm ? 8 : 3) * dim : config.hidden;
    work.normed = floats(product(rows, dim));
    work.wide = floats(product(rows, wide));
    work.attended = floats(product(rows, dim));
    work.powers = floats(longest + LANES);
    work.keys = floats(product(longest, dim) + LANES);
    work.values = floats(product(longest, dim) + LANES);
}

static Cache cache_of(uint64_t rows, uint64_t length) {
    uint64_t size = product(product(rows, length), config.dim) + LANES;
    return (Cache){floats(size), floats(size)};
}

/* Take the memory for decoding some images. */
static void prepare(uint64_t images) {
    uint64_t dim = config.dim, group = images < GROUP ? images : GROUP, length = config.shape[config.axes - 1];
    uint64_t window = 0, values = product(config.positions, config.channels);
    network.images = images;
    network.values = take(product(images, values), sizeof(uint16_t));
    network.codes = take(product(images, values), sizeof(uint32_t));
    for (int level = 0; level < config.axes - 1; level++) {
        Outer *outer = &network.outers[level];
        uint64_t rows = product(images, network.slab[level + 1]);
        outer->here = floats(product(rows, dim));
        outer->below = floats(product(rows, dim));
        outer->upper = floats(product(rows, dim));
        outer->caches = take((uint64_t)outer->layers, sizeof(Cache));
        for (int i = 0; i < outer->layers; i++)
            if (outer->blocks[i].masked) outer->caches[i] = cache_of(rows, config.shape[level]);
        if (outer->window) outer->numbers = floats(product(product(images, network.slab[level]), network.code_numbers));
        window = outer->window > window ? outer->window : window;
    }
    uint64_t wide = network.head.outputs, pixel = product(network.pixel_channels, dim);
    if (network.encoder) {
        network.encoded = floats(product(product(images, config.positions), dim));
        window = network.encoder_convolution.inputs > window ? network.encoder_convolution.inputs : window;
    }
    network.window = floats(product(GROUP, window) + product(GROUP, pixel));
    network.x = floats(product(group, dim));
    network.embedded = floats(product(group, dim) + network.features);
    network.logits = floats(product(group, wide));
    network.integers = take(wide, sizeof(int64_t));
    network.hidden = floats(product(group, dim));
    network.cell = floats(product(group, dim));
    network.inner_caches = take((uint64_t)config.inner_layers, sizeof(Cache));
    for (int i = 0; network.inner && i < config.inner_layers; i++)
        network.inner_caches[i] = cache_of(group, length);
}

/* Return where the value of a channel and position of the model is in the data. */
static uint64_t data_index(uint64_t channel, uint64_t position) {
    uint64_t C = config.data_channels;
    if (config.layout == CHANNELS) return position * C + channel;
    if (config.layout == LAYOUT_ROWS) return position % (config.positions / C) * C + position / (config.positions / C);
    if (config.layout == FRAMES) return (channel / C * config.positions + position) * C + channel % C;
    return position;
}

/* Find the neighbours of a value of the data; return its coefficients. */
static const int64_t *find_neighbours(uint64_t index) {
    int axes = config.data_axes;
    uint64_t at[MAX_AXES + 1], pattern = 0, rest = index / config.data_channels;
    at[axes] = index % config.data_channels;
    for (int axis = axes - 1; axis >= 0; axis--) {
        at[axis] = rest % config.data_shape[axis];
        rest /= config.data_shape[axis];
        pattern |= (uint64_t)(at[axis] == 0) << axis;
    }
    for (int n = 0; n < network.neighbours; n++) {
        const int *offset = network.offsets + n * (axes + 1);
        uint64_t found = 0;
        for (int axis = 0; axis <= axes; axis++) {
            int64_t size = (int64_t)(axis == axes ? config.data_channels : config.data_shape[axis]);
            int64_t here = (int64_t)at[axis] + offset[axis];
            found = found * (uint64_t)size + (uint64_t)(here < 0 ? 0 : here < size ? here : size - 1);
        }
        network.neighbour[n] = found;
    }
    return network.coefficients + (pattern * config.data_channels + at[axes]) * (uint64_t)(network.neighbours + 1);
}

static int64_t predict(const int64_t *coefficients, const uint16_t *values) {
    uint64_t sum = (uint64_t)coefficients[network.neighbours];
    for (int n = 0; n < network.neighbours; n++)
        sum += (uint64_t)coefficients[n] * values[network.neighbour[n]];
    if (sum >> 63) return 0;
    int64_t last = config.num_values - 1, predicted = (int64_t)(sum >> 24);
    return predicted < last ? predicted : last;
}

/* Write a row of a table or, without one, what a linear layer makes of the features of a code. */
static void embed(const float *table, uint64_t width, const Linear *of_features, uint32_t code, float *result) {
    float features[32];
    if (table) {
        memcpy(result, table + code * width, (size_t)width * sizeof(float));
        return;
    }
    write_features(code, features);
    apply_linear(of_features, features, 1, result);
}

/* Write the context of some positions of a slab of one image. That of a whole image is not in memory. */
static void load_context(const float *context, uint64_t image, uint64_t slab, uint64_t first, uint64_t count,
                         float *result) {
    uint64_t dim = config.dim, start = (image * slab + first) * dim;
    memcpy(result, context ? context + start : network.positions + first * dim, (size_t)(count * dim) * sizeof(float));
    if (!context && network.encoder) add(result, network.encoded + start, count * dim);
    for (uint64_t p = 0; !context && !network.encoder && network.labels && p < count; p++)
        add(result + p * dim, network.labels + (uint64_t)network.classes[image] * dim, dim);
}

/* One step of the LSTM: x [rows, D] += its output. */
static void apply_lstm(uint64_t rows) {
    uint64_t dim = config.dim;
    float *gates = work.wide, *of_hidden = gates + rows * 4 * dim;
    apply_norm(&network.lstm_norm, network.x, rows, work.normed);
    apply_linear(&network.lstm_input, work.normed, rows, gates);
    apply_linear(&network.lstm_hidden, network.hidden, rows, of_hidden);
    add(gates, of_hidden, rows * 4 * dim);
    for (uint64_t k = 0; k < rows * dim; k++) {
        const float *gate = gates + k / dim * 4 * dim + k % dim;
        float entered = sigmoid(gate[0]) * hyperbolic_tangent(gate[2 * dim]);
        network.cell[k] = fused(sigmoid(gate[dim]), network.cell[k], entered);
        network.hidden[k] = sigmoid(gate[3 * dim]) * hyperbolic_tangent(network.cell[k]);
        network.x[k] += network.hidden[k];
    }
}

/* Read the values of a row from the stream, a group of images at a time. */
static void read_row(uint64_t channel, uint64_t base, const float *context) {
    uint64_t dim = config.dim, length = network.slab[config.axes - 1], all = config.positions * config.channels;
    Mixture mixture = {.count = config.num_values, .mixtures = config.mixtures, .unit = network.spread};
    for (uint64_t first = 0; first < network.images; first += GROUP) {
        uint64_t rows = network.images - first < GROUP ? network.images - first : GROUP;
        memset(network.hidden, 0, (size_t)(rows * dim) * sizeof(float));
        memset(network.cell, 0, (size_t)(rows * dim) * sizeof(float));
        for (uint64_t i = 0; i < length; i++) {
            for (uint64_t b = 0; b < rows; b++)
                load_context(context, first + b, length, i, 1, network.x + b * dim);
            if (i) add(network.x, network.embedded, rows * dim);
            if (!network.inner) apply_lstm(rows);
            for (int layer = 0; network.inner && layer < config.inner_layers; layer++)
                apply_block(&network.inner[layer], network.x, rows, i, &network.inner_caches[layer], 0);
            apply_norm(&network.head_norm, network.x, rows, work.normed);
            apply_linear(&network.head, work.normed, rows, network.logits);
            uint64_t index = data_index(channel, base + i);
            const int64_t *coefficients = config.centred ? find_neighbours(index) : NULL;
            for (uint64_t b = 0; b < rows; b++) {
                uint16_t *values = network.values + (first + b) * all;
                float *logits = network.logits + b * network.head.outputs;
                uint32_t code = 0;
                if (config.ordinal) {
                    mixture.centre = coefficients ? predict(coefficients, values) : (config.num_values - 1) / 2;
                    mixture.shares = network.integers;
                    values[index] = (uint16_t)read_ordinal(logits, &mixture, &network.stream);
                    code = coefficients ? (uint32_t)mixture.centre * (uint32_t)config.num_values : 0;
                } else
                    values[index] = (uint16_t)read_categorical(logits, config.num_values, network.integers,
                                                               &network.stream);
                code += values[index];
                network.codes[((first + b) * config.channels + channel) * config.positions + base + i] = code;
                embed(network.table, dim, &network.of_features, code, network.embedded + b * dim);
            }
        }
    }
}

/* Add what a linear layer makes of the windows around the pixels of a slab: [pixels, outputs]. The windows reach
   equally far along all axes from `level` on. If the pixels are those of slab i, they end before
   it along the first axis. */
static void convolve(const Linear *layer, int level, int64_t reach, int is_slab, int64_t i, uint64_t pixel_channels,
                     const float *numbers, uint64_t size, float *result) {
    int axes = config.axes - level;
    int64_t shape[MAX_AXES + 1], at[MAX_AXES + 1] = {i}, offset[MAX_AXES + 1];
    uint64_t pixels = 1, outputs = layer->outputs;
    float *found = network.window + GROUP * layer->inputs;
    for (int axis = 0; axis < axes; axis++) {
        shape[axis] = (int64_t)(config.shape[level + axis] / (axis == axes - 1 ? pixel_channels : 1));
        pixels *= axis || !is_slab ? (uint64_t)shape[axis] : 1;
        offset[axis] = -reach;
    }
    for (uint64_t first = 0; first < pixels; first += GROUP) {
        uint64_t rows = pixels - first < GROUP ? pixels - first : GROUP;
        float *to = network.window;
        for (uint64_t r = 0; r < rows; r++) {
            int64_t rest = (int64_t)(first + r);
            int axis = axes - 1;
            for (; axis >= is_slab; axis--) {
                at[axis] = rest % shape[axis];
                rest /= shape[axis];
            }
            do { /* the last axis is fastest */
                int64_t pixel = 0;
                int inside = 1;
                for (axis = 0; axis < axes; axis++) {
                    inside = inside && at[axis] + offset[axis] >= 0 && at[axis] + offset[axis] < shape[axis];
                    pixel = pixel * shape[axis] + at[axis] + offset[axis];
                }
                memset(to, 0, (size_t)size * sizeof(float));
                if (inside) memcpy(to, numbers + (uint64_t)pixel * size, (size_t)size * sizeof(float));
                to += size;
                for (axis = axes - 1; axis >= 0 && ++offset[axis] > (axis || !is_slab ? reach : -1); axis--)
                    offset[axis] = -reach;
            } while (axis >= 0);
        }
        apply_linear(layer, network.window, rows, found);
        add(result + first * outputs, found, rows * outputs);
    }
}

/* Decode a slab: see "Network" in the specification. Its context is [images, positions, D]. */
static void walk(uint64_t channel, int level, uint64_t base, const float *context) {
    if (level == config.axes - 1) {
        read_row(channel, base, context);
        return;
    }
    Outer *outer = &network.outers[level];
    uint64_t dim = config.dim, slab = network.slab[level + 1], numbers = network.code_numbers;
    for (uint64_t i = 0; i < config.shape[level]; i++) {
        uint64_t start = base + i * slab;
        for (uint64_t b = 0; b < network.images; b++)
            load_context(context, b, network.slab[level], i * slab, slab, outer->here + b * slab * dim);
        for (uint64_t b = 0; i && outer->window && b < network.images; b++)
            convolve(&outer->convolution, level, config.convolution, 1, (int64_t)i, network.pixel_channels,
                     outer->numbers + b * network.slab[level] * numbers, network.pixel_channels * numbers,
                     outer->here + b * slab * dim);
        for (uint64_t k = 0; k < network.images * slab * dim; k++)
            outer->below[k] = i && outer->layers ? outer->here[k] + outer->upper[k] : outer->here[k];
        walk(channel, level + 1, start, outer->below);
        if (i + 1 == config.shape[level] || !outer->layers) continue;
        for (uint64_t b = 0; b < network.images; b++) {
            const uint32_t *codes = network.codes + (b * config.channels + channel) * config.positions + start;
            float *x = outer->upper + b * slab * dim;
            for (uint64_t s = 0; s < slab; s++) {
                embed(network.table, dim, &network.of_features, codes[s], x + s * dim);
                if (outer->window)
                    embed(outer->table, 1, &outer->of_codes, codes[s],
                          outer->numbers + (b * network.slab[level] + i * slab + s) * numbers);
            }
            add(x, outer->here + b * slab * dim, slab * dim);
            for (int layer = 0; layer < outer->layers; layer++)
                apply_block(&outer->blocks[layer], x, slab, i, &outer->caches[layer], b * slab);
        }
    }
}

/* Write what the channel encoder makes of the channels before one. */
static void encode_channels(uint64_t channel) {
    uint64_t dim = config.dim, positions = config.positions, inputs = network.encoder_inputs;
    const Memory *mark = memory;
    float *seen = floats(product(positions, inputs));
    for (uint64_t b = 0; b < network.images; b++) {
        float *x = network.encoded + b * positions * dim;
        for (uint64_t p = 0; p < positions; p++) {
            float *to = seen + p * inputs;
            memset(to, 0, (size_t)inputs * sizeof(float));
            for (uint64_t c = 0; c < channel; c++) {
                uint32_t code = network.codes[(b * config.channels + c) * positions + p];
                if (config.ordinal)
                    write_features(code, to + c * network.features);
                else
                    to[c] = (float)code / (float)config.divisor;
            }
            to += config.channels * network.features;
            to[config.one_hot ? channel : 0] = config.one_hot ? 1.0f : (float)channel / (float)config.channels;
        }
        memset(x, 0, (size_t)(positions * dim) * sizeof(float));
        convolve(&network.encoder_convolution, 0, 1, 0, 0, 1, seen, inputs, x);
        add(x, network.encoder_positions, positions * dim);
        for (uint64_t p = 0; network.labels && p < positions; p++)
            add(x + p * dim, network.labels + (uint64_t)network.classes[b] * dim, dim);
        for (int layer = 0; layer < config.encoder_layers; layer++)
            apply_block(&network.encoder[layer], x, positions, 0, NULL, 0);
    }
    release(mark);
}

/* Read the values of some images from the stream. */
static void decode(uint64_t images) {
    prepare(images);
    for (uint64_t channel = 0; channel < config.channels; channel++) {
        if (network.encoder) encode_channels(channel);
        walk(channel, 0, 0, NULL);
    }
}

/* Zlib ------------------------------------------------------------------------------------------------------------- */

typedef struct {
    const unsigned char *at, *end;
    unsigned bits;
    int held;
    unsigned char *out;
    uint64_t size, most;
} Inflating;

typedef struct {
    int counts[16], symbols[288];
} Huffman;

static void bad_zlib(void) { fail("what the archive holds in zlib's format is damaged, or too large"); }

static unsigned take_bits(Inflating *from, int count) {
    for (; from->held < count; from->held += 8) {
        if (from->at == from->end) bad_zlib();
        from->bits |= (unsigned)*from->at++ << from->held;
    }
    unsigned bits = from->bits & ((1u << count) - 1);
    from->bits >>= count;
    from->held -= count;
    return bits;
}

static void build(Huffman *code, const unsigned char *lengths, int count) {
    int starts[16] = {0}, left = 1;
    memset(code, 0, sizeof(*code));
    for (int i = 0; i < count; i++)
        code->counts[lengths[i]]++;
    code->counts[0] = 0;
    for (int length = 1; length < 16; length++) {
        left = 2 * left - code->counts[length];
        starts[length] = starts[length - 1] + code->counts[length - 1];
        if (left < 0) bad_zlib();
    }
    for (int i = 0; i < count; i++)
        if (lengths[i]) code->symbols[starts[lengths[i]]++] = i;
}

static int take_symbol(Inflating *from, const Huffman *code) {
    int word = 0, first = 0, index = 0;
    for (int length = 1; length < 16; length++) {
        word |= (int)take_bits(from, 1);
        if (word - first < code->counts[length]) return code->symbols[index + word - first];
        index += code->counts[length];
        first = (first + code->counts[length]) * 2;
        word *= 2;
    }
    bad_zlib();
    return 0;
}

static void put_byte(Inflating *to, unsigned char byte) {
    if (to->size == to->most) bad_zlib();
    to->out[to->size++] = byte;
}

static void inflate_block(Inflating *from, const Huffman *literals, const Huffman *distances) {
    for (;;) {
        int symbol = take_symbol(from, literals);
        if (symbol == 256) return;
        if (symbol < 256) {
            put_byte(from, (unsigned char)symbol);
            continue;
        }
        int extra = symbol < 265 || symbol == 285 ? 0 : (symbol - 261) / 4;
        unsigned length = symbol < 265 ? symbol - 254 : symbol == 285 ? 258 : 3 + ((4 + (symbol - 265) % 4) << extra);
        length += take_bits(from, extra);
        symbol = take_symbol(from, distances);
        extra = symbol < 4 ? 0 : symbol / 2 - 1;
        uint64_t distance = (symbol < 4 ? symbol : (2 + symbol % 2) << extra) + 1u;
        distance += take_bits(from, extra);
        if (distance > from->size || symbol > 29) bad_zlib();
        while (length--)
            put_byte(from, from->out[from->size - distance]);
    }
}

static Bytes unpack(Bytes packed, uint64_t most) {
    static const unsigned char order[] = {16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15};
    Inflating from = {.at = packed.bytes, .end = packed.bytes + packed.size, .out = take(most + 1, 1), .most = most};
    unsigned head = take_bits(&from, 8), last, a = 1, b = 0, check = 0;
    if ((head << 8 | take_bits(&from, 8)) % 31 || (head & 15) != 8) bad_zlib();
    do {
        Huffman literals, distances;
        unsigned char lengths[320] = {0};
        last = take_bits(&from, 1);
        unsigned kind = take_bits(&from, 2);
        if (kind == 0) {
            from.bits = 0;
            from.held = 0;
            unsigned size = take_bits(&from, 16);
            if (size != (~take_bits(&from, 16) & 65535)) bad_zlib();
            while (size--)
                put_byte(&from, (unsigned char)take_bits(&from, 8));
            continue;
        }
        int count = 288, count_of_distances = 30;
        if (kind == 1) {
            for (int i = 0; i < 288; i++)
                lengths[i] = i < 144 ? 8 : i < 256 ? 9 : i < 280 ? 7 : 8;
            memset(lengths + 288, 5, 30);
        } else if (kind == 2) {
            count = 257 + (int)take_bits(&from, 5);
            count_of_distances = 1 + (int)take_bits(&from, 5);
            int of_lengths = 4 + (int)take_bits(&from, 4), i = 0;
            for (; i < of_lengths; i++)
                lengths[order[i]] = (unsigned char)take_bits(&from, 3);
            build(&literals, lengths, 19);
            memset(lengths, 0, sizeof(lengths));
            for (i = 0; i < count + count_of_distances;) {
                int symbol = take_symbol(&from, &literals), times = 1, value = symbol;
                if (symbol >= 16) {
                    value = symbol == 16 && i ? lengths[i - 1] : 0;
                    times = symbol == 16 ? 3 + (int)take_bits(&from, 2)
                                         : symbol == 17 ? 3 + (int)take_bits(&from, 3) : 11 + (int)take_bits(&from, 7);
                }
                if (i + times > count + count_of_distances || (symbol == 16 && !i)) bad_zlib();
                while (times--)
                    lengths[i++] = (unsigned char)value;
            }
        } else
            bad_zlib();
        if (count > 288) bad_zlib();
        build(&literals, lengths, count);
        build(&distances, lengths + count, count_of_distances);
        inflate_block(&from, &literals, &distances);
    } while (!last);
    from.held = 0;
    from.bits = 0;
    for (int i = 0; i < 4; i++)
        check = check << 8 | take_bits(&from, 8);
    for (uint64_t i = 0; i < from.size; i++) {
        a = (a + from.out[i]) % 65521;
        b = (b + a) % 65521;
    }
    if (check != (b << 16 | a) || from.at != from.end) bad_zlib();
    return (Bytes){from.out, from.size};
}

/* The archive ------------------------------------------------------------------------------------------------------ */

typedef struct {
    Bytes content;
    uint64_t images;
} Chunk;

/* Where decoded images go: tiles of examples, which are in one array or in a file each. */
static struct {
    const char *path;         /* of the array, or of the folder of files */
    const Json *files, *file; /* the description of files, NULL for an array; the entry of the current file */
    int first_size;           /* the number of the first of the sizes in an entry */
    const char *type;         /* of values, as NumPy writes it */
    int bytes;                /* of a value */
    uint64_t sizes[MAX_AXES], tile, tiles, values;
    uint16_t *example; /* [*sizes, C] */
} target;

static Bytes part(Bytes *from, uint64_t size, const char *what) {
    if (size > from->size) fail("%s ends early: the archive is cut off or damaged", what);
    Bytes found = {from->bytes, size};
    from->bytes += size;
    from->size -= size;
    return found;
}

static uint64_t varint(Bytes *from) {
    uint64_t number = 0;
    for (int shift = 0; shift < 63; shift += 7) {
        unsigned char byte = *part(from, 1, "a chunk").bytes;
        number |= (uint64_t)(byte & 127) << shift;
        if (byte < 128) return number;
    }
    fail("a chunk is damaged");
    return 0;
}

/* Set the sizes of an example; NULL: those of the model. */
static void set_sizes(const Json *size) {
    target.tiles = 1;
    target.values = config.data_channels;
    for (int axis = 0; axis < config.data_axes; axis++, size = size ? size->next : NULL) {
        uint64_t tile = config.data_shape[axis];
        target.sizes[axis] = size ? whole(size, 1, INT32_MAX, "a size of the archive's files") : tile;
        target.tiles = product(target.tiles, (target.sizes[axis] + tile - 1) / tile);
        target.values = product(target.values, target.sizes[axis]);
    }
}

static const Json *size_of(const Json *entry) {
    const Json *size = entry->first;
    for (int i = 0; i < target.first_size; i++)
        size = size->next;
    return size;
}

/* Go to the next entry that is of images, or is a whole file; there must be one, or none. */
static void next_entry(int of_images, int there) {
    target.file = target.file ? target.file->next : target.files->first;
    while (target.file && (target.file->length > 1) != of_images)
        target.file = target.file->next;
    if (!target.file != !there) fail("the archive does not hold what it describes");
}

static void open_entry(const char *suffix) {
    const char *name = target.file->first->text;
    for (const char *at = name; at;) { /* no part of a name may lead out of the folder */
        uint64_t length = strcspn(at, "/");
        if (!length || (at[0] == '.' && (length == 1 || (at[1] == '.' && length == 2))) || strpbrk(name, "\\:"))
            fail("the archive names a file outside of its folder");
        at = at[length] ? at + length + 1 : NULL;
    }
    open_output(text_of("%s/%s%s", target.path, name, suffix));
    printf("%s%s: ", name, suffix);
}

static void print_sizes(void) {
    for (int axis = 0; axis < config.data_axes; axis++)
        printf("%llu, ", (unsigned long long)target.sizes[axis]);
    printf("%llu]\n", (unsigned long long)config.data_channels);
}

/* Put an image where it belongs in its example; write the example if it is the last. */
static void put_image(const uint16_t *image) {
    uint64_t channels = config.data_channels, pixels = config.positions * config.channels / channels, filled = 0;
    unsigned char buffer[4096];
    if (target.files && !target.tile) {
        next_entry(1, 1);
        set_sizes(size_of(target.file));
    }
    for (uint64_t p = 0; p < pixels; p++) {
        uint64_t rest = p, tile = target.tile, at = 0, stride = 1, inside = 1;
        for (int axis = config.data_axes - 1; axis >= 0; axis--) {
            uint64_t length = config.data_shape[axis], size = target.sizes[axis], grid = (size + length - 1) / length;
            uint64_t index = tile % grid * length + rest % length;
            inside = inside && index < size;
            at += index * stride;
            stride *= size;
            rest /= length;
            tile /= grid;
        }
        if (inside) memcpy(target.example + at * channels, image + p * channels, (size_t)channels * sizeof(uint16_t));
    }
    target.tile = (target.tile + 1) % target.tiles;
    if (target.tile) return;
    if (target.files) open_entry(".raw");
    for (uint64_t i = 0; i < target.values; i++) {
        uint64_t value = (uint64_t)(config.lowest + target.example[i]);
        for (int byte = 0; byte < target.bytes; byte++)
            buffer[filled++] = (unsigned char)(value >> 8 * byte);
        if (filled > sizeof(buffer) - 8 || i + 1 == target.values) {
            write_output(buffer, filled);
            filled = 0;
        }
    }
    if (target.files) {
        close_output();
        printf("%s [", target.type);
        print_sizes();
    }
}

/* Decode a chunk of images. */
static void read_chunk(const Chunk *chunk, const int *classes) {
    uint64_t values = config.positions * config.channels, modelled = 0, decoded = 0, index = 0;
    const Memory *mark = memory;
    Bytes content = chunk->content;
    uint16_t *images[MAX_IMAGES] = {NULL};
    int width = config.num_values > 256 ? 2 : 1, of_modelled[MAX_IMAGES];
    uint32_t crc = 0;
    for (uint64_t left = varint(&content); left; left--, index++) { /* those that are stored without the model */
        index += varint(&content);
        if (index >= chunk->images) fail("a chunk stores an image beyond its last");
        Bytes file = part(&content, varint(&content), "a chunk");
        if (width == 1) fail("an image is stored as WebP, which this program does not read: use the package");
        file = unpack(file, 2 * values);
        if (file.size != 2 * values) fail("an image stored by zlib has another size");
        images[index] = take(values, sizeof(uint16_t));
        for (uint64_t i = 0; i < values; i++)
            images[index][i] = (uint16_t)little(file.bytes + 2 * i, 2);
    }
    for (uint64_t i = 0; i < chunk->images; i++)
        if (!images[i]) of_modelled[modelled++] = classes[i];
    if (content.size % 4 || content.size < 8) fail("a stream of %llu bytes is none", (unsigned long long)content.size);
    network.stream.state = little(content.bytes, 4) << 32 | little(content.bytes + 4, 4);
    network.stream.words = content.bytes + 8;
    network.stream.left = content.size / 4 - 2;
    network.classes = of_modelled;
    if (network.stream.state < MIN_STATE || network.stream.state >> 63)
        fail("a stream starts with a state that no encoder leaves");
    if (modelled) decode(modelled);
    if (network.stream.left) fail("a stream goes on after its last symbol: damage, or another model");
    for (uint64_t i = 0; i < chunk->images; i++) {
        if (!images[i]) images[i] = network.values + decoded++ * values;
        for (uint64_t k = 0; k < values; k++) {
            unsigned char bytes[2] = {images[i][k] & 255, images[i][k] >> 8};
            crc = crc32(crc, bytes, (uint64_t)width);
        }
    }
    if (network.stream.state != (MIN_STATE | (crc & (MIN_STATE - 1))))
        fail("the decoded images have another checksum: damage, or labels of other images");
    for (uint64_t i = 0; i < chunk->images; i++)
        put_image(images[i]);
    release(mark);
}

/* Return the class of each image from a text file; without one, that of unlabelled images. */
static const int *read_classes(const char *name, uint64_t images, int unlabelled) {
    int *classes = take(images + 1, sizeof(int));
    char *at = name ? (char *)read_file(name, (uint64_t)1 << 30).bytes : NULL;
    for (uint64_t i = 0; i < images; i++) {
        char *end = at;
        long found = at ? strtol(at, &end, 10) : unlabelled;
        if ((at && end == at) || found < 0 || found > unlabelled)
            fail("%s must hold %llu classes from 0 to %d", name, (unsigned long long)images, unlabelled);
        classes[i] = (int)found;
        at = end;
    }
    if (at && at[strspn(at, " \t\r\n")]) fail("%s holds more classes than the archive has images", name);
    return classes;
}

/* Find out from the metadata where images go. */
static void read_description(Bytes packed, uint64_t images) {
    uint64_t largest_example = 0, most = 64 * packed.size > 1 << 24 ? 64 * packed.size : 1 << 24;
    const Json *json = NULL, *shape = NULL;
    if (packed.size) {
        json = read_json(unpack(packed, most < 1 << 27 ? most : 1 << 27), "the archive's description");
        if (member(json, "scan")) fail("the archive holds a scan, which this program cannot restore: use the package");
        target.files = member(json, "pictures") ? member(json, "pictures") : member(json, "videos");
        target.first_size = member(json, "pictures") ? 2 : 1;
        shape = member(json, "shape");
        if (target.files ? target.files->kind != ARRAY : !shape || shape->length <= (uint64_t)config.data_axes)
            fail("the archive's description is damaged");
    }
    for (const Json *each = target.files ? target.files->first : NULL; each; each = each->next) {
        if (each->kind != ARRAY || !each->length || each->first->kind != STRING ||
            strlen(each->first->text) != each->first->length ||
            (each->length > 1 && each->length < (uint64_t)(target.first_size + config.data_axes)))
            fail("the archive's description of its files is damaged");
        if (each->length == 1) continue;
        set_sizes(size_of(each));
        largest_example = target.values > largest_example ? target.values : largest_example;
    }
    if (!target.files) {
        set_sizes(shape && shape->first ? shape->first->next : NULL);
        largest_example = target.values;
        if (images % target.tiles) fail("the archive does not hold whole examples of its array");
        open_output(target.path);
    }
    target.example = take(largest_example, sizeof(uint16_t));
}

static void read_archive(const char *name, const char *labels) {
    static const unsigned char magic[8] = {0x89, 'A', 'X', 'L', '\r', '\n', 0x1a, '\n'};
    Bytes file = read_file(name, MAX_MEMORY), left = file;
    const char *what = "the header";
    if (memcmp(part(&left, 8, what).bytes, magic, 8)) fail("%s: no archive: its first bytes are others", name);
    int version = *part(&left, 1, what).bytes;
    if (version != VERSION)
        fail("%s: an archive of format version %d; this program reads version %d", name, version, VERSION);
    unsigned char *fingerprint = part(&left, 32, what).bytes, *fixed = part(&left, 18, what).bytes;
    uint64_t count = little(fixed + 5, 4), axes = fixed[17], images = 0;
    unsigned char *sizes = part(&left, 4 * axes, what).bytes, *index = part(&left, 10 * count, what).bytes;
    Bytes metadata = part(&left, little(fixed + 9, 4), what);
    uint64_t head = file.size - left.size;
    if (little(part(&left, 4, what).bytes, 4) != crc32(0, file.bytes, head))
        fail("%s: the header is damaged: its checksum differs", name);
    if (memcmp(fingerprint, model.fingerprint, 32))
        fail("%s: written with another model: give the model folder it was written with", name);
    int fits = axes == (uint64_t)config.data_axes && little(fixed + 13, 4) == config.data_channels &&
               little(fixed + 1, 4) == (uint64_t)config.num_values;
    for (uint64_t axis = 0; fits && axis < axes; axis++)
        fits = little(sizes + 4 * axis, 4) == config.data_shape[axis];
    if (!fits) fail("%s: the header states sizes that are not those of its model", name);
    if (fixed[0] > 1) fail("%s: written with a conditioning tensor, which this program does not take", name);
    if (fixed[0] != (labels != NULL))
        fail(labels ? "%s: written without labels" : "%s: written with labels: give a file of them", name);
    if (labels && !config.num_classes) fail("%s: damaged: its model has no classes", name);
    Chunk *chunks = take(count, sizeof(Chunk));
    for (uint64_t i = 0; i < count; i++, index += 10) {
        chunks[i].images = little(index, 2);
        chunks[i].content = part(&left, little(index + 2, 4), "a chunk");
        if (chunks[i].images > MAX_IMAGES) fail("%s: a chunk claims more than %d images", name, MAX_IMAGES);
        if (crc32(0, chunks[i].content.bytes, chunks[i].content.size) != little(index + 6, 4))
            fail("%s: chunk %llu is damaged: its checksum differs", name, (unsigned long long)i);
        images += chunks[i].images;
    }
    if (left.size) fail("%s: there are bytes behind the last chunk", name);
    const int *classes = read_classes(labels, images, config.num_classes);
    read_network();
    int is_byte = config.lowest >= 0 && config.lowest + config.num_values <= 256;
    int is_short = config.lowest >= 0 && config.lowest + config.num_values <= 65536;
    target.bytes = is_byte ? 1 : is_short ? 2 : 4;
    target.type = is_byte ? "|u1" : is_short ? "<u2" : "<i4";
    read_description(metadata, images);
    for (uint64_t i = 0; i < count; classes += chunks[i++].images)
        if (chunks[i].images) read_chunk(&chunks[i], classes);
    if (target.tile) fail("the archive ends within an image of its description");
    if (!target.files) {
        close_output();
        printf("%s [%llu, ", target.type, (unsigned long long)(images / target.tiles));
        print_sizes();
        return;
    }
    next_entry(1, 0);
    for (uint64_t i = 0; i < count; i++)
        if (!chunks[i].images) {
            next_entry(0, 1);
            open_entry("");
            write_output(chunks[i].content.bytes, chunks[i].content.size);
            close_output();
            printf("as it was\n");
        }
    next_entry(0, 0);
}

int main(int count, char **words) {
    if (count < 4 || count > 5) {
        fputs("usage: axl MODEL_FOLDER ARCHIVE OUTPUT [LABELS]\n", stderr);
        return 2;
    }
    target.path = words[3];
    check_arithmetic();
    read_model(words[1]);
    read_archive(words[2], count == 5 ? words[4] : NULL);
    release(NULL);
    return fflush(stdout) ? 2 : 0;
}
