// Copies the keys or values of attention to one place, as f32, on Mesa's CPU driver: from the pages
// of a cache, or from a tensor of sequences of different lengths. Rows after a sequence's last key
// become 0, so that products with them are 0, whatever the memory contains. A subgroup copies one
// row. DTYPE may be q8_0 or q4_0, whose rows cached_blocks.glsl describes. It is compiled with -O0, which leaves its loops for the driver to unroll (see
// matmul_lavapipe_nt.glsl).
#version 450
#extension GL_GOOGLE_include_directive : require
#include "cpu_drivers/lavapipe_extensions.glsl"
#include "params/vectors.h"
#include "params/attention_gather.h"

layout(push_constant, std430) uniform tsr_push
{
    tsr_attention_gather_push p;
};

#define TSR_IDENTITY_BITS 3
#include "include/float16.glsl"
#include "cpu_drivers/lavapipe.glsl"

layout(constant_id = 0) const uint WORKGROUP = 64;
layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint LANES = 8;
layout(constant_id = 2) const uint COLUMNS = 64;     // elements in a row
layout(constant_id = 3) const uint LINE = 64;        // elements from one row of the copy to the next
layout(constant_id = 4) const uint DTYPE = TSR_DT_F32;
layout(constant_id = 5) const uint FORM = 8;         // the alignment of loads, in bytes
layout(constant_id = 6) const uint GIVEN = 0;        // TSR_GATHER_…
layout(constant_id = 7) const uint PAGE_BITS = 32;   // the number of bits of the largest page number

const uint GROUP = 2;
const bool EXACT = false;
const uint UNIT = LANES * GROUP;

#include "cpu_drivers/vector_floats.glsl"

// Returns `value`, which is the same in all lanes, in a form in which the compiler can tell this.
uint shared_by_lanes(uint value)
{
    uint known = 0;
    [[unroll]] for (uint digit = 0; digit < PAGE_BITS; digit += TSR_IDENTITY_BITS)
        known |= p.identity[p.identity[value >> digit & 7]] << digit;
    return known;
}

uint half_at(uint64_t at)
{
    return Word(at & ~uint64_t(3)).v >> (uint(at) & 2) * 8 & 0xffff;
}

// Elements `element` and `element` + 1 of a row of blocks.
vec2 load_blocks2(uint64_t row, uint element)
{
    const bool bytes = DTYPE == TSR_DT_Q8_0;
    uint in_block = element % 32;
    uint64_t block = row + element / 32 * (bytes ? 34 : 18);
    uint pair = half_at(block + 2 + (bytes ? in_block : in_block % 16));
    ivec2 levels = bytes ? ivec2(int(pair << 24) >> 24, int(pair << 16) >> 24)
                         : ivec2(uvec2(pair, pair >> 8) >> in_block / 16 * 4 & 15) - 8;
    return tsr_f32_from_f16(half_at(block)) * vec2(levels);
}

int length_of(uint64_t at, uint most)
{
    return clamp(int(Word(at).v), 0, int(most));
}

void main()
{
    uint number = uniform_index(gl_WorkGroupID.x) * (WORKGROUP / LANES) + p.identity[p.identity[gl_SubgroupID]];
    uint head = uniform_index(gl_WorkGroupID.y), sequence = uniform_index(gl_WorkGroupID.z);
    bool own = number < p.kv_len;
    uint key = min(number, p.kv_len - 1);

    int queries = int(p.q_len), keys = int(p.kv_len);
    if ((GIVEN & TSR_GATHER_Q_LENGTHS) != 0)
        queries = length_of(p.q_lengths + sequence * 4, p.q_len);
    if ((GIVEN & TSR_GATHER_KV_LENGTHS) != 0)
        keys = length_of(p.kv_lengths + sequence * 4, p.kv_len);
    bool used = int(key) < keys;

    uint outer = sequence, row = key;
    if ((GIVEN & TSR_GATHER_PAGES) != 0) {
        uint high, low;
        umulExtended(key, p.page_magic, high, low);
        uint entry = high + key >> p.page_shift;
        row = key - entry * p.page_len;
        int page = int(Word(p.pages + uint64_t(sequence) * p.pages_stride + entry * 4).v);
        outer = shared_by_lanes(uint(clamp(page, 0, int(p.page_count) - 1)));
    }
    uint64_t from = p.from + uint64_t(outer) * p.outer_stride + uint64_t(head) * p.head_stride + uint64_t(row) * p.row_stride;

    // A unit of a row is GROUP neighbouring elements per lane. The last unit ends with the row, so
    // that it may overlap the unit before it.
    const uint UNITS = (COLUMNS + UNIT - 1) / UNIT;
    const uint LAST = COLUMNS - UNIT;
    vec2 x[UNITS];
    uvec2 pinned = uvec2(0);
    [[unroll]] for (uint i = 0; i < UNITS; i++) {
        if (DTYPE == TSR_DT_Q8_0 || DTYPE == TSR_DT_Q4_0) // rows are multiples of UNIT
            x[i] = load_blocks2(from, i * UNIT + gl_SubgroupInvocationID * GROUP);
        else
            x[i] = LOAD_OPERAND(from + min(i * UNIT, LAST) * BYTES_OF(DTYPE), DTYPE, FORM).xy;
        x[i] = mix(vec2(0.0), x[i], bvec2(used));
        pinned ^= floatBitsToUint(x[i]);
    }
    // This is a second use of all values, which is never executed. It keeps LLVM from moving the
    // arithmetic into each lane's store; see PIN() in matmul_lavapipe.glsl.
    if (p.identity[0] != 0)
        Word2(p.to).v = pinned;

    uint lane = gl_SubgroupInvocationID;
    uint lowest = mix(LANES, 0, own);
    uint64_t to = p.to + (uint64_t(sequence * p.heads + head) * p.kv_len + key) * (LINE * 4);
    [[unroll]] for (uint i = 0; i < UNITS; i++)
        if (lane >= lowest)
            STORE_LANE_VECTORS(to + (min(i * UNIT, LAST) + lane * GROUP) * 4, (LAST % 2 == 0 ? 8 : 4), floatBitsToUint(x[i]));
    if (p.lengths != 0 && number == 0 && head == 0 && lane == 0)
        store_words(p.lengths + sequence * 8, uvec2(queries, keys));
}
