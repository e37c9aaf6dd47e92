#include "gpu/checks/case.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/float16.h"

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
