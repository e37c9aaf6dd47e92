/* Compares blocks and values with llama.cpp's reference functions, bit for bit. */
#include <math.h>

#include "quant/golden_quant.h"

enum { MAX_ROW = 512, MAX_BYTES = 1024 };

static json_t *golden, *vectors; /* formats with planes, and formats that can only be read */

static void load(void)
{
    golden = golden_load("quant_blocks");
    vectors = golden_load("quant_vectors");
}

static void unload(void)
{
    json_decref(golden);
    json_decref(vectors);
}

static const json_t *type_in(const json_t *file, const tsr_quant_format *format)
{
    const char *name;
    json_t *type;
    json_object_foreach(golden_member(file, "types"), name,
                        type) if (golden_integer(type, "ggml_type_id") == format->gguf_type)
    {
        ck_assert_int_eq((int)golden_integer(type, "block_values"), format->block_count);
        ck_assert_int_eq((int)golden_integer(type, "block_bytes"), format->block_bytes);
        ck_assert_int_eq(strcasecmp(name, format->name), 0);
        return type;
    }
    return NULL;
}

static const json_t *type_of(const tsr_quant_format *format)
{
    const json_t *type = type_in(golden, format);
    if (type == NULL)
        type = type_in(vectors, format);
    ck_assert_msg(type != NULL, "%s is in no golden file", format->name);
    return type;
}

static bool same(float a, float b)
{
    return memcmp(&a, &b, sizeof a) == 0 || (isnan(a) && isnan(b));
}

/* The loop index selects the format. */
START_TEST(dequantizes)
{
    const tsr_quant_format *format = tsr_quant_format_at(_i);
    size_t index;
    json_t *row;
    json_array_foreach(golden_list(type_of(format), "rows"), index, row)
    {
        uint8_t blocks[MAX_BYTES];
        float expected[MAX_ROW], values[MAX_ROW];
        uint64_t bytes;
        const size_t size = golden_decode(golden_text(row, "q"), blocks, sizeof blocks);
        const int count =
            (int)(golden_decode(golden_text(row, "y"), expected, sizeof expected) / 4);
        ck_assert_ok(tsr_quant_bytes(format->dtype, count, &bytes));
        ck_assert_uint_eq(bytes, size);
        ck_assert_ok(tsr_dequantize(format->dtype, blocks, size, values, count));
        for (int i = 0; i < count; i++)
            ck_assert_msg(same(values[i], expected[i]), "%s, %s: element %d is %.9g, not %.9g",
                          format->name, golden_text(row, "row"), i, (double)values[i],
                          (double)expected[i]);
    }
}
END_TEST

/* Returns whether the scales of a row's blocks do not fit f16. The library must refuse such
 * rows. */
static bool overflows(const tsr_quant_format *format, const json_t *row)
{
    const bool huge = strcmp(golden_text(row, "row"), "huge_1e30_scale_overflows_fp16") == 0;
    return json_is_true(json_object_get(row, "nonfinite")) || (huge && format->dtype != TSR_MXFP4);
}

START_TEST(quantizes)
{
    const tsr_quant_format *format = tsr_quant_format_at(_i);
    const json_t *rows = golden_list(golden, "rows"), *type = type_in(golden, format);
    size_t index;
    json_t *row;
    if (type == NULL) {
        const float x[256] = {0};
        uint8_t blocks[MAX_BYTES];
        ck_assert_int_eq(tsr_quantize(format->dtype, x, 256, blocks, (uint64_t)format->block_bytes),
                         TSR_ERR_UNSUPPORTED);
        return;
    }
    json_array_foreach(golden_list(type, "rows"), index, row)
    {
        const json_t *in = json_array_get(rows, index);
        uint8_t blocks[MAX_BYTES], expected[MAX_BYTES];
        float x[MAX_ROW];
        ck_assert_str_eq(golden_text(in, "name"), golden_text(row, "row"));
        const int count = (int)(golden_decode(golden_text(in, "x"), x, sizeof x) / 4);
        const size_t size = golden_decode(golden_text(row, "q"), expected, sizeof expected);
        ck_assert_int_eq(count, (int)golden_integer(in, "k"));
        memset(blocks, 0xa5, sizeof blocks);
        const tsr_status status = tsr_quantize(format->dtype, x, count, blocks, size);
        if (!format->quantizes) {
            ck_assert_int_eq(status, TSR_ERR_UNSUPPORTED);
        } else if (overflows(format, row)) {
            ck_assert_int_eq(status, TSR_ERR_INVALID);
            ck_assert_ptr_nonnull(strstr(tsr_last_error(), "need a scale beyond the f16 range"));
        } else {
            ck_assert_ok(status);
            for (size_t i = 0; i < size; i++)
                ck_assert_msg(blocks[i] == expected[i], "%s, %s: byte %zu is %d, not %d",
                              format->name, golden_text(row, "row"), i, blocks[i], expected[i]);
            ck_assert_int_eq(blocks[size], 0xa5);
        }
    }
}
END_TEST

