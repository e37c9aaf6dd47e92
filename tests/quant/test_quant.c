/* Tests sizes, bad input, and properties that hold for every format. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "shard/params/params.h"
#include "support/check_main.h"
#include "support/random.h"
#include "tessera/quant.h"
#include "tessera/shard.h"

enum { COUNT = 512, BYTES = 1024 };

static float values[COUNT];
static uint8_t blocks[BYTES];

static uint64_t size_of(const tsr_quant_format *format)
{
    uint64_t bytes = 0;
    ck_assert_ok(tsr_quant_bytes(format->dtype, COUNT, &bytes));
    ck_assert_uint_le(bytes, BYTES);
    return bytes;
}

START_TEST(names_and_sizes)
{
    const tsr_quant_format *format;
    for (int i = 0; (format = tsr_quant_format_at(i)) != NULL; i++) {
        tsr__file_dtype listed;
        tsr_dtype parsed = TSR_F32;
        uint64_t bytes = 0;
        ck_assert_ptr_eq(tsr_quant_format_of(format->dtype), format);
        ck_assert_str_eq(tsr_dtype_name(format->dtype), format->name);
        ck_assert_uint_eq(tsr_dtype_size(format->dtype), 0);
        ck_assert_ok(tsr_dtype_parse(format->name, &parsed));
        ck_assert_int_eq(parsed, format->dtype);
        /* Lists of parameters use the same sizes. */
        ck_assert(tsr__dtype_by_name(format->name, &listed));
        ck_assert_uint_eq(listed.block_count, (uint64_t)format->block_count);
        ck_assert_uint_eq(listed.block_bytes, (uint64_t)format->block_bytes);
        ck_assert_ok(tsr_quant_bytes(format->dtype, INT64_C(3) * format->block_count, &bytes));
        ck_assert_uint_eq(bytes, 3 * (uint64_t)format->block_bytes);
        ck_assert_ok(tsr_quant_bytes(format->dtype, 0, &bytes));
        ck_assert_uint_eq(bytes, 0);
        ck_assert_ok(tsr_dequantize(format->dtype, NULL, 0, NULL, 0));
    }
    ck_assert_ptr_null(tsr_quant_format_at(-1));
    ck_assert_ptr_null(tsr_quant_format_of(TSR_F16));
    ck_assert_ptr_null(tsr_quant_format_of((tsr_dtype)1000));
}
END_TEST

START_TEST(refuses_sizes)
{
    uint64_t bytes = 7;
    ck_assert_error(tsr_quant_bytes(TSR_F16, 32, &bytes), TSR_ERR_INVALID,
                    "quant_bytes: dtype 2 is not a block format");
    ck_assert_error(tsr_quant_bytes(TSR_Q4_K, 320, &bytes), TSR_ERR_INVALID,
                    "quant_bytes: 320 elements are not whole blocks of 256, as q4_k needs");
    ck_assert_error(tsr_quant_bytes(TSR_Q8_0, -32, &bytes), TSR_ERR_INVALID,
                    "quant_bytes: -32 elements are not whole blocks of 32, as q8_0 needs");
    ck_assert_error(tsr_quant_bytes(TSR_Q8_0, INT64_MAX / 32 * 32, &bytes), TSR_ERR_OVERFLOW,
                    "quant_bytes: the bytes of 9223372036854775776 elements of q8_0 do not fit 63 "
                    "bits");
    ck_assert_error(tsr_quant_bytes(TSR_Q8_0, 32, NULL), TSR_ERR_INVALID,
                    "quant_bytes: out is NULL");
    ck_assert_uint_eq(bytes, 7);

    ck_assert_error(tsr_quantize(TSR_F32, values, 32, blocks, 128), TSR_ERR_INVALID,
                    "quantize: dtype 1 is not a block format");
    ck_assert_error(tsr_quantize(TSR_Q8_0, values, 33, blocks, 34), TSR_ERR_INVALID,
                    "quantize: 33 elements are not whole blocks of 32, as q8_0 needs");
    ck_assert_error(tsr_quantize(TSR_Q8_0, values, 64, blocks, 67), TSR_ERR_INVALID,
                    "quantize: 67 bytes of blocks; 64 elements of q8_0 have 68");
    ck_assert_error(tsr_quantize(TSR_Q8_0, NULL, 64, blocks, 68), TSR_ERR_INVALID,
                    "quantize: values is NULL");
    ck_assert_error(tsr_quantize(TSR_Q8_0, values, 64, NULL, 68), TSR_ERR_INVALID,
                    "quantize: blocks is NULL");
    ck_assert_error(tsr_quantize(TSR_IQ4_NL, values, 32, blocks, 18), TSR_ERR_UNSUPPORTED,
                    "quantize: iq4_nl can be read but not written");
    ck_assert_error(tsr_dequantize(TSR_U8, blocks, 32, values, 32), TSR_ERR_INVALID,
                    "dequantize: dtype 7 is not a block format");
    ck_assert_error(tsr_dequantize(TSR_MXFP4, blocks, 18, values, 32), TSR_ERR_INVALID,
                    "dequantize: 18 bytes of blocks; 32 elements of mxfp4 have 17");
    ck_assert_error(tsr_dequantize(TSR_MXFP4, NULL, 17, values, 32), TSR_ERR_INVALID,
                    "dequantize: blocks is NULL");
    ck_assert_error(tsr_dequantize(TSR_MXFP4, blocks, 17, NULL, 32), TSR_ERR_INVALID,
                    "dequantize: values is NULL");
}
END_TEST

