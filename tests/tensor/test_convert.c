/* Conversions between float dtypes, for every instruction set that this processor has. */
#include <math.h>
#include <string.h>

#include "comm/reduce/numbers.h"
#include "tensor/float_conversion.h"

static const tsr_dtype floats[] = {TSR_F32, TSR_F16, TSR_BF16};

/* Returns the expected bits of an f32 as `to`. A NaN becomes a quiet NaN with the same sign and as
 * much of its payload as bf16 can hold. */
static uint64_t narrowed(uint32_t bits, tsr_dtype to)
{
    if (to == TSR_F32)
        return bits;
    if ((bits & 0x7fffffff) > 0x7f800000)
        return to == TSR_F16 ? (bits >> 16 & 0x8000) | 0x7e00 : bits >> 16 | 0x40;
    return bits_of_float(float_of(bits, TSR_F32), to);
}

/* Returns the expected bits of an f16 or bf16 as f32: the exact value, or a NaN with its
 * payload. */
static uint32_t widened(uint64_t bits, tsr_dtype from)
{
    if (from == TSR_F32)
        return (uint32_t)bits;
    if (from == TSR_BF16)
        return (uint32_t)bits << 16;
    if ((bits & 0x7c00) == 0x7c00)
        return (uint32_t)(bits & 0x8000) << 16 | 0x7f800000 | (uint32_t)(bits & 0x3ff) << 13;
    return (uint32_t)bits_of_float(float_of(bits, TSR_F16), TSR_F32);
}

/* Returns an f16 or bf16 value, the value halfway to the next one, a neighbour of either, or random
 * bits. */
static uint32_t f32_of_interest(uint64_t *random, uint32_t i)
{
    uint32_t half = i / 8;

    switch (i % 8) {
    case 0:
        return (uint32_t)random_between(random, 0, UINT32_MAX);
    case 1:
        return widened(half, TSR_BF16) + 0x8000;
    case 2:
        return widened(half, TSR_BF16) + (uint32_t)random_between(random, 0x7fff, 0x8001);
    case 3:
    case 4:
        return widened(half, TSR_F16) + (uint32_t)random_between(random, 0, 2) - 1;
    }
    /* `tie` is the value halfway to the next f16, also for subnormal values. */
    double x = float_of(half, TSR_F16);
    bool subnormal = (half & 0x7c00) == 0;
    uint32_t tie = subnormal ? (uint32_t)bits_of_float(x + ldexp(signbit(x) ? -1 : 1, -25), TSR_F32)
                             : widened(half, TSR_F16) + 0x1000;
    return tie + (uint32_t)random_between(random, 0, 2) - 1;
}

enum { COUNT = 8 * 65536, GUARD = 16 };

static uint32_t in[COUNT + GUARD], out[COUNT + GUARD];

static void check_pair(tsr__convert_fn *convert, tsr_dtype to, tsr_dtype from)
{
    uint64_t random = 1;
    const size_t from_bytes = tsr_dtype_size(from), to_bytes = tsr_dtype_size(to);

    for (uint32_t i = 0; i < COUNT; i++)
        store(in, i, from, from == TSR_F32 ? f32_of_interest(&random, i) : i & 0xffff);
    /* Also converts small numbers of elements at any address, to test the ends of vectors. */
    for (size_t first = 0, count; first < COUNT; first += count) {
        count = first < 5000 ? (size_t)random_between(&random, 0, 70) : COUNT - first;
        size_t last = first + count;
        memset(out, 0xa5, sizeof out);
        convert((char *)out + first * to_bytes, (char *)in + first * from_bytes, count);
        for (size_t i = first > 9 ? first - 9 : 0; i < last + 9; i++) {
            uint64_t got = load(out, i, to), all = to == TSR_F32 ? 0xa5a5a5a5 : 0xa5a5;
            uint64_t want =
                i < first || i >= last ? all : narrowed(widened(load(in, i, from), from), to);
            if (got != want)
                ck_abort_msg("%s %#llx to %s is %#llx, not %#llx", tsr_dtype_name(from),
                             (unsigned long long)load(in, i, from), tsr_dtype_name(to),
                             (unsigned long long)got, (unsigned long long)want);
        }
        count += count == 0;
    }
}

START_TEST(every_pair)
{
    const tsr_dtype to = floats[_i / 3], from = floats[_i % 3];
    int levels = 0;

    if (to == from) {
        ck_assert(tsr__converter(to, from) == NULL);
        return;
    }
    ck_assert(tsr__converter(to, from) != NULL);
    for (tsr__convert_fn *convert; (convert = tsr__converter_at(levels, to, from)); levels++)
        check_pair(convert, to, from);
    ck_assert_int_ge(levels, 1);
}
END_TEST

START_TEST(no_other_pairs)
{
    ck_assert(tsr__converter(TSR_F32, TSR_I32) == NULL);
    ck_assert(tsr__converter(TSR_U8, TSR_F16) == NULL);
    ck_assert(tsr__converter(TSR_F64, TSR_F32) == NULL);
    ck_assert(tsr__converter(TSR_F32, (tsr_dtype)0) == NULL);
    ck_assert(tsr__converter((tsr_dtype)-1, TSR_F32) == NULL);
    ck_assert(tsr__converter(TSR_F32, (tsr_dtype)1000) == NULL);
}
END_TEST

TESTS(convert)
{
    tcase_add_loop_test(tests, every_pair, 0, 9);
    tcase_add_test(tests, no_other_pairs);
}
