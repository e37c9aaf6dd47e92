// Narrows lines of quantised blocks; see include/matmul_narrow.glsl and include/quant.glsl. An
// invocation converts one unit of a block at a time.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "include/quant.glsl"
#include "include/matmul_narrow.glsl"

void main()
{
    uint number = tsr_flat_group();
    if (number >= p.lines)
        return;
    uvec2 x = tsr_at_stride(p.x, number, p.x_line), y = line_at(number);
    const uint units = p.k / QUANT_COUNT * QUANT_UNITS;
    uint most = 0;
    for (uint i = gl_LocalInvocationIndex; i < units; i += THREADS) {
        uvec2 block = tsr_at_mul(x, i / QUANT_UNITS, QUANT_BYTES);
        uint low = quant_low(block, i % QUANT_UNITS);
        [[unroll]] for (uint part = 0; part < QUANT_PARTS; part++)
            most = max(most, largest(quant_values(block, i % QUANT_UNITS, low, part)));
    }
    int shift = shift_of(largest_of_line(most));
    store_scale(y, shift);
    for (uint i = gl_LocalInvocationIndex; i < units; i += THREADS) {
        uvec2 block = tsr_at_mul(x, i / QUANT_UNITS, QUANT_BYTES);
        uint low = quant_low(block, i % QUANT_UNITS);
        [[unroll]] for (uint part = 0; part < QUANT_PARTS; part++)
            store_terms(y, i / QUANT_UNITS * QUANT_COUNT + quant_element(i % QUANT_UNITS, part),
                        quant_values(block, i % QUANT_UNITS, low, part), power_of_two(shift));
    }
}