START_TEST(refuses_values)
{
    const tsr_quant_format *format;
    for (int i = 0; (format = tsr_quant_format_at(i)) != NULL; i++) {
        if (!format->quantizes)
            continue;
        const uint64_t size = size_of(format);
        memset(values, 0, sizeof values);
        values[300] = NAN;
        ck_assert_error(tsr_quantize(format->dtype, values, COUNT, blocks, size), TSR_ERR_INVALID,
                        "quantize: element 300 is NaN");
        values[300] = INFINITY;
        ck_assert_error(tsr_quantize(format->dtype, values, COUNT, blocks, size), TSR_ERR_INVALID,
                        "quantize: element 300 is infinite");
        values[300] = -INFINITY;
        ck_assert_error(tsr_quantize(format->dtype, values, COUNT, blocks, size), TSR_ERR_INVALID,
                        "quantize: element 300 is -infinite");
        values[300] = -3e38f;
        if (format->dtype == TSR_MXFP4) { /* its blocks have a scale for every float */
            ck_assert_ok(tsr_quantize(format->dtype, values, COUNT, blocks, size));
            continue;
        }
        const int first = 300 / format->block_count * format->block_count;
        char text[160];
        snprintf(text, sizeof text,
                 "quantize: elements %d..%d, of magnitudes up to 3e+38, need a scale beyond the "
                 "f16 range of %s",
                 first, first + format->block_count - 1, format->name);
        ck_assert_error(tsr_quantize(format->dtype, values, COUNT, blocks, size), TSR_ERR_INVALID,
                        text);
    }
}
END_TEST

/* The error of a quantised element must be at most about the distance of two neighbouring values
 * of the format. Blocks must depend only on their own elements, and nothing may be written past
 * the end. */
START_TEST(approximates)
{
    const tsr_quant_format *format;
    for (int i = 0; (format = tsr_quant_format_at(i)) != NULL; i++) {
        if (!format->quantizes)
            continue;
        const uint64_t size = size_of(format);
        uint64_t random = 7;
        float back[COUNT + 1], worst = 0;
        uint8_t alone[BYTES];
        for (int j = 0; j < COUNT; j++)
            values[j] = (float)random_between(&random, 0, 2000) / 1000 - 1;
        memset(blocks, 0x5a, sizeof blocks);
        ck_assert_ok(tsr_quantize(format->dtype, values, COUNT, blocks, size));
        ck_assert_int_eq(blocks[size], 0x5a);
        back[COUNT] = 42;
        ck_assert_ok(tsr_dequantize(format->dtype, blocks, size, back, COUNT));
        ck_assert_float_eq(back[COUNT], 42);
        for (int j = 0; j < COUNT; j++)
            worst = fmaxf(worst, fabsf(back[j] - values[j]));
        const int bits = format->block_bytes * 8 / format->block_count;
        ck_assert_msg(worst <= 4 / ldexpf(1, bits < 4 ? bits : 4), "%s: an error of %g",
                      format->name, (double)worst);
        ck_assert_float_gt(worst, 0);

        const int last = COUNT - format->block_count;
        const uint64_t bytes = (uint64_t)format->block_bytes;
        ck_assert_ok(tsr_quantize(format->dtype, values + last, format->block_count, alone, bytes));
        ck_assert_mem_eq(alone, blocks + size - bytes, bytes);
    }
}
END_TEST

/* Any bytes must be accepted as blocks. */
START_TEST(reads_any_bytes)
{
    const tsr_quant_format *format;
    uint64_t random = 11;
    for (int i = 0; (format = tsr_quant_format_at(i)) != NULL; i++) {
        for (int round = 0; round < 200; round++) {
            for (int j = 0; j < BYTES; j++)
                blocks[j] = (uint8_t)(round == 0 ? 0xff : random_between(&random, 0, 255));
            ck_assert_ok(tsr_dequantize(format->dtype, blocks, size_of(format), values, COUNT));
        }
    }
}
END_TEST

TESTS(quant)
{
    tcase_add_test(tests, names_and_sizes);
    tcase_add_test(tests, refuses_sizes);
    tcase_add_test(tests, refuses_values);
    tcase_add_test(tests, approximates);
    tcase_add_test(tests, reads_any_bytes);
}
