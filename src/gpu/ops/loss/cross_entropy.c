/* Softmax cross-entropy of logits and labels, and its gradient. */
#include "shaders/params/cross_entropy.h"
#include "gpu/cpu_drivers/cpu_drivers.h"
#include "gpu/ops/common/segments.h"
#include "tensor/check.h"
#include "tessera/ops.h"

#define ROWS_MAX (INT64_C(1) << 30) /* the largest number of rows of one dispatch */

static tsr_status check(tsr_stream *stream, tsr_tensor *loss, tsr_tensor *gradient,
                        const tsr_tensor *logits, const tsr_tensor *labels)
{
    const char *op = "cross_entropy";
    TSR__REQUIRE(loss || gradient, "cross_entropy: loss and dlogits are both NULL");
    TSR__TRY(tsr__require_float(op, "logits", stream, logits));
    TSR__TRY(tsr__require_tensor(op, "labels", stream, labels));
    tsr_dtype dtype = labels->layout.dtype;
    TSR__REQUIRE(dtype == TSR_I32 || dtype == TSR_I64 || dtype == TSR_U32 || dtype == TSR_U8,
                 "cross_entropy: labels are %s, not i32, i64, u32 or u8", tsr_dtype_name(dtype));
    TSR__REQUIRE(logits->layout.ndim == 2, "cross_entropy: logits are %s, not [rows,classes]",
                 TSR__SHAPE(logits->layout.ndim, logits->layout.shape));
    int64_t rows = logits->layout.shape[0], classes = logits->layout.shape[1];
    TSR__REQUIRE(classes > 0 || rows == 0, "cross_entropy: logits %s have no classes",
                 TSR__SHAPE(2, logits->layout.shape));
    TSR__REQUIRE(classes <= INT32_MAX, "cross_entropy: %lld classes; at most %d",
                 (long long)classes, (int)INT32_MAX);
    TSR__REQUIRE(labels->layout.ndim == 1 && labels->layout.shape[0] == rows,
                 "cross_entropy: labels are %s; logits %s need one per row",
                 TSR__SHAPE(labels->layout.ndim, labels->layout.shape),
                 TSR__SHAPE(2, logits->layout.shape));
    if (loss) {
        TSR__TRY(tsr__require_float(op, "loss", stream, loss));
        TSR__REQUIRE(loss->layout.ndim == 1 && loss->layout.shape[0] == rows,
                     "cross_entropy: loss is %s; logits %s need one per row",
                     TSR__SHAPE(loss->layout.ndim, loss->layout.shape),
                     TSR__SHAPE(2, logits->layout.shape));
        TSR__TRY(tsr__require_disjoint(op, "loss", loss, "logits", logits, false));
        TSR__TRY(tsr__require_disjoint(op, "loss", loss, "labels", labels, false));
    }
    if (gradient) {
        TSR__TRY(tsr__require_float(op, "dlogits", stream, gradient));
        TSR__TRY(tsr__require_same_shape(op, "dlogits", gradient, "logits", logits));
        TSR__TRY(tsr__require_disjoint(op, "dlogits", gradient, "logits", logits, true));
        TSR__TRY(tsr__require_disjoint(op, "dlogits", gradient, "labels", labels, false));
    }
    if (loss && gradient)
        TSR__TRY(tsr__require_disjoint(op, "loss", loss, "dlogits", gradient, false));
    return TSR_OK;
}

