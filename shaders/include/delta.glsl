// What the kernels of the gated delta rule in chunks share. The including file declares the push constants `p`, which have `work`.
//
// Within a chunk, G[t] is the sum of g from its first token to t. With r[t] the place of the first token of t's document in the chunk:
//
//     decay(t, s)   e^(G[t] − G[s]), or 0 if s < r[t]: how much of what s adds to the state reaches t
//     carry[t]      e^G[t], or 0 if the document begins in the chunk: how much of the state before the chunk reaches t
//     out[s]        decay(last, s), where `last` is the chunk's last token that counts
//
// A row of `decay` has G, carry, out, beta; r, carry[last], which is 1 if no token counts, 1 if the token counts, and room for −beta · carry
// (delta_triangle.comp). Tokens that do not count have beta, carry and out 0.
#include "include/tessera.glsl"
#include "params/delta.h"

layout(constant_id = 1) const uint HEADS = 1;
layout(constant_id = 2) const uint KEY_HEADS = 1;
layout(constant_id = 3) const uint KEY_DIM = 16;
layout(constant_id = 4) const uint VALUE_DIM = 16;
layout(constant_id = 5) const uint TILED = 0;

const uint CHUNK = TSR_DELTA_CHUNK;

uint delta_key_head(uint head)
{
    return TILED != 0u ? head % KEY_HEADS : head / (HEADS / KEY_HEADS);
}

// The value head number n of a key head.
uint delta_value_head(uint key_head, uint n)
{
    return TILED != 0u ? n * KEY_HEADS + key_head : key_head * (HEADS / KEY_HEADS) + n;
}

// Row `row` of a scratch array whose rows have `dim` floats.
uvec2 delta_row(uvec2 work, uint place, uint row, uint dim)
{
    return tsr_at_mul(tsr_at_mul(work, place, TSR_DELTA_UNIT), row, dim * 4u);
}
