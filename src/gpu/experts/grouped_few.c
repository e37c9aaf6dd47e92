/* Grouped products for few tokens: one dispatch, which reads each chosen matrix once per token. */
#include "gpu/experts/grouped.h"

#include "base/checked.h"
#include "gpu/device/device.h"
#include "gpu/device/vendors.h"
#include "gpu/quant/dequantize.h"
#include "quant/block_format.h"

enum { THREADS = 64, VECTOR = 8, COLUMNS = 4, MOST_TOKENS = 8 };

/* The most iterations of an invocation's loops, all together: with weights, a workgroup multiplies
 * the matrices of all experts that a token chose. */
static uint64_t iterations(const tsr__grouped *call, uint32_t threads)
{
    const uint64_t experts = call->params->weights ? call->pairs.chosen : 1;
    return experts * (tsr__div_up_u64(call->k, UINT64_C(4) * threads) + 2);
}

/* Returns the invocations of a workgroup, a power of two. Drivers for processors run a workgroup
 * with barriers faster if it is one vector, but lavapipe ends long loops. */
static uint32_t threads_on(const tsr_stream *stream, const tsr__grouped *call)
{
    const tsr_device *device = tsr_stream_device(stream);
    const bool vector = device->cpu && iterations(call, VECTOR) <= device->traits.most_iterations;
    return vector ? VECTOR : THREADS;
}

/* True if an invocation can take `words` neighbouring units of a format
 * (shaders/include/quant.glsl) whose elements in each run are neighbours with one scale. */
static bool takes_words(const tsr__quant_format *f, uint32_t words)
{
    const uint32_t elements = 4 * words, parts = 8U / f->low.bits,
                   units = (uint32_t)f->format.block_count / (4 * parts);
    return (f->low.run % elements == 0 || parts == 1) && f->sub % elements == 0 &&
           units % words == 0;
}

/* Returns how many units an invocation takes at a time. More units share a scale, and fewer
 * occupy more invocations of the last round. Both are counted in instructions: about 24 for a
 * unit, and 10 for the scale of each run. On Intel's GPUs, four units of eight columns spill
 * registers. */
static uint32_t words_for(const tsr_stream *stream, const tsr__grouped *call, uint32_t threads)
{
    const uint32_t vendor = tsr_stream_device(stream)->info.vendor_id,
                   most = vendor == TSR__VENDOR_INTEL ? 2 : 4;
    const tsr__quant_format *f = tsr__quant_format_of(call->w->layout.dtype);
    uint32_t best = 1;
    uint64_t least = UINT64_MAX;
    for (uint32_t words = 1; f && words <= most && takes_words(f, words); words *= 2) {
        const uint32_t parts = 8U / f->low.bits;
        const uint64_t rounds = tsr__div_up_u64(call->k, (uint64_t)threads * words * 4 * parts),
                       instructions = rounds * (24 * words + 10 * parts);
        if (instructions < least) {
            least = instructions;
            best = words;
        }
    }
    return best;
}

/* Sets the specialization constants by which a pipeline is tested, and which depend on operands. */
static void describe(const tsr_stream *stream, const tsr__grouped *call, uint32_t *spec)
{
    const tsr_dtype w = call->w->layout.dtype;
    const bool blocks = tsr_quant_format_of(w) != NULL;
    tsr__quant_describe(blocks ? w : TSR_Q4_0, spec);
    spec += TSR_QUANT_SPECS;
    spec[0] = threads_on(stream, call);
    spec[1] = COLUMNS;
    spec[2] = (uint32_t)call->x.tensor->layout.dtype;
    spec[3] = blocks ? TSR_F32 : (uint32_t)w;
    spec[7] = blocks;
}

/* Strides of rows of w fit 32 bits, and w and up have the same strides. */
bool tsr__grouped_few_suits(const tsr_stream *stream, const tsr__grouped *call)
{
    const tsr_layout *w = &call->w->layout;
    const tsr_tensor *up = call->params->up;
    uint32_t spec[TSR_QUANT_SPECS + 8] = {0};
    if (call->transposed || call->pairs.tokens > MOST_TOKENS ||
        (w->strides[2] != 1 && w->shape[2] > 1) ||
        tsr__dtype_bytes(w->dtype, (uint64_t)w->strides[1]) > UINT32_MAX)
        return false;
    if (up && !tsr__grouped_pairs_up(call))
        return false;
    if (iterations(call, THREADS) > tsr_stream_device(stream)->traits.most_iterations)
        return false;
    describe(stream, call, spec);
    return tsr__shader_admitted(tsr_stream_device(stream), TSR__SHADER_MATMUL_GROUPED_FEW, spec,
                                (int)(sizeof spec / sizeof spec[0]));
}

