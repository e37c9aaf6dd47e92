// Cross-entropy with classes divided among ranks, in two steps. A thread group computes one row.
// The first step computes the largest logit, the sum of exponentials and the label's logit among
// the classes of this rank. The second step computes loss and gradient from these numbers of all
// ranks. A class belongs to the same invocation in all loops, so that the gradient may overwrite
// the logits.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "include/index.glsl"
#include "include/exp_log.glsl"
#include "params/cross_entropy_shard.h"

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint WORKGROUP = 64;
layout(constant_id = 1) const uint THREADS = 8;
layout(constant_id = 2) const uint LOGITS_DTYPE = TSR_DT_F32;
layout(constant_id = 3) const uint LOSS_DTYPE = TSR_DT_F32;
layout(constant_id = 4) const uint GRADIENT_DTYPE = TSR_DT_F32;
layout(constant_id = 5) const uint FORM = TSR_ROW_WIDE; // a form that logits and gradient both have
layout(constant_id = 6) const uint STEP = TSR_SHARD_STATS;

layout(push_constant) uniform Push {
    tsr_cross_entropy_shard_params p;
};

#include "include/thread_group.glsl"

#define MINUS_INFINITY uintBitsToFloat(0xff800000u)

// The label's index among the classes of this rank, or TSR_NO_INDEX.
uint place_of(uint label)
{
    return label >= p.first && label - p.first < p.here ? label - p.first : TSR_NO_INDEX;
}

// Loads classes j … j+3. Classes past the last are -inf.
vec4 load_logits(uvec2 logits, uint j)
{
    return tsr_load_row4(logits, p.logits_step, j, p.here, LOGITS_DTYPE, FORM, MINUS_INFINITY);
}

uvec2 stat_at(uint plane, uint row)
{
    return tsr_at_mul(tsr_at_stride(p.stats, plane, p.plane_bytes), row, 4u);
}

void write_stats(uvec2 logits, uint row, uint place, bool owner)
{
    uint first = owner ? 4u * group_thread() : p.here;
    vec4 largest = vec4(MINUS_INFINITY);
    for (uint j = first; j < p.here; j += 4u * THREADS)
        largest = max(largest, load_logits(logits, j));
    float most = group_max(largest);
    // If all logits of this rank are -inf, the shift is 0, because -inf − -inf would be NaN. Other
    // ranks may have larger logits.
    float shift = most == MINUS_INFINITY ? 0.0 : most;

    precise vec4 sums = vec4(0.0);
    float picked = 0.0;
    for (uint j = first; j < p.here; j += 4u * THREADS) {
        vec4 value = load_logits(logits, j);
        if (place >= j && place < j + 4u)
            picked = value[place - j];
        bvec4 there = lessThan(uvec4(j) + uvec4(0u, 1u, 2u, 3u), uvec4(p.here));
        sums += mix(vec4(0.0), tsr_exp4_down(value - shift), there);
    }
    float sum = group_sum(sums);
    if (!owner)
        return;
    if (group_thread() == 0u) {
        tsr_floats(stat_at(0u, row)).v[0] = most;
        tsr_floats(stat_at(1u, row)).v[0] = sum;
    }
    if (place == TSR_NO_INDEX ? group_thread() == 0u : place / 4u % THREADS == group_thread())
        tsr_floats(stat_at(2u, row)).v[0] = picked;
}

void write_whole(uvec2 logits, uint row, uint label)
{
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
    if (p.loss != uvec2(0u) && group_thread() == 0u)
        tsr_store_float(tsr_at_stride(p.loss, row, p.loss_stride), 0u, LOSS_DTYPE, ignored ? 0.0 : loss);
    if (p.gradient == uvec2(0u))
        return;
    uint place = place_of(label);
    uvec2 gradient = tsr_at_stride(p.gradient, row, p.gradient_stride);
    float scale = 1.0 / sum;
    for (uint j = 4u * group_thread(); j < p.here; j += 4u * THREADS) {
        vec4 value = tsr_exp4_down(load_logits(logits, j) - most) * scale;
        value -= vec4(equal(uvec4(place), uvec4(j) + uvec4(0u, 1u, 2u, 3u)));
        value = ignored ? vec4(0.0) : value * p.scale;
        tsr_store_row4(gradient, p.gradient_step, j, p.here, GRADIENT_DTYPE, FORM, value);
    }
}

void main()
{
    bool owner = group_row() < p.rows; // invocations without a row only take part in barriers
    uint row = min(group_row(), p.rows - 1u);
    uint label = tsr_load_index(p.labels, row, p.labels_stride, p.label_bytes);
    uvec2 logits = tsr_at_stride(p.logits, row, p.logits_stride);
    if (STEP == TSR_SHARD_STATS)
        write_stats(logits, row, place_of(label), owner);
    else if (owner)
        write_whole(logits, row, label);
}
