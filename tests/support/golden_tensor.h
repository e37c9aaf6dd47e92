/* Tensors in golden files: {dtype, shape, b64}, row-major and little-endian in base64. */
#ifndef TESTS_SUPPORT_GOLDEN_TENSOR_H
#define TESTS_SUPPORT_GOLDEN_TENSOR_H

#include "support/golden.h"

typedef struct golden_tensor {
    int ndim;
    int64_t shape[8], count;
    double *values; /* exact for every dtype, except that i64 values beyond 2^53 are rounded */
} golden_tensor;

static inline int golden_digit(char c)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const char *found = c != '\0' ? strchr(digits, c) : NULL;
    return found != NULL ? (int)(found - digits) : -1;
}

/* Decodes exactly `size` bytes. */
static inline uint8_t *golden_bytes(const char *text, size_t size)
{
    uint8_t *bytes = calloc(size + 3, 1);
    ck_assert_ptr_nonnull(bytes);
    ck_assert_uint_eq(strlen(text), (size + 2) / 3 * 4);
    for (size_t i = 0; i < (size + 2) / 3; i++) {
        uint32_t word = 0;
        for (int k = 0; k < 4; k++) {
            const int digit = golden_digit(text[4 * i + (size_t)k]);
            ck_assert(digit >= 0 || text[4 * i + (size_t)k] == '=');
            word = word << 6 | (uint32_t)(digit < 0 ? 0 : digit);
        }
        for (int k = 0; k < 3; k++)
            bytes[3 * i + (size_t)k] = (uint8_t)(word >> (16 - 8 * k));
    }
    return bytes;
}

static inline double golden_element(const uint8_t *bytes, const char *dtype, int64_t i)
{
    float f32;
    double f64;
    int64_t i64;
    if (strcmp(dtype, "f32") == 0)
        return memcpy(&f32, bytes + 4 * i, 4), (double)f32;
    if (strcmp(dtype, "f64") == 0)
        return memcpy(&f64, bytes + 8 * i, 8), f64;
    if (strcmp(dtype, "i64") == 0)
        return memcpy(&i64, bytes + 8 * i, 8), (double)i64;
    if (strcmp(dtype, "u8") == 0)
        return bytes[i];
    ck_abort_msg("there is no dtype \"%s\"", dtype);
    return 0;
}

static inline golden_tensor golden_tensor_load(const json_t *object, const char *name)
{
    const json_t *member = golden_member(object, name), *shape = golden_member(member, "shape");
    const char *dtype = golden_text(member, "dtype"), *text = golden_text(member, "b64");
    const size_t size = strcmp(dtype, "u8") == 0 ? 1 : strcmp(dtype, "f32") == 0 ? 4 : 8;
    golden_tensor tensor = {.ndim = (int)json_array_size(shape), .count = 1};
    ck_assert_int_le(tensor.ndim, 8);
    for (int d = 0; d < tensor.ndim; d++) {
        tensor.shape[d] = json_integer_value(json_array_get(shape, (size_t)d));
        tensor.count *= tensor.shape[d];
    }
    uint8_t *bytes = golden_bytes(text, (size_t)tensor.count * size);
    tensor.values = calloc((size_t)tensor.count + 1, sizeof *tensor.values);
    ck_assert_ptr_nonnull(tensor.values);
    for (int64_t i = 0; i < tensor.count; i++)
        tensor.values[i] = golden_element(bytes, dtype, i);
    free(bytes);
    return tensor;
}

static inline void golden_tensor_free(golden_tensor *tensor)
{
    free(tensor->values);
    tensor->values = NULL;
}

#endif
