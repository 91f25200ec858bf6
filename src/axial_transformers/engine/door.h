/* How the library is entered from Python: names by level, errors as numbers, and the floating-point environment. */

#ifndef DOOR_H
#define DOOR_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define JOINED_(a, b) a##_##b
#define JOINED(a, b) JOINED_(a, b)
#ifdef _WIN32
#define VISIBLE __declspec(dllexport)
#else
#define VISIBLE __attribute__((visibility("default")))
#endif
#define EXPORTED(name) VISIBLE int JOINED(name, LEVEL)

enum { FINE = 0, NO_MEMORY = 1 };

/* Round to nearest and keep denormal numbers in this thread, whatever the caller has set; return what was set. */
static inline uint64_t enter(void) {
#if defined(__x86_64__)
    uint32_t before, ieee = 0x1f80;
    __asm__ volatile("stmxcsr %0" : "=m"(before));
    __asm__ volatile("ldmxcsr %0" : : "m"(ieee));
    return before;
#elif defined(__aarch64__)
    uint64_t before;
    __asm__ volatile("mrs %0, fpcr" : "=r"(before));
    __asm__ volatile("msr fpcr, %0" : : "r"((uint64_t)0));
    return before;
#else
    return 0;
#endif
}

static inline void leave(uint64_t before) {
#if defined(__x86_64__)
    uint32_t word = (uint32_t)before;
    __asm__ volatile("ldmxcsr %0" : : "m"(word));
#elif defined(__aarch64__)
    __asm__ volatile("msr fpcr, %0" : : "r"(before));
#else
    (void)before;
#endif
}

#define NOT_INLINED static __attribute__((noinline))

/* Define a function, and export one of its name that calls it between `enter` and `leave`:

       EXACT(f, (int x, float *y), (x, y)) { the body of f }

   A compiler may move arithmetic across the instructions of `enter` and `leave`, but not across a call of f. */
#define EXACT(name, parameters, arguments) \
    NOT_INLINED int name parameters; \
    EXPORTED(name) parameters { \
        uint64_t before = enter(); \
        int result = name arguments; \
        leave(before); \
        return result; \
    } \
    NOT_INLINED int name parameters

#endif
