// Cross-entropy of rows of logits against their labels, and its gradient. A thread group computes
// one row in three loops. The first finds the largest logit, the second adds up the exponentials
// relative to it, and the third computes the gradient. A class belongs to the same invocation in
// all loops, so that the gradient may overwrite the logits.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "include/rows.glsl"
#include "include/exp_log.glsl"
#include "params/cross_entropy.h"

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint WORKGROUP = 64;
layout(constant_id = 1) const uint THREADS = 8;
layout(constant_id = 2) const uint LOGITS_DTYPE = TSR_DT_F32;
layout(constant_id = 3) const uint LOSS_DTYPE = TSR_DT_F32;
layout(constant_id = 4) const uint GRADIENT_DTYPE = TSR_DT_F32;
layout(constant_id = 5) const uint FORM = TSR_ROW_WIDE; // a form that logits and gradient both have

layout(push_constant) uniform Push {
    tsr_cross_entropy_params p;
};

#include "include/thread_group.glsl"

const uint IGNORED = 0xffffffffu; // no class has this number

uint label_of(uint row)
{
    uvec2 at = tsr_at_stride(p.labels, row, p.labels_stride);
    uint label = IGNORED;
    if (p.label_bytes == 1u) {
        label = tsr_load_u8(at, 0u);
    } else {
        label = tsr_words(at).v[0];
        if (p.label_bytes == 8u && tsr_words(at).v[1] != 0u)
            label = IGNORED;
    }
    return label < p.classes ? label : IGNORED;
}

// Loads classes j … j+3. Classes past the last are -inf.
vec4 load_logits(uvec2 logits, uint j)
{
    return tsr_load_row4(logits, p.logits_step, j, p.classes, LOGITS_DTYPE, FORM,
                         uintBitsToFloat(0xff800000u));
}

void main()
{
    bool owner = group_row() < p.rows; // invocations without a row only take part in barriers
    uint row = min(group_row(), p.rows - 1u);
    uint label = label_of(row);
    uvec2 logits = tsr_at_stride(p.logits, row, p.logits_stride);
    uint first = owner ? 4u * group_thread() : p.classes;

    vec4 largest = vec4(uintBitsToFloat(0xff800000u));
    for (uint j = first; j < p.classes; j += 4u * THREADS)
        largest = max(largest, load_logits(logits, j));
    float shift = group_max(largest);

    precise vec4 sums = vec4(0.0);
    float picked = 0.0; // the label's logit in the invocation that has this class, otherwise 0
    for (uint j = first; j < p.classes; j += 4u * THREADS) {
        vec4 value = load_logits(logits, j);
        if (label >= j && label < j + 4u)
            picked = value[label - j];
        // Classes past the last add nothing, even if shift is -inf.
        bvec4 there = lessThan(uvec4(j) + uvec4(0u, 1u, 2u, 3u), uvec4(p.classes));
        sums += mix(vec4(0.0), tsr_exp4_down(value - shift), there);
    }
    float sum = group_sum(sums);

    if (p.loss != uvec2(0u) && owner) {
        bool writes = label == IGNORED ? group_thread() == 0u : label / 4u % THREADS == group_thread();
        precise float loss = label == IGNORED ? 0.0 : tsr_log(sum) + (shift - picked);
        if (writes)
            tsr_store_float(tsr_at_stride(p.loss, row, p.loss_stride), 0u, LOSS_DTYPE, loss);
    }
    if (p.gradient != uvec2(0u)) {
        uvec2 gradient = tsr_at_stride(p.gradient, row, p.gradient_stride);
        float scale = 1.0 / sum;
        for (uint j = first; j < p.classes; j += 4u * THREADS) {
            vec4 value = tsr_exp4_down(load_logits(logits, j) - shift) * scale;
            value -= vec4(equal(uvec4(label), uvec4(j) + uvec4(0u, 1u, 2u, 3u)));
            value = label == IGNORED ? vec4(0.0) : value * p.scale;
            tsr_store_row4(gradient, p.gradient_step, j, p.classes, GRADIENT_DTYPE, FORM, value);
        }
    }
}
