/* Matrices in MXFP4 as pairs of tensors in Hugging Face files. */
#include <string.h>

#include "model/weights/files.h"
#include "model/weights/mxfp4.h"
#include "shard/files.h"
#include "support/check_main.h"
#include "support/random.h"
#include "tessera/quant.h"

enum { BLOCKS = 37 };

/* The values of the four bits of an element. */
static float value_of(int bits)
{
    static const float magnitudes[8] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
    return (bits & 8 ? -1.0f : 1.0f) * magnitudes[bits & 7];
}

START_TEST(blocks)
{
    uint8_t pair[BLOCKS * 16], scales[BLOCKS], out[BLOCKS * 17], again[sizeof pair];
    float values[BLOCKS * 32];
    uint64_t random = 3;
    for (int i = 0; i < BLOCKS * 16; i++)
        pair[i] = (uint8_t)random_between(&random, 0, 255);
    for (int i = 0; i < BLOCKS; i++)
        scales[i] = (uint8_t)random_between(&random, 120, 134);
    memcpy(out + BLOCKS, pair, sizeof pair);
    tsr__mxfp4_from_pair(out, scales, BLOCKS);
    ck_assert_ok(tsr_dequantize(TSR_MXFP4, out, sizeof out, values, BLOCKS * 32));
    for (int i = 0; i < BLOCKS * 32; i++) {
        const float want =
            value_of(pair[i / 2] >> (i % 2 * 4) & 15) * (float)(1 << (scales[i / 32] - 120)) / 128;
        ck_assert_msg(values[i] == want, "element %d is %g, not %g", i, (double)values[i],
                      (double)want);
    }
    uint8_t other[BLOCKS];
    tsr__mxfp4_to_pair(out, BLOCKS, again, other);
    ck_assert(memcmp(again, pair, sizeof pair) == 0 && memcmp(other, scales, sizeof other) == 0);
}
END_TEST

/* Opens a safetensors file with this header and `size` bytes of weights. */
static tsr_status open_file(const char *header, size_t size, tsr__model_files *out)
{
    folder in = folder_create();
    char path[160];
    bytes file = safetensors_file(header, size);
    folder_write(&in, "x.safetensors", file.data, file.size, path);
    const tsr_status status = tsr__model_files_open_weights(path, out);
    free(file.data);
    folder_destroy(&in);
    return status;
}

#define PAIR(blocks, type, scales, last)                                                           \
    "{\"w_blocks\":{\"dtype\":\"" type "\",\"shape\":" blocks                                      \
    ",\"data_offsets\":[0,32]},\"w_scales\":{\"dtype\":\"U8\",\"shape\":" scales                   \
    ",\"data_offsets\":[32," last "]}}"

START_TEST(pairs)
{
    tsr__model_files files;
    ck_assert_ok(open_file(PAIR("[2,1,16]", "U8", "[2,1]", "34"), 34, &files));
    const tsr_shard_param *w = tsr__model_files_find(&files, "w");
    ck_assert(w && w->ndim == 2 && w->shape[0] == 2 && w->shape[1] == 32);
    ck_assert_str_eq(w->dtype, "mxfp4");
    ck_assert(tsr__mxfp4_pair(&files, w));
    ck_assert(!tsr__mxfp4_pair(&files, tsr__model_files_find(&files, "w_blocks")));
    tsr__model_files_finish(&files);
    ck_assert_error(open_file(PAIR("[2,1,16]", "U8", "[1,2]", "34"), 34, &files), TSR_ERR_INVALID,
                    "model: tensors w_blocks (u8 [2,1,16]) and w_scales (u8 [1,2]) are not the "
                    "blocks and scales of MXFP4");
    tsr__model_files_finish(&files);
    ck_assert_error(open_file(PAIR("[2,1,8]", "F16", "[2,1]", "34"), 34, &files), TSR_ERR_INVALID,
                    "model: tensors w_blocks (f16 [2,1,8]) and w_scales (u8 [2,1]) are not the "
                    "blocks and scales of MXFP4");
    tsr__model_files_finish(&files);
    ck_assert_error(
        open_file("{\"w_blocks\":{\"dtype\":\"U8\",\"shape\":[0,4611686018427387904,16],"
                  "\"data_offsets\":[0,0]},\"w_scales\":{\"dtype\":\"U8\",\"shape\":"
                  "[0,4611686018427387904],\"data_offsets\":[0,0]}}",
                  0, &files),
        TSR_ERR_INVALID,
        "model: tensors w_blocks (u8 [0,4611686018427387904,16]) and w_scales (u8 "
        "[0,4611686018427387904]) are not the blocks and scales of MXFP4");
    tsr__model_files_finish(&files);
    /* Without scales, blocks are an ordinary tensor. */
    ck_assert_ok(open_file("{\"w_blocks\":{\"dtype\":\"U8\",\"shape\":[32],"
                           "\"data_offsets\":[0,32]}}",
                           32, &files));
    ck_assert(!tsr__model_files_find(&files, "w"));
    tsr__model_files_finish(&files);
}
END_TEST

TESTS(model_mxfp4)
{
    tcase_add_test(tests, blocks);
    tcase_add_test(tests, pairs);
}
