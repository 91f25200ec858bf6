/* Which levels of x86-64 a processor has, and of which sources the library is. Compiled for the lowest level. */

#include "door.h"

VISIBLE const char *axial_sources(void);
VISIBLE int axial_has_level(const char *level);
VISIBLE int axial_multiplies_pairs(void);

/* Return the SHA-256 of the sources. */
VISIBLE const char *axial_sources(void) { return SOURCES; }

#if defined(__x86_64__)
#include <cpuid.h>

/* Return the words of a leaf of CPUID that name features: ebx, ecx, edx. */
static int has(unsigned leaf, unsigned ebx, unsigned ecx, unsigned edx) {
    unsigned a = 0, b = 0, c = 0, d = 0;
    if (!__get_cpuid_count(leaf, 0, &a, &b, &c, &d)) return 0;
    return (b & ebx) == ebx && (c & ecx) == ecx && (d & edx) == edx;
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
    return strcmp(level, "v2") == 0 ? v2 : strcmp(level, "v3") == 0 ? v3 : strcmp(level, "v4") == 0 ? v4 : 0;
}

/* Return 1 if the processor has AVX512_BF16, beyond level v4. */
VISIBLE int axial_multiplies_pairs(void) {
    unsigned a = 0, b = 0, c = 0, d = 0;
    return __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a >> 5 & 1);
}
#else
VISIBLE int axial_multiplies_pairs(void) { return 0; }
VISIBLE int axial_has_level(const char *level) { return strcmp(level, "aarch64") == 0; }
#endif
