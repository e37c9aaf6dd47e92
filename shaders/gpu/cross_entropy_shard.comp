// Cross-entropy with classes divided among ranks, in two steps. A thread group (thread_group.glsl)
// computes one row. The first step computes the largest logit, the sum of exponentials and the
// label's logit among the classes of this rank. The second step computes loss and gradient from
// these numbers of all ranks. A class belongs to the same invocation in all loops, so that the
// gradient may overwrite the logits. Each step reads the logits once.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "include/index.glsl"
#include "params/cross_entropy_shard.h"

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint WORKGROUP = 64;
layout(constant_id = 1) const uint THREADS = 8;
layout(constant_id = 2) const uint LOGITS_DTYPE = TSR_DT_F32;
layout(constant_id = 3) const uint LOSS_DTYPE = TSR_DT_F32;
layout(constant_id = 4) const uint GRADIENT_DTYPE = TSR_DT_F32;
layout(constant_id = 5) const uint FORM = TSR_ROW_WIDE; // a form (TSR_ROW_…) that logits and gradient both have
layout(constant_id = 6) const uint STEP = TSR_SHARD_STATS;
layout(constant_id = 7) const uint PHASE = TSR_PHASE_WHOLE;

layout(push_constant) uniform Push {
    tsr_cross_entropy_shard_params p;
};

#define ROW_LENGTH p.here
#define PARTIALS p.loss // if STEP is TSR_SHARD_STATS
#define MINUS_INFINITY uintBitsToFloat(0xff800000u)
// Classes past the last are -inf.
#define LOAD_LOGITS(logits, j)                                                                     \
    tsr_load_row4(logits, p.logits_step, j, p.here, LOGITS_DTYPE, FORM, MINUS_INFINITY)
#include "include/exp_sum.glsl"

// The label's index among the classes of this rank, or TSR_NO_INDEX.
uint place_of(uint label)
{
    return label >= p.first && label - p.first < p.here ? label - p.first : TSR_NO_INDEX;
}

uvec2 stat_at(uint plane, uint row)
{
    return tsr_at_mul(tsr_at_stride(p.stats, plane, p.plane_bytes), row, 4u);
}

void write_stats(row_part own, uvec2 logits, uint place)
{
    // The sum is 0 if all logits of this rank are -inf. Other ranks may have larger logits.
    exp_sum all = exp_sum_of_row(own, logits);
    if (PHASE == TSR_PHASE_SECOND || !own.owner || own.segment > 0u || group_thread() > 0u)
        return;
    float picked = 0.0;
    if (place != TSR_NO_INDEX)
        picked =
            tsr_load_float(tsr_row_element(logits, p.logits_step, place, FORM), 0u, LOGITS_DTYPE);
    tsr_floats(stat_at(0u, own.row)).v[0] = all.largest;
    tsr_floats(stat_at(1u, own.row)).v[0] = all.sum;
    tsr_floats(stat_at(2u, own.row)).v[0] = picked;
}

void write_whole(row_part own, uvec2 logits, uint label)
{
    uint row = own.row;
    float most = MINUS_INFINITY;
    for (uint r = 0u; r < p.ranks; r++)
        most = max(most, tsr_floats(stat_at(3u * r, row)).v[0]);
    precise float sum = 0.0, picked = 0.0;
    for (uint r = 0u; r < p.ranks; r++) {
        float part = tsr_floats(stat_at(3u * r + 1u, row)).v[0];
        sum += part * tsr_exp(tsr_floats(stat_at(3u * r, row)).v[0] - most);
        picked += tsr_floats(stat_at(3u * r + 2u, row)).v[0];
    }
    bool ignored = label >= p.classes;
    precise float loss = tsr_log(sum) + (most - picked);
    if (p.loss != uvec2(0u) && own.segment + group_thread() == 0u)
        tsr_store_float(tsr_at_stride(p.loss, row, p.loss_stride), 0u, LOSS_DTYPE, ignored ? 0.0 : loss);
    if (p.gradient == uvec2(0u))
        return;
    uint place = place_of(label);
    uvec2 gradient = tsr_at_stride(p.gradient, row, p.gradient_stride);
    float scale = 1.0 / sum;
    for (uint j = own_first(own.begin); j < own.end; j += OWN_STEP) {
        vec4 value = tsr_exp4_down(LOAD_LOGITS(logits, j) - most) * scale;
        value -= vec4(equal(uvec4(place), uvec4(j) + uvec4(0u, 1u, 2u, 3u)));
        value = ignored ? vec4(0.0) : value * p.scale;
        tsr_store_row4(gradient, p.gradient_step, j, p.here, GRADIENT_DTYPE, FORM, value);
    }
}

void main()
{
    row_part own = own_part(p.rows);
    uint label = tsr_load_index(p.labels, own.row, p.labels_stride, p.label_bytes);
    uvec2 logits = tsr_at_stride(p.logits, own.row, p.logits_stride);
    if (STEP == TSR_SHARD_STATS)
        write_stats(own, logits, place_of(label));
    else if (own.owner)
        write_whole(own, logits, label);
}
