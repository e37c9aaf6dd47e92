// Selects elements of x by indices along one dimension, in any layout. If an index is not in x, the
// element of y becomes 0. An invocation computes four neighbours of y.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "include/elements.glsl"
#include "include/index.glsl"
#include "include/walk.glsl"
#include "params/index_select.h"

layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint X_DTYPE = TSR_DT_F32;
layout(constant_id = 2) const uint Y_DTYPE = TSR_DT_F32; // differs from x's only if both are floats
layout(constant_id = 3) const uint SIZE = 4;             // bytes of an element of x
layout(constant_id = 4) const uint INDEX_BYTES = 4;

layout(push_constant, std430) uniform tsr_push
{
    tsr_index_select_params p;
};

void main()
{
    uint item = tsr_flat_invocation();
    if (item >= p.walk.items)
        return;
    uvec4 position = tsr_walk_position(p.walk, item);
    position.w *= 4u;
    uint count = min(4u, p.walk.inner - position.w);
    for (uint k = 0u; k < count; k++) {
        uint index = tsr_load_index(tsr_at_mul(p.indices, tsr_walk_element(position, p.indices_strides), INDEX_BYTES), 0u,
                                    uvec2(0u), INDEX_BYTES);
        bool here = index < p.size;
        uvec2 x = tsr_at_stride(p.x, here ? index : 0u, p.x_stride);
        uint from = tsr_walk_element(position, p.x_strides), to = tsr_walk_element(position, p.y_strides);
        if (X_DTYPE == Y_DTYPE) {
            uvec2 bits = here ? tsr_load_bits(x, from, SIZE) : uvec2(0u);
            tsr_store_bits(p.y, to, SIZE, bits);
        } else {
            float value = here ? tsr_load_float(x, from, X_DTYPE) : 0.0;
            tsr_store_float(p.y, to, Y_DTYPE, value);
        }
        position.w++;
    }
}
