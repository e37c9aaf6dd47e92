/* Clipping of gradients by their norm: the factor by which the next step multiplies them. */
#include <math.h>
#include <stdint.h>

#include "base/struct_size.h"
#include "parallel/optimizer/norm.h"

static const char who[] = "optimizer_clip";

static double factor_of(double value, float max_norm)
{
    const double factor = isinf(max_norm) ? 1 : (double)max_norm / (value + 1e-6);
    return factor > 1 ? 1 : factor; /* a NaN in `value` gives a NaN here, not 1 */
}

static tsr_status clip_now(tsr__norm *n, tsr_status mine, float max_norm, double loss_scale)
{
    double sum = 0;
    if (mine == TSR_OK && n->class_count > 0)
        mine = tsr__norm_sum_local(n);
    TSR__TRY(tsr__norm_sum_over_ranks(n, mine, &sum));
    tsr_optimizer *optimizer = n->optimizer;
    const double value = sqrt(sum) / loss_scale;
    optimizer->scale =
        (tsr__gradient_scale){.value = (float)(factor_of(value, max_norm) / loss_scale)};
    optimizer->norm.exists = true;
    optimizer->norm.waits = false;
    optimizer->norm.value = value;
    return TSR_OK;
}

/* Clipping with `deferred`: the host does not wait for the device ---------------------------------
 *
 * If this rank has all parameters, the device computes the factor, too, and the host reads the norm
 * later. Otherwise the sums are added on the host, and the host sends only the factor to the
 * device. */

static bool is_alone(const tsr__norm *n)
{
    return n->class_count == 1 && !n->classes[0].data && !n->classes[0].tensor &&
           (!n->stages || tsr_comm_size(n->stages) == 1);
}

static tsr_status make_norm_memory(tsr_optimizer *optimizer)
{
    tsr__optimizer_norm *last = &optimizer->norm;
    tsr_device *device = tsr_stream_device(optimizer->params.stream);
    const int64_t one = 1, floats = TSR__SCALE_FLOATS;
    if (!last->sum)
        TSR__TRY(tsr_tensor_create(device, TSR_F32, 1, &one, &last->sum));
    if (!last->scale)
        TSR__TRY(tsr_tensor_create(device, TSR_F32, 1, &floats, &last->scale));
    if (!last->seen)
        TSR__TRY(tsr_tensor_create_host(device, TSR_F32, 1, &one, &last->seen));
    return TSR_OK;
}

static tsr_status scale_on_device(tsr__norm *n, float max_norm, double loss_scale)
{
    tsr_optimizer *optimizer = n->optimizer;
    tsr_stream *stream = optimizer->params.stream;
    tsr__optimizer_norm *last = &optimizer->norm;
    const tsr__norm_class *only = &n->classes[0];
    TSR__TRY(tsr_sum_squares(stream, last->sum, only->grads, (int)only->count, 1));
    TSR__TRY(tsr__clip_scale(stream, last->scale, last->sum, max_norm, (float)loss_scale));
    last->exists = false; /* until the new norm is complete */
    TSR__TRY(tsr_copy(stream, last->seen, last->sum));
    TSR__TRY(tsr_stream_mark(stream, &last->point));
    last->loss_scale = loss_scale;
    last->exists = last->waits = true;
    return TSR_OK;
}

static tsr_status scale_on_host(tsr__norm *n, tsr_status mine, float max_norm, double loss_scale)
{
    TSR__TRY(clip_now(n, mine, max_norm, loss_scale));
    tsr_optimizer *optimizer = n->optimizer;
    const bool steps = isfinite(optimizer->norm.value);
    const float scale[TSR__SCALE_FLOATS] = {steps ? optimizer->scale.value : 0, steps};
    return tsr_tensor_upload(optimizer->params.stream, optimizer->norm.scale, scale, sizeof scale);
}

static tsr_status clip_deferred(tsr__norm *n, tsr_status mine, float max_norm, double loss_scale)
{
    if (mine == TSR_OK)
        mine = make_norm_memory(n->optimizer);
    if (mine == TSR_OK && is_alone(n))
        TSR__TRY(scale_on_device(n, max_norm, loss_scale));
    else
        TSR__TRY(scale_on_host(n, mine, max_norm, loss_scale));
    n->optimizer->scale = (tsr__gradient_scale){.at = n->optimizer->norm.scale};
    return TSR_OK;
}

tsr_status tsr_optimizer_clip(tsr_optimizer *optimizer, float max_norm,
                              const tsr_optimizer_clip_params *params, double *norm_out)
{
    TSR__REQUIRE(optimizer, "%s: optimizer is NULL", who);
    TSR__REQUIRE(optimizer->params.kind != TSR_OPTIMIZER_NONE,
                 "%s: the optimizer's kind is TSR_OPTIMIZER_NONE", who);
    TSR__REQUIRE(max_norm >= 0, "%s: max_norm is %g; it must be at least 0", who, (double)max_norm);
    TSR__TAKE(tsr_optimizer_clip_params, params);
    TSR__REQUIRE(isfinite(params->loss_scale) && params->loss_scale >= 0,
                 "%s: loss_scale is %g; it must be finite and more than 0", who,
                 (double)params->loss_scale);
    TSR__REQUIRE(!params->deferred || !norm_out,
                 "%s: norm must be NULL with `deferred`; tsr_optimizer_norm returns it", who);
    const double loss_scale = params->loss_scale == 0 ? 1 : (double)params->loss_scale;
    tsr__norm n = {.optimizer = optimizer,
                   .own_group = params->group,
                   .stages = params->stages,
                   .elsewhere = params->counted_elsewhere};
    tsr_status mine, status = tsr__norm_prepare(&n, &mine);
    if (status == TSR_OK)
        status = params->deferred ? clip_deferred(&n, mine, max_norm, loss_scale)
                                  : clip_now(&n, mine, max_norm, loss_scale);
    tsr__norm_finish(&n);
    TSR__TRY(status);
    optimizer->scaled = true;
    if (norm_out)
        *norm_out = optimizer->norm.value;
    return TSR_OK;
}

tsr_status tsr_optimizer_norm(tsr_optimizer *optimizer, double *out)
{
    TSR__REQUIRE(optimizer && out, "optimizer_norm: %s is NULL", optimizer ? "out" : "optimizer");
    tsr__optimizer_norm *last = &optimizer->norm;
    TSR__REQUIRE(last->exists, "optimizer_norm: no norm has been computed; call optimizer_clip");
    if (last->waits) {
        void *sum;
        TSR__TRY(tsr_stream_wait_point(optimizer->params.stream, last->point, UINT64_MAX));
        TSR__TRY(tsr_tensor_map(last->seen, &sum));
        last->value = sqrt((double)*(const float *)sum) / last->loss_scale;
        last->waits = false;
    }
    *out = last->value;
    return TSR_OK;
}
