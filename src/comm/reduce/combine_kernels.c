/* The loops of all reductions. This file is compiled once for each instruction set. dst may be the
 * same memory as a or b. */
#include "comm/reduce/reduce.h"

#include "base/float16.h"
#include "base/loops.h"

#define COMBINE(name, element, expression)                                                         \
    static void name(void *dst, const void *a, const void *b, size_t count)                        \
    {                                                                                              \
        typedef element item;                                                                      \
        item *out = dst;                                                                           \
        const item *left = a, *right = b;                                                          \
        TSR__VECTORIZE for (size_t i = 0; i < count; i++)                                          \
        {                                                                                          \
            const element x = left[i], y = right[i];                                               \
            out[i] = (expression);                                                                 \
        }                                                                                          \
    }

#define DIVIDE(name, element, number, expression)                                                  \
    static void name(void *data, size_t count, uint32_t divisor)                                   \
    {                                                                                              \
        typedef element item;                                                                      \
        item *out = data;                                                                          \
        const number n = (number)divisor;                                                          \
        TSR__VECTORIZE for (size_t i = 0; i < count; i++)                                          \
        {                                                                                          \
            const element x = out[i];                                                              \
            out[i] = (expression);                                                                 \
        }                                                                                          \
    }

static inline double tidy_f64(double x)
{
    const uint64_t bits = UINT64_C(0x7ff8000000000000);
    double nan;
    memcpy(&nan, &bits, sizeof nan);
    return x == x ? x : nan;
}

/* MIN and MAX compare the bits of floats as integers. If the lower bits of negative numbers are
 * flipped, the order of the integers (in two's complement) is the order of the floats. */
#define ORDERED(unsigned_type, signed_type, bits)                                                  \
    static inline signed_type ordered_##bits(unsigned_type x)                                      \
    {                                                                                              \
        const signed_type s = (signed_type)x;                                                      \
        return (signed_type)(s ^ (signed_type)((unsigned_type)(s >> ((bits)-1)) >> 1));            \
    }                                                                                              \
    static inline unsigned_type pick_##bits(unsigned_type x, unsigned_type y, unsigned_type top,   \
                                            unsigned_type nan, int largest)                        \
    {                                                                                              \
        const signed_type kx = ordered_##bits(x), ky = ordered_##bits(y);                          \
        const unsigned_type low = kx < ky ? x : y, high = kx < ky ? y : x;                         \
        const unsigned_type magnitude = (unsigned_type)((unsigned_type) ~(unsigned_type)0 >> 1);   \
        unsigned_type kept = largest ? high : low;                                                 \
        kept = (unsigned_type)(x & magnitude) > top ? nan : kept;                                  \
        return (unsigned_type)(y & magnitude) > top ? nan : kept;                                  \
    }
ORDERED(uint16_t, int16_t, 16)
ORDERED(uint32_t, int32_t, 32)
ORDERED(uint64_t, int64_t, 64)

