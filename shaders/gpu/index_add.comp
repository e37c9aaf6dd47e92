// Adds dy to the elements of dx that are selected by indices along one dimension, in any layout.
// Indices are divided into buckets (index modulo buckets). An invocation adds at one position in
// the other dimensions, for the indices of one bucket. It goes through all indices in order, so
// that elements are added in the order of the indices.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "include/index.glsl"
#include "include/walk.glsl"
#include "params/index_select.h"

layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint DX_DTYPE = TSR_DT_F32;
layout(constant_id = 2) const uint DY_DTYPE = TSR_DT_F32;
layout(constant_id = 3) const uint INDEX_BYTES = 4;

layout(push_constant, std430) uniform tsr_push
{
    tsr_index_add_params p;
};

void main()
{
    uint item = tsr_flat_invocation();
    if (item >= p.walk.items)
        return;
    uvec4 position = tsr_walk_position(p.walk, item);
    uvec2 dx = tsr_at_mul(p.dx, tsr_walk_element(position, p.dx_strides), tsr_dtype_bytes(DX_DTYPE));
    uvec2 dy = tsr_at_mul(p.dy, tsr_walk_element(position, p.dy_strides), tsr_dtype_bytes(DY_DTYPE));
    for (uint row = 0u; row < p.rows; row++) {
        uint index = tsr_load_index(p.indices, row, p.indices_stride, INDEX_BYTES);
        if (index >= p.size || (index & p.buckets - 1u) != gl_WorkGroupID.z)
            continue;
        uvec2 to = tsr_at_stride(dx, index, p.dx_stride);
        precise float sum = tsr_load_float(to, 0u, DX_DTYPE) + tsr_load_float(tsr_at_stride(dy, row, p.dy_stride), 0u, DY_DTYPE);
        tsr_store_float(to, 0u, DX_DTYPE, sum);
    }
}
