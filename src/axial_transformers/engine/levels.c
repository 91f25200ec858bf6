/* Which levels of x86-64 a processor has, and of which sources the library is. Compiled for the lowest level. */

#include "door.h"

VISIBLE const char *axial_sources(void);
VISIBLE int axial_has_level(const char *level);
VISIBLE int axial_multiplies_pairs(void);

#if defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#define HAS_DOT_PRODUCTS (getauxval(AT_HWCAP) >> 20 & 1)
#else
#define HAS_DOT_PRODUCTS 1 /* each Apple silicon */
#endif

/* Return the SHA-256 of the sources. */
VISIBLE const char *axial_sources(void) { return SOURCES; }

#if defined(__x86_64__)
#include <cpuid.h>

/* Return 1 if a leaf of CPUID names all of these features. */
static int has(unsigned leaf, unsigned ebx, unsigned ecx, unsigned edx) {
    unsigned a = 0, b = 0, c = 0, d = 0;
    if (!__get_cpuid_count(leaf, 0, &a, &b, &c, &d)) return 0;
    return (b & ebx) == ebx && (c & ecx) == ecx && (d & edx) == edx;
}

/* Return 1 if eax of leaf 7, part 1, has this bit. */
static int has_later(unsigned bit) {
    unsigned a = 0, b = 0, c = 0, d = 0;
    return __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a >> bit & 1);
}

/* Return whether the system keeps these registers. */
static int keeps(unsigned registers) {
    unsigned low = 0, high = 0;
    if (!has(1, 0, bit_OSXSAVE, 0)) return 0;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (low & registers) == registers;
}

/* Return 1 if this processor has a level and its system keeps the registers, else 0. */
VISIBLE int axial_has_level(const char *level) {
    int v2 = has(1, 0, bit_SSE3 | bit_SSSE3 | bit_SSE4_1 | bit_SSE4_2 | bit_POPCNT | bit_CMPXCHG16B, 0);
    int v3 = v2 && keeps(6) && has(1, 0, bit_AVX | bit_F16C | bit_FMA | bit_MOVBE, 0) &&
             has(7, bit_AVX2 | bit_BMI | bit_BMI2, 0, 0) && has(0x80000001, 0, bit_LZCNT, 0);
    int v4 = v3 && keeps(0xe6) &&
             has(7, bit_AVX512F | bit_AVX512BW | bit_AVX512CD | bit_AVX512DQ | bit_AVX512VL, 0, 0);
    const struct { const char *name; int is_there; } levels[] = {
        {"v2", v2}, {"v3", v3}, {"v3_vnni", v3 && has_later(4)}, {"v4", v4}, {"v4_vnni", v4 && has(7, 0, 1 << 11, 0)},
    };
    for (int i = 0; i < 5; i++)
        if (strcmp(level, levels[i].name) == 0) return levels[i].is_there;
    return 0;
}

/* Return 1 if the processor has AVX512_BF16, beyond level v4. */
VISIBLE int axial_multiplies_pairs(void) {
    return has_later(5);
}
#else
VISIBLE int axial_multiplies_pairs(void) { return 0; }
VISIBLE int axial_has_level(const char *level) {
    return strcmp(level, "aarch64") == 0 || (strcmp(level, "aarch64_dot") == 0 && HAS_DOT_PRODUCTS);
}
#endif