/* Adds the dispatch for the rows from `first` on, at most ROWS_MAX. */
static tsr_status add_dispatch(tsr__dispatches *list, tsr_stream *stream, tsr_tensor *loss,
                               tsr_tensor *gradient, const tsr_tensor *logits,
                               const tsr_tensor *labels, float scale, int64_t first)
{
    int64_t rows = logits->layout.shape[0] - first;
    int64_t classes = logits->layout.shape[1];
    uint64_t skip = (uint64_t)first;
    struct tsr_cross_entropy_params params = {
        .logits = tsr__tensor_address(logits) + skip * tsr__stride_bytes(logits, 0),
        .logits_stride = tsr__stride_bytes(logits, 0),
        .logits_step = tsr__stride_bytes(logits, 1),
        .labels = tsr__tensor_address(labels) + skip * tsr__stride_bytes(labels, 0),
        .labels_stride = tsr__stride_bytes(labels, 0),
        .rows = (uint32_t)(rows < ROWS_MAX ? rows : ROWS_MAX),
        .classes = (uint32_t)classes,
        .label_bytes = (uint32_t)tsr_dtype_size(labels->layout.dtype),
        .scale = scale,
    };
    uint32_t threads = tsr__thread_group_for(logits->buffer->device, params.rows, classes);
    uint32_t form = tsr__class_row_form(logits);
    if (gradient && tsr__class_row_form(gradient) < form)
        form = tsr__class_row_form(gradient);
    tsr__dispatch dispatch = {
        .shader = TSR__SHADER_CROSS_ENTROPY,
        .spec_count = 6,
        .spec = {tsr__thread_group_workgroup(threads), threads, (uint32_t)logits->layout.dtype,
                 (uint32_t)(loss ? loss->layout.dtype : TSR_F32),
                 (uint32_t)(gradient ? gradient->layout.dtype : TSR_F32), form},
        .push = &params,
        .push_bytes = sizeof params,
        .access_count = 2,
        .access = {tsr__read_of(logits), tsr__read_of(labels)},
    };
    if (loss) {
        params.loss = tsr__tensor_address(loss) + skip * tsr__stride_bytes(loss, 0);
        params.loss_stride = tsr__stride_bytes(loss, 0);
        dispatch.access[dispatch.access_count++] = tsr__write_of(loss);
    }
    if (gradient) {
        params.gradient = tsr__tensor_address(gradient) + skip * tsr__stride_bytes(gradient, 0);
        params.gradient_stride = tsr__stride_bytes(gradient, 0);
        params.gradient_step = tsr__stride_bytes(gradient, 1);
        dispatch.access[dispatch.access_count++] = tsr__write_of(gradient);
    }
    if (tsr__segments_chosen(logits->buffer->device, &dispatch, params.rows, classes)) {
        tsr__buffer *scratch;
        TSR__TRY(tsr__segments_scratch(stream, params.rows, classes, &scratch));
        params.partials = scratch->address;
        return tsr__segments_add(list, &dispatch, params.rows, classes, TSR_PHASE_SECOND, scratch);
    }
    tsr__groups_for(params.rows, tsr__thread_group_workgroup(threads) / threads, dispatch.groups);
    return tsr__dispatches_add(list, &dispatch);
}

tsr_status tsr_cross_entropy(tsr_stream *stream, tsr_tensor *loss, tsr_tensor *dlogits,
                             const tsr_tensor *logits, const tsr_tensor *labels, float grad_scale)
{
    TSR__TRY(check(stream, loss, dlogits, logits, labels));
    tsr__dispatches list = {0};
    tsr__cross_entropy call = {.step = TSR_ROWS_ALONE,
                               .loss = loss,
                               .gradient = dlogits,
                               .logits = logits,
                               .labels = labels,
                               .scale = grad_scale};
    const tsr__cpu_kernels *cpu = tsr_stream_device(stream)->cpu;
    bool done = false;
    tsr_status status = cpu ? cpu->cross_entropy(&list, stream, &call, &done) : TSR_OK;
    if (!done)
        for (int64_t first = 0; status == TSR_OK && first < logits->layout.shape[0];
             first += ROWS_MAX)
            status = add_dispatch(&list, stream, loss, dlogits, logits, labels, grad_scale, first);
    if (status == TSR_OK)
        status = tsr__dispatches_record(&list, stream);
    tsr__dispatches_finish(&list);
    return status;
}
