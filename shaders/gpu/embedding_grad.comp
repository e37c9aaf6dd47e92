// Adds rows of dy to the rows of a table that are given by their indices. The table's rows are
// divided into buckets (row modulo buckets). A workgroup adds to some columns of the rows of one
// bucket and goes through all indices in order. No other workgroup adds to these elements, so that
// they are added in the order of the indices.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "include/index.glsl"
#include "params/embedding.h"

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint WORKGROUP = 64;
layout(constant_id = 1) const uint TABLE_DTYPE = TSR_DT_F32;
layout(constant_id = 2) const uint Y_DTYPE = TSR_DT_F32;
layout(constant_id = 3) const uint FORM = TSR_ROW_WIDE; // a form that table and y both have
// With SCAN > 0, the invocations of a workgroup look at SCAN indices each, and only those of the
// bucket are then gone through one by one. With 0, every invocation looks at every index, which is
// faster on CPU drivers, where barriers are slow and there is only one bucket.
layout(constant_id = 4) const uint SCAN = 0;

layout(push_constant) uniform Push {
    tsr_embedding_params p;
};

const uint CHUNK = SCAN > 0u ? SCAN * WORKGROUP : 32u; // a multiple of 32
shared uint positions[CHUNK];    // rows of the table
shared uint ours[CHUNK / 32u]; // a bit for each index: whether it is in the bucket

// The row of the table for row `row` of y. It is at least p.here if there is none.
uint position_of(uint row)
{
    // Differences that wrap are larger than any number of rows.
    return tsr_load_index(p.indices, row, p.indices_stride, p.index_bytes) - p.first;
}

bool is_ours(uint position)
{
    return position < p.here && (position & p.buckets - 1u) == gl_WorkGroupID.y;
}

void add(uint position, uint row, uint j)
{
    uvec2 table = tsr_at_stride(p.table, position, p.table_stride);
    uvec2 y = tsr_at_stride(p.y, row, p.y_stride);
    precise vec4 value = tsr_load_row4(table, p.table_step, j, p.width, TABLE_DTYPE, FORM, 0.0) +
                         tsr_load_row4(y, p.y_step, j, p.width, Y_DTYPE, FORM, 0.0);
    tsr_store_row4(table, p.table_step, j, p.width, TABLE_DTYPE, FORM, value);
}

void scan(uint begin)
{
    uint self = gl_LocalInvocationID.x;
    for (uint w = self; w < CHUNK / 32u; w += WORKGROUP)
        ours[w] = 0u;
    barrier();
    for (uint s = 0u; s < SCAN; s++) {
        uint at = s * WORKGROUP + self;
        if (begin + at < p.rows) {
            positions[at] = position_of(begin + at);
            if (is_ours(positions[at]))
                atomicOr(ours[at / 32u], 1u << (at % 32u));
        }
    }
    barrier();
}

void main()
{
    uint j = 4u * gl_GlobalInvocationID.x;
    if (SCAN == 0u) {
        for (uint row = 0u; j < p.width && row < p.rows; row++) {
            uint position = position_of(row);
            if (is_ours(position))
                add(position, row, j);
        }
        return;
    }
    for (uint begin = 0u; begin < p.rows; begin += CHUNK) {
        scan(begin);
        for (uint w = 0u; w < CHUNK / 32u; w++)
            for (uint bits = j < p.width ? ours[w] : 0u; bits != 0u; bits &= bits - 1u) {
                uint at = 32u * w + findLSB(bits);
                add(positions[at], begin + at, j);
            }
        barrier(); // before the next scan overwrites what others still read
    }
}