/* Quantises a matrix of random weights, and compares the hashes of its blocks and of its values
 * with the golden file's. */
START_TEST(matrix)
{
    json_t *file = golden_load("quant_matvec");
    size_t index;
    json_t *item;
    json_array_foreach(golden_list(file, "cases"), index, item)
    {
        const size_t count = (size_t)(golden_integer(item, "rows") * golden_integer(item, "cols"));
        float *weights = malloc(count * sizeof *weights), *values = malloc(count * sizeof *values);
        ck_assert(weights != NULL && values != NULL);
        golden_splitmix((uint64_t)golden_integer(item, "w_seed"),
                        (float)json_number_value(golden_member(item, "w_scale")), weights, count);
        ck_assert_uint_eq(golden_fnv1a(weights, count * sizeof *weights),
                          golden_hex(golden_member(item, "w_fnv1a64_f32")));
        const char *name;
        json_t *type;
        json_object_foreach(golden_member(item, "types"), name, type)
        {
            const tsr_quant_format *format = golden_format(name);
            uint64_t size = 0;
            ck_assert_ok(tsr_quant_bytes(format->dtype, (int64_t)count, &size));
            ck_assert_int_eq((int64_t)size, golden_integer(type, "q_bytes"));
            if (!format->quantizes)
                continue;
            void *blocks = malloc(size);
            ck_assert_ptr_nonnull(blocks);
            ck_assert_ok(tsr_quantize(format->dtype, weights, (int64_t)count, blocks, size));
            ck_assert_msg(golden_fnv1a(blocks, size) ==
                              golden_hex(golden_member(type, "q_fnv1a64")),
                          "case %zu, %s: other blocks", index, name);
            ck_assert_ok(tsr_dequantize(format->dtype, blocks, size, values, (int64_t)count));
            ck_assert_msg(golden_fnv1a(values, count * sizeof *values) ==
                              golden_hex(golden_member(type, "deq_fnv1a64_f32")),
                          "case %zu, %s: other values", index, name);
            free(blocks);
        }
        free(weights);
        free(values);
    }
    json_decref(file);
}
END_TEST

/* Reads many random blocks, which have every entry of a code book many times, and compares the hash
 * of the values with the golden file's. */
START_TEST(reads_all_entries)
{
    const char *name;
    json_t *type;
    json_object_foreach(golden_member(vectors, "types"), name, type)
    {
        const tsr_quant_format *format = golden_format(name);
        const size_t scale = (size_t)golden_integer(type, "scale_offset"),
                     block = (size_t)format->block_bytes,
                     count = (size_t)golden_integer(type, "blocks");
        uint64_t state = (uint64_t)golden_integer(type, "seed");
        uint8_t *blocks = malloc(count * block);
        float *values = malloc(count * 256 * sizeof *values);
        ck_assert(blocks != NULL && values != NULL);
        for (size_t i = 0; i < count * block; i++)
            blocks[i] = (uint8_t)(random_next(&state) & (i % block == scale + 1 ? 0xbf : 0xff));
        ck_assert_uint_eq(golden_fnv1a(blocks, count * block),
                          golden_hex(golden_member(type, "q_fnv1a64")));
        ck_assert_ok(
            tsr_dequantize(format->dtype, blocks, count * block, values, (int64_t)count * 256));
        ck_assert_msg(golden_fnv1a(values, count * 256 * sizeof *values) ==
                          golden_hex(golden_member(type, "deq_fnv1a64_f32")),
                      "%s: other values", name);
        free(blocks);
        free(values);
    }
}
END_TEST

/* Each type of the golden files must be in the library's table of formats. */
START_TEST(knows_all)
{
    int count = 0;
    while (tsr_quant_format_at(count) != NULL)
        count++;
    ck_assert_int_eq(count, (int)(json_object_size(golden_member(golden, "types")) +
                                  json_object_size(golden_member(vectors, "types"))));
}
END_TEST

TESTS(golden)
{
    tcase_add_checked_fixture(tests, load, unload);
    tcase_add_loop_test(tests, dequantizes, 0, 21);
    tcase_add_loop_test(tests, quantizes, 0, 21);
    tcase_add_test(tests, matrix);
    tcase_add_test(tests, reads_all_entries);
    tcase_add_test(tests, knows_all);
}
