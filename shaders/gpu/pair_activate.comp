// The activation between the two products of an expert, for each pair: y = act(gate, up). With
// GRADIENT also the gradients of gate, up and of the pair's weight, and y times the weight. A
// workgroup works on one pair; pairs whose id is not an expert only get a gradient of 0 for their
// weight.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "include/gated.glsl"
#include "include/rows.glsl"

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint WORKGROUP = 64;
layout(constant_id = 1) const uint HIDDEN_DTYPE = TSR_DT_F32;
layout(constant_id = 2) const uint Y_DTYPE = TSR_DT_F32; // also of dy and dhidden
layout(constant_id = 3) const uint ACTIVATION = TSR_EXPERT_ACT_SILU;
layout(constant_id = 4) const uint GRADIENT = 0;

layout(push_constant, std430) uniform tsr_push
{
    tsr_pair_activate_push p;
};

shared float tree[WORKGROUP];

void main()
{
    uint pair = tsr_flat_group();
    if (pair >= p.pairs)
        return;
    uint lane = gl_LocalInvocationID.x, token = pair / p.chosen, rank = pair % p.chosen;
    bool is_here = tsr_words(p.ids).v[token * p.ids_stride + rank] < p.experts;
    uint n = is_here ? p.n : 0u;
    uvec2 hidden = tsr_at_mul(p.hidden, pair, p.hidden_stride * tsr_dtype_bytes(HIDDEN_DTYPE));
    uvec2 y = tsr_at_mul(p.y, pair, p.y_stride * tsr_dtype_bytes(Y_DTYPE));
    uvec2 dy = tsr_at_mul(p.dy, pair, p.dy_stride * tsr_dtype_bytes(Y_DTYPE));
    uvec2 dhidden = tsr_at_mul(p.dhidden, pair, p.dhidden_stride * tsr_dtype_bytes(Y_DTYPE));
    float weight = 1.0;
    if (GRADIENT != 0u)
        weight = tsr_floats(p.weights).v[token * p.weights_stride + rank];
    float total = 0.0;
    for (uint f = lane; f < n; f += WORKGROUP) {
        float gate = tsr_load_float(hidden, f, HIDDEN_DTYPE);
        float up = tsr_load_float(hidden, p.n + f, HIDDEN_DTYPE);
        float value = tsr_gated(gate, up, p.limit, ACTIVATION);
        if (GRADIENT == 0u) {
            tsr_store_float(y, f, Y_DTYPE, value);
            continue;
        }
        float grad = tsr_load_float(dy, f, Y_DTYPE);
        vec2 slope = tsr_gated_grad(gate, up, p.limit, ACTIVATION);
        total = fma(value, grad, total);
        tsr_store_float(y, f, Y_DTYPE, weight * value);
        tsr_store_float(dhidden, f, Y_DTYPE, weight * grad * slope.x);
        tsr_store_float(dhidden, p.n + f, Y_DTYPE, weight * grad * slope.y);
    }
    if (GRADIENT == 0u)
        return;
    tree[lane] = total;
    for (uint span = WORKGROUP / 2u; span > 0u; span /= 2u) {
        barrier();
        if (lane < span)
            tree[lane] += tree[lane + span];
    }
    if (lane == 0u)
        tsr_floats(p.dweights).v[token * p.dweights_stride + rank] = tree[0];
}