static bool weight_aligned(const tsr__grouped *call, const tsr_tensor *w)
{
    const tsr_layout *l = &w->layout;
    return tsr__tensor_address(w) % (4 * tsr_dtype_size(l->dtype)) == 0 && call->k % 4 == 0 &&
           l->strides[0] % 4 == 0 && l->strides[1] % 4 == 0;
}

tsr_status tsr__grouped_few(tsr_stream *stream, const tsr__grouped *call)
{
    const tsr_matmul_grouped_params *params = call->params;
    const tsr_layout *w = &call->w->layout;
    const tsr_tensor *bias = params->bias ? params->bias : params->up_bias,
                     *up = params->up ? params->up : call->added;
    const bool blocks = tsr_quant_format_of(w->dtype) != NULL;
    const bool aligned = tsr__pair_rows_aligned(&call->x) &&
                         (blocks || (weight_aligned(call, call->w) &&
                                     (!params->up || weight_aligned(call, params->up))));
    const struct tsr_grouped_few_push push = {
        .x = tsr__tensor_address(call->x.tensor),
        .w = tsr__tensor_address(call->w),
        .up = up ? tsr__tensor_address(up) : 0,
        .y = tsr__tensor_address(call->y.tensor),
        .ids = tsr__tensor_address(call->pairs.ids),
        .weights = params->weights ? tsr__tensor_address(params->weights) : 0,
        .bias = params->bias ? tsr__tensor_address(params->bias) : 0,
        .up_bias = params->up_bias ? tsr__tensor_address(params->up_bias) : 0,
        .w_expert = tsr__dtype_bytes(w->dtype, (uint64_t)w->strides[0]),
        .w_line = (uint32_t)tsr__dtype_bytes(w->dtype, (uint64_t)w->strides[1]),
        .tokens = call->pairs.tokens,
        .chosen = call->pairs.chosen,
        .experts = call->experts,
        .n = call->n,
        .k = call->k,
        .x_stride = call->x.stride,
        .x_divide = call->x.divide,
        .y_stride = call->y.stride,
        .ids_stride = call->pairs.ids_stride,
        .weights_stride = call->weights_stride,
        .bias_stride = bias ? (uint32_t)bias->layout.strides[0] : 0,
        .limit = call->limit,
        .flags = (params->accumulate ? TSR_GROUPED_ACCUMULATE : 0) |
                 (call->added ? TSR_GROUPED_ADDED : 0),
    };
    const double products =
        (double)call->pairs.tokens * call->pairs.chosen * call->n * call->k * (params->up ? 2 : 1);
    tsr__dispatch dispatch = {
        .shader = TSR__SHADER_MATMUL_GROUPED_FEW,
        .spec_count = TSR_QUANT_SPECS + 12,
        .push = &push,
        .push_bytes = sizeof push,
        .work = products,
        .multiply_adds = products,
        .read_bytes = (params->up ? 2 : 1) * tsr__grouped_read_bytes(call, call->w),
        .access_count = 4,
        .access = {tsr__read_of(call->x.tensor), tsr__read_of(call->w),
                   tsr__write_of(call->y.tensor), tsr__read_of(call->pairs.ids)},
    };
    const tsr_tensor *others[] = {up, params->weights, params->bias, params->up_bias};
    for (int i = 0; i < 4; i++)
        if (others[i])
            dispatch.access[dispatch.access_count++] = tsr__read_of(others[i]);
    describe(stream, call, dispatch.spec);
    uint32_t *spec = dispatch.spec + TSR_QUANT_SPECS;
    spec[4] = (uint32_t)call->y.tensor->layout.dtype;
    spec[5] = bias ? (uint32_t)bias->layout.dtype : TSR_F32;
    spec[6] = aligned;
    spec[8] = params->weights != NULL;
    spec[9] = params->up != NULL;
    spec[10] = params->up ? (uint32_t)params->activation : 0;
    spec[11] = words_for(stream, call, spec[0]);
    const uint64_t items =
        (uint64_t)call->pairs.tokens * (params->weights ? 1 : call->pairs.chosen);
    tsr__groups_for(items * tsr__div_up_u64(call->n, COLUMNS), 1, dispatch.groups);
    return tsr__stream_dispatch(stream, &dispatch);
}
