/* axl: restore the values of an archive of the package axial-transformers (format version 8).

   C99 and the standard library. The network and the coder are those of the package's engine, the files *.h that are
   included here; `make axl` joins them and this file into one, build/axl.c, which is all that is needed:

       cc -std=c99 -O2 -ffp-contract=off -o axl axl.c -lm
       ./axl [--model FOLDER] ARCHIVE OUTPUT [MIB]

   FOLDER is that of a model of the package, for an archive that names one in its first line: it has model.safetensors and
   archive.txt. `make axl MODELS="photos32 ..."` puts models into the program, which then needs no folder of theirs.

   With -O3 -march=native it is 20 times faster, on processors with fused multiply-add. Never use -ffast-math.

   An archive of an array: OUTPUT becomes the raw values, lowest byte first, channels last; a line has their type and
   shape. An archive of images: OUTPUT becomes a folder, with the folders within. Images come back as raw values; a line
   says what each is. Stored files come back as they were, those of an array as OUTPUT.NAME.

   An error is one line on stderr, and exit status 2. Archives may be hostile: sizes are checked before memory is taken.
   The memory of the whole program is at most MIB, or 32 MiB and 16 KiB for each byte of the archive. */

#ifdef _WIN32
#include <direct.h>
#define make_folder(name) _mkdir(name)
#else
#define _POSIX_C_SOURCE 200809L
#include <sys/stat.h>
#define make_folder(name) mkdir(name, 0777)
#endif

#include "arithmetic.h"
#include "coder.h"
#include "layers.h"
#include "rows.h"

#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>

enum {
    VERSION = 8, MAX_AXES = 8, MAX_SIZE = 1 << 20, MAX_LAYERS = 1024, MAX_IMAGES = 256,
    MAX_DEPTH = 16, /* levels of JSON */
    MAX_TENSORS = 1 << 16, MAX_CONFIG = 1 << 16, NUMBERS_PER_BYTE = 32, CODE_OF_STEP = 240, CODE_OF_PRECISION = 112,
    LAST_STEP = 511, LAST_PRECISION = 127, LAST_PRECISION_OF_CHANGES = 191, MAX_LINE = 300,
    MAX_NEIGHBOURS = 256, MAX_WINDOW = 4096 /* positions */
};
#define MAX_MEMORY ((uint64_t)1 << 34)
#define LSTM "inner_decoder.lstm."

/* Memory and files ------------------------------------------------------------------------------------------------- */

typedef struct Memory {
    struct Memory *before;
    uint64_t size;
} Memory;

static Memory *memory;
static uint64_t memory_taken, memory_limit = MAX_MEMORY;
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
    if (output) fclose(output);
    if (output) remove(output_name);
    exit(2);
}

static uint64_t product(uint64_t a, uint64_t b) {
    if (a && b > UINT64_MAX / a) fail("sizes are too large: the model or the archive is damaged");
    return a * b;
}

/* Return zeroed memory, which `release` gives back. */
static void *take(uint64_t count, uint64_t size) {
    uint64_t head = (sizeof(Memory) + 31) / 32 * 32, bytes = product(count, size), left = memory_limit - memory_taken;
    if (left < head || bytes > left - head || bytes > SIZE_MAX - head)
        fail("more than %u MiB of memory would be needed: if you trust the archive, name more behind OUTPUT",
             (unsigned)(memory_limit >> 20));
    Memory *block = calloc(1, (size_t)(head + bytes));
    if (!block) fail("out of memory");
    *block = (Memory){memory, head + bytes};
    memory = block;
    memory_taken += block->size;
    return (char *)block + head;
}

static float *floats(uint64_t count) { return take(count, sizeof(float)); }

typedef struct {
    unsigned char *bytes;
    uint64_t size;
} Bytes;

/* Return what a file holds, and a zero byte behind it. */
static Bytes read_file(const char *name) {
    FILE *file = fopen(name, "rb");
    long size = file && !fseek(file, 0, SEEK_END) ? ftell(file) : -1;
    if (size < 0 || size == LONG_MAX || fseek(file, 0, SEEK_SET)) fail("%s: no file that can be read", name);
    Bytes bytes = {take((uint64_t)size + 1, 1), (uint64_t)size};
    if (fread(bytes.bytes, 1, (size_t)size, file) != bytes.size || fclose(file)) fail("%s: cannot be read", name);
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
    if (!output) fail("%s: cannot be written: %s", name, strerror(errno));
}

/* Make the folders that a path goes through, from the byte `first` on; some may be there already. */
static void make_folders(const char *path, uint64_t first) {
    char *name = (char *)text_of("%s", path);
    for (char *at = name + first; (at = strchr(at, '/')); *at++ = '/') {
        *at = 0;
        if (make_folder(name) && errno != EEXIST) fail("%s: this folder cannot be made: %s", name, strerror(errno));
    }
}

static void write_output(const void *bytes, uint64_t size) {
    if (fwrite(bytes, 1, (size_t)size, output) != size) fail("%s: cannot be written: %s", output_name, strerror(errno));
}

static void close_output(void) {
    FILE *file = output;
    output = NULL;
    if (fclose(file)) fail("%s: cannot be written: %s", output_name, strerror(errno));
}

static void put_little(uint64_t number, int size, unsigned char *bytes) {
    for (int i = 0; i < size; i++)
        bytes[i] = (unsigned char)(number >> 8 * i);
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
} Text;

static void bad_json(const Text *text) { fail("%s: damaged: its JSON cannot be read", text->name); }

/* Skip spaces, and what is wanted if it is there. */
static int next_is(Text *text, char wanted) {
    while (text->at < text->end && strchr(" \t\r\n", *text->at) && *text->at)
        text->at++;
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
    Json *json = take(1, sizeof(Json));
    if (depth > MAX_DEPTH) bad_json(text);
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
    if (next_is(&text, ' ') || text.at != text.end) bad_json(&text);
    return json;
}

static const Json *member(const Json *object, const char *key) {
    const Json *found = NULL;
    for (const Json *each = object->kind == OBJECT ? object->first : NULL; each; each = each->next)
        if (!strcmp(each->key, key)) found = each;
    return found;
}

static int is(const Json *json, const char *text) {
    return json && json->text && json->length == strlen(text) && !memcmp(json->text, text, (size_t)json->length);
}

/* Return a number in low .. high. */
static double number_in(const Json *json, double low, double high, const char *what) {
    char *end = NULL;
    double number = json && json->kind == NUMBER ? strtod(json->text, &end) : NAN;
    if (!end || end != json->text + json->length || !(number >= low && number <= high))
        fail("%s must be a number from %.10g to %.10g", what, low, high);
    return number;
}

