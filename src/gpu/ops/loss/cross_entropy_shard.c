/* Cross-entropy of logits whose classes are divided among ranks. */
#include <math.h>

#include "gpu/cpu_drivers/cpu_drivers.h"
#include "gpu/internal.h"
#include "gpu/ops/common/segments.h"
#include "shaders/params/cross_entropy_shard.h"
#include "tensor/check.h"

#define ROWS_MAX (INT64_C(1) << 30) /* the largest number of rows of one dispatch */

/* The arguments of one of two steps. The first computes the statistics of this rank's shard of the
 * classes, the second computes the results from the statistics of all shards. Arguments that the
 * step does not have are NULL. */
typedef struct step {
    const char *op;
    tsr_tensor *loss, *gradient;
    const tsr_tensor *logits, *labels, *stats;
    int64_t first, classes;
    float scale;
    bool whole;
} step;

static tsr_status check(const step *s, tsr_stream *stream)
{
    const char *op = s->op;
    TSR__TRY(tsr__require_float(op, "logits", stream, s->logits));
    TSR__TRY(tsr__require_tensor(op, "labels", stream, s->labels));
    TSR__TRY(tsr__require_tensor(op, "stats", stream, s->stats));
    const tsr_layout *logits = &s->logits->layout, *labels = &s->labels->layout;
    const tsr_layout *stats = &s->stats->layout;
    tsr_dtype dtype = labels->dtype;
    TSR__REQUIRE(dtype == TSR_I32 || dtype == TSR_I64 || dtype == TSR_U32 || dtype == TSR_U8,
                 "%s: labels are %s, not i32, i64, u32 or u8", op, tsr_dtype_name(dtype));
    TSR__REQUIRE(logits->ndim == 2, "%s: logits are %s, not [rows,classes]", op,
                 TSR__SHAPE(logits->ndim, logits->shape));
    TSR__REQUIRE(labels->ndim == 1 && labels->shape[0] == logits->shape[0],
                 "%s: labels are %s; logits %s need one per row", op,
                 TSR__SHAPE(labels->ndim, labels->shape), TSR__SHAPE(2, logits->shape));
    TSR__REQUIRE(s->first >= 0 && s->classes <= INT32_MAX && s->first <= s->classes &&
                     logits->shape[1] <= s->classes - s->first,
                 "%s: first class %lld and %lld classes are not within [0,%lld)", op,
                 (long long)s->first, (long long)logits->shape[1], (long long)s->classes);
    TSR__REQUIRE(stats->dtype == TSR_F32 && stats->ndim == (s->whole ? 3 : 2) &&
                     stats->shape[stats->ndim - 2] == 3 &&
                     stats->shape[stats->ndim - 1] == logits->shape[0] &&
                     tsr_layout_is_contiguous(stats),
                 "%s: stats are %s %s; contiguous f32 [%s3,rows] is needed", op,
                 tsr_dtype_name(stats->dtype), TSR__SHAPE(stats->ndim, stats->shape),
                 s->whole ? "ranks," : "");
    return TSR_OK;
}

static tsr_status check_outputs(const step *s, tsr_stream *stream)
{
    const char *op = s->op;
    TSR__REQUIRE(s->loss || s->gradient, "%s: loss and dlogits are both NULL", op);
    if (s->loss) {
        TSR__TRY(tsr__require_float(op, "loss", stream, s->loss));
        TSR__REQUIRE(s->loss->layout.ndim == 1 &&
                         s->loss->layout.shape[0] == s->logits->layout.shape[0],
                     "%s: loss is %s; logits %s need one per row", op,
                     TSR__SHAPE(s->loss->layout.ndim, s->loss->layout.shape),
                     TSR__SHAPE(2, s->logits->layout.shape));
        TSR__TRY(tsr__require_disjoint(op, "loss", s->loss, "logits", s->logits, false));
        TSR__TRY(tsr__require_disjoint(op, "loss", s->loss, "labels", s->labels, false));
    }
    if (s->gradient) {
        TSR__TRY(tsr__require_float(op, "dlogits", stream, s->gradient));
        TSR__TRY(tsr__require_same_shape(op, "dlogits", s->gradient, "logits", s->logits));
        TSR__TRY(tsr__require_disjoint(op, "dlogits", s->gradient, "logits", s->logits, true));
        TSR__TRY(tsr__require_disjoint(op, "dlogits", s->gradient, "labels", s->labels, false));
    }
    if (s->loss && s->gradient)
        TSR__TRY(tsr__require_disjoint(op, "loss", s->loss, "dlogits", s->gradient, false));
    return TSR_OK;
}

