// Copies rows of a table by their indices, four elements per invocation. Rows that are not in this
// part of the table become 0.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "include/index.glsl"
#include "params/embedding.h"

layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint TABLE_DTYPE = TSR_DT_F32;
layout(constant_id = 2) const uint Y_DTYPE = TSR_DT_F32;
layout(constant_id = 3) const uint FORM = TSR_ROW_WIDE; // a form (TSR_ROW_…) that table and y both have

layout(push_constant) uniform Push {
    tsr_embedding_params p;
};

void main()
{
    uint per_row = (p.width + 3u) / 4u;
    uint job = tsr_flat_invocation();
    uint row = job / per_row, j = job % per_row * 4u;
    if (row >= p.rows)
        return;
    uint index = tsr_load_index(p.indices, row, p.indices_stride, p.index_bytes);
    bool here = index >= p.first && index - p.first < p.here;
    vec4 value = vec4(0.0);
    if (here)
        value = tsr_load_row4(tsr_at_stride(p.table, index - p.first, p.table_stride), p.table_step, j, p.width,
                              TABLE_DTYPE, FORM, 0.0);
    tsr_store_row4(tsr_at_stride(p.y, row, p.y_stride), p.y_step, j, p.width, Y_DTYPE, FORM, value);
}
