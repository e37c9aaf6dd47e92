// Adds rows of dy to the rows of a table that are given by their indices. The table's rows are
// divided into buckets (row modulo buckets). A workgroup adds to some columns of the rows of one
// bucket and goes through all indices in order. No other workgroup adds to these elements, so that
// they are added in the order of the indices.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "include/index.glsl"
#include "params/embedding.h"

layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint TABLE_DTYPE = TSR_DT_F32;
layout(constant_id = 2) const uint Y_DTYPE = TSR_DT_F32;
layout(constant_id = 3) const uint FORM = TSR_ROW_WIDE; // a form that table and y both have

layout(push_constant) uniform Push {
    tsr_embedding_params p;
};

void main()
{
    uint bucket = gl_WorkGroupID.y;
    uint j = 4u * gl_GlobalInvocationID.x;
    if (j >= p.width)
        return;
    for (uint row = 0u; row < p.rows; row++) {
        uint index = tsr_load_index(p.indices, row, p.indices_stride, p.index_bytes);
        if (index < p.first || index - p.first >= p.here || (index - p.first & p.buckets - 1u) != bucket)
            continue;
        uvec2 table = tsr_at_stride(p.table, index - p.first, p.table_stride);
        uvec2 y = tsr_at_stride(p.y, row, p.y_stride);
        vec4 value = tsr_load_row4(table, p.table_step, j, p.width, TABLE_DTYPE, FORM, 0.0) +
                     tsr_load_row4(y, p.y_step, j, p.width, Y_DTYPE, FORM, 0.0);
        tsr_store_row4(table, p.table_step, j, p.width, TABLE_DTYPE, FORM, value);
    }
}
