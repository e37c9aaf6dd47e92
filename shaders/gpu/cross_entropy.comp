// Cross-entropy of rows of logits against their labels, and its gradient. A thread group
// (thread_group.glsl) computes one row in two loops. The first finds the largest logit and the sum
// of the exponentials relative to it, and the second computes the gradient. A class belongs to the
// same invocation in both loops, so that the gradient may overwrite the logits. A row that is
// divided into segments (params/rows.h) needs a phase for each loop.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "include/rows.glsl"
#include "params/cross_entropy.h"

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint WORKGROUP = 64;
layout(constant_id = 1) const uint THREADS = 8;
layout(constant_id = 2) const uint LOGITS_DTYPE = TSR_DT_F32;
layout(constant_id = 3) const uint LOSS_DTYPE = TSR_DT_F32;
layout(constant_id = 4) const uint GRADIENT_DTYPE = TSR_DT_F32;
layout(constant_id = 5) const uint FORM = TSR_ROW_WIDE; // a form (TSR_ROW_…) that logits and gradient both have
layout(constant_id = 6) const uint PHASE = TSR_PHASE_WHOLE;

layout(push_constant) uniform Push {
    tsr_cross_entropy_params p;
};

#define ROW_LENGTH p.classes
#define PARTIALS p.partials
// Classes past the last are -inf.
#define LOAD_LOGITS(logits, j)                                                                     \
    tsr_load_row4(logits, p.logits_step, j, p.classes, LOGITS_DTYPE, FORM, uintBitsToFloat(0xff800000u))
#include "include/exp_sum.glsl"

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

void main()
{
    row_part own = own_part(p.rows);
    uint label = label_of(own.row);
    uvec2 logits = tsr_at_stride(p.logits, own.row, p.logits_stride);

    exp_sum row = exp_sum_of_row(own, logits);
    if (PHASE == TSR_PHASE_SECOND)
        return;
    float shift = row.largest, sum = row.sum;

    // The invocation that has the label's class writes the loss, and reads the logit before the
    // gradient overwrites it.
    bool writes = label == IGNORED ? own.begin + group_thread() == 0u
                                   : label >= own.begin && label < own.end &&
                                         label / 4u % THREADS == group_thread();
    if (p.loss != uvec2(0u) && writes) {
        float loss = 0.0;
        if (label != IGNORED) {
            uvec2 at = tsr_row_element(logits, p.logits_step, label, FORM);
            precise float difference = shift - tsr_load_float(at, 0u, LOGITS_DTYPE);
            precise float whole = tsr_log(sum) + difference;
            loss = whole;
        }
        tsr_store_float(tsr_at_stride(p.loss, own.row, p.loss_stride), 0u, LOSS_DTYPE, loss);
    }
    if (p.gradient != uvec2(0u)) {
        uvec2 gradient = tsr_at_stride(p.gradient, own.row, p.gradient_stride);
        float scale = 1.0 / sum;
        for (uint j = own_first(own.begin); j < own.end; j += OWN_STEP) {
            vec4 value = tsr_exp4_down(LOAD_LOGITS(logits, j) - shift) * scale;
            value -= vec4(equal(uvec4(label), uvec4(j) + uvec4(0u, 1u, 2u, 3u)));
            value = label == IGNORED ? vec4(0.0) : value * p.scale;
            tsr_store_row4(gradient, p.gradient_step, j, p.classes, GRADIENT_DTYPE, FORM, value);
        }
    }
}
