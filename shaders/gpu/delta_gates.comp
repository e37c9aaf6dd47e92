// The gates of a delta net, of each token and head, from two projections of the token:
//
//     beta = σ(x)     g = −exp(a_log) · softplus(alpha + dt_bias)
//
// With TSR_DELTA_GATES_GRAD, the gradients of the projections instead, from dbeta and dg, and the terms of the gradients of a_log and dt_bias.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "include/tessera.glsl"
#include "params/gates.h"

layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint X_DTYPE = TSR_DT_F32;
layout(constant_id = 2) const uint GRAD = 0;

layout(push_constant, std430) uniform tsr_push
{
    tsr_delta_gates_push p;
};

#include "include/activation.glsl"
#include "include/rows.glsl"

// log(1 + e^x)
float softplus(float x)
{
    precise float e = tsr_exp(-abs(x));
    // log(1 + e) has lost the digits of a small e
    precise float rest = e < 1e-3 ? e * (1.0 - e * (0.5 - e * 0.33333333)) : tsr_log(1.0 + e);
    return max(x, 0.0) + rest;
}

void main()
{
    uint n = tsr_flat_invocation();
    if (n >= p.rows * p.heads)
        return;
    uint row = n / p.heads, head = n % p.heads, bytes = tsr_dtype_bytes(X_DTYPE);
    float complement;
    float beta = tsr_sigmoid(tsr_load_float(tsr_at_mul(p.x, row, p.x_stride * bytes), head, X_DTYPE), complement);
    precise float alpha =
        tsr_load_float(tsr_at_mul(p.alpha, row, p.alpha_stride * bytes), head, X_DTYPE) + tsr_floats(p.dt_bias).v[head];
    precise float rate = -tsr_exp(tsr_floats(p.a_log).v[head]), g = rate * softplus(alpha);
    uvec2 beta_row = tsr_at_mul(p.beta, row, p.heads * 4u), g_row = tsr_at_mul(p.g, row, p.heads * 4u);
    if (GRAD == 0u) {
        tsr_floats(beta_row).v[head] = beta;
        tsr_floats(g_row).v[head] = g;
        return;
    }
    float dg = tsr_floats(g_row).v[head], unused;
    precise float dx = tsr_floats(beta_row).v[head] * beta * complement;
    precise float dalpha = dg * rate * tsr_sigmoid(alpha, unused);
    tsr_store_float(tsr_at_mul(p.dx, row, p.dx_stride * bytes), head, X_DTYPE, dx);
    tsr_store_float(tsr_at_mul(p.dalpha, row, p.dalpha_stride * bytes), head, X_DTYPE, dalpha);
    uvec2 terms = tsr_at_mul(p.terms, row, p.heads * 8u);
    precise float dlog = dg * g;
    tsr_floats(terms).v[head] = dlog;
    tsr_floats(terms).v[p.heads + head] = dalpha;
}
