// The second of three kernels for layer and RMS normalisation of long rows on Mesa's CPU driver. An
// invocation computes the statistics of one row from those of its chunks (params/norm_chunks.h).
#version 450
#extension GL_GOOGLE_include_directive : require
#include "include/tessera.glsl"
#include "params/norm_chunks.h"

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint WORKGROUP = 64;
layout(constant_id = 1) const uint OUTPUT = TSR_NORM_STATS; // or TSR_NORM_GRADIENT

layout(push_constant) uniform Push {
    tsr_norm_rows_push p;
};

vec4 chunk_stats(uvec2 chunks, uint i, uint which)
{
    return tsr_floats4(chunks).v[2u * i + which];
}

float elements_of(uint i)
{
    return float(min(p.chunk, p.count - i * p.chunk));
}

void main()
{
    uint row = tsr_flat_invocation();
    if (row >= p.rows)
        return;
    uvec2 chunks = tsr_at_mul(p.chunks, row * p.across, TSR_NORM_CHUNK_BYTES);
    float each = 1.0 / float(p.count);

    // The mean is computed as a difference from the first chunk's mean, and then split into two
    // floats. The second is the rounding error of the first.
    float start = chunk_stats(chunks, 0u, 0u).x;
    precise float offset = 0.0;
    for (uint i = 0u; i < p.across; i++) {
        vec4 chunk = chunk_stats(chunks, i, 0u);
        offset += (chunk.x - start) * elements_of(i) + chunk.y;
    }
    offset *= each;
    precise float mean = start + offset, lost = offset - (mean - start);

    // The sums of a chunk are about its own mean m. If m decreases by d, Σ(x − m)² increases by
    // 2d·Σ(x − m) + n·d².
    precise float squares = 0.0, incoming = 0.0, products = 0.0;
    for (uint i = 0u; i < p.across; i++) {
        vec4 chunk = chunk_stats(chunks, i, 0u);
        precise float d = (chunk.x - mean) - lost;
        squares += chunk.z + d * (2.0 * chunk.y + d * elements_of(i));
        if (OUTPUT == TSR_NORM_GRADIENT) {
            vec4 gradient = chunk_stats(chunks, i, 1u);
            incoming += gradient.x;
            products += gradient.y + d * gradient.x;
        }
    }
    float variance = squares * each;
    float factor = 1.0 / sqrt((variance < 0.0 ? 0.0 : variance) + p.epsilon);
    tsr_floats4(tsr_at_mul(p.stats, row, TSR_NORM_STATS_BYTES)).v[0] = vec4(factor, mean, lost, 0.0);
    if (OUTPUT == TSR_NORM_GRADIENT) {
        uvec2 slopes = tsr_at_mul(p.slopes, row, TSR_NORM_SLOPES_BYTES);
        tsr_floats(slopes).v[0] = incoming * each;
        tsr_floats(slopes).v[1] = products * factor * each;
    }
}
