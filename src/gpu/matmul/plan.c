#include "gpu/matmul/plan.h"

#include <stdio.h>

#include "base/error.h"
#include "gpu/matmul/narrowed.h"
#include "gpu/matmul/self_test.h"
#include "gpu/matmul/tuning/tuned.h"
#include "gpu/quant/dequantize.h"
#include "tensor/check.h"

static bool works(tsr_device *gpu, const tsr__matmul_config *config,
                  const tsr__matmul_problem *problem)
{
    return tsr__kernel_works(gpu, config->name, problem->a.dtype, tsr__matmul_test_config) &&
           (problem->b.dtype == problem->a.dtype ||
            tsr__kernel_works(gpu, config->name, problem->b.dtype, tsr__matmul_test_config));
}

/* Fails with an error text that names the kernels that are off. */
static tsr_status none_left(const tsr_device *gpu, const tsr__matmul_device *device)
{
    const tsr__matmul_config *config;
    char names[256] = "";
    size_t used = 0;

    for (int i = 0; (config = tsr__matmul_config_at(i)) != NULL && used < sizeof names; i++)
        if (device->off >> i & 1)
            used += (size_t)snprintf(names + used, sizeof names - used, "%s%s",
                                     used > 0 ? ", " : "", config->name);
    return tsr__fail(TSR_ERR_UNSUPPORTED,
                     "matmul: every kernel that could compute this product on %s has failed its "
                     "self-test: %s; TESSERA_SELF_TEST=off uses them nevertheless",
                     gpu->info.name, names);
}

tsr_status tsr__matmul_choose_tested(tsr_device *gpu, tsr__tuned *tuned,
                                     const tsr__matmul_problem *problem,
                                     const tsr__matmul_override *override, tsr__matmul_plan *out)
{
    tsr__matmul_device device = tsr__matmul_device_of(gpu);
    tsr__matmul_plan plan;

    while (true) {
        TSR__TRY(tsr__matmul_choose(&device, tuned, problem, override, &plan));
        if ((problem->a_terms > 0 || problem->b_terms > 0) && !plan.config->family->narrows) {
            *out = (tsr__matmul_plan){.method = TSR__MATMUL_NOTHING};
            return TSR_OK;
        }
        if ((override && override->config) || works(gpu, plan.config, problem))
            break;
        uint64_t bit = UINT64_C(1) << tsr__matmul_config_index(plan.config);
        if (device.off & bit)
            return none_left(gpu, &device);
        device.off |= bit;
    }
    if (plan.splits > 1 && !override &&
        !tsr__kernel_works(gpu, tsr__matmul_sum_name, TSR_F32, tsr__matmul_test_sum)) {
        const tsr__matmul_override unsplit = {.config = plan.config, .splits = 1};
        TSR__TRY(tsr__matmul_choose(&device, tuned, problem, &unsplit, &plan));
    }
    *out = plan;
    return TSR_OK;
}

static bool is_f32(const tsr_tensor *tensor)
{
    return !tensor || tensor->layout.dtype == TSR_F32;
}

/* False if the fused forms of products in tiles have failed their self-test for this dtype. */
static bool fused_work(const tsr__matmul_call *call, tsr_dtype dtype)
{
    return tsr__kernel_works(tsr_stream_device(call->stream), tsr__matmul_fused_name, dtype,
                             tsr__matmul_test_fused);
}

/* True if the chosen kernel computes the fused product of the call. */
static bool computes(const tsr__matmul_call *call, const tsr__matmul_plan *plan)
{
    const tsr__matmul_family *family = plan->config->family;

    if (call->norm &&
        (plan->splits > 1 || !family->normalises || !family->normalises(call->problem)))
        return false;
    if (call->sums)
        return tsr__matmul_tiles_sum_rows(call, plan) && fused_work(call, call->problem->a.dtype);
    if (call->slope || call->times || call->added)
        return (family->fuses_tiles && tsr__matmul_tiles_fuse(call) &&
                fused_work(call, call->problem->a.dtype)) ||
               (!call->added && family->fuses && family->fuses(call));
    if (call->norm && !call->gated)
        return true;
    return family->gates && plan->splits == 1 && family->gates(call->problem);
}

