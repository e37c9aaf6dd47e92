// What the kernels of the causal convolution share. The including file declares the push constants
// `p`, WORKGROUP, TAPS, X_DTYPE and SLOTS.
#include "include/rows.glsl"
#include "include/slots.glsl"
#include "params/causal_conv.h"

// The number of tokens of row b that count.
uint conv_length(uint b)
{
    return (p.lengths.x | p.lengths.y) == 0u ? p.tokens
                                             : uint(clamp(int(tsr_words(p.lengths).v[b]), 0, int(p.tokens)));
}

// The first token that token t of row b sees: −TAPS, which is before the oldest in the state, or, in
// packed rows, the first one of its document if that is not before the row.
int conv_first(uint b, uint t)
{
    return (p.starts.x | p.starts.y) == 0u ? -int(TAPS)
                                           : clamp(int(tsr_words(p.starts).v[b * p.tokens + t]), -int(TAPS), int(t));
}

// Input t of row b, where slot `slot` of the state has the inputs before 0.
float conv_input(uint b, uint slot, int t, uint c)
{
    if (t >= 0)
        return tsr_load_float(tsr_at_mul(p.x, b * p.tokens + uint(t), p.x_stride * tsr_dtype_bytes(X_DTYPE)), c, X_DTYPE);
    if ((p.state.x | p.state.y) == 0u || (TSR_READS_SLOTS && slot == TSR_NO_SLOT))
        return 0.0;
    return tsr_floats(tsr_at_mul(p.state, slot * p.channels + c, (TAPS - 1u) * 4u)).v[uint(t + int(TAPS) - 1)];
}
