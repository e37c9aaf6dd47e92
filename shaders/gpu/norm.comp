// y = (x − mean) / √(variance + epsilon) · weight + bias, or the same without the mean. For the
// gradients, the kernel computes only the statistics of the rows. A thread group computes one row.
// The first loop computes the mean, the second the rounding error of the mean and the variance
// about it, and the third the result. An element belongs to the same invocation in all loops, so
// that y may be x. A row that is divided into segments needs a phase for each loop.
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
layout(constant_id = 9) const uint PHASE = TSR_PHASE_WHOLE; // RMS has no first phase

layout(push_constant) uniform Push {
    tsr_norm_push p;
};

#define ROW_LENGTH p.count
#define PARTIALS p.partials
#include "include/segments.glsl"

vec4 load(uvec2 x, uint j, float missing)
{
    return tsr_load_row4(x, p.x.step, j, p.count, X_DTYPE, FORM, missing);
}

// The mean, rounded. The sum is over differences from the first element.
float rough_mean(row_part own, uvec2 x)
{
    // In the last phase, other workgroups may already have written the first element.
    if (PHASE == TSR_PHASE_LAST)
        return kept_row_value(own);
    float shift = tsr_load_float(x, 0u, X_DTYPE);
    float total = 0.0;
    if (in_phase(TSR_PHASE_FIRST)) {
        uint begin = own.begin;
        do {
            precise vec4 sums = vec4(0.0);
            for (uint j = own_first(begin); j < segment_end(own, begin); j += OWN_STEP) {
                precise vec4 value = load(x, j, shift) - shift;
                sums += value;
            }
            add_segment(total, sums);
        } while (next_segment(own, begin));
    }
    precise float mean = row_sum(own, TSR_PHASE_FIRST, 0u, 0u, total) * (1.0 / float(p.count));
    mean += shift;
    if (PHASE == TSR_PHASE_SECOND)
        keep_row_value(own, mean);
    return mean;
}

// Computes the statistics of a row. The first sum is over differences from the first element, and
// the others over differences from the mean. Their terms are therefore about as large as the
// deviations, and rows of equal elements have a variance of exactly 0.
vec4 statistics(row_part own, uvec2 x)
{
    vec4 stats = vec4(0.0);
    float each = 1.0 / float(p.count);
    if (CENTRED != 0u)
        stats.y = rough_mean(own, x);
    if (PHASE == TSR_PHASE_FIRST)
        return stats;

    float all_rest = 0.0, all_squares = 0.0;
    if (in_phase(TSR_PHASE_SECOND)) {
        uint begin = own.begin;
        do {
            precise vec4 rest = vec4(0.0), squares = vec4(0.0);
            for (uint j = own_first(begin); j < segment_end(own, begin); j += OWN_STEP) {
                precise vec4 value = load(x, j, stats.y) - stats.y;
                rest += value;
                squares += value * value;
            }
            add_segment(all_rest, rest);
            add_segment(all_squares, squares);
        } while (next_segment(own, begin));
    }
    if (CENTRED != 0u)
        stats.z = row_sum(own, TSR_PHASE_SECOND, 1u, 1u, all_rest) * each;
    float variance =
        row_sum(own, TSR_PHASE_SECOND, 2u, 0u, all_squares) * each - stats.z * stats.z;
    stats.x = norm_factor(variance, p.epsilon);
    return stats;
}

void main()
{
    row_part own = own_part(p.rows);
    uvec2 x = norm_row(p.x, own.row, p.inner, X_DTYPE);
    vec4 stats = statistics(own, x);
    if (PHASE == TSR_PHASE_FIRST || PHASE == TSR_PHASE_SECOND)
        return;

    if (OUTPUT == TSR_NORM_STATS) {
        if (own.owner && own.segment == 0u && group_thread() == 0u)
            tsr_floats4(tsr_at_mul(p.stats, own.row, TSR_NORM_STATS_BYTES)).v[0] = stats;
        return;
    }
    uvec2 y = norm_row(p.y, own.row, p.inner, Y_DTYPE);
    for (uint j = own_first(own.begin); j < own.end; j += OWN_STEP) {
        vec4 weight = norm_weight4(p.weight, p.weight_step, j, p.count, WEIGHT_DTYPE, FORM, 1.0);
        vec4 bias = norm_weight4(p.bias, p.bias_step, j, p.count, BIAS_DTYPE, FORM, 0.0);
        precise vec4 value =
            norm_centred(load(x, j, 0.0), stats) * stats.x * weight + bias;
        tsr_store_row4(y, p.y.step, j, p.count, Y_DTYPE, FORM, value);
    }
}
