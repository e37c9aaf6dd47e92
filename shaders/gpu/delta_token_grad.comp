// dv, dbeta and dg of a chunk of one head. With X = dy·Sᵀ, Z = dR·Sᵀ and M = D·dSᵀ, whose rows are those of the chunk's tokens, the
// gradient of G[t] is parts + carry · q·X − beta · carry · k·Z − out · k·M; G of the last token also has Σ out · k·M and Σ dS·S · carry[last].
// dg is the sum of the gradients of G from its token on. An invocation computes one token.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "include/tessera.glsl"
#include "params/delta.h"

layout(local_size_x_id = 0) in;

layout(push_constant, std430) uniform tsr_push
{
    tsr_delta_token_grad_push p;
};

#include "include/delta.glsl"
#include "include/rows.glsl"

layout(constant_id = 6) const uint V_DTYPE = TSR_DT_F32;
layout(constant_id = 7) const uint DV_DTYPE = TSR_DT_F32;
layout(constant_id = 8) const uint BLOCKS = 1; // of columns, in `dots`

shared float of_g[CHUNK], of_out[CHUNK];

void main()
{
    uint t = gl_LocalInvocationID.x, group = tsr_flat_group();
    if (group >= p.batch * p.chunks * HEADS)
        return;
    uint head = group % HEADS, chunk = group / HEADS, b = chunk / p.chunks, token = chunk % p.chunks * CHUNK + t;
    uint row = group * CHUNK + t, key_row = (chunk * KEY_HEADS + delta_key_head(head)) * CHUNK + t;
    uvec2 query = delta_row(p.work, p.queries, key_row, KEY_DIM), key = delta_row(p.work, p.keys, key_row, KEY_DIM);
    uvec2 x = delta_row(p.work, p.x, row, KEY_DIM), z = delta_row(p.work, p.z, row, KEY_DIM), m = delta_row(p.work, p.m, row, KEY_DIM);
    precise float q_x = 0.0, k_z = 0.0, k_m = 0.0, dr_v = 0.0;
    for (uint i = 0u; i < KEY_DIM / 4u; i++) {
        vec4 k = tsr_floats4(key).v[i];
        q_x += dot(tsr_floats4(query).v[i], tsr_floats4(x).v[i]);
        k_z += dot(k, tsr_floats4(z).v[i]);
        k_m += dot(k, tsr_floats4(m).v[i]);
    }
    uvec2 decay = delta_row(p.work, p.decay, row, TSR_DELTA_DECAY_FLOATS);
    vec4 numbers = tsr_floats4(decay).v[0];
    bool counts = tsr_floats4(decay).v[1].z != 0.0;
    uvec2 dr = delta_row(p.work, p.dr, row, VALUE_DIM);
    bool there = token < p.tokens;
    uint at = b * p.tokens + min(token, p.tokens - 1u);
    uvec2 v = tsr_at_mul(p.v, at, p.v_stride * tsr_dtype_bytes(V_DTYPE)), dv = tsr_at_mul(p.dv, at, p.dv_stride * tsr_dtype_bytes(DV_DTYPE));
    for (uint j = 0u; j < VALUE_DIM; j++) {
        float value = tsr_floats(dr).v[j];
        if (there)
            tsr_store_float(dv, head * VALUE_DIM + j, DV_DTYPE, numbers.w * value);
        if (value != 0.0) // v past the end of a sequence may be NaN
            dr_v += value * tsr_load_float(v, head * VALUE_DIM + j, V_DTYPE);
    }
    vec2 parts = vec2(tsr_floats(delta_row(p.work, p.parts, row, 2u)).v[0], tsr_floats(delta_row(p.work, p.parts, row, 2u)).v[1]);
    of_out[t] = numbers.z * k_m;
    of_g[t] = parts.x + numbers.y * q_x - numbers.w * numbers.y * k_z - numbers.z * k_m;
    if (there)
        tsr_floats(tsr_at_mul(p.dbeta, at, p.dbeta_stride * 4u)).v[head] = dr_v - numbers.y * k_z + parts.y;
    barrier();
    precise float sum = 0.0;
    for (uint n = 0u; n < BLOCKS; n++)
        sum += tsr_floats(delta_row(p.work, p.dots, group, BLOCKS)).v[n];
    for (uint n = 0u; n < CHUNK; n++)
        sum += of_out[n];
    for (uint n = CHUNK; n-- > t;)
        sum += of_g[n];
    if (there)
        tsr_floats(tsr_at_mul(p.dg, at, p.dg_stride * 4u)).v[head] = counts ? sum : 0.0;
}