tsr_status tsr__matmul_plan_floats(const tsr__matmul_call *call,
                                   const tsr__matmul_override *override, tsr__matmul_plan *out)
{
    const tsr__matmul_problem *p = call->problem;
    tsr_device *gpu = tsr_stream_device(call->stream);
    const bool two = call->slope || call->times, of_f32 = two && gpu->cpu,
               fused = two || call->added || call->gated || call->norm || call->sums;
    tsr__tuned *tuned;

    *out = (tsr__matmul_plan){.method = TSR__MATMUL_NOTHING};
    if (fused && (p->swapped || (p->k == 0 && !call->gated && !call->norm)))
        return TSR_OK;
    if (of_f32 && (!is_f32(call->y) || !is_f32(call->a) || !is_f32(call->b) || !is_f32(call->bias)))
        return TSR_OK;
    TSR__TRY(tsr__tuned_of(gpu, &tuned));
    TSR__TRY(tsr__matmul_choose_tested(gpu, tuned, p, override, out));
    out->gated = call->gated;
    if (fused && !computes(call, out))
        out->method = TSR__MATMUL_NOTHING;
    return TSR_OK;
}

/* False if the kernel that narrows blocks has failed its self-test. */
static bool narrows_blocks(const tsr_tensor *b, tsr_dtype terms)
{
    uint32_t spec[TSR_QUANT_SPECS + 2] = {0};

    tsr__quant_describe(b->layout.dtype, spec);
    spec[TSR_QUANT_SPECS + 1] = (uint32_t)terms;
    return tsr__shader_admitted(b->buffer->device, TSR__SHADER_MATMUL_NARROW_BLOCKS, spec,
                                TSR_QUANT_SPECS + 2);
}

/* False if the kernel that narrows rows with a norm or a gate has failed its self-test. */
static bool narrows_rows(const tsr__matmul_call *call, tsr_dtype terms)
{
    uint32_t spec[TSR_QUANT_SPECS + 7] = {0};

    if (!call->norm && !call->gate)
        return true;
    spec[TSR_QUANT_SPECS + 1] = (uint32_t)terms;
    spec[TSR_QUANT_SPECS + 4] = call->norm ? (uint32_t)call->norm->weight->layout.dtype : 0;
    spec[TSR_QUANT_SPECS + 5] = call->gate != NULL;
    return tsr__shader_admitted(call->a->buffer->device, TSR__SHADER_MATMUL_NARROW, spec,
                                TSR_QUANT_SPECS + 7);
}

tsr_status tsr__matmul_plan_narrowed(const tsr__matmul_call *call,
                                     const tsr__matmul_override *override, tsr__matmul_plan *out)
{
    const tsr__matmul_problem *p = call->problem;
    const tsr__matmul_config *config = override ? override->config : NULL;
    tsr_device *gpu = tsr_stream_device(call->stream);
    const tsr__matmul_device device = tsr__matmul_device_of(gpu);
    const bool blocks = tsr__dtype_is_block(call->b->layout.dtype);
    tsr__matmul_problem narrowed;
    tsr__matmul_plan plan = {.method = TSR__MATMUL_NOTHING}, chosen;
    tsr__tuned *tuned;

    *out = plan;
    if ((device.coopmat.m == 0 && device.coopmat_bf16.m == 0) ||
        (device.traits.not_a_chip && !config))
        return TSR_OK;
    if (call->slope || call->times || call->gated || (blocks && p->swapped) ||
        ((call->norm || call->gate) && (p->swapped || call->a->layout.dtype != TSR_F32)) ||
        !tsr__matmul_narrow(p, call->a->layout.dtype, call->b->layout.dtype, &narrowed, &plan) ||
        (call->added &&
         (p->swapped || !tsr__matmul_tiles_fuse(call) || !fused_work(call, plan.narrowed.dtype))) ||
        (config && !tsr__matmul_config_fits(config, &device, &narrowed)))
        return TSR_OK;
    TSR__TRY(tsr__tuned_of(gpu, &tuned));
    TSR__TRY(tsr__matmul_choose_tested(gpu, tuned, &narrowed, override, &chosen));
    if (chosen.method == TSR__MATMUL_NOTHING ||
        (!config && !tsr__kernel_works(gpu, tsr__matmul_narrow_name, plan.narrowed.dtype,
                                       tsr__matmul_test_narrow)) ||
        !narrows_rows(call, plan.narrowed.dtype) ||
        (blocks && !narrows_blocks(call->b, plan.narrowed.dtype)))
        return TSR_OK;
    chosen.method = TSR__MATMUL_NARROWED;
    chosen.narrowed = plan.narrowed;
    *out = chosen;
    return TSR_OK;
}
