// y = (x − mean) / √(variance + epsilon) · weight + bias, or for RMS the same without the mean. For
// the gradients, the kernel also writes the statistics of the rows, or computes only these. A thread group
// (thread_group.glsl) computes one row. The first loop computes the mean, the second the rounding
// error of the mean and the variance about it, and the third the result. An element belongs to the
// same invocation in all loops, so that y may be x. A row that is divided into segments
// (params/rows.h) needs a phase for each loop. A row that fits into registers is loaded once.
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
layout(constant_id = 6) const uint FORM = TSR_ROW_WIDE; // a form (TSR_ROW_…) that all operands have
layout(constant_id = 7) const uint CENTRED = 1;         // 0: RMS
layout(constant_id = 8) const uint OUTPUT = TSR_NORM_RESULT;
layout(constant_id = 9) const uint PHASE = TSR_PHASE_WHOLE; // RMS has no first phase
// the number of groups of four elements that an invocation keeps in registers
layout(constant_id = 10) const uint HELD = 0;

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

// The elements that an invocation keeps in registers, HELD groups of four.
const uint KEPT = HELD > 0u ? HELD : 1u;
vec4 kept[KEPT];

void hold(row_part own, uvec2 x)
{
    [[unroll]] for (uint h = 0u; h < HELD; h++)
        kept[h] = load(x, held_within(held_first(own, h)), 0.0);
}

// Returns group number h of the elements in registers, each minus `shift`; 0 for elements past the
// end.
vec4 held_minus(row_part own, uint h, float shift)
{
    precise vec4 value = kept[h] - shift;
    return mix(vec4(0.0), value, held_there(held_first(own, h), FORM));
}

// The mean, rounded to a float. The sum is over differences from the first element.
float rough_mean(row_part own, uvec2 x)
{
    // In the last phase, other workgroups may already have written the first element.
    if (PHASE == TSR_PHASE_LAST)
        return kept_row_value(own);
    float shift = tsr_load_float(x, 0u, X_DTYPE);
    float total = 0.0;
    if (HELD > 0u) {
        precise vec4 sums = vec4(0.0);
        [[unroll]] for (uint h = 0u; h < HELD; h++)
            sums += held_minus(own, h, shift);
        add_segment(total, sums);
    } else if (in_phase(TSR_PHASE_FIRST)) {
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
    if (HELD > 0u) {
        precise vec4 rest = vec4(0.0), squares = vec4(0.0);
        [[unroll]] for (uint h = 0u; h < HELD; h++) {
            precise vec4 value = held_minus(own, h, stats.y);
            rest += value;
            squares += value * value;
        }
        add_segment(all_rest, rest);
        add_segment(all_squares, squares);
    } else if (in_phase(TSR_PHASE_SECOND)) {
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

vec4 load_weight(uint j)
{
    return norm_weight4(p.weight, p.weight_step, j, p.count, WEIGHT_DTYPE, FORM, 1.0);
}

vec4 load_bias(uint j)
{
    return norm_weight4(p.bias, p.bias_step, j, p.count, BIAS_DTYPE, FORM, 0.0);
}

vec4 result_of(vec4 x, vec4 stats, vec4 weight, vec4 bias)
{
    precise vec4 value = norm_centred(x, stats) * stats.x * weight + bias;
    return value;
}

void store_held(row_part own, uvec2 y, vec4 stats)
{
    vec4 weight[KEPT], bias[KEPT];
    [[unroll]] for (uint h = 0u; h < HELD; h++) {
        weight[h] = load_weight(held_within(held_first(own, h)));
        bias[h] = load_bias(held_within(held_first(own, h)));
    }
    [[unroll]] for (uint h = 0u; h < HELD; h++)
        if (held_first(own, h) < own.end)
            tsr_store_row4(y, p.y.step, held_first(own, h), p.count, Y_DTYPE, FORM,
                           result_of(kept[h], stats, weight[h], bias[h]));
}

void main()
{
    row_part own = own_part(p.rows);
    uvec2 x = norm_row(p.x, own.row, p.inner, X_DTYPE);
    hold(own, x);
    vec4 stats = statistics(own, x);
    if (PHASE == TSR_PHASE_FIRST || PHASE == TSR_PHASE_SECOND)
        return;

    if (OUTPUT != TSR_NORM_RESULT && own.owner && own.segment == 0u && group_thread() == 0u)
        tsr_floats4(tsr_at_mul(p.stats, own.row, TSR_NORM_STATS_BYTES)).v[0] = stats;
    if (OUTPUT == TSR_NORM_STATS)
        return;
    uvec2 y = norm_row(p.y, own.row, p.inner, Y_DTYPE);
    if (HELD > 0u) {
        store_held(own, y, stats);
        return;
    }
    for (uint j = own_first(own.begin); j < own.end; j += OWN_STEP)
        tsr_store_row4(y, p.y.step, j, p.count, Y_DTYPE, FORM,
                       result_of(load(x, j, 0.0), stats, load_weight(j), load_bias(j)));
}