#define PICKS(dtype, bits, top, nan)                                                               \
    COMBINE(min_##dtype, any_u##bits, pick_##bits(x, y, top, nan, 0))                              \
    COMBINE(max_##dtype, any_u##bits, pick_##bits(x, y, top, nan, 1))

COMBINE(sum_f32, any_f32, tsr__tidy_f32(x + y))
COMBINE(prod_f32, any_f32, tsr__tidy_f32(x *y))
DIVIDE(divide_f32, any_f32, float, tsr__tidy_f32(x / n))
PICKS(f32, 32, 0x7f800000u, TSR__NAN_F32)

COMBINE(sum_f64, any_f64, tidy_f64(x + y))
COMBINE(prod_f64, any_f64, tidy_f64(x *y))
DIVIDE(divide_f64, any_f64, double, tidy_f64(x / n))
PICKS(f64, 64, UINT64_C(0x7ff0000000000000), UINT64_C(0x7ff8000000000000))

/* Does the same as tsr__f16_of_f32(tsr__tidy_f32(value)), but without a comparison that compilers
 * turn into a branch, which would keep the loops from being vectorised. */
static inline uint16_t tidy_f16(float value)
{
    const uint32_t half = tsr__f16_of_f32(value);
    return (uint16_t)((half & 0x7fffu) > 0x7c00u ? TSR__NAN_F16 : half);
}
COMBINE(sum_f16, any_u16, tidy_f16(tsr__f32_of_f16(x) + tsr__f32_of_f16(y)))
COMBINE(prod_f16, any_u16, tidy_f16(tsr__f32_of_f16(x) * tsr__f32_of_f16(y)))
DIVIDE(divide_f16, any_u16, float, tidy_f16(tsr__f32_of_f16(x) / n))
PICKS(f16, 16, (uint16_t)0x7c00u, (uint16_t)TSR__NAN_F16)

COMBINE(sum_bf16, any_u16,
        tsr__bf16_of_f32(tsr__tidy_f32(tsr__f32_of_bf16(x) + tsr__f32_of_bf16(y))))
COMBINE(prod_bf16, any_u16,
        tsr__bf16_of_f32(tsr__tidy_f32(tsr__f32_of_bf16(x) * tsr__f32_of_bf16(y))))
DIVIDE(divide_bf16, any_u16, float, tsr__bf16_of_f32(tsr__tidy_f32(tsr__f32_of_bf16(x) / n)))
PICKS(bf16, 16, (uint16_t)0x7f80u, (uint16_t)TSR__NAN_BF16)

/* Integers must wrap around on overflow, so signed integers are added and multiplied as unsigned
 * ones. */
COMBINE(sum_32, any_u32, x + y)
COMBINE(prod_32, any_u32, x *y)
COMBINE(min_i32, any_i32, x < y ? x : y)
COMBINE(max_i32, any_i32, x > y ? x : y)
DIVIDE(divide_i32, any_i32, int32_t, x / n)
COMBINE(min_u32, any_u32, x < y ? x : y)
COMBINE(max_u32, any_u32, x > y ? x : y)
DIVIDE(divide_u32, any_u32, uint32_t, x / n)

COMBINE(sum_64, any_u64, x + y)
COMBINE(prod_64, any_u64, x *y)
COMBINE(min_i64, any_i64, x < y ? x : y)
COMBINE(max_i64, any_i64, x > y ? x : y)
DIVIDE(divide_i64, any_i64, int64_t, x / n)

COMBINE(sum_u8, any_u8, (uint8_t)(x + y))
COMBINE(prod_u8, any_u8, (uint8_t)(x *y))
COMBINE(min_u8, any_u8, x < y ? x : y)
COMBINE(max_u8, any_u8, x > y ? x : y)
DIVIDE(divide_u8, any_u8, uint32_t, (uint8_t)(x / n))

#define STRING_(x) #x
#define STRING(x) STRING_(x)
#define OPS(sum, min, max, prod)                                                                   \
    {                                                                                              \
        NULL, sum, sum, min, max, prod                                                             \
    }

const tsr__kernels TSR__INSTRUCTION_SET_NAME(tsr__kernels_) = {
    .name = STRING(TSR__INSTRUCTION_SET),
    .combine =
        {
            [TSR_F32] = OPS(sum_f32, min_f32, max_f32, prod_f32),
            [TSR_F64] = OPS(sum_f64, min_f64, max_f64, prod_f64),
            [TSR_F16] = OPS(sum_f16, min_f16, max_f16, prod_f16),
            [TSR_BF16] = OPS(sum_bf16, min_bf16, max_bf16, prod_bf16),
            [TSR_I32] = OPS(sum_32, min_i32, max_i32, prod_32),
            [TSR_U32] = OPS(sum_32, min_u32, max_u32, prod_32),
            [TSR_I64] = OPS(sum_64, min_i64, max_i64, prod_64),
            [TSR_U8] = OPS(sum_u8, min_u8, max_u8, prod_u8),
        },
    .divide =
        {
            [TSR_F32] = divide_f32,
            [TSR_F64] = divide_f64,
            [TSR_F16] = divide_f16,
            [TSR_BF16] = divide_bf16,
            [TSR_I32] = divide_i32,
            [TSR_U32] = divide_u32,
            [TSR_I64] = divide_i64,
            [TSR_U8] = divide_u8,
        },
};
