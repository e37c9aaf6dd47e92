#include "tensor/float_conversion_loops.h"

#include "base/float16.h"
#include "base/loops.h"

#if defined(__AVX512BW__) && defined(__AVX512VL__)
#include <immintrin.h>
#endif

#define CONVERT(name, target, source, expression)                                                  \
    static void name(void *to, const void *from, size_t count)                                     \
    {                                                                                              \
        typedef target element;                                                                    \
        element *out = to;                                                                         \
        const source *in = from;                                                                   \
        TSR__VECTORIZE for (size_t i = 0; i < count; i++)                                          \
        {                                                                                          \
            const source x = in[i];                                                                \
            out[i] = (expression);                                                                 \
        }                                                                                          \
    }

/* The outputs are stored as integers with the float's bits. A float variable might change the bits
 * of a signalling NaN, and bf16 can contain signalling NaNs. */
CONVERT(f32_from_f16_by_arithmetic, any_u32, any_u16, tsr__bits_of_f32(tsr__f32_of_f16(x)))
CONVERT(f32_from_bf16, any_u32, any_u16, (uint32_t)x << 16)
CONVERT(f16_from_f32, any_u16, any_f32, tsr__f16_of_f32(x))
CONVERT(bf16_from_f32, any_u16, any_f32, tsr__bf16_of_f32(x))
CONVERT(f16_from_bf16, any_u16, any_u16, tsr__f16_of_f32(tsr__f32_of_bf16(x)))
CONVERT(bf16_from_f16, any_u16, any_u16, tsr__bf16_of_f32(tsr__f32_of_f16(x)))

#if defined(__AVX512BW__) && defined(__AVX512VL__)
/* Converts with the processor's instruction. Groups of elements that contain a NaN are converted by
 * arithmetic, because the instruction would turn a signalling NaN into a quiet one. */
static void f32_from_f16(void *to, const void *from, size_t count)
{
    enum { HALVES = 16 };
    const __m256i magnitude = _mm256_set1_epi16(0x7fff), infinity = _mm256_set1_epi16(0x7c00);
    any_u32 *out = to;
    const any_u16 *in = from;
    size_t i = 0;

    for (; count - i >= HALVES; i += HALVES) {
        const __m256i halves = _mm256_loadu_si256((const void *)(in + i));
        if (_mm256_cmpgt_epu16_mask(_mm256_and_si256(halves, magnitude), infinity) != 0)
            f32_from_f16_by_arithmetic(out + i, in + i, HALVES);
        else
            _mm512_storeu_ps(out + i, _mm512_cvtph_ps(halves));
    }
    f32_from_f16_by_arithmetic(out + i, in + i, count - i);
}
#else
#define f32_from_f16 f32_from_f16_by_arithmetic
#endif

const tsr__converters TSR__INSTRUCTION_SET_NAME(tsr__converters_) = {
    .convert =
        {
            [TSR_F32] = {[TSR_F16] = f32_from_f16, [TSR_BF16] = f32_from_bf16},
            [TSR_F16] = {[TSR_F32] = f16_from_f32, [TSR_BF16] = f16_from_bf16},
            [TSR_BF16] = {[TSR_F32] = bf16_from_f32, [TSR_F16] = bf16_from_f16},
        },
};
