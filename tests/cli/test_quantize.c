/* Tests tessera quantize: sends bytes of golden files through pipes. */
#include <stdio.h>

#include "cli/tool.h"
#include "quant/golden_quant.h"

enum { MAX_ROW = 512 };

/* Runs the tool on `in`, and compares its output. */
static void converts(const char *arguments, const void *in, size_t in_size, const void *out,
                     size_t out_size)
{
    tool_feed(in, in_size);
    tool_result result = tool_run(arguments);
    ck_assert_msg(result.exit_code == 0, "%s: exit code %d: %s", arguments, result.exit_code,
                  result.err);
    ck_assert_str_eq(result.err, "");
    ck_assert_uint_eq(result.out_size, out_size);
    ck_assert_msg(memcmp(result.out, out, out_size) == 0, "%s: other bytes", arguments);
    tool_result_free(&result);
}

/* Converts two copies of row 0 of the golden file: to blocks in the formats that can be quantised,
 * and back in all formats. */
START_TEST(converts_golden_rows)
{
    json_t *golden = golden_load("quant_blocks"), *type;
    const json_t *row = json_array_get(golden_list(golden, "rows"), 0);
    const char *name;
    static float x[2 * MAX_ROW], y[2 * MAX_ROW];
    static uint8_t blocks[4 * MAX_ROW];
    const size_t bytes = golden_decode(golden_text(row, "x"), x, sizeof x / 2);
    memcpy((char *)x + bytes, x, bytes);
    json_object_foreach(golden_member(golden, "types"), name, type)
    {
        char arguments[96];
        const tsr_quant_format *format = golden_format(name);
        const json_t *expected = json_array_get(golden_list(type, "rows"), 0);
        const size_t size = golden_decode(golden_text(expected, "q"), blocks, sizeof blocks / 2);
        memcpy(blocks + size, blocks, size);
        ck_assert_uint_eq(golden_decode(golden_text(expected, "y"), y, sizeof y / 2), bytes);
        memcpy((char *)y + bytes, y, bytes);
        snprintf(arguments, sizeof arguments, "quantize --type %s --raw --columns %zu",
                 format->name, bytes / sizeof *x);
        if (format->quantizes)
            converts(arguments, x, 2 * bytes, blocks, 2 * size);
        snprintf(arguments, sizeof arguments, "quantize --dequantize --type %s --raw --columns %zu",
                 format->name, bytes / sizeof *x);
        converts(arguments, blocks, 2 * size, y, 2 * bytes);
    }
    json_decref(golden);
}
END_TEST

START_TEST(converts_nothing)
{
    converts("quantize --type q4_0 --raw --columns 32", "", 0, "", 0);
}
END_TEST

static void fails(const char *arguments, const void *in, size_t size, const char *sentence,
                  size_t out_size)
{
    tool_feed(in, size);
    tool_result result = tool_run(arguments);
    ck_assert_int_eq(result.exit_code, 1);
    ck_assert_str_eq(result.err, sentence);
    ck_assert_uint_eq(result.out_size, out_size);
    tool_result_free(&result);
}

START_TEST(bad_rows)
{
    static const uint8_t nan[] = {0, 0, 0xc0, 0x7f};
    uint8_t in[256] = {0};
    memcpy(in + 128 + 4 * 5, nan, 4);
    fails("quantize --type q8_0 --raw --columns 32", in, sizeof in,
          "tessera: quantize: element 5 is NaN, in row 1\n", 34);
    fails("quantize --type q8_0 --raw --columns 32", in, 130,
          "tessera: quantize: row 1 has 2 bytes instead of 128\n", 34);
    fails("quantize --type q8_0 --raw --columns 32 --dequantize", in, 70,
          "tessera: quantize: row 2 has 2 bytes instead of 34\n", 256);
}
END_TEST

START_TEST(wrong_arguments)
{
    tool_refuses("quantize", "tessera: quantize: missing --type TYPE\n");
    tool_refuses("quantize --type q8_0", "tessera: quantize: missing --columns N\n");
    tool_refuses("quantize --type q8_0 --columns 32",
                 "tessera: quantize: missing --raw; other forms of input are not supported\n");
    tool_refuses("quantize --type q8_1 --columns 32 --raw",
                 "tessera: quantize: --type takes q4_0, q4_1, q5_0, q5_1, q8_0, q2_k, q3_k, q4_k, "
                 "q5_k, q6_k, iq4_nl, iq4_xs, mxfp4, nvfp4, iq2_xxs, iq2_xs, iq2_s, iq3_xxs, "
                 "iq3_s, tq1_0, tq2_0, not 'q8_1'\n");
    tool_refuses("quantize --type iq4_nl --columns 32 --raw",
                 "tessera: quantize: iq4_nl is supported only with --dequantize\n");
    tool_refuses("quantize --type q4_k --columns 32 --raw",
                 "tessera: quantize: --columns 32 is not a multiple of 256, as q4_k needs\n");
    tool_refuses("quantize --type q4_k --columns 0 --raw",
                 "tessera: quantize: --columns takes an integer from 1 to 268435456, not '0'\n");
    tool_refuses("quantize --type q8_0 --columns 32 --raw file",
                 "tessera: quantize: unexpected argument 'file'\n");
}
END_TEST

TESTS(quantize)
{
    tcase_add_test(tests, converts_golden_rows);
    tcase_add_test(tests, converts_nothing);
    tcase_add_test(tests, bad_rows);
    tcase_add_test(tests, wrong_arguments);
}
