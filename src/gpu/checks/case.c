#include "gpu/checks/case.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/float16.h"
#include "gpu/device/coopmat.h"
#include "quant/block_format.h"
#include "tessera/quant.h"

/* The most elements of a tensor in blocks. */
enum { BLOCKS_MAX = 6400 };

/* A case, and members that only this file needs. */
typedef struct full_case {
    tsr__case c;
    uint32_t outputs; /* a mask of the tensors that are outputs: bit i for tensor i */
    /* the elements of the tensor that is being copied to or from the device */
    uint32_t elements[TSR__CASE_ELEMENTS];
} full_case;

static double value_at(int tensor, size_t index)
{
    uint32_t bits = ((uint32_t)index + (uint32_t)tensor * 7919U + 1) * 2654435761U;

    return ((double)((bits >> 16) % 33) - 16) / 8;
}

static void encode(tsr_dtype dtype, double value, void *elements, size_t index)
{
    if (dtype == TSR_F16)
        ((uint16_t *)elements)[index] = tsr__f16_of_f32((float)value);
    else if (dtype == TSR_BF16)
        ((uint16_t *)elements)[index] = tsr__bf16_of_f32((float)value);
    else if (dtype == TSR_I32)
        ((int32_t *)elements)[index] = (int32_t)value;
    else
        ((float *)elements)[index] = (float)value;
}

static double decode(tsr_dtype dtype, const void *elements, size_t index)
{
    if (dtype == TSR_F16)
        return (double)tsr__f32_of_f16(((const uint16_t *)elements)[index]);
    if (dtype == TSR_BF16)
        return (double)tsr__f32_of_bf16(((const uint16_t *)elements)[index]);
    if (dtype == TSR_I32)
        return ((const int32_t *)elements)[index];
    return (double)((const float *)elements)[index];
}

/* Returns the number of elements of a tensor. */
static size_t elements_of(const tsr_tensor *tensor)
{
    return (size_t)tsr_layout_count(tsr_tensor_layout(tensor));
}

void tsr__case_adopt(tsr__case *c, tsr_tensor *tensor)
{
    c->tensor[c->count++] = tensor;
}

static tsr_status add_tensor(tsr__case *c, tsr_dtype dtype, int ndim, const int64_t *shape)
{
    tsr_tensor *tensor;

    TSR__TRY(tsr_tensor_create(tsr_stream_device(c->stream), dtype, ndim, shape, &tensor));
    tsr__case_adopt(c, tensor);
    return TSR_OK;
}

/* Uploads the values of the tensor that was added last. If `poison` is set, uploads NaN instead, so
 * that an element that the kernel does not write is noticed. */
static tsr_status upload(tsr__case *c, bool poison)
{
    const int last = c->count - 1;
    const tsr_dtype dtype = tsr_tensor_layout(c->tensor[last])->dtype;
    const size_t count = elements_of(c->tensor[last]);
    uint32_t *elements = ((full_case *)c)->elements;

    memset(elements, 0xff, count * sizeof *elements);
    for (size_t i = 0; i < count && !poison; i++)
        encode(dtype, c->value[last][i], elements, i);
    return tsr_tensor_upload(c->stream, c->tensor[last], elements, count * tsr_dtype_size(dtype));
}

tsr_status tsr__case_input(tsr__case *c, tsr_dtype dtype, int ndim, const int64_t *shape)
{
    TSR__TRY(add_tensor(c, dtype, ndim, shape));
    const int last = c->count - 1;
    for (size_t i = 0; i < elements_of(c->tensor[last]); i++)
        c->value[last][i] = value_at(last, i);
    return upload(c, false);
}

tsr_status tsr__case_output(tsr__case *c, tsr_dtype dtype, int ndim, const int64_t *shape)
{
    full_case *full = (full_case *)c;

    TSR__TRY(add_tensor(c, dtype, ndim, shape));
    full->outputs |= UINT32_C(1) << (c->count - 1);
    return upload(c, true);
}

tsr_status tsr__case_given(tsr__case *c, tsr_dtype dtype, int ndim, const int64_t *shape)
{
    TSR__TRY(add_tensor(c, dtype, ndim, shape));
    return upload(c, false);
}

tsr_status tsr__case_indices(tsr__case *c, int64_t count, const int32_t *indices)
{
    for (int64_t i = 0; i < count; i++)
        c->value[c->count][i] = indices[i];
    return tsr__case_given(c, TSR_I32, 1, &count);
}

/* Makes blocks of a format to which the library cannot quantise: the elements are arbitrary bits,
 * and the scales are small. */