static uint64_t whole(const Json *json, double low, double high, const char *what) {
    double number = number_in(json, low, high, what);
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

static uint32_t cube_roots[64];

/* The first bits behind the point of a root. */
static uint32_t bits_behind_point(double root) { return (uint32_t)((root - floor(root)) * 4294967296.0); }

/* Begin with the square roots of 8 primes; the steps of a block take the cube roots of 64. */
static void sha256_start(Sha256 *sha) {
    memset(sha, 0, sizeof(*sha));
    for (int number = 2, count = 0, divisor; count < 64; number++) {
        for (divisor = 2; number % divisor; divisor++) {}
        if (divisor < number) continue;
        if (count < 8) sha->state[count] = bits_behind_point(sqrt(number));
        cube_roots[count++] = bits_behind_point(cbrt(number));
    }
}

static uint32_t turn(uint32_t x, int by) { return x >> by | x << (32 - by); }

static void sha256_block(Sha256 *sha) {
    uint32_t w[64] = {0}, s[8];
    for (int i = 0; i < 64; i++)
        w[i / 4] = w[i / 4] << 8 | sha->block[i];
    for (int i = 16; i < 64; i++)
        w[i] = w[i - 16] + w[i - 7] + (turn(w[i - 15], 7) ^ turn(w[i - 15], 18) ^ w[i - 15] >> 3) +
               (turn(w[i - 2], 17) ^ turn(w[i - 2], 19) ^ w[i - 2] >> 10);
    memcpy(s, sha->state, sizeof(s));
    for (int i = 0; i < 64; i++) {
        uint32_t a = s[7] + (turn(s[4], 6) ^ turn(s[4], 11) ^ turn(s[4], 25)) + ((s[4] & s[5]) ^ (~s[4] & s[6])) +
                     cube_roots[i] + w[i];
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

/* The coder -------------------------------------------------------------------------------------------------------- */

/* 2^30 / (1 + e^(i / 64)), rounded. Float64 suffices: no number is closer than 5e-5 to the middle of two integers. */
static int64_t logistic_table[TABLE_SIZE];

static void fill_logistic_table(void) {
    for (int i = 0; i < TABLE_SIZE; i++)
        logistic_table[i] = (int64_t)floor(1073741824.0 / (1 + exp(i / (double)STEPS)) + 0.5);
}

/* Stop at what went wrong with a stream. */
static void check_stream(const Stream *stream) {
    if (stream->status == STREAM_TOO_SHORT) fail("a stream ends before its last symbol: damage, or another model");
    if (stream->status == STREAM_NOT_FINITE) fail("the model's logits are not finite: its weights cannot be used");
}

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

static Stream open_stream(Bytes content) {
    if (content.size % 4 || content.size < 8) fail("a stream of %llu bytes is none", (unsigned long long)content.size);
    Stream stream = {.words = content.bytes + 8, .count = content.size / 4 - 2,
                     .state = little(content.bytes, 4) << 32 | little(content.bytes + 4, 4)};
    if (stream.state < MIN_STATE || stream.state >> 63) fail("a stream starts with a state that no encoder leaves");
    return stream;
}

/* See "The model in an archive" in the specification. */
static double size_of(int64_t code, int exponent) { return ldexp((double)(8 + code % 8), (int)(code / 8) + exponent); }

static int64_t read_number(Stream *stream, int64_t code) {
    float none = 0, precision = (float)size_of(code, -17);
    int64_t half = 1 << 15, share = (int64_t)SLOTS - 2 * half;
    Mixture mixture = {.count = 2 * half, .mixtures = 1, .table = logistic_table, .centre = half, .means = &none,
                       .precisions = &precision, .shares = &share};
    return read_mixture(&mixture, stream) - half;
}

static int64_t read_code(Stream *stream, int64_t before, int64_t last) {
    int64_t code = before + read_number(stream, CODE_OF_PRECISION);
    if (code < 0 || code > last) fail("the model of the archive is damaged: a code is beyond its bounds");
    return code;
}

static uint64_t read_words(Stream *stream, int count) {
    uint64_t number = 0;
    for (int i = 0; i < count; i++) {
        uint64_t word = (stream->state & (((uint64_t)1 << PRECISION) - 1)) >> (PRECISION - 16);
        advance(stream, (int64_t)(word << (PRECISION - 16)), (int64_t)((word + 1) << (PRECISION - 16)));
        number |= word << 16 * i;
    }
    return number;
}

static float read_float(Stream *stream) {
    float value = from_bits((uint32_t)read_words(stream, 2));
    if (!(fabsf(value) <= FLT_MAX)) fail("the model of the archive is damaged: it holds NaN or infinity");
    return value;
}

/* The configuration ------------------------------------------------------------------------------------------------ */

static struct {
    int axes, data_axes;
    uint64_t shape[MAX_AXES + 1], data_shape[MAX_AXES]; /* *A' and *A */
    uint64_t channels, data_channels;                   /* C' and C */
    uint64_t positions, depth;                          /* the product of *A'; P, values of a position */
    uint64_t values;                                    /* of an example */
    uint64_t dim, heads, hidden;
    enum { CHANNELS, RASTER, COLUMNS, AXIS, LAYOUT_ROWS, FRAMES, PIXELS } layout;
    int64_t lowest, highest;
    int64_t *levels; /* the values of codes; NULL: from the lowest on */
    double step, offset; /* of floats; a step of 0: there are none */
    int num_values, num_classes, divisor, gated_convolutions, mixtures;
    float max_log_precision;
    int encoder_layers, outer_layers[MAX_AXES], inner_layers;
    int ordinal, centred, activity, lstm, one_hot, rotary;
} config;

static const Json *fields; /* those that are not at their defaults */
static uint64_t fields_known;

static const Json *field(const char *name) {
    const Json *found = member(fields, name);
    fields_known += found != NULL;
    return found;
}

/* Return which of these names, of which the last is empty, a field has; the first is its default. */
static int choice(const char *name, const char *const *names) {
    const Json *json = field(name);
    int found = 0;
    while (json && !is(json, names[found]))
        if (!*names[++found]) fail("%s is none of those that are known", name);
    return found;
}

static double number_of(const char *name, double low, double high, double missing) {
    const Json *json = field(name);
    return json ? number_in(json, low, high, name) : missing;
}

static int whole_of(const char *name, double low, double high, double missing) {
    double number = number_of(name, low, high, missing);
    if (!(floor(number) == number)) fail("%s must be a whole number", name);
    return (int)number;
}

static uint64_t power(uint64_t base, int exponent) {
    uint64_t result = 1;
    while (exponent--)
        result = product(result, base);
    return result;
}

static void apply_layout(void) {
    uint64_t C = config.data_channels;
    config.axes = config.data_axes;
    config.channels = config.layout == CHANNELS ? C : 1;
    config.depth = config.layout == PIXELS ? C : 1;
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
    config.values = product(config.positions, product(config.channels, config.depth));
    if (config.values > (uint64_t)1 << 31 || config.channels > MAX_SIZE)
        fail("shape has too many positions");
}

static void read_config(Bytes text) {
    fields = read_json(text, "the configuration");
    const Json *shape = field("shape"), *outer = field("outer_layers"), *grid = field("grid");
    const Json *levels = field("levels");
    if (!is(field("model"), "axial_transformer")) fail("the archive's model is no axial_transformer");
    if (!shape || shape->kind != ARRAY || shape->length < 1 || shape->length > MAX_AXES)
        fail("shape must have 1 to %d axes", MAX_AXES);
    for (const Json *each = shape->first; each; each = each->next)
        config.data_shape[config.data_axes++] = whole(each, 1, MAX_SIZE, "shape");
    config.layout =
        choice("layout", (const char *const[]){"channels", "raster", "columns", "axis", "rows", "frames", "pixels", ""});
    config.data_channels = (uint64_t)whole_of("channels", 1, MAX_SIZE, 1);
    apply_layout();
    config.lowest = whole_of("lowest", -2147483648.0, 2147483647.0, 0);
    config.num_values = whole_of("num_values", 2, 1 << 16, 256);
    config.highest = config.lowest + config.num_values - 1;
    if (levels) {
        config.levels = take((uint64_t)config.num_values, sizeof(int64_t));
        const Json *each = levels->first;
        for (int i = 0; i < config.num_values; i++, each = each->next) {
            if (!each) fail("levels must be num_values numbers");
            double number = number_in(each, i ? (double)config.highest + 1 : (double)config.lowest, 2147483647.0, "levels");
            config.levels[i] = config.highest = (int64_t)number;
            if ((double)config.highest != number) fail("levels must be whole numbers");
        }
        if (each) fail("levels must be num_values numbers");
    }
    config.num_classes = whole_of("num_classes", 1, MAX_SIZE, 0);
    config.dim = whole_of("dim", 1, MAX_SIZE, 128);
    config.heads = whole_of("heads", 1, MAX_SIZE, 4);
    config.hidden = (int)rint(number_of("mlp_ratio", 1.0 / config.dim, 64, 4) * config.dim);
    config.divisor = whole_of("input_divisor", 1, MAX_SIZE, config.num_values - 1);
    config.gated_convolutions = whole_of("gated_convolutions", 0, 8, 0);
    config.mixtures = whole_of("mixtures", 1, 256, 10);
    config.max_log_precision = (float)number_of("max_log_precision", -4, 5, 2.5);
    config.inner_layers = whole_of("inner_layers", 1, MAX_LAYERS, 4);
    config.encoder_layers = whole_of("encoder_layers", 0, MAX_LAYERS, NAN);
    config.ordinal = choice("values", (const char *const[]){"categorical", "ordinal", ""});
    config.centred = choice("centred", (const char *const[]){"false", "true", ""});
    config.activity = choice("activity", (const char *const[]){"false", "true", ""});
    config.lstm = choice("inner", (const char *const[]){"attention", "lstm", ""});
    config.one_hot = !choice("channel_planes", (const char *const[]){"one_hot", "index", ""});
    if (grid) {
        config.step = number_in(grid->first, 1e-250, DBL_MAX, "the step of grid");
        config.offset = number_in(grid->first->next, -DBL_MAX, DBL_MAX, "the offset of grid");
    }
    config.rotary = number_of("rotary", 1, MAX_SIZE, 0) > 0;
    int layers = config.encoder_layers + config.inner_layers, is_list = outer && outer->kind == ARRAY;
    const Json *each = is_list ? outer->first : outer;
    for (int level = 0; level < config.axes - 1; level++, each = is_list && each ? each->next : each) {
        config.outer_layers[level] = (int)whole(each, 0, MAX_LAYERS, "outer_layers");
        layers += config.outer_layers[level];
        if (config.outer_layers[level] % (config.axes - level))
            fail("outer_layers must be multiples of the number of axes");
    }
    if (layers > MAX_LAYERS || config.encoder_layers % config.axes || config.dim % config.heads ||
        (config.channels > 1 && !config.encoder_layers) || (config.lstm && config.inner_layers != 1) ||
        (config.centred && !config.ordinal) || (config.activity && !config.centred) || (config.rotary && config.dim / config.heads % 2))
        fail("the fields of the model's configuration do not fit each other");
    if (config.layout == PIXELS &&
        (!config.ordinal || config.encoder_layers || config.depth < 2 || config.depth > MAX_CHANNELS))
        fail("the fields of the model's configuration do not fit layout pixels");
    if (config.gated_convolutions && 2 * power(3, config.axes - 1) > MAX_WINDOW)
        fail("the windows of gated convolutions are too large");
    number_of("dropout", 0, 1, 0);
    if (config.highest >= (int64_t)1 << 31 || config.hidden < 1 || fields_known != fields->length)
        fail("the archive's model is of no kind that this program knows");
}

static Work work;
static Extent extent; /* of all layers */

/* Tensors ---------------------------------------------------------------------------------------------------------- */

typedef struct {
    const char *name;
    enum { TRAINED, ROTATIONS, EXACT, COEFFICIENTS } kind;
    int axes;
    uint64_t shape[3], count;
    float *values;    /* with room up to whole tiles */
    int64_t *numbers; /* of COEFFICIENTS */
    Linear *layer;    /* the layer whose weight it is */
    int floats;       /* of that layer: it is not rounded to integers */
} Tensor;

/* The functions that build the network add the tensors that it needs. They are filled later, all at once. */
static struct {
    Tensor tensors[MAX_TENSORS];
    int count;
    uint64_t numbers, most_numbers;
} model;

/* Add a tensor of these sizes; 0: no further axis. */
static Tensor *tensor_of(int kind, const char *name, uint64_t a, uint64_t b, uint64_t c) {
    if (model.count == MAX_TENSORS) fail("the model has more tensors than a model has");
    Tensor *tensor = &model.tensors[model.count++];
    *tensor = (Tensor){.name = name, .kind = kind, .axes = !a ? 0 : !b ? 1 : !c ? 2 : 3, .shape = {a, b, c}};
    tensor->count = 1;
    for (int axis = 0; axis < tensor->axes; axis++)
        tensor->count = product(tensor->count, tensor->shape[axis]);
    model.numbers += kind == ROTATIONS ? tensor->count / NUMBERS_PER_BYTE : tensor->count;
    if (tensor->count / NUMBERS_PER_BYTE > model.most_numbers || model.numbers > model.most_numbers)
        fail("the configuration is of a model with more than %d numbers for each byte in which the archive stores it",
             NUMBERS_PER_BYTE);
    if (kind == COEFFICIENTS)
        tensor->numbers = take(tensor->count, sizeof(int64_t));
    else
        tensor->values = floats((tensor->count + TILE - 1) / TILE * TILE);
    return tensor;
}

static float *matrix(const char *name, uint64_t rows, uint64_t columns) {
    return tensor_of(TRAINED, name, rows, columns, 0)->values;
}

/* Add weight and bias of a layer, which stays where it is in memory; NULL: there is no bias. */
static Tensor *add_linear(Linear *layer, const char *weight, const char *bias, uint64_t inputs, uint64_t outputs) {
    Tensor *tensor = tensor_of(TRAINED, weight, outputs, inputs, 0);
    if (inputs > MAX_INPUTS) fail("a layer of the model has more than %d inputs", MAX_INPUTS);
    layer->inputs = inputs;
    layer->outputs = outputs;
    tensor->layer = layer;
    layer->bias = bias ? matrix(bias, outputs, 0) : floats((outputs + TILE - 1) / TILE * TILE);
    extent.inputs = LARGER(extent.inputs, inputs);
    return tensor;
}

static Tensor *read_linear(Linear *layer, const char *prefix, uint64_t inputs, uint64_t outputs) {
    return add_linear(layer, text_of("%s.weight", prefix), text_of("%s.bias", prefix), inputs, outputs);
}

/* Add a layer of the features of values. */
static void read_features(Linear *layer, const char *prefix, uint64_t inputs, uint64_t outputs) {
    read_linear(layer, prefix, inputs, outputs)->floats = 1;
}

static void pack_floats(Linear *layer, const float *weight) {
    uint64_t inputs = layer->inputs, tiles = (layer->outputs + TILE - 1) / TILE;
    layer->weight = floats(product(product(tiles, inputs), TILE));
    for (uint64_t o = 0; o < layer->outputs; o++)
        for (uint64_t k = 0; k < inputs; k++)
            layer->weight[(o / TILE * inputs + k) * TILE + o % TILE] = weight[o * inputs + k];
}

static void round_weights(Linear *layer, const float *weight) {
    uint64_t inputs = layer->inputs, outputs = layer->outputs, size = (outputs + TILE - 1) / TILE * TILE;
    uint8_t *row = take(inputs, 1);
    int8_t *integers = take(inputs, 1);
    product(inputs + STEP, outputs + TILE); /* then the next line does not overflow */
    layer->integers = take(bytes_of_weights(inputs, outputs), 1);
    layer->steps = floats(size);
    layer->totals = take(size, sizeof(int32_t));
    for (uint64_t o = 0; o < outputs; o++, weight += inputs) {
        layer->steps[o] = round_row(weight, inputs, row);
        for (uint64_t k = 0; k < inputs; k++)
            integers[k] = (int8_t)(row[k] - OFFSET);
        pack_integers(layer, o, integers);
    }
}

static void turn_by(double *cosine, double *sine, double c, double s) {
    double next = *cosine * c - *sine * s;
    *sine = *sine * c + *cosine * s;
    *cosine = next;
}

/* The turn by the angles of row 1 gives all: row p is the product of the turns by 1, 2, 4, .. rows of which p consists. */
static void read_rotations(Stream *stream, const Tensor *tensor) {
    uint64_t length = tensor->shape[0], width = tensor->shape[1], half = width / 2;
    for (uint64_t k = 0; k < width; k++)
        tensor->values[k] = read_float(stream);
    for (uint64_t j = 0; j < half; j++)
        for (uint64_t p = length; p--;) { /* row 0 is the last: until then, it holds row 1 */
            double c = tensor->values[j], s = tensor->values[j + half], cosine = 1, sine = 0;
            for (uint64_t rows = 1; rows <= p; rows *= 2, turn_by(&c, &s, c, s))
                if (p & rows) turn_by(&cosine, &sine, c, s);
            if (!(fabs(cosine) <= FLT_MAX && fabs(sine) <= FLT_MAX)) fail("the model's rotations are not finite");
            tensor->values[p * width + j] = (float)cosine;
            tensor->values[p * width + j + half] = (float)sine;
        }
}

static void add_to_fingerprint(Sha256 *sha, const Tensor *tensor) {
    const char *shape = "";
    for (int i = 0; i < tensor->axes; i++)
        shape = text_of("%s%s%llu", shape, i ? ", " : "", (unsigned long long)tensor->shape[i]);
    shape = text_of("%s torch.%s [%s]", tensor->name, tensor->numbers ? "int64" : "float32", shape);
    sha256_add(sha, "", 1);
    sha256_add(sha, shape, strlen(shape) + 1);
    for (uint64_t i = 0; i < tensor->count; i++) {
        uint64_t bits = tensor->numbers ? (uint64_t)tensor->numbers[i] : float_bits(tensor->values[i]);
        unsigned char bytes[8];
        put_little(bits, 8, bytes);
        sha256_add(sha, bytes, tensor->numbers ? 8 : 4);
    }
}

static int by_name(const void *a, const void *b) {
    return strcmp(((const Tensor *)a)->name, ((const Tensor *)b)->name);
}

static uint64_t row_of(const Tensor *tensor) {
    if (tensor->kind == COEFFICIENTS) return tensor->shape[2];
    return tensor->axes > 1 ? tensor->shape[1] : tensor->count;
}

static void check_end(const Stream *stream) {
    if (stream->at != stream->count || stream->state != MIN_STATE)
        fail("the model of the archive is damaged: it ends otherwise");
}

/* Fill the tensors from the stream. */
static void read_tensors(Stream stream) {
    int64_t step = CODE_OF_STEP, precision = CODE_OF_PRECISION, *numbers;
    for (Tensor *tensor = model.tensors; tensor < model.tensors + model.count; tensor++) {
        int trained = tensor->kind == TRAINED;
        uint64_t row = row_of(tensor);
        if (tensor->kind == ROTATIONS) read_rotations(&stream, tensor);
        if (tensor->kind == EXACT) *tensor->values = read_float(&stream);
        for (uint64_t start = 0; (trained || tensor->numbers) && start < tensor->count; start += row) {
            if (trained) step = read_code(&stream, step, LAST_STEP);
            precision = read_code(&stream, precision, LAST_PRECISION);
            double unit = size_of(step, -43);
            for (uint64_t k = start; trained && k < start + row; k++)
                tensor->values[k] = (float)((double)read_number(&stream, precision) * unit);
            if (trained) continue;
            numbers = tensor->numbers + start;
            for (uint64_t k = 0; k < row; k++)
                numbers[k] = 4096 * read_number(&stream, precision);
            for (uint64_t k = 0; k < row; k++)
                if (numbers[k] == -32768 * 4096) numbers[k] = (int64_t)read_words(&stream, 4);
        }
        check_stream(&stream);
    }
    check_end(&stream);
}

/* Change the tensors as the stream says. */
static void read_changes(Stream stream) {
    int64_t step = CODE_OF_STEP, precision = CODE_OF_PRECISION;
    for (Tensor *tensor = model.tensors; tensor < model.tensors + model.count; tensor++) {
        if (tensor->kind != TRAINED || !read_number(&stream, CODE_OF_PRECISION)) continue;
        uint64_t row = row_of(tensor);
        for (uint64_t start = 0; start < tensor->count; start += row) {
            step = read_code(&stream, step, LAST_STEP);
            precision = read_code(&stream, precision, LAST_PRECISION_OF_CHANGES);
            double unit = size_of(step, -43);
            for (uint64_t k = start; k < start + row; k++)
                tensor->values[k] = (float)((double)tensor->values[k] + (double)read_number(&stream, precision) * unit);
        }
        check_stream(&stream);
    }
    check_end(&stream);
}

static float from_half(uint64_t bits) {
    uint64_t exponent = bits >> 10 & 31, fraction = bits & 1023;
    double size = exponent ? ldexp((double)(1024 + fraction), (int)exponent - 25) : ldexp((double)fraction, -24);
    if (exponent == 31) fail("the model holds NaN or infinity");
    return (float)(bits >> 15 ? -size : size);
}

/* Fill the tensors from a file of safetensors: the size of a JSON object, the object, then all numbers. */
static void load_tensors(Bytes file, const char *name) {
    uint64_t head = little(part(&file, 8, name).bytes, 8);
    const Json *described = read_json(part(&file, head, name), name);
    for (Tensor *tensor = model.tensors; tensor < model.tensors + model.count; tensor++) {
        const Json *own = member(described, tensor->name), *type = own ? member(own, "dtype") : NULL;
        const Json *offsets = own ? member(own, "data_offsets") : NULL;
        int is_half = is(type, "F16"), is_whole = is(type, "I64");
        uint64_t size = is_half ? 2 : is_whole ? 8 : 4;
        if (is_whole != (tensor->numbers != NULL) || (!is_half && !is_whole && !is(type, "F32")) || !offsets || !offsets->first)
            fail("%s: %s is missing, or of another type", name, tensor->name);
        uint64_t start = whole(offsets->first, 0, (double)file.size, "an offset");
        if (product(size, tensor->count) > file.size - start) fail("%s is cut off", name);
        for (uint64_t k = 0; k < tensor->count; k++) {
            uint64_t bits = little(file.bytes + start + k * size, (int)size);
            if (is_whole)
                tensor->numbers[k] = (int64_t)bits;
            else
                tensor->values[k] = is_half ? from_half(bits) : from_bits((uint32_t)bits);
            if (!is_whole && !(fabsf(tensor->values[k]) <= FLT_MAX)) fail("%s: %s is not finite", name, tensor->name);
        }
    }
}

/* Stop unless this is the SHA-256 of the text of the configuration and all tensors. */
static void check_fingerprint(Bytes text, const unsigned char *wanted, const char *otherwise) {
    unsigned char digest[32];
    Sha256 sha;
    sha256_start(&sha);
    sha256_add(&sha, text.bytes, text.size);
    for (Tensor *tensor = model.tensors; tensor < model.tensors + model.count; tensor++)
        add_to_fingerprint(&sha, tensor);
    sha256_end(&sha, digest);
    if (memcmp(wanted, digest, 32)) fail("%s", otherwise);
}

/* Bring the weights into the order in which layers read them. */
static void arrange_weights(void) {
    for (Tensor *tensor = model.tensors; tensor < model.tensors + model.count; tensor++)
        if (tensor->layer) (tensor->floats ? pack_floats : round_weights)(tensor->layer, tensor->values);
}

/* Layers ----------------------------------------------------------------------------------------------------------- */

/* Residual layers, of each the line that it attends along inside a slab; masked, it attends to the slabs so far. */
typedef struct {
    Layer *layers;
    Line *lines;
    Cache *caches;  /* of masked attention, for all images */
    uint64_t count;
    uint64_t slabs; /* in the window of a gated convolution; 0: blocks have none */
    Grid grid;      /* where these windows lie */
} Stack;

static Norm read_norm(const char *prefix) {
    const char *gain = text_of("%s.weight", prefix), *bias = text_of("%s.bias", prefix);
    return (Norm){matrix(gain, config.dim, 0), matrix(bias, config.dim, 0)};
}

/* Return a stack with room for the layers of some blocks. */
static Stack stack_of(int blocks) {
    uint64_t most = (uint64_t)blocks * (uint64_t)(2 + config.gated_convolutions);
    return (Stack){.layers = take(most, sizeof(Layer)), .lines = take(most, sizeof(Line)),
                   .caches = take(most, sizeof(Cache))};
}

/* Return numbers of positions [positions, 3^axes]: those of the window of each position in a slab of this shape, the last
   axis fastest; -1 is outside. */
static int64_t *window_positions(const uint64_t *shape, int axes, uint64_t positions) {
    uint64_t near = power(3, axes);
    int64_t *neighbours = take(product(positions, near), sizeof(int64_t));
    for (uint64_t p = 0; p < positions; p++)
        for (uint64_t n = 0; n < near; n++) {
            uint64_t position = p, step = n;
            int64_t stride = 1, found = 0;
            int inside = 1;
            for (int axis = axes - 1; axis >= 0; axis--) {
                int64_t size = (int64_t)shape[axis], at = (int64_t)(position % shape[axis] + step % 3) - 1;
                inside = inside && at >= 0 && at < size;
                found += at * stride;
                stride *= size;
                position /= shape[axis];
                step /= 3;
            }
            neighbours[p * near + n] = inside ? found : -1;
        }
    return neighbours;
}

/* Return a stack of a decoder, for slabs of this shape. */
static Stack decoder_of(int blocks, uint64_t slabs, const uint64_t *shape, int axes, uint64_t positions) {
    Stack stack = stack_of(blocks);
    if (!blocks || !config.gated_convolutions) return stack;
    stack.slabs = slabs;
    stack.grid = (Grid){.neighbours = window_positions(shape, axes, positions), .positions = positions,
                        .near = power(3, axes)};
    return stack;
}

static Layer *next_layer(Stack *stack, const char *prefix) {
    Layer *layer = &stack->layers[stack->count++];
    layer->dim = config.dim;
    layer->norm = read_norm(text_of("%s.norm", prefix));
    return layer;
}

static void read_convolution(Stack *stack, const char *prefix) {
    Layer *layer = next_layer(stack, prefix);
    layer->slabs = stack->slabs;
    read_linear(&layer->first, text_of("%s.near", prefix), product(stack->slabs * stack->grid.near, config.dim),
                2 * config.hidden);
    read_linear(&layer->last, text_of("%s.out", prefix), config.hidden, config.dim);
}

static void read_feedforward(Stack *stack, const char *prefix) {
    Layer *layer = next_layer(stack, prefix);
    read_linear(&layer->first, text_of("%s.expand", prefix), config.dim, config.hidden);
    read_linear(&layer->last, text_of("%s.contract", prefix), config.hidden, config.dim);
}

/* Read the next layers of a stack: a block that attends along a line of `length`. */
static void read_block(Stack *stack, const char *prefix, int masked, uint64_t length, uint64_t stride) {
    uint64_t dim = config.dim, first = stack->count;
    int convolutions = stack->slabs ? config.gated_convolutions : 0, k = 0;
    for (; k < convolutions / 2; k++)
        read_convolution(stack, text_of("%s.convolutions.%d", prefix, k));
    stack->lines[stack->count] = masked ? (Line){0, 0, 0} : (Line){length, stride, 0};
    Layer *attention = next_layer(stack, text_of("%s.attention", prefix));
    attention->heads = config.heads;
    read_linear(&attention->first, text_of("%s.attention.attention.qkv", prefix), dim, 3 * dim);
    read_linear(&attention->last, text_of("%s.attention.attention.out", prefix), dim, dim);
    if (config.rotary)
        attention->rotations = tensor_of(ROTATIONS, text_of("%s.attention.attention.rotations", prefix), length,
                                         dim / config.heads, 0)->values;
    for (; k < convolutions; k++)
        read_convolution(stack, text_of("%s.convolutions.%d", prefix, k));
    if (!convolutions) read_feedforward(stack, text_of("%s.feedforward", prefix));
    include_layers(&extent, stack->layers + first, stack->count - first);
}

/* Return True if a layer attends through the cache. */
static int is_masked(const Stack *stack, uint64_t n) { return stack->layers[n].heads && !stack->lines[n].length; }

/* Take memory for what the convolutions of a stack keep of slabs, which have so many rows for all images. */
static void prepare_windows(Stack *stack, uint64_t rows) {
    uint64_t slabs = 0;
    for (uint64_t n = 0; n < stack->count; n++)
        slabs += stack->layers[n].slabs;
    stack->grid.rows = rows;
    stack->grid.kept = slabs ? floats(product(slabs, product(rows, config.dim))) : NULL;
}

/* Change x [rows, D], slab i of an image, by a stack. */
static void apply_stack(const Stack *stack, float *x, uint64_t rows, uint64_t i, uint64_t image) {
    Grid grid = stack->grid;
    if (grid.kept) grid.kept += image * rows * config.dim;
    for (uint64_t n = 0; n < stack->count; n++) {
        Cache cache = stack->caches[n];
        if (is_masked(stack, n)) {
            uint64_t at = image * cache_size(rows, cache.length, config.dim);
            cache = (Cache){cache.keys + at, cache.values + at, cache.length};
        }
        apply_layer(&stack->layers[n], stack->lines[n], &grid, x, rows, i, &cache, &work);
    }
}

/* The network ------------------------------------------------------------------------------------------------------ */

typedef struct {
    Stack stack;
    float *here, *upper, *below; /* [images, positions of a slab, D]: context, what slabs before add, their sum */
} Outer;

/* Neighbours of the values of the data, and coefficients. */
typedef struct {
    int count, offsets[MAX_NEIGHBOURS][MAX_AXES + 1];
    int64_t *coefficients;               /* [2^axes, C, count + 1] */
    const int64_t *here;                 /* those of one position, */
    uint64_t neighbours[MAX_NEIGHBOURS]; /* and where its neighbours are */
} NeighbourSums;

static struct {
    uint64_t features, slab[MAX_AXES + 2]; /* slab[i]: positions of the axes from i on */
    float *tables[MAX_AXES + 1];           /* for each axis, [size, D] */
    float *labels;                         /* [classes + 1, D] */
    Stack inner;
    Rows rows;                             /* inner decoder and heads */
    RowMemory memory;
    Outer outers[MAX_AXES];
    Stack encoder;
    Linear encoder_convolution;
    int64_t *encoder_windows; /* [positions, 3^axes] */
    float *encoder_tables[MAX_AXES + 1], *encoded; /* encoded: [images, positions, D] */
    uint64_t encoder_inputs;
    float *spread;
    NeighbourSums prediction, activity;
    float *x, *window; /* of a group of rows */
    /* of the images that are decoded: */
    uint64_t images;
    const int *classes;
    uint16_t *values; /* [images, *A, C] */
    uint16_t *sizes;  /* as many: of the differences from predictions */
    int64_t *codes;   /* [images, C', *A', P] */
    Stream stream;
} network;

static void read_positions(float **tables, const char *prefix) {
    for (int axis = 0; axis < config.axes; axis++)
        tables[axis] = matrix(text_of("%s.%d", prefix, axis), config.shape[axis], config.dim);
}

/* Neighbours are at most two steps away, at most `reach` along an axis, the first step backwards; or are earlier channels.
   The last axis is fastest. */
static void read_sums(NeighbourSums *sums, const char *name, int reach) {
    int axes = config.data_axes, steps = 1, side = 2 * reach + 1;
    int most = config.data_channels > 2 ? 2 : (int)config.data_channels - 1;
    for (int axis = 0; axis < axes; axis++)
        steps *= side;
    for (int before = 0; before <= most; before++)
        for (int step = 0; step < steps; step++) {
            int *offset = sums->offsets[sums->count], away = 0, first = 0;
            for (int axis = axes - 1, rest = step; axis >= 0; axis--, rest /= side) {
                offset[axis] = rest % side - reach;
                away += abs(offset[axis]);
                first = offset[axis] ? offset[axis] : first;
            }
            offset[axes] = -before;
            sums->count += away <= 2 && (first < 0 || (!away && before));
        }
    sums->coefficients = tensor_of(COEFFICIENTS, name, (uint64_t)1 << axes, config.data_channels,
                                   (uint64_t)sums->count + 1)->numbers;
}

static void read_heads(Rows *row) {
    uint64_t dim = config.dim, outputs = (uint64_t)(config.ordinal ? 3 * config.mixtures : config.num_values);
    row->heads = take(config.depth, sizeof(Head));
    row->head_norm = read_norm(config.depth > 1 ? "head.norm" : "head.0");
    if (config.depth == 1) read_linear(&row->heads->contract, "head.1", dim, outputs);
    for (uint64_t p = 0; config.depth > 1 && p < config.depth; p++) {
        const char *prefix = text_of("head.heads.%d", (int)p);
        read_linear(&row->heads[p].expand, text_of("%s.expand", prefix), dim + p * network.features, dim);
        read_linear(&row->heads[p].contract, text_of("%s.contract", prefix), dim, outputs);
    }
}

static void read_network(void) {
    int axes = config.axes;
    uint64_t dim = config.dim, longest = 1, rows = GROUP;
    float features[MAX_FEATURES];
    Rows *row = &network.rows;
    row->embedding = (Embedding){.dim = dim, .count = (uint64_t)config.num_values, .channels = config.depth,
                                 .centred = (uint64_t)config.centred, .activity = (uint64_t)config.activity};
    network.features = config.ordinal ? write_features(&row->embedding, 0, features) : 1;
    network.slab[axes] = 1;
    for (int axis = axes - 1; axis >= 0; axis--) {
        network.slab[axis] = network.slab[axis + 1] * config.shape[axis];
        longest = config.shape[axis] > longest ? config.shape[axis] : longest;
    }
    read_positions(network.tables, "position.tables");
    if (config.num_classes) network.labels = matrix("labels.embed.table", (uint64_t)config.num_classes + 1, dim);
    if (config.ordinal) {
        read_features(&row->embedding.of_features, "embed_value.linear", config.depth * network.features, dim);
        network.spread = tensor_of(EXACT, "values.spread", 0, 0, 0)->values;
        if (config.centred) read_sums(&network.prediction, "values.prediction.coefficients", 1);
        if (config.activity) read_sums(&network.activity, "values.activity.coefficients", 2);
    } else
        row->embedding.table = matrix("embed_value.table", (uint64_t)config.num_values, dim);
    read_heads(row);

    if (config.encoder_layers) {
        uint64_t copies = power(3, axes), planes = config.one_hot ? config.channels : 1;
        network.encoder_inputs = config.channels * network.features + planes;
        uint64_t inputs = product(copies, network.encoder_inputs);
        read_linear(&network.encoder_convolution, "encoder.convolution", inputs, dim);
        network.encoder_windows = window_positions(config.shape, axes, config.positions);
        read_positions(network.encoder_tables, "encoder.position.tables");
        network.encoder = stack_of(config.encoder_layers);
        for (int i = 0; i < config.encoder_layers; i++) {
            int axis = axes - 1 - i % axes;
            read_block(&network.encoder, text_of("encoder.blocks.%d", i), 0, config.shape[axis],
                       network.slab[axis + 1]);
        }
        rows = config.positions > rows ? config.positions : rows;
    }
    for (int level = 0; level < axes - 1; level++) {
        Outer *outer = &network.outers[level];
        const char *prefix = text_of("outer_decoders.%d", level);
        outer->stack = decoder_of(config.outer_layers[level], 2, config.shape + level + 1, axes - level - 1,
                                  network.slab[level + 1]);
        for (int i = 0; i < config.outer_layers[level]; i++) {
            int axis = axes - 1 - i % (axes - level);
            read_block(&outer->stack, text_of("%s.blocks.%d", prefix, i), axis == level, config.shape[axis],
                       network.slab[axis + 1]);
        }
        rows = network.slab[level + 1] > rows ? network.slab[level + 1] : rows;
    }
    if (config.lstm) {
        row->lstm.norm = read_norm("inner_decoder.norm");
        add_linear(&row->lstm.of_input, LSTM "weight_ih_l0", LSTM "bias_ih_l0", dim, 4 * dim);
        add_linear(&row->lstm.of_hidden, LSTM "weight_hh_l0", LSTM "bias_hh_l0", dim, 4 * dim);
    } else {
        network.inner = decoder_of(config.inner_layers, 3, NULL, 0, 1);
        for (int i = 0; i < config.inner_layers; i++)
            read_block(&network.inner, text_of("inner_decoder.blocks.%d", i), 1, config.shape[axes - 1], 1);
        row->layers = network.inner.layers;
        row->count = network.inner.count;
    }
    product(product(LARGER(rows, longest), LARGER(dim, config.hidden)), 64); /* then nothing below overflows */
    extent.rows = rows;
    extent.dim = dim;
    extent.longest = longest;
    uint64_t size = place_work(NULL, &extent, &work);
    place_work(floats(size), &extent, &work);
}

static Cache cache_of(uint64_t images, uint64_t rows, uint64_t length) {
    product(product(product(images, rows + SIDE), length + PLACES), config.dim);
    uint64_t size = images * cache_size(rows, length, config.dim) + LANES;
    return (Cache){floats(size), floats(size), length};
}

/* Take the memory for decoding some images. */
static void prepare(uint64_t images) {
    uint64_t dim = config.dim, group = images < GROUP ? images : GROUP, length = config.shape[config.axes - 1];
    uint64_t values = product(images, config.values);
    network.images = images;
    network.values = take(values, sizeof(uint16_t));
    network.codes = take(values, sizeof(int64_t));
    if (config.activity) network.sizes = take(values, sizeof(uint16_t));
    for (int level = 0; level < config.axes - 1; level++) {
        Outer *outer = &network.outers[level];
        uint64_t rows = product(images, network.slab[level + 1]);
        outer->here = floats(product(rows, dim));
        outer->below = floats(product(rows, dim));
        outer->upper = floats(product(rows, dim));
        prepare_windows(&outer->stack, rows);
        for (uint64_t n = 0; n < outer->stack.count; n++)
            if (is_masked(&outer->stack, n))
                outer->stack.caches[n] = cache_of(images, network.slab[level + 1], config.shape[level]);
    }
    Rows *row = &network.rows;
    RowMemory *of_rows = &network.memory;
    uint64_t wide = row->heads->contract.outputs;
    uint64_t features = row->embedding.of_features.inputs;
    if (network.encoder.count) {
        network.encoded = floats(product(product(images, config.positions), dim));
        network.window = floats(product(GROUP, network.encoder_convolution.inputs));
    }
    network.x = floats(product(group, dim));
    *of_rows = (RowMemory){.work = work, .logits = floats(product(group, wide)), .numbers = take(wide, sizeof(int32_t))};
    of_rows->hidden = floats(product(group, dim));
    of_rows->cell = floats(product(group, dim));
    of_rows->features = floats(group * features);
    of_rows->entered = floats(group * (dim + features));
    of_rows->expanded = floats(group * dim);
    prepare_windows(&network.inner, group);
    of_rows->kept = network.inner.grid.kept;
    of_rows->caches = take(row->count, sizeof(Cache));
    for (uint64_t n = 0; n < row->count; n++)
        if (row->layers[n].heads) of_rows->caches[n] = cache_of(1, group, length);
    row->mixture = (Mixture){.count = config.num_values, .table = logistic_table};
    if (!config.ordinal) return;
    row->mixture.mixtures = (uint64_t)config.mixtures;
    row->mixture.activity = (uint64_t)config.activity;
    row->mixture.unit = *network.spread;
    row->mixture.max_log_precision = config.max_log_precision;
    row->mixture.precisions = floats(row->mixture.mixtures);
    row->mixture.shares = take(row->mixture.mixtures, sizeof(int64_t));
}

/* Return the first code of a channel of the model. */
static int64_t *codes_of(uint64_t image, uint64_t channel) {
    return network.codes + image * config.values + channel * config.positions;
}

/* Return where the value of a position is in the data, by its channel in the model or in the pixel. */
static uint64_t data_index(uint64_t channel, uint64_t position) {
    uint64_t C = config.data_channels;
    if (config.layout == CHANNELS || config.layout == PIXELS) return position * C + channel;
    if (config.layout == LAYOUT_ROWS) return position % (config.positions / C) * C + position / (config.positions / C);
    if (config.layout == FRAMES) return (channel / C * config.positions + position) * C + channel % C;
    return position;
}

/* Find the neighbours of a value of the data, and their coefficients. */
static void find_neighbours(NeighbourSums *sums, uint64_t index) {
    int axes = config.data_axes;
    uint64_t at[MAX_AXES + 1], pattern = 0, rest = index / config.data_channels;
    at[axes] = index % config.data_channels;
    for (int axis = axes - 1; axis >= 0; axis--) {
        at[axis] = rest % config.data_shape[axis];
        rest /= config.data_shape[axis];
        pattern |= (uint64_t)(at[axis] == 0) << axis;
    }
    for (int n = 0; n < sums->count; n++) {
        const int *offset = sums->offsets[n];
        uint64_t found = 0;
        for (int axis = 0; axis <= axes; axis++) {
            int64_t size = (int64_t)(axis == axes ? config.data_channels : config.data_shape[axis]);
            int64_t here = (int64_t)at[axis] + offset[axis];
            found = found * (uint64_t)size + (uint64_t)(here < 0 ? 0 : here < size ? here : size - 1);
        }
        sums->neighbours[n] = found;
    }
    sums->here = sums->coefficients + (pattern * config.data_channels + at[axes]) * (uint64_t)(sums->count + 1);
}

static uint64_t sum_of_neighbours(const NeighbourSums *sums, const uint16_t *numbers) {
    uint64_t sum = (uint64_t)sums->here[sums->count];
    for (int n = 0; n < sums->count; n++)
        sum += (uint64_t)sums->here[n] * numbers[sums->neighbours[n]];
    return sum;
}

/* Where a value is expected: see `centre_on`. */
static int64_t expected_value(const uint16_t *values, const uint16_t *sizes) {
    int64_t count = config.num_values;
    if (!config.centred) return (count - 1) / 2;
    uint64_t sum = sum_of_neighbours(&network.prediction, values);
    int64_t predicted = sum >> 63 ? 0 : (int64_t)(sum >> 24);
    predicted = predicted < count - 1 ? predicted : count - 1;
    if (!config.activity) return predicted;
    return predicted + count * (int64_t)level_of_sum(sum_of_neighbours(&network.activity, sizes), (uint64_t)count);
}

/* Write the rows of the tables for some positions, added from the outermost axis inward. */
static void write_positions(float *const *tables, uint64_t first, uint64_t count, float *result) {
    uint64_t dim = config.dim;
    for (uint64_t p = first; p < first + count; p++, result += dim)
        for (int axis = 0; axis < config.axes; axis++) {
            const float *row = tables[axis] + p / network.slab[axis + 1] % config.shape[axis] * dim;
            if (axis)
                add(result, row, dim);
            else
                memcpy(result, row, (size_t)dim * sizeof(float));
        }
}

/* Write the context of some positions of a slab of one image. That of a whole image is not in memory. */
static void load_context(const float *context, uint64_t image, uint64_t slab, uint64_t first, uint64_t count,
                         float *result) {
    uint64_t dim = config.dim, start = (image * slab + first) * dim;
    if (context)
        memcpy(result, context + start, (size_t)(count * dim) * sizeof(float));
    else
        write_positions(network.tables, first, count, result);
    if (!context && network.encoder.count) add(result, network.encoded + start, count * dim);
    for (uint64_t p = 0; !context && !network.encoder.count && network.labels && p < count; p++)
        add(result + p * dim, network.labels + (uint64_t)network.classes[image] * dim, dim);
}

/* Read the value of a channel and position from the stream, for some images, by the outputs of head p. */
static void read_values(uint64_t channel, uint64_t p, uint64_t position, uint64_t first, uint64_t rows) {
    Rows *row = &network.rows;
    uint64_t index = data_index(channel + p, position);
    if (config.centred) find_neighbours(&network.prediction, index);
    if (config.activity) find_neighbours(&network.activity, index);
    for (uint64_t b = 0; b < rows; b++) {
        uint64_t start = (first + b) * config.values;
        uint16_t *values = network.values + start, *sizes = network.sizes ? network.sizes + start : NULL;
        const float *outputs = network.memory.logits + b * row->heads->contract.outputs;
        int64_t expected = expected_value(values, sizes);
        centre_on(&row->mixture, expected);
        int64_t value = read_value(outputs, &row->mixture, network.memory.numbers, &network.stream);
        values[index] = (uint16_t)value;
        if (sizes) sizes[index] = (uint16_t)llabs(value - row->mixture.centre);
        int64_t code = value + (config.centred ? expected * config.num_values : 0);
        codes_of(first + b, channel)[position * config.depth + p] = code;
        keep_features(row, p, b, code, &network.memory);
    }
    check_stream(&network.stream);
}

/* Read the values of a row from the stream, a group of images at a time. */
static void read_row(uint64_t channel, uint64_t base, const float *context) {
    uint64_t dim = config.dim, length = network.slab[config.axes - 1];
    Rows *row = &network.rows;
    for (uint64_t first = 0; first < network.images; first += GROUP) {
        uint64_t rows = network.images - first < GROUP ? network.images - first : GROUP;
        for (uint64_t i = 0; i < length; i++) {
            for (uint64_t b = 0; b < rows; b++) {
                const int64_t *codes = codes_of(first + b, channel);
                load_context(context, first + b, length, i, 1, network.x + b * dim);
                if (i) add_embedding(&row->embedding, codes + (base + i - 1) * config.depth, network.x + b * dim);
            }
            apply_inner(row, network.x, rows, i, &network.memory);
            apply_norm(&row->head_norm, network.x, rows, dim, work.normed);
            for (uint64_t p = 0; p < config.depth; p++) {
                apply_head(row, p, work.normed, rows, &network.memory);
                read_values(channel, p, base + i, first, rows);
            }
        }
    }
}

/* Decode a slab: see "Network" in the specification. Its context is [images, positions, D]. */
static void walk(uint64_t channel, int level, uint64_t base, const float *context) {
    if (level == config.axes - 1) {
        read_row(channel, base, context);
        return;
    }
    Outer *outer = &network.outers[level];
    uint64_t dim = config.dim, slab = network.slab[level + 1];
    for (uint64_t i = 0; i < config.shape[level]; i++) {
        uint64_t start = base + i * slab;
        for (uint64_t b = 0; b < network.images; b++)
            load_context(context, b, network.slab[level], i * slab, slab, outer->here + b * slab * dim);
        for (uint64_t k = 0; k < network.images * slab * dim; k++)
            outer->below[k] = i && outer->stack.count ? outer->here[k] + outer->upper[k] : outer->here[k];
        walk(channel, level + 1, start, outer->below);
        if (i + 1 == config.shape[level] || !outer->stack.count) continue;
        for (uint64_t b = 0; b < network.images; b++) {
            const int64_t *codes = codes_of(b, channel) + start * config.depth;
            float *x = outer->upper + b * slab * dim;
            memcpy(x, outer->here + b * slab * dim, (size_t)(slab * dim) * sizeof(float));
            for (uint64_t s = 0; s < slab; s++)
                add_embedding(&network.rows.embedding, codes + s * config.depth, x + s * dim);
            apply_stack(&outer->stack, x, slab, i, b);
        }
    }
}

/* Write what the first layer of the channel encoder makes of the windows around all positions: y [positions, D]. */
static void convolve(const float *numbers, float *y) {
    const Linear *layer = &network.encoder_convolution;
    uint64_t size = network.encoder_inputs, near = layer->inputs / size;
    for (uint64_t first = 0; first < config.positions; first += GROUP) {
        uint64_t rows = config.positions - first < GROUP ? config.positions - first : GROUP;
        const int64_t *windows = network.encoder_windows + first * near;
        memset(network.window, 0, (size_t)(rows * layer->inputs) * sizeof(float));
        for (uint64_t n = 0; n < rows * near; n++)
            if (windows[n] >= 0)
                memcpy(network.window + n * size, numbers + (uint64_t)windows[n] * size, (size_t)size * sizeof(float));
        apply_linear(layer, network.window, rows, y + first * config.dim, 0, work.rounded);
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
                uint64_t code = (uint64_t)codes_of(b, c)[p];
                if (config.ordinal)
                    write_features(&network.rows.embedding, code, to + c * network.features);
                else
                    to[c] = (float)code / (float)config.divisor;
            }
            to += config.channels * network.features;
            to[config.one_hot ? channel : 0] = config.one_hot ? 1.0f : (float)channel / (float)config.channels;
        }
        convolve(seen, x);
        for (uint64_t p = 0; p < positions; p++) {
            write_positions(network.encoder_tables, p, 1, work.normed);
            add(x + p * dim, work.normed, dim);
            if (network.labels) add(x + p * dim, network.labels + (uint64_t)network.classes[b] * dim, dim);
        }
        apply_stack(&network.encoder, x, positions, 0, 0);
    }
    release(mark);
}

/* Read the values of some images from the stream. */
static void decode(uint64_t images) {
    prepare(images);
    for (uint64_t channel = 0; channel < config.channels; channel++) {
        if (network.encoder.count) encode_channels(channel);
        walk(channel, 0, 0, NULL);
    }
}

/* Zlib ------------------------------------------------------------------------------------------------------------- */

typedef struct {
    Bytes packed;
    uint64_t bit; /* how many are taken */
    unsigned char *out;
    uint64_t size, most;
} Inflating;

typedef struct { int counts[16], symbols[288]; } Huffman;

static void bad_zlib(void) { fail("what the archive holds in zlib's format is damaged, or too large"); }

static unsigned take_bits(Inflating *from, int count) {
    unsigned bits = 0;
    for (int i = 0; i < count; i++, from->bit++) {
        if (from->bit / 8 >= from->packed.size) bad_zlib();
        bits |= (from->packed.bytes[from->bit / 8] >> from->bit % 8 & 1u) << i;
    }
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

static void put_byte(Inflating *to, unsigned byte) {
    if (to->size == to->most) bad_zlib();
    to->out[to->size++] = (unsigned char)byte;
}

static void inflate_block(Inflating *from, const Huffman *literals, const Huffman *distances) {
    for (int symbol; (symbol = take_symbol(from, literals)) != 256;) {
        if (symbol < 256) {
            put_byte(from, (unsigned)symbol);
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

/* Read the lengths of the codes of a block: of literals and, from `*count` on, of distances. */
static void read_lengths(Inflating *from, unsigned char *lengths, int *count, int *count_of_distances) {
    static const unsigned char order[] = {16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15};
    Huffman code;
    *count = 257 + (int)take_bits(from, 5);
    *count_of_distances = 1 + (int)take_bits(from, 5);
    int of_lengths = 4 + (int)take_bits(from, 4), all = *count + *count_of_distances;
    for (int i = 0; i < of_lengths; i++)
        lengths[order[i]] = (unsigned char)take_bits(from, 3);
    build(&code, lengths, 19);
    memset(lengths, 0, 19);
    for (int i = 0; i < all;) {
        int symbol = take_symbol(from, &code), times = 1, value = symbol < 16 ? symbol : 0;
        if (symbol == 16 && i) value = lengths[i - 1];
        if (symbol >= 16) times = symbol == 18 ? 11 + (int)take_bits(from, 7) : 3 + (int)take_bits(from, symbol - 14);
        if (i + times > all || (symbol == 16 && !i) || *count > 288) bad_zlib();
        memset(lengths + i, value, (size_t)times);
        i += times;
    }
}

/* Return what zlib has packed, `most` bytes at most, and a zero byte behind it. Deflate makes at most 1032 of one. */
static Bytes unpack(Bytes packed, uint64_t most) {
    most = most < 1032 * packed.size ? most : 1032 * packed.size;
    Inflating from = {.packed = packed, .out = take(most + 1, 1), .most = most};
    unsigned head = take_bits(&from, 8), last, a = 1, b = 0, check = 0;
    if ((head << 8 | take_bits(&from, 8)) % 31 || (head & 15) != 8) bad_zlib();
    do {
        Huffman literals, distances;
        unsigned char lengths[320] = {0};
        last = take_bits(&from, 1);
        unsigned kind = take_bits(&from, 2);
        if (kind == 0) {
            from.bit = (from.bit + 7) / 8 * 8;
            unsigned size = take_bits(&from, 16);
            if (size != (~take_bits(&from, 16) & 65535)) bad_zlib();
            while (size--)
                put_byte(&from, take_bits(&from, 8));
            continue;
        }
        int count = 288, count_of_distances = 30;
        for (int i = 0; kind == 1 && i < 318; i++)
            lengths[i] = i < 144 ? 8 : i < 256 ? 9 : i < 280 ? 7 : i < 288 ? 8 : 5;
        if (kind == 2) read_lengths(&from, lengths, &count, &count_of_distances);
        if (kind == 3) bad_zlib();
        build(&literals, lengths, count);
        build(&distances, lengths + count, count_of_distances);
        inflate_block(&from, &literals, &distances);
    } while (!last);
    from.bit = (from.bit + 7) / 8 * 8;
    for (int i = 0; i < 4; i++)
        check = check << 8 | take_bits(&from, 8);
    for (uint64_t i = 0; i < from.size; i++) {
        a = (a + from.out[i]) % 65521;
        b = (b + a) % 65521;
    }
    if (check != (b << 16 | a) || from.bit != 8 * packed.size) bad_zlib();
    return (Bytes){from.out, from.size};
}

/* The archive ------------------------------------------------------------------------------------------------------ */

typedef struct { Bytes content; uint64_t images; } Chunk;

/* Where decoded images go: tiles of examples, which are in one array or in a file each. */
static struct {
    const char *path;            /* of the array, or of the folder of files */
    const Json *images, *image;  /* the description of images, NULL for an array; the entry of the current one */
    const Json *stored;          /* the description of stored files */
    uint64_t outer[MAX_AXES * 2]; /* the sizes of the axes before *A */
    int outer_axes;
    char type[4]; /* of values, as NumPy writes it */
    int bytes;    /* of a value */
    uint64_t sizes[MAX_AXES], tile, tiles, values;
    uint16_t *example; /* [*sizes, C] */
} target;

static void bad_description(void) { fail("the archive's description of what it holds is damaged"); }

/* Set the size of the next axis of an example, the first one being 0. */
static void set_size(int axis, uint64_t size) {
    uint64_t tile = config.data_shape[axis];
    target.tiles = product(axis ? target.tiles : 1, (size + tile - 1) / tile);
    target.values = product(axis ? target.values : config.data_channels, size);
    target.sizes[axis] = size;
}

/* Set the sizes of the current image. */
static void set_size_of_image(void) {
    const Json *size = target.image->first->next;
    for (int axis = 0; axis < 2; axis++) {
        size = size->next;
        set_size(axis, whole(size, 1, INT32_MAX, "a size of an image"));
    }
}

static void open_file(const Json *name, const char *suffix) {
    for (const char *at = name->text; *at; at++)
        if ((unsigned char)*at < 32) fail("the archive names a file with control characters");
    for (const char *at = name->text; at;) { /* no part of a name may lead out of the folder */
        uint64_t length = strcspn(at, "/");
        if (!length || (at[0] == '.' && (length == 1 || (at[1] == '.' && length == 2))) || strpbrk(name->text, "\\:"))
            fail("the archive names a file outside of its folder");
        at = at[length] ? at + length + 1 : NULL;
    }
    const char *path = text_of(target.images ? "%s/%s%s" : "%s.%s%s", target.path, name->text, suffix);
    make_folders(path, strlen(target.path));
    open_output(path);
    printf("%s%s: ", name->text, suffix);
}

/* Return the bits of the float16 nearest to a number, ties to even. */
static uint64_t half_of(double number) {
    double size = fabs(number);
    int exponent = size < 0x1p-14 ? -14 : size < 65536 ? ilogb(size) : 16;
    uint64_t bits = exponent > 15 ? 31 << 10 : (exponent + 14) * 1024 + (uint64_t)rint(ldexp(size, 10 - exponent));
    return bits | (signbit(number) ? 1 << 15 : 0);
}

/* Return the bits of a value in the type of the array. */
static uint64_t bits_of_value(int64_t value) {
    uint64_t bits = (uint64_t)value;
    if (target.type[1] == 'b') return bits != 0;
    if (target.type[1] != 'f') return bits;
    double step = config.step > 0 ? config.step : 1, divisor = rint(1 / step);
    double number = divisor > 0 && 1 / divisor == step ? (double)value / divisor : (double)value * step;
    number += config.offset;
    memcpy(&bits, &number, sizeof(bits));
    return target.bytes == 8 ? bits : target.bytes == 4 ? float_bits((float)number) : half_of(number);
}

/* Close the output of values, and print their type and shape. */
static void close_values(void) {
    close_output();
    printf("%s [", target.type);
    for (int axis = 0; axis < target.outer_axes; axis++)
        printf("%llu, ", (unsigned long long)target.outer[axis]);
    for (int axis = 0; axis < config.data_axes; axis++)
        printf("%llu, ", (unsigned long long)target.sizes[axis]);
    printf("%llu]\n", (unsigned long long)config.data_channels);
}

/* Put an image where it belongs in its example; write the example if it is the last. */
static void put_image(const uint16_t *image) {
    uint64_t channels = config.data_channels, pixels = config.values / channels, filled = 0;
    unsigned char buffer[4096];
    if (target.images && !target.tile) {
        target.image = target.image ? target.image->next : target.images->first;
        if (!target.image) fail("the archive does not hold what it describes");
        set_size_of_image();
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
    if (target.images) open_file(target.image->first, ".raw");
    for (uint64_t i = 0; i < target.values; i++) {
        int64_t value = config.levels ? config.levels[target.example[i]] : config.lowest + target.example[i];
        put_little(bits_of_value(value), target.bytes, buffer + filled);
        filled += (uint64_t)target.bytes;
        if (filled > sizeof(buffer) - 8 || i + 1 == target.values) {
            write_output(buffer, filled);
            filled = 0;
        }
    }
    if (target.images) close_values();
}

/* Decode a chunk of images. */
static void read_chunk(Chunk chunk, const int *classes) {
    uint64_t values = config.values;
    const Memory *mark = memory;
    int width = config.num_values > 256 ? 2 : 1;
    uint32_t crc = 0;
    network.stream = open_stream(chunk.content);
    network.classes = classes;
    decode(chunk.images);
    if (network.stream.at != network.stream.count) fail("a stream goes on after its last symbol: damage");
    for (uint64_t k = 0; k < chunk.images * values; k++) {
        unsigned char bytes[2] = {network.values[k] & 255, network.values[k] >> 8};
        crc = crc32(crc, bytes, (uint64_t)width);
    }
    if (network.stream.state != (MIN_STATE | (crc & (MIN_STATE - 1))))
        fail("the decoded images have another checksum: damage");
    for (uint64_t i = 0; i < chunk.images; i++)
        put_image(network.values + i * values);
    release(mark);
}

/* Return a list in an object. */
static const Json *list_of(const Json *json, const char *key) {
    const Json *found = json ? member(json, key) : NULL;
    if (!found || found->kind != ARRAY) bad_description();
    return found;
}

/* Read the type and the shape of an array. */
static void read_array(const Json *array, uint64_t images) {
    const Json *type = member(array, "dtype"), *shape = list_of(array, "shape"), *axis = member(array, "channels");
    uint64_t number = 0, channels = UINT64_MAX, examples = 1;
    if (!type || type->kind != STRING || type->length != 3 || strlen(type->text) != 3 ||
        !strchr("biuf", type->text[1]) || !strchr("1248", type->text[2]) || !strcmp(type->text + 1, "f1"))
        bad_description();
    memcpy(target.type, type->text, 3);
    target.bytes = target.type[2] - '0';
    target.type[0] = target.bytes > 1 ? '<' : '|';
    if (axis && !is(axis, "null")) channels = whole(axis, 0, (double)shape->length - 1, "the axis of channels");
    uint64_t axes = shape->length - (channels < shape->length);
    if (axes < (uint64_t)config.data_axes || axes > (uint64_t)config.data_axes + MAX_AXES) bad_description();
    target.outer_axes = (int)axes - config.data_axes;
    int next = 0;
    for (const Json *size = shape->first; size; size = size->next, number++) {
        uint64_t length = whole(size, 1, INT32_MAX, "a size of the array");
        if (number == channels) {
            if (length != config.data_channels) bad_description();
        } else if (next++ < target.outer_axes) {
            target.outer[next - 1] = length;
            examples = product(examples, length);
        } else
            set_size(next - 1 - target.outer_axes, length);
    }
    if (channels > shape->length && config.data_channels > 1) bad_description();
    if (product(examples, target.tiles) != images) fail("the archive does not hold what it describes");
}

/* Find out from the metadata where images go. */
static void read_description(Bytes packed, uint64_t images) {
    uint64_t most = 0, size = 64 * packed.size > 1 << 24 ? 64 * packed.size : 1 << 24;
    const Json *json = packed.size ? read_json(unpack(packed, size < 1 << 27 ? size : 1 << 27), "the description") : NULL;
    const Json *array = json ? member(json, "array") : NULL;
    if (!json) {
        target.outer[0] = images;
        target.outer_axes = 1;
        for (int axis = 0; axis < config.data_axes; axis++)
            set_size(axis, config.data_shape[axis]);
    } else {
        target.stored = list_of(json, "stored");
        if (array && array->kind == OBJECT)
            read_array(array, images);
        else
            target.images = list_of(json, "images");
    }
    if (target.images && config.data_axes != 2) bad_description();
    for (target.image = target.images ? target.images->first : NULL; target.image; target.image = target.image->next) {
        if (target.image->kind != ARRAY || target.image->length != 4 || target.image->first->kind != STRING ||
            strlen(target.image->first->text) != target.image->first->length)
            bad_description();
        set_size_of_image();
        most = target.values > most ? target.values : most;
    }
    if (!target.images) {
        most = target.values;
        open_output(target.path);
    }
    target.example = take(most, sizeof(uint16_t));
}

/* Write the stored files of a chunk. */
static void write_stored(Bytes packed) {
    uint64_t size = 0;
    for (const Json *file = target.stored->first; file; file = file->next) {
        if (file->kind != ARRAY || file->length != 2 || file->first->kind != STRING ||
            strlen(file->first->text) != file->first->length)
            bad_description();
        size += whole(file->first->next, 0, INT32_MAX, "the size of a stored file");
    }
    Bytes content = unpack(packed, size);
    for (const Json *file = target.stored->first; file; file = file->next) {
        uint64_t length = whole(file->first->next, 0, INT32_MAX, "the size of a stored file");
        Bytes own = part(&content, length, "a stored file");
        open_file(file->first, "");
        write_output(own.bytes, length);
        close_output();
        printf("as it was\n");
    }
    if (content.size) bad_description();
}

/* A model of the package: its configuration as the fingerprint takes it, and model.safetensors. */
typedef struct {
    const char *name;
    Bytes text, tensors;
} ShippedModel;

/* MODELS: tools/axl/join.py writes them here, and a last one without a name. */
static const ShippedModel shipped_models[] = {{NULL, {NULL, 0}, {NULL, 0}}};

/* What the first line of an archive says of its model. */
typedef struct {
    int holds_model, is_needed; /* both: it holds changes of the one that is needed */
    const char *name;           /* of the needed one, or NULL */
    unsigned char fingerprint[32];
} Need;

static Bytes copy_of(Bytes bytes) {
    Bytes copy = {take(bytes.size + 1, 1), bytes.size};
    memcpy(copy.bytes, bytes.bytes, (size_t)bytes.size);
    return copy;
}

/* Build the network of a configuration, whose tensors have no values yet. */
static void build_network(Bytes text, uint64_t most_numbers) {
    model.most_numbers = most_numbers;
    read_config(copy_of(text)); /* which decodes strings in their place */
    read_network();
    qsort(model.tensors, (size_t)model.count, sizeof(Tensor), by_name);
}

/* Return the model that an archive needs, from the folder or from this program. */
static ShippedModel find_model(const Need *need, const char *folder) {
    for (const ShippedModel *shipped = shipped_models; !folder && shipped->name; shipped++)
        if (need->name && !strcmp(shipped->name, need->name)) return *shipped;
    if (!folder)
        fail("the archive needs the model %s of the package axial-transformers: name its folder, by --model FOLDER",
             need->name ? need->name : "that wrote it, which is none");
    const char *name = text_of("%s/archive.txt", folder);
    Bytes text = read_file(name);
    unsigned char *line = memchr(text.bytes, '\n', (size_t)text.size);
    if (!line) fail("%s: damaged: it has two lines", name);
    part(&text, (uint64_t)(line - text.bytes) + 1, name);
    while (text.size && text.bytes[text.size - 1] <= ' ')
        text.size--;
    return (ShippedModel){need->name, text, read_file(text_of("%s/model.safetensors", folder))};
}

/* Read the configuration, the network and its tensors: from a chunk, or from the model that is needed, or from both. */
static void read_model(Bytes chunk, const Need *need, const char *folder, const unsigned char *fingerprint) {
    uint64_t size = need->holds_model ? varint(&chunk) : 0;
    Bytes text = part(&chunk, size < MAX_CONFIG ? size : MAX_CONFIG + 1, "the model");
    if (need->is_needed) {
        if (size) fail("the model of the archive is damaged: changes of a model have no configuration");
        ShippedModel shipped = find_model(need, folder);
        text = shipped.text;
        build_network(text, NUMBERS_PER_BYTE * shipped.tensors.size);
        load_tensors(copy_of(shipped.tensors), "model.safetensors");
        check_fingerprint(text, need->fingerprint, "the archive needs another model than this one");
        if (need->holds_model) read_changes(open_stream(chunk));
    } else {
        build_network(text, NUMBERS_PER_BYTE * (chunk.size + size));
        read_tensors(open_stream(chunk));
    }
    check_fingerprint(text, fingerprint, "the archive states another fingerprint than that of its model: damage");
    arrange_weights();
}

/* Return the class of each image; without a chunk of them, that of unlabelled images. */
static const int *read_classes(Bytes *chunk, uint64_t images) {
    uint64_t unlabelled = (uint64_t)config.num_classes;
    int *classes = take(images + 1, sizeof(int));
    for (uint64_t i = 0; i < images; i++) {
        uint64_t found = chunk ? varint(chunk) : unlabelled;
        if (found > unlabelled) fail("a label is none of the model's %d classes", config.num_classes);
        classes[i] = (int)found;
    }
    if (chunk && (chunk->size || !unlabelled)) fail("the archive's labels are not those of its images");
    return classes;
}

/* Return a word of the first line, up to the next space or comma, and skip that. */
static const char *next_word(char **line) {
    char *word = *line, *end = word + strcspn(word, " ,");
    *line = *end ? end + 1 + (end[0] == ',' && end[1] == ' ') : end;
    *end = 0;
    return word;
}

static int hex_digit(int character) {
    const char *digits = "0123456789abcdef", *found = character ? strchr(digits, character) : NULL;
    if (!found) fail("the first line of the archive is damaged: its SHA-256 is none");
    return (int)(found - digits);
}

/* Read what the first line says, which ends where the header begins. */
static Need read_first_line(Bytes *left, const char *name) {
    static const char start[] = "axial-transformers archive, format ", end[] = "\r\n\x1a\n";
    const char *damaged = "%s: the first line is damaged; a transfer as text may have changed it";
    uint64_t length = sizeof(start) - 1, most = left->size < MAX_LINE ? left->size : MAX_LINE;
    Need need = {.holds_model = 1};
    if (left->size < length || memcmp(left->bytes, start, (size_t)length)) fail("%s: no archive: it begins otherwise", name);
    while (length + 4 <= most && memcmp(left->bytes + length, end, 4))
        length++;
    if (length + 4 > most) fail(damaged, name);
    char *line = (char *)copy_of(part(left, length, name)).bytes + sizeof(start) - 1;
    part(left, 4, name);
    const char *version = next_word(&line);
    if (strtol(version, NULL, 10) != VERSION)
        fail("%s: an archive of format version %.9s; this program reads version %d", name, version, VERSION);
    if (!strcmp(line, "holds its model")) return need;
    const char *verb = next_word(&line), *word = next_word(&line);
    need.is_needed = 1;
    need.holds_model = !strcmp(verb, "holds");
    if (need.holds_model && !strcmp(word, "changes") && !strcmp(next_word(&line), "of")) word = next_word(&line);
    if (!strcmp(word, "a"))
        next_word(&line);
    else
        need.name = word;
    line = strstr(line, "SHA-256 ");
    if (!line || strlen(line) != 8 + 64 || (strcmp(verb, "needs") && !need.holds_model)) fail(damaged, name);
    for (int i = 0; i < 32; i++)
        need.fingerprint[i] = (unsigned char)(16 * hex_digit(line[8 + 2 * i]) + hex_digit(line[9 + 2 * i]));
    return need;
}

static void read_archive(const char *name, const char *folder, const char *limit) {
    enum { LABELS = 1, COND = 2, MODEL = 4 };
    Bytes file = read_file(name), left = file;
    uint64_t most = ((uint64_t)1 << 25) + (file.size << 14);
    char *end = "";
    if (limit) most = (uint64_t)strtoul(limit, &end, 10) << 20;
    if (*end || most < memory_taken) fail("MIB must be a number, of more bytes than the archive has");
    memory_limit = most < MAX_MEMORY || limit ? most : MAX_MEMORY;
    const char *what = "the header";
    Need need = read_first_line(&left, name);
    unsigned char *fingerprint = part(&left, 32, what).bytes, *fixed = part(&left, 18, what).bytes;
    uint64_t count = little(fixed + 5, 4), axes = fixed[17], images = 0;
    uint64_t first_file = need.holds_model ? *fixed & LABELS ? 2 : 1 : 0;
    unsigned char *sizes = part(&left, 4 * axes, what).bytes, *index = part(&left, 10 * count, what).bytes;
    Bytes metadata = part(&left, little(fixed + 9, 4), what);
    uint64_t head = file.size - left.size;
    if (little(part(&left, 4, what).bytes, 4) != crc32(0, file.bytes, head))
        fail("%s: the header is damaged: its checksum differs", name);
    if (!(*fixed & MODEL) && *fixed & LABELS) fail("%s: an archive of images whose labels it does not hold", name);
    if (*fixed > (MODEL | LABELS) || count < first_file || !!(*fixed & MODEL) != need.holds_model)
        fail("%s: the header is damaged", name);
    Chunk *chunks = take(count, sizeof(Chunk));
    for (uint64_t i = 0; i < count; i++, index += 10) {
        chunks[i].images = little(index, 2);
        chunks[i].content = part(&left, little(index + 2, 4), "a chunk");
        if (chunks[i].images > (i < first_file ? 0 : MAX_IMAGES) || (i >= first_file && i + 1 < count && !chunks[i].images))
            fail("%s: a chunk claims a wrong number of images", name);
        if (crc32(0, chunks[i].content.bytes, chunks[i].content.size) != little(index + 6, 4))
            fail("%s: chunk %llu is damaged: its checksum differs", name, (unsigned long long)i);
        images += chunks[i].images;
    }
    if (left.size) fail("%s: there are bytes behind the last chunk", name);
    read_model(need.holds_model ? chunks->content : left, &need, folder, fingerprint);
    int fits = axes == (uint64_t)config.data_axes && little(fixed + 13, 4) == config.data_channels &&
               little(fixed + 1, 4) == (uint64_t)config.num_values;
    for (uint64_t axis = 0; fits && axis < axes; axis++)
        fits = little(sizes + 4 * axis, 4) == config.data_shape[axis];
    if (!fits) fail("%s: the header states sizes that are not those of its model", name);
    const int *classes = read_classes(first_file > 1 ? &chunks[1].content : NULL, images);
    target.bytes = config.lowest < 0 || config.highest >= 65536 ? 4 : config.highest >= 256 ? 2 : 1;
    memcpy(target.type, target.bytes == 1 ? "|u1" : target.bytes == 2 ? "<u2" : "<i4", 4);
    uint64_t stored = count > first_file && !chunks[count - 1].images, first = first_file;
    read_description(metadata, images);
    for (; first < count - stored; classes += chunks[first++].images)
        read_chunk(chunks[first], classes);
    const Json *missing = target.image ? target.image->next : target.images ? target.images->first : NULL;
    if (target.tile || missing) fail("the archive ends within what it describes");
    if (!target.images) close_values();
    if (stored != (target.stored && target.stored->length)) fail("the archive does not hold what it describes");
    if (stored) write_stored(chunks[count - 1].content);
}

int main(int count, char **words) {
    const char *folder = NULL;
    if (count > 3 && !strcmp(words[1], "--model")) {
        folder = words[2];
        words += 2;
        count -= 2;
    }
    if (count < 3 || count > 4) fail("usage: axl [--model FOLDER] ARCHIVE OUTPUT [MIB]");
    target.path = words[2];
    if (!is_ieee()) fail("this machine's arithmetic is not as IEEE 754 says");
    fill_logistic_table();
    read_archive(words[1], folder, count == 4 ? words[3] : NULL);
    return fflush(stdout) ? 2 : 0;
}
