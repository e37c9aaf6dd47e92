// Copies rows of a table by their indices, on Mesa's CPU driver. Both matrices have contiguous rows
// and the same dtype, so that the kernel only moves bits. A subgroup copies a block of one row,
// UNITS vectors per lane, like vectors.comp. All its lanes have the same index, so that loads from
// the table are uniform. It is compiled with -O0, which leaves its loops for the driver to unroll
// (see matmul_lavapipe_nt.glsl).
#version 450
#extension GL_GOOGLE_include_directive : require
#include "cpu_drivers/lavapipe_extensions.glsl"
#include "params/embedding_vectors.h"

layout(push_constant, std430) uniform tsr_push
{
    tsr_embedding_vectors_push p;
};

#include "cpu_drivers/lavapipe.glsl"
#include "params/vectors.h"

layout(constant_id = 0) const uint WORKGROUP = 128;
layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint LANES = 8;
layout(constant_id = 2) const uint UNITS = 8;
layout(constant_id = 3) const uint TABLE_FORM = 8;
layout(constant_id = 4) const uint Y_FORM = 8;
layout(constant_id = 5) const uint INDEX_BYTES = 4;
// The number of bits of the largest index into this part of the table, rounded up to a multiple of
// 4, because each look-up in p.identity takes 4 bits.
layout(constant_id = 6) const uint INDEX_BITS = 32;

#include "cpu_drivers/vectors.glsl"

const uint BLOCK = UNITS * LANES; // vectors in a block
const uint NONE = 0xffffffffu;

// Loads an index. The result is NONE if the index does not fit 32 bits. Negative indices become
// larger than any size.
uint load_index(uint64_t at)
{
    if (INDEX_BYTES == 8) {
        uvec2 words = words_of(Word64(at).v);
        return words.y == 0 ? words.x : NONE;
    }
    uint word = Word(at & ~uint64_t(3)).v;
    return INDEX_BYTES == 4 ? word : word >> (uint(at) & 3) * 8 & 0xff;
}

void main()
{
    uint number = uniform_index(gl_WorkGroupID.x) * (WORKGROUP / LANES) + p.identity[p.identity[gl_SubgroupID]];
    uint block = min(number, p.across * p.rows - 1);
    uint high, low;
    umulExtended(block, p.magic, high, low);
    uint row = high + block >> p.shift;
    uint start = (block - row * p.across) * BLOCK;
    uint first = min(start, p.vectors - BLOCK);
    uint own = start - first; // the first `own` vectors are also in the block before this one, which stores them

    uint index = load_index(p.indices + uint64_t(row) * p.indices_stride) - p.first;
    bool here = index < p.here;
    // `known` equals `index`. Its form lets the compiler see that all lanes have the same value.
    uint known = 0;
    [[unroll]] for (uint digit = 0; digit < INDEX_BITS; digit += 4)
        known |= p.identity[p.identity[index >> digit & 15]] << digit;
    uint64_t table = p.table + uint64_t(min(known, p.here - 1)) * p.table_stride + uint64_t(first) * TSR_VECTOR_BYTES;

    uvec2 y[UNITS];
    [[unroll]] for (uint i = 0; i < UNITS; i++)
        y[i] = mix(uvec2(0), words_of(LOAD_LANE_VECTORS(table + i * LANES * TSR_VECTOR_BYTES, TSR_VECTOR_BYTES, TABLE_FORM)),
                   bvec2(here));

    // This is a second use of all values, which is never executed. It keeps LLVM from moving the
    // arithmetic into each lane's store; see PIN() in matmul_lavapipe.glsl.
    if (p.identity[0] != 0) {
        uvec2 pinned = uvec2(0);
        [[unroll]] for (uint i = 0; i < UNITS; i++)
            pinned ^= y[i];
        Word2(p.y).v = pinned;
    }

    uint lane = gl_SubgroupInvocationID;
    uint64_t y_at = p.y + uint64_t(row) * p.y_stride + uint64_t(first + lane) * TSR_VECTOR_BYTES;
    uint lowest = mix(own, NONE, number >= p.across * p.rows);
    [[unroll]] for (uint i = 0; i < UNITS; i++)
        if (i * LANES + lane >= lowest)
            STORE_LANE_VECTORS(y_at + i * LANES * TSR_VECTOR_BYTES, Y_FORM, y[i]);
}
