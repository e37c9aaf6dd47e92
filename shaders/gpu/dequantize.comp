// Converts rows of blocks to floats: all rows of a view, or those that indices name. An invocation
// converts one unit of a block (include/quant.glsl).
#version 450
#extension GL_GOOGLE_include_directive : require
#include "include/index.glsl"
#include "include/quant.glsl"

layout(constant_id = 5) const uint WORKGROUP = 64;
layout(local_size_x_id = 5) in;
layout(constant_id = 6) const uint Y_DTYPE = TSR_DT_F32;
layout(constant_id = 7) const uint FORM = TSR_ROW_WIDE; // the form (TSR_ROW_…) of the rows of y

layout(push_constant) uniform Push {
    tsr_dequantize_params p;
};

void main()
{
    uint per_row = p.width / QUANT_COUNT * QUANT_UNITS;
    uint job = tsr_flat_invocation();
    uint row = job / per_row, unit = job % per_row;
    if (row >= p.rows)
        return;
    uint z = (row + p.row_begin) % p.size[1], rest = (row + p.row_begin) / p.size[1];
    uint y = rest % p.size[0], x = rest / p.size[0];
    uvec2 to = tsr_at_stride(tsr_at_stride(tsr_at_stride(p.y, x, p.y_strides[0]), y, p.y_strides[1]), z,
                             p.y_strides[2]);
    bool here = true;
    uint source = z;
    if (p.index_bytes != 0u) {
        uint index = tsr_load_index(p.indices, z, p.indices_stride, p.index_bytes);
        here = index >= p.first && index - p.first < p.here;
        source = here ? index - p.first : 0u;
    }
    uvec2 from = tsr_at_stride(tsr_at_stride(tsr_at_stride(p.x, x, p.x_strides[0]), y, p.x_strides[1]), source,
                               p.x_strides[2]);

    uint block = unit / QUANT_UNITS, at = unit % QUANT_UNITS;
    from = tsr_at_mul(from, block, QUANT_BYTES);
    uint low = here ? quant_low(from, at) : 0u;
    [[unroll]] for (uint part = 0u; part < QUANT_PARTS; part++) {
        uint element = quant_element(at, part);
        vec4 value = here ? quant_values(from, at, low, part) : vec4(0.0);
        tsr_store_row4(to, p.y_step, block * QUANT_COUNT + element, p.width, Y_DTYPE, FORM, value);
    }
}
