// What grouped products share: loads of rows, and of four elements of a weight along k.
#ifndef TSR_GROUPED_GLSL
#define TSR_GROUPED_GLSL

#include "include/quant.glsl"
#include "include/rows.glsl"
#include "params/grouped.h"

// Elements k … k + 3 of a row of floats that starts at `row`, of which there are `count`. Those
// past the end are 0. `aligned` is a constant: rows and `count` are multiples of 4 elements.
vec4 grouped_row4(uvec2 row, uint k, uint count, uint dtype, bool aligned)
{
    if (aligned) {
        vec4 value = tsr_load_aligned4(tsr_at(row, min(k, count - 4u) * tsr_dtype_bytes(dtype)), dtype);
        return mix(vec4(0.0), value, bvec4(k < count));
    }
    vec4 value;
    [[unroll]] for (uint i = 0u; i < 4u; i++)
        value[i] = mix(0.0, tsr_load_float(row, min(k + i, count - 1u), dtype), k + i < count);
    return value;
}

// Elements k … k + 3 of a row of blocks. Rows consist of whole blocks, and k is a multiple of 4.
vec4 grouped_blocks4(uvec2 row, uint k, uint count)
{
    uint at = min(k, count - 4u);
    uvec2 block = tsr_at_mul(row, at / QUANT_COUNT, QUANT_BYTES);
    uint element = at % QUANT_COUNT;
    uint run = element / QUANT_LOW_RUN, part = run % QUANT_PARTS;
    uint unit = (run / QUANT_PARTS * QUANT_LOW_RUN + element % QUANT_LOW_RUN) / 4u;
    vec2 scale = quant_scale(block, element / QUANT_SUB);
    vec4 value = scale.x * quant_levels(block, unit, quant_low(block, unit), part) + scale.y;
    return mix(vec4(0.0), value, bvec4(k < count));
}

#endif
