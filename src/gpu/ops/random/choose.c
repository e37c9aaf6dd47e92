/* Choosing tokens from logits. */
#include "shaders/params/choose.h"
#include "gpu/internal.h"
#include "gpu/ops/common/rows.h"
#include "tensor/check.h"

#define WORDS (sizeof(struct tsr_choice_words) / sizeof(uint32_t))
/* The bounds of the kernel's number of invocations for a row. */
#define LEAST_WORKGROUP 128
#define MOST_WORKGROUP 512
/* How often the kernel reads a row at most: for the largest logit, four times each for top_k and
 * top_p, for a sum, and twice to draw; and iterations that do not depend on the row's length. */
#define PASSES 12
#define OTHER_ITERATIONS 1000

static uint32_t workgroup_of(const tsr_device *device)
{
    uint32_t size = LEAST_WORKGROUP;
    while (!device->traits.few_invocations && size < MOST_WORKGROUP &&
           2 * size <= device->info.max_workgroup_invocations)
        size *= 2;
    return size;
}

static tsr_status check_i32(const char *op, const char *name, const tsr_stream *stream,
                            const tsr_tensor *tensor, int64_t rows)
{
    TSR__TRY(tsr__require_tensor(op, name, stream, tensor));
    TSR__REQUIRE(tensor->layout.dtype == TSR_I32 && tsr_layout_count(&tensor->layout) == rows &&
                     tsr_layout_is_contiguous(&tensor->layout),
                 "%s: %s are %s %s; %lld contiguous i32 are needed", op, name,
                 tsr_dtype_name(tensor->layout.dtype),
                 TSR__SHAPE(tensor->layout.ndim, tensor->layout.shape), (long long)rows);
    return TSR_OK;
}

static tsr_status check(const char *op, const tsr_stream *stream, const tsr_tensor *ids,
                        const tsr_tensor *results, const tsr_tensor *seen, const tsr_tensor *logits,
                        const struct tsr_choice_words *choices)
{
    TSR__TRY(tsr__require_tensor(op, "logits", stream, logits));
    const tsr_layout *layout = &logits->layout;
    TSR__REQUIRE(layout->dtype == TSR_F32 && layout->ndim == 2 && layout->shape[0] >= 1 &&
                     layout->shape[1] >= 1 && layout->strides[1] == 1,
                 "%s: logits are %s %s; f32 [rows,count] with contiguous rows is needed", op,
                 tsr_dtype_name(layout->dtype), TSR__SHAPE(layout->ndim, layout->shape));
    const int64_t rows = layout->shape[0], count = layout->shape[1];
    const tsr_device *device = logits->buffer->device;
    const int64_t most =
        ((int64_t)tsr__most_iterations(device) - OTHER_ITERATIONS) / PASSES * workgroup_of(device);
    TSR__REQUIRE(rows <= INT32_MAX, "%s: %lld rows; at most %d", op, (long long)rows, INT32_MAX);
    TSR__TRY(check_i32(op, "ids", stream, ids, rows));
    TSR__TRY(check_i32(op, "results", stream, results, rows));
    /* The sum of the weights of so many tokens has at most 64 bits. */
    if (count > most || count > INT64_C(1) << 23)
        return tsr__fail(TSR_ERR_UNSUPPORTED,
                         "%s: the rows have %lld tokens; at most %lld on this device", op,
                         (long long)count, (long long)(most < 1 << 23 ? most : 1 << 23));
    if (seen) {
        TSR__TRY(tsr__require_tensor(op, "seen", stream, seen));
        TSR__REQUIRE(seen->layout.dtype == TSR_U32 && seen->layout.ndim == 2 &&
                         seen->layout.shape[1] == (count + 31) / 32 &&
                         tsr_layout_is_contiguous(&seen->layout),
                     "%s: seen is %s %s; contiguous u32 [rows,%lld] is needed", op,
                     tsr_dtype_name(seen->layout.dtype),
                     TSR__SHAPE(seen->layout.ndim, seen->layout.shape),
                     (long long)(count + 31) / 32);
    }
    for (int64_t i = 0; i < rows; i++) {
        TSR__REQUIRE(seen || !(choices[i].flags & TSR_CHOICE_PENALISED),
                     "%s: row %lld has a repetition penalty, but seen is NULL", op, (long long)i);
        TSR__REQUIRE(!seen || choices[i].seen_row < seen->layout.shape[0],
                     "%s: row %lld has seen_row %lld of %lld", op, (long long)i,
                     (long long)choices[i].seen_row, (long long)seen->layout.shape[0]);
    }
    return TSR_OK;
}

/* Copies the choices to the device: immediately if the host reaches its memory, otherwise to the
 * new tensor *out, which the caller must destroy. */
static tsr_status place_choices(tsr_stream *stream, const struct tsr_choice_words *choices,
                                int64_t rows, tsr_tensor **out, tsr__access *range)
{
    const uint64_t bytes = (uint64_t)rows * sizeof *choices;
    TSR__TRY(tsr__stream_post(stream, choices, bytes, range));
    if (range->buffer)
        return TSR_OK;
    TSR__TRY(tsr_tensor_create(tsr_stream_device(stream), TSR_U32, 1,
                               (int64_t[]){rows * (int64_t)WORDS}, out));
    *range = tsr__read_of(*out);
    return tsr_tensor_upload(stream, *out, choices, bytes);
}

tsr_status tsr__choose(tsr_stream *stream, tsr_tensor *ids, tsr_tensor *results, tsr_tensor *seen,
                       const tsr_tensor *logits, const struct tsr_choice_words *choices)
{
    TSR__TRY(check("choose", stream, ids, results, seen, logits, choices));
    const tsr_layout *layout = &logits->layout;
    struct tsr_choose_params push = {
        .logits = tsr__tensor_address(logits),
        .seen = seen ? tsr__tensor_address(seen) : 0,
        .ids = tsr__tensor_address(ids),
        .results = tsr__tensor_address(results),
        .row_step = (uint64_t)layout->strides[0] * sizeof(float),
        .rows = (uint32_t)layout->shape[0],
        .count = (uint32_t)layout->shape[1],
        .seen_words = (uint32_t)((layout->shape[1] + 31) / 32),
    };
    tsr__dispatch dispatch = {
        .shader = TSR__SHADER_CHOOSE,
        .spec_count = 2,
        .spec = {workgroup_of(logits->buffer->device), TSR_DT_F32},
        .push = &push,
        .push_bytes = sizeof push,
        .work = (double)layout->shape[0] * (double)layout->shape[1] * sizeof(float) * PASSES *
                TSR__BYTE_WORK,
        .access_count = seen ? 5 : 4,
        .access = {tsr__read_of(logits), tsr__write_of(ids), tsr__write_of(results)},
    };
    tsr_tensor *placed = NULL;
    tsr_status status =
        place_choices(stream, choices, layout->shape[0], &placed, &dispatch.access[3]);
    if (status == TSR_OK) {
        push.choices = tsr__access_address(dispatch.access[3]);
        if (seen)
            dispatch.access[4] = tsr__write_of(seen);
        tsr__groups_for((uint64_t)layout->shape[0], 1, dispatch.groups);
        status = tsr__stream_dispatch(stream, &dispatch);
    }
    tsr_tensor_destroy(&placed);
    return status;
}
