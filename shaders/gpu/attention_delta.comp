// Computes delta = Σ dy·y of each query, which the backward pass of attention needs. Eight
// invocations share a row.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "include/attention.glsl"

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint WORKGROUP = 64;
layout(constant_id = 1) const uint Y_DTYPE = TSR_DT_F32;
layout(constant_id = 2) const uint DY_DTYPE = TSR_DT_F32;

const uint THREADS = 8;
#include "include/thread_group.glsl"

void main()
{
    uint q_len = CALL.q_len, dim = CALL.value_dim;
    bool owner = group_row() < p.count; // invocations without a row only take part in barriers
    uint row = min(group_row(), p.count - 1u) + p.first;
    uint head = row / q_len % CALL.heads, batch = row / q_len / CALL.heads;
    row %= q_len;
    uvec2 y = tsr_at_stride(attention_head(CALL.y, batch, head), row, CALL.y.row);
    uvec2 dy = tsr_at_stride(attention_head(CALL.dy, batch, head), row, CALL.dy.row);
    precise vec4 sums = vec4(0.0);
    for (uint d = 4u * group_thread(); d < dim; d += 4u * THREADS) {
        vec4 products = vec4(0.0);
        [[unroll]] for (uint k = 0u; k < 4u; k++) {
            uint column = min(d + k, dim - 1u);
            float product = tsr_load_float(tsr_at_stride(y, column, CALL.y.column), 0u, Y_DTYPE) *
                            tsr_load_float(tsr_at_stride(dy, column, CALL.dy.column), 0u, DY_DTYPE);
            products[k] = d + k < dim ? product : 0.0;
        }
        sums += products;
    }
    float sum = group_sum(sums);
    if (owner && group_thread() == 0u)
        tsr_floats(tsr_at_stride(attention_head(CALL.delta, batch, head), row, CALL.delta.row)).v[0] = sum;
}