static void add_outputs(const step *s, uint64_t skip, struct tsr_cross_entropy_shard_params *push,
                        tsr__dispatch *dispatch)
{
    if (s->loss) {
        push->loss = tsr__tensor_address(s->loss) + skip * tsr__stride_bytes(s->loss, 0);
        push->loss_stride = tsr__stride_bytes(s->loss, 0);
        dispatch->access[dispatch->access_count++] = tsr__write_of(s->loss);
    }
    if (s->gradient) {
        push->gradient =
            tsr__tensor_address(s->gradient) + skip * tsr__stride_bytes(s->gradient, 0);
        push->gradient_stride = tsr__stride_bytes(s->gradient, 0);
        push->gradient_step = tsr__stride_bytes(s->gradient, 1);
        dispatch->access[dispatch->access_count++] = tsr__write_of(s->gradient);
    }
}

/* Adds the dispatch for the rows from `from` on, at most ROWS_MAX. */
static tsr_status add_dispatch(tsr__dispatches *list, tsr_stream *stream, const step *s,
                               int64_t from)
{
    const tsr_layout *logits = &s->logits->layout;
    const uint64_t skip = (uint64_t)from;
    const int64_t rows = logits->shape[0] - from;
    struct tsr_cross_entropy_shard_params push = {
        .logits = tsr__tensor_address(s->logits) + skip * tsr__stride_bytes(s->logits, 0),
        .logits_stride = tsr__stride_bytes(s->logits, 0),
        .logits_step = tsr__stride_bytes(s->logits, 1),
        .labels = tsr__tensor_address(s->labels) + skip * tsr__stride_bytes(s->labels, 0),
        .labels_stride = tsr__stride_bytes(s->labels, 0),
        .stats = tsr__tensor_address(s->stats) + skip * sizeof(float),
        .plane_bytes = (uint64_t)logits->shape[0] * sizeof(float),
        .rows = (uint32_t)(rows < ROWS_MAX ? rows : ROWS_MAX),
        .here = (uint32_t)logits->shape[1],
        .first = (uint32_t)s->first,
        .classes = (uint32_t)s->classes,
        .ranks = s->whole ? (uint32_t)s->stats->layout.shape[0] : 1,
        .label_bytes = (uint32_t)tsr_dtype_size(s->labels->layout.dtype),
        .scale = s->scale,
    };
    uint32_t threads =
        tsr__thread_group_for(s->logits->buffer->device, push.rows, logits->shape[1]);
    uint32_t form = tsr__class_row_form(s->logits);
    if (s->gradient && tsr__class_row_form(s->gradient) < form)
        form = tsr__class_row_form(s->gradient);
    tsr__dispatch dispatch = {
        .shader = TSR__SHADER_CROSS_ENTROPY_SHARD,
        .spec_count = 7,
        .spec = {tsr__thread_group_workgroup(threads), threads, (uint32_t)logits->dtype,
                 (uint32_t)(s->loss ? s->loss->layout.dtype : TSR_F32),
                 (uint32_t)(s->gradient ? s->gradient->layout.dtype : TSR_F32), form,
                 s->whole ? TSR_SHARD_WHOLE : TSR_SHARD_STATS},
        .push = &push,
        .push_bytes = sizeof push,
        .access_count = 3,
        .access = {tsr__read_of(s->logits), tsr__read_of(s->labels),
                   s->whole ? tsr__read_of(s->stats) : tsr__write_of(s->stats)},
    };
    add_outputs(s, skip, &push, &dispatch);
    if (tsr__segments_chosen(s->logits->buffer->device, &dispatch, push.rows, push.here)) {
        tsr__buffer *scratch = NULL;
        if (!s->whole) {
            TSR__TRY(tsr__segments_scratch(stream, push.rows, push.here, &scratch));
            push.loss = scratch->address;
        }
        return tsr__segments_add(list, &dispatch, push.rows, push.here,
                                 s->whole ? TSR_PHASE_LAST : TSR_PHASE_SECOND, scratch);
    }
    tsr__groups_for(push.rows, tsr__thread_group_workgroup(threads) / threads, dispatch.groups);
    return tsr__dispatches_add(list, &dispatch);
}

