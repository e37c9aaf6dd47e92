/* The element types of model files. Those that tensors can have are described by tensor/dtype.c
 * and, if they come in blocks, by quant/block_formats.c. This file has their numbers in GGUF, and
 * the types that occur only in files. Sources: the specifications of safetensors and GGUF, and
 * ggml. */
#include "base/error.h"
#include "shard/params/params.h"
#include "tessera/layout.h"
#include "tessera/quant.h"

enum { NOT_IN_GGUF = -1 };

typedef struct file_dtype {
    tsr__file_dtype dtype;
    int gguf_type; /* the number in GGUF, or NOT_IN_GGUF */
} file_dtype;

static const struct {
    tsr_dtype dtype;
    int gguf_type;
} tensor_dtypes[] = {
    {TSR_F32, 0},  {TSR_F16, 1},           {TSR_BF16, 30},        {TSR_I32, 26},
    {TSR_I64, 27}, {TSR_U32, NOT_IN_GGUF}, {TSR_U8, NOT_IN_GGUF},
};

static const file_dtype only_in_files[] = {
    {{"f64", 1, 8}, 28},
    {{"i8", 1, 1}, 24},
    {{"i16", 1, 2}, 25},
    {{"u16", 1, 2}, NOT_IN_GGUF},
    {{"u64", 1, 8}, NOT_IN_GGUF},
    {{"bool", 1, 1}, NOT_IN_GGUF},
    {{"c64", 1, 8}, NOT_IN_GGUF},
    {{"f8_e4m3", 1, 1}, NOT_IN_GGUF},
    {{"f8_e5m2", 1, 1}, NOT_IN_GGUF},
    {{"f8_e8m0", 1, 1}, NOT_IN_GGUF},
    {{"f6_e2m3", 4, 3}, NOT_IN_GGUF},
    {{"f6_e3m2", 4, 3}, NOT_IN_GGUF},
    {{"f4", 2, 1}, NOT_IN_GGUF},
    {{"q8_1", 32, 36}, 9},
    {{"q8_k", 256, 292}, 15},
    {{"iq1_s", 256, 50}, 19},
    {{"iq1_m", 256, 56}, 29},
};

#define COUNT(array) ((int)(sizeof(array) / sizeof *(array)))

/* Gets element type number `index`. Returns false if there are not so many. */
static bool file_dtype_at(int index, file_dtype *out)
{
    if (index < COUNT(tensor_dtypes)) {
        const tsr_dtype dtype = tensor_dtypes[index].dtype;
        *out = (file_dtype){{tsr_dtype_name(dtype), 1, tsr_dtype_size(dtype)},
                            tensor_dtypes[index].gguf_type};
        return true;
    }
    index -= COUNT(tensor_dtypes);
    if (index < COUNT(only_in_files)) {
        *out = only_in_files[index];
        return true;
    }
    const tsr_quant_format *format = tsr_quant_format_at(index - COUNT(only_in_files));
    if (format != NULL)
        *out = (file_dtype){
            {format->name, (uint64_t)format->block_count, (uint64_t)format->block_bytes},
            format->gguf_type};
    return format != NULL;
}

static int lower_case(char c)
{
    return c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c;
}

static bool same_name(const char *a, const char *b)
{
    while (*a != '\0' && lower_case(*a) == lower_case(*b)) {
        a++;
        b++;
    }
    return *a == '\0' && *b == '\0';
}

bool tsr__dtype_by_name(const char *name, tsr__file_dtype *out)
{
    file_dtype found;
    for (int i = 0; file_dtype_at(i, &found); i++)
        if (same_name(name, found.dtype.name)) {
            *out = found.dtype;
            return true;
        }
    return false;
}

bool tsr__dtype_by_gguf(uint32_t number, tsr__file_dtype *out)
{
    file_dtype found;
    for (int i = 0; file_dtype_at(i, &found); i++)
        if (found.gguf_type != NOT_IN_GGUF && (uint32_t)found.gguf_type == number) {
            *out = found.dtype;
            return true;
        }
    return false;
}

bool tsr__dtype_gguf_number(const char *name, uint32_t *out)
{
    file_dtype found;
    for (int i = 0; file_dtype_at(i, &found); i++)
        if (found.gguf_type != NOT_IN_GGUF && same_name(name, found.dtype.name)) {
            *out = (uint32_t)found.gguf_type;
            return true;
        }
    return false;
}