static void invent_blocks(const tsr_quant_format *format, uint8_t *blocks, uint64_t bytes)
{
    const uint16_t scale = tsr__f16_of_f32(format->block_count == 32 ? 0x1p-10F : 0x1p-15F);

    for (uint64_t i = 0; i < bytes; i++)
        blocks[i] = (uint8_t)(i * 37 + i / 64 + 11);
    for (uint64_t i = 0; i < bytes; i += (uint64_t)format->block_bytes)
        if (format->dtype == TSR_NVFP4)
            for (int group = 0; group < 4; group++)
                /* four scales, from 1/64 to 1/28 */
                blocks[i + (uint64_t)group] = (uint8_t)(8 + 3 * group);
        else
            memcpy(blocks + i + tsr__quant_format_of(format->dtype)->factor_offset, &scale,
                   sizeof scale);
}

tsr_status tsr__case_blocks(tsr__case *c, tsr_dtype format, int ndim, const int64_t *shape)
{
    uint8_t blocks[BLOCKS_MAX * 2];
    float values[BLOCKS_MAX];
    const int depth = (int)shape[ndim - 1];
    int count = 1;
    uint64_t bytes;

    for (int i = 0; i < ndim; i++)
        count *= (int)shape[i];
    for (int i = 0; i < count; i++)
        values[i] = (float)((i * 29 + i / depth + c->count * 71) % 255 - 127) / 1024;
    TSR__TRY(tsr_quant_bytes(format, count, &bytes));
    if (tsr_quant_format_of(format)->quantizes)
        TSR__TRY(tsr_quantize(format, values, count, blocks, bytes));
    else
        invent_blocks(tsr_quant_format_of(format), blocks, bytes);
    TSR__TRY(tsr_dequantize(format, blocks, bytes, values, count));
    for (int i = 0; i < count; i++)
        c->value[c->count][i] = (double)values[i];
    tsr_tensor *weights;
    TSR__TRY(tsr_tensor_create(tsr_stream_device(c->stream), format, ndim, shape, &weights));
    tsr__case_adopt(c, weights);
    return tsr_tensor_upload(c->stream, weights, blocks, bytes);
}

tsr_status tsr__case_require_matrices(const tsr__case *c, tsr_dtype dtype)
{
    const tsr_device *device = tsr_stream_device(c->stream);
    return !device->traits.not_a_chip && tsr__coopmat_used(device, dtype) ? TSR_OK
                                                                          : TSR_ERR_UNSUPPORTED;
}

/* The largest error that a result may have, relative to the larger of 1 and the result's absolute
 * value. Kernels compute in f32 and round their results to the dtype. */
static double tolerance_of(tsr_dtype dtype)
{
    return dtype == TSR_F16 ? 0x1p-9 : dtype == TSR_BF16 ? 0x1p-6 : 0x1p-16;
}

static tsr_status compare(full_case *full, int output, bool *out)
{
    const tsr__case *c = &full->c;
    const tsr_dtype dtype = tsr_tensor_layout(c->tensor[output])->dtype;
    const size_t count = elements_of(c->tensor[output]);
    uint32_t *elements = full->elements;

    TSR__TRY(
        tsr_tensor_download(c->stream, c->tensor[output], elements, count * tsr_dtype_size(dtype)));
    *out = true;
    for (size_t i = 0; i < count; i++) {
        double want = c->value[output][i];
        double error = fabs(decode(dtype, elements, i) - want);
        /* the comparison is false also if the error is NaN */
        *out = *out && error <= tolerance_of(dtype) * fmax(1, fabs(want));
    }
    return TSR_OK;
}

static tsr_status run_and_compare(full_case *full, tsr_device *device, tsr__case_fn *run,
                                  tsr_dtype dtype, bool *out)
{
    bool right = true;

    TSR__TRY(tsr_stream_create(device, &full->c.stream));
    TSR__TRY(run(&full->c, dtype));
    for (int i = 0; i < full->c.count && right; i++)
        if (full->outputs >> i & 1)
            TSR__TRY(compare(full, i, &right));
    *out = right;
    return TSR_OK;
}

tsr_status tsr__case_run(tsr_device *device, tsr__case_fn *run, tsr_dtype dtype, bool *out)
{
    full_case *full = tsr__calloc(1, sizeof *full);
    if (!full)
        return TSR_ERR_NO_MEMORY;
    tsr_status status = run_and_compare(full, device, run, dtype, out);
    for (int i = 0; i < full->c.count; i++)
        tsr_tensor_destroy(&full->c.tensor[i]);
    tsr_stream_destroy(&full->c.stream);
    tsr__free(full);
    return status;
}
