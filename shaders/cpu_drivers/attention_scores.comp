// Forward attention scores on Mesa's CPU driver, for one block of keys. Replaces products q·k by
// probabilities p relative to all keys so far, and scales the result of earlier blocks accordingly.
// All loads precede all stores: a store is in a branch, and after a branch the driver loads lane by
// lane (lavapipe.glsl). It is compiled with -O0, which leaves its loops for the driver to unroll
// (see matmul_lavapipe_nt.glsl).
#version 450
#extension GL_GOOGLE_include_directive : require
#include "cpu_drivers/lavapipe_extensions.glsl"
#include "params/vectors.h"
#include "params/attention_scores.h"

layout(push_constant, std430) uniform tsr_push
{
    tsr_attention_scores_push p;
};

#define TSR_IDENTITY_BITS 3
#include "include/float16.glsl"
#include "cpu_drivers/lavapipe.glsl"

layout(constant_id = 0) const uint WORKGROUP = 64;
layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint LANES = 8;
layout(constant_id = 2) const uint UNITS = 8;   // units (attention_scores.glsl) in a row of scores
layout(constant_id = 3) const uint KEYS = 512;  // elements from one row of scores to the next
layout(constant_id = 4) const uint COLUMNS = TSR_SCORES_ALL;
layout(constant_id = 5) const uint CAPPED = 0;
layout(constant_id = 6) const uint MASKED = 0;
// units in a row of y; 0: in the first block of keys, which does not use y
layout(constant_id = 7) const uint Y_UNITS = 0;
layout(constant_id = 8) const uint Y_COLUMNS = 64; // elements from one row of y to the next
layout(constant_id = 9) const uint LENGTHS = 0;    // 1: sequences have lengths of their own
// 1: in the first block of keys, `state` has the rows' sinks and their sums, 1
layout(constant_id = 10) const uint SINKS = 0;
// the bits of the temperature (tessera/attention.h), or 0, and its length
layout(constant_id = 11) const uint TEMPERATURE = 0;
layout(constant_id = 12) const uint TEMPERATURE_LENGTH = 1;
layout(constant_id = 13) const uint STARTS = 0; // 1: queries have first keys of their own

#include "cpu_drivers/attention_scores.glsl"

void main()
{
    scores_row r = scores_row_of();
    const float scale = scores_scale(r);
    uint64_t s_at = p.scores + r.number * (KEYS * 4), mask_at = p.mask + r.number * (KEYS * 4);
    uint64_t state_at = p.state + r.number * 8, y_at = p.y + r.number * (Y_COLUMNS * 4);
    float largest = MINUS_INFINITY, earlier = MINUS_INFINITY;
    precise float sum = 0.0, earlier_sum = 0.0;

    vec2 s[UNITS], y[Y_UNITS + 1];
    [[unroll]] for (uint i = 0; i < UNITS; i++) {
        s[i] = LOAD_UNIT(s_at, i) * scale;
        if (CAPPED != 0)
            s[i] = p.softcap * vec2(attention_tanh(s[i].x / p.softcap).x, attention_tanh(s[i].y / p.softcap).x);
        if (MASKED != 0)
            s[i] += LOAD_UNIT(mask_at, i);
        if (COLUMNS != TSR_SCORES_ALL)
            s[i] = mix(vec2(MINUS_INFINITY), s[i], scores_seen(r, i));
        largest = max(largest, max(s[i].x, s[i].y));
    }
    if (Y_UNITS != 0 || SINKS != 0) {
        earlier = Float(state_at).v;
        earlier_sum = Float(state_at + 4).v;
        [[unroll]] for (uint i = 0; i < Y_UNITS; i++)
            y[i] = LOAD_UNIT(y_at, i);
    }
    [[unroll]] for (uint distance = LANES / 2; distance > 0; distance /= 2)
        largest = max(largest, subgroupShuffleXor(largest, distance));
    largest = max(largest, earlier);
    float shift = mix(largest, 0.0, largest == MINUS_INFINITY); // avoids -inf − -inf
    [[unroll]] for (uint i = 0; i < UNITS; i++) {
        precise vec2 difference = s[i] - shift;
        s[i] = vec2(tsr_exp_down(difference.x), tsr_exp_down(difference.y));
        sum += s[i].x + s[i].y;
    }
    LANE_SUM(sum);
    float kept = earlier_sum * tsr_exp_down(earlier - shift);
    sum += kept;
    float factor = mix(1.0 / sum, 0.0, sum == 0.0);
    float lse = mix(shift + tsr_log(sum), MINUS_INFINITY, sum == 0.0);

    uvec2 pinned = uvec2(0);
    [[unroll]] for (uint i = 0; i < UNITS; i++) {
        s[i] *= factor;
        pinned ^= floatBitsToUint(s[i]);
    }
    [[unroll]] for (uint i = 0; i < Y_UNITS; i++) {
        y[i] *= kept * factor;
        pinned ^= floatBitsToUint(y[i]);
    }
    // This is a second use of all values, which is never executed. It keeps LLVM from moving the
    // arithmetic into each lane's store; see PIN() in matmul_lavapipe.glsl.
    if (p.identity[0] != 0)
        Word2(p.scores).v = pinned ^ uvec2(floatBitsToUint(lse));
    // Values that are computed from push constants must precede the first branch; see
    // lavapipe.glsl.
    uint lowest = mix(LANES, 0, r.own);
    uint64_t lse_at = scores_lse(r);
    [[unroll]] for (uint i = 0; i < UNITS; i++)
        STORE_UNIT(s_at, i, s[i]);
    [[unroll]] for (uint i = 0; i < Y_UNITS; i++)
        STORE_UNIT(y_at, i, y[i]);
    if (gl_SubgroupInvocationID == lowest) {
        Float(state_at).v = largest;
        Float(state_at + 4).v = sum;
        Float(lse_at).v = lse;
    }
}
