// y = (x − mean) / √(variance + epsilon) · weight + bias, or the same without the mean. For the
// gradients, the kernel computes only the statistics of the rows. A thread group computes one row.
// The first loop computes the mean, the second the rounding error of the mean and the variance
// about it, and the third the result. An element belongs to the same invocation in all loops, so
// that y may be x.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "include/norm.glsl"

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint WORKGROUP = 64;
layout(constant_id = 1) const uint THREADS = 8;
layout(constant_id = 2) const uint X_DTYPE = TSR_DT_F32;
layout(constant_id = 3) const uint Y_DTYPE = TSR_DT_F32;
layout(constant_id = 4) const uint WEIGHT_DTYPE = TSR_DT_F32;
layout(constant_id = 5) const uint BIAS_DTYPE = TSR_DT_F32;
layout(constant_id = 6) const uint FORM = TSR_ROW_WIDE; // a form that all operands have
layout(constant_id = 7) const uint CENTRED = 1;         // 0: RMS
layout(constant_id = 8) const uint OUTPUT = TSR_NORM_RESULT;

layout(push_constant) uniform Push {
    tsr_norm_push p;
};

#include "include/thread_group.glsl"

vec4 load(uvec2 x, uint j, float missing)
{
    return tsr_load_row4(x, p.x.step, j, p.count, X_DTYPE, FORM, missing);
}

// Computes the statistics of a row. The first sum is over differences from the first element, and
// the others over differences from the mean. Their terms are therefore about as large as the
// deviations, and rows of equal elements have a variance of exactly 0.
vec4 statistics(uvec2 x, uint first)
{
    vec4 stats = vec4(0.0);
    float each = 1.0 / float(p.count);
    if (CENTRED != 0u) {
        float shift = tsr_load_float(x, 0u, X_DTYPE);
        precise vec4 sums = vec4(0.0);
        for (uint j = first; j < p.count; j += 4u * THREADS) {
            precise vec4 value = load(x, j, shift) - shift;
            sums += value;
        }
        stats.y = shift + group_sum_in(0u, sums) * each;
    }

    precise vec4 rest = vec4(0.0), squares = vec4(0.0);
    for (uint j = first; j < p.count; j += 4u * THREADS) {
        precise vec4 value = load(x, j, stats.y) - stats.y;
        rest += value;
        squares += value * value;
    }
    if (CENTRED != 0u)
        stats.z = group_sum_in(1u, rest) * each;
    float variance = group_sum_in(0u, squares) * each - stats.z * stats.z;
    stats.x = norm_factor(variance, p.epsilon);
    return stats;
}

void main()
{
    bool owner = group_row() < p.rows; // invocations without a row only take part in barriers
    uint row = min(group_row(), p.rows - 1u);
    uvec2 x = norm_row(p.x, row, p.inner, X_DTYPE);
    uint first = owner ? 4u * group_thread() : p.count;
    vec4 stats = statistics(x, first);

    if (OUTPUT == TSR_NORM_STATS) {
        if (owner && group_thread() == 0u)
            tsr_floats4(tsr_at_mul(p.stats, row, TSR_NORM_STATS_BYTES)).v[0] = stats;
        return;
    }
    uvec2 y = norm_row(p.y, row, p.inner, Y_DTYPE);
    for (uint j = first; j < p.count; j += 4u * THREADS) {
        vec4 weight = norm_weight4(p.weight, p.weight_step, j, p.count, WEIGHT_DTYPE, FORM, 1.0);
        vec4 bias = norm_weight4(p.bias, p.bias_step, j, p.count, BIAS_DTYPE, FORM, 0.0);
        vec4 value = norm_centred(load(x, j, 0.0), stats) * stats.x * weight + bias;
        tsr_store_row4(y, p.y.step, j, p.count, Y_DTYPE, FORM, value);
    }
}