static tsr_status run_step(const step *s, tsr_stream *stream)
{
    tsr__dispatches list = {0};
    tsr__cross_entropy call = {.step = s->whole ? TSR_ROWS_WHOLE : TSR_ROWS_SHARD,
                               .loss = s->loss,
                               .gradient = s->gradient,
                               .logits = s->logits,
                               .labels = s->labels,
                               .stats = s->stats,
                               .first = s->first,
                               .classes = s->classes,
                               .scale = s->scale};
    const tsr__cpu_kernels *cpu = tsr_stream_device(stream)->cpu;
    bool done = false;
    tsr_status status = cpu ? cpu->cross_entropy(&list, stream, &call, &done) : TSR_OK;
    if (!done)
        for (int64_t from = 0; status == TSR_OK && from < s->logits->layout.shape[0];
             from += ROWS_MAX)
            status = add_dispatch(&list, stream, s, from);
    if (status == TSR_OK)
        status = tsr__dispatches_record(&list, stream);
    tsr__dispatches_finish(&list);
    return status;
}

tsr_status tsr__cross_entropy_shard_stats(tsr_stream *stream, tsr_tensor *stats,
                                          const tsr_tensor *logits, const tsr_tensor *labels,
                                          int64_t first)
{
    step s = {.op = "vocabulary_cross_entropy", /* the name of the public function */
              .logits = logits,
              .labels = labels,
              .stats = stats,
              .first = first,
              .classes = INT32_MAX};
    TSR__TRY(check(&s, stream));
    TSR__TRY(tsr__require_disjoint(s.op, "stats", stats, "logits", logits, false));
    TSR__TRY(tsr__require_disjoint(s.op, "stats", stats, "labels", labels, false));
    return run_step(&s, stream);
}

static tsr_status check_whole(const step *s, tsr_stream *stream)
{
    TSR__TRY(check(s, stream));
    TSR__TRY(check_outputs(s, stream));
    return s->loss ? tsr__require_disjoint(s->op, "loss", s->loss, "stats", s->stats, false)
                   : TSR_OK;
}

static step whole_step(tsr_tensor *loss, tsr_tensor *dlogits, const tsr_tensor *logits,
                       const tsr_tensor *labels, const tsr_tensor *stats, int64_t first,
                       int64_t classes)
{
    return (step){.op = "vocabulary_cross_entropy",
                  .loss = loss,
                  .gradient = dlogits,
                  .logits = logits,
                  .labels = labels,
                  .stats = stats,
                  .first = first,
                  .classes = classes,
                  .whole = true};
}

tsr_status tsr__cross_entropy_shard_check(tsr_stream *stream, tsr_tensor *loss, tsr_tensor *dlogits,
                                          const tsr_tensor *logits, const tsr_tensor *labels,
                                          const tsr_tensor *stats, int64_t first, int64_t classes)
{
    const step s = whole_step(loss, dlogits, logits, labels, stats, first, classes);
    return check_whole(&s, stream);
}

tsr_status tsr__cross_entropy_shard(tsr_stream *stream, tsr_tensor *loss, tsr_tensor *dlogits,
                                    const tsr_tensor *logits, const tsr_tensor *labels,
                                    const tsr_tensor *stats, int64_t first, int64_t classes,
                                    float grad_scale)
{
    step s = whole_step(loss, dlogits, logits, labels, stats, first, classes);
    s.scale = grad_scale;
    TSR__TRY(check_whole(&s, stream));
    return run_step(&s, stream);
}
