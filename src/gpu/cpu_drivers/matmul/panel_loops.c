#include "gpu/cpu_drivers/matmul/panel_loops.h"

#include <stdbool.h>
#include <string.h>

#include "base/loops.h"
#include "gpu/cpu_drivers/matmul/plan.h"

#if defined(__AVX2__)
#include <immintrin.h>
#endif

enum {
#if defined(__AVX2__)
    WIDTH = 8,
#else
    WIDTH = 4,
#endif
    LINES = TSR__LAVAPIPE_PANEL_LINES,
};

typedef uint32_t words __attribute__((vector_size(WIDTH * sizeof(uint32_t))));
typedef uint16_t words16 __attribute__((vector_size(WIDTH * sizeof(uint16_t))));
typedef float floats __attribute__((vector_size(WIDTH * sizeof(float))));

#define INLINE static inline __attribute__((always_inline))

/* Stores without using the caches if the instruction set allows it. Ordinary stores would first
 * read every cache line, and large panels do not fit in the caches anyway. */
INLINE void store(float *to, words value)
{
#if defined(__AVX2__)
    _mm256_stream_si256((__m256i *)(void *)to, (__m256i)value);
#else
    memcpy(to, &value, sizeof value);
#endif
}

static void finish(void)
{
#if defined(__AVX2__)
    _mm_sfence();
#endif
}

INLINE words load_words(const char *from)
{
    words value;
    memcpy(&value, from, sizeof value);
    return value;
}

INLINE words load_words16(const char *from)
{
    words16 value;
    memcpy(&value, from, sizeof value);
    return __builtin_convertvector(value, words);
}

/* A NaN may lose its payload and stay signalling; the multiplications that use the results make it
 * quiet. */
#if defined(__AVX512VL__)
INLINE words load_f16(const char *from)
{
    __m128i value;
    memcpy(&value, from, sizeof value);
    return (words)_mm256_maskz_cvtph_ps(0xff, value);
}
#else
/* Returns the bits of `yes` where `condition` has ones, and the bits of `no` elsewhere. */
INLINE words select(words condition, words yes, words no)
{
    return (condition & yes) | (~condition & no);
}

/* Computes tsr__f32_of_f16 for vectors. gcc does not vectorise that function here; this one takes a
 * fifth of its time. */
INLINE words load_f16(const char *from)
{
    const words bits = load_words16(from), magnitude = bits & 0x7fff, shifted = magnitude << 13;
    const words two_to_minus_14 = (words){0} + 0x38800000U;
    const floats small = (floats)(two_to_minus_14 | shifted) - (floats)two_to_minus_14;
    words wide = shifted + 0x38000000U;
    wide = select((words)(magnitude < 0x400), (words)small, wide);
    wide = select((words)(magnitude >= 0x7c00), shifted | 0x7f800000U, wide);
    return wide | (bits & 0x8000) << 16;
}
#endif

INLINE words load(const char *from, tsr__panel_source source)
{
    switch (source) {
    case TSR__PANEL_F16:
        return load_f16(from);
    case TSR__PANEL_BF16:
        return load_words16(from) << 16;
    default:
        return load_words(from);
    }
}

INLINE void pack(float *to, const char *from, uint64_t pitch, uint32_t lines, uint32_t steps,
                 uint32_t lanes, tsr__panel_source source)
{
    const bool in_words = source == TSR__PANEL_BF16_WORDS;
    const uint64_t element = source == TSR__PANEL_F32 ? sizeof(float) : sizeof(uint16_t);

    for (uint64_t step = 0; step < steps; step += in_words ? 2 : 1)
        for (uint64_t line = 0; line < lines; line++)
            for (uint64_t lane = 0; lane < lanes; lane += WIDTH) {
                const char *at = from + line * pitch + (step * lanes + lane) * element;
                float *place = to + (step * LINES + line) * lanes + lane;
                if (in_words) {
                    const words both = load_words(at + lane * element);
                    store(place, both << 16);
                    store(place + (uint64_t)LINES * lanes, both & 0xffff0000U);
                } else {
                    store(place, load(at, source));
                }
            }
}

/* Calls pack() with constants for all arguments except the pointers and the number of steps, so
 * that the compiler can optimise it. */
INLINE void pack_lanes(float *to, const char *from, uint64_t pitch, uint32_t steps, uint32_t lanes,
                       tsr__panel_source source)
{
    switch (source) {
    case TSR__PANEL_F32:
        pack(to, from, pitch, LINES, steps, lanes, TSR__PANEL_F32);
        break;
    case TSR__PANEL_F16:
        pack(to, from, pitch, LINES, steps, lanes, TSR__PANEL_F16);
        break;
    case TSR__PANEL_BF16:
        pack(to, from, pitch, LINES, steps, lanes, TSR__PANEL_BF16);
        break;
    case TSR__PANEL_BF16_WORDS:
        pack(to, from, pitch, LINES, steps, lanes, TSR__PANEL_BF16_WORDS);
        break;
    }
}

static void pack_any(float *to, const char *from, uint64_t pitch, uint32_t lines, uint32_t steps,
                     uint32_t lanes, tsr__panel_source source)
{
    if (lines != LINES)
        pack(to, from, pitch, lines, steps, lanes, source);
    else if (lanes == 8)
        pack_lanes(to, from, pitch, steps, 8, source);
    else if (lanes == 16)
        pack_lanes(to, from, pitch, steps, 16, source);
    else
        pack_lanes(to, from, pitch, steps, lanes, source);
}

const tsr__panel_loops TSR__INSTRUCTION_SET_NAME(tsr__panel_loops_) = {
    .width = WIDTH, .pack = pack_any, .finish = finish};
