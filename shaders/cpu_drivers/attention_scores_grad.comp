// Backward attention scores on Mesa's CPU driver, for one block of keys. Replaces products q·k by
// probabilities p, and products dy·v by the gradients ds of q·k. All loads precede all stores: a
// store is in a branch, and after a branch the driver loads lane by lane (lavapipe.glsl). It is
// compiled with -O0, which leaves its loops for the driver to unroll (see matmul_lavapipe_nt.glsl).
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
layout(constant_id = 2) const uint UNITS = 8;  // units in a row of scores
layout(constant_id = 3) const uint KEYS = 512; // elements from one row of scores to the next
layout(constant_id = 4) const uint COLUMNS = TSR_SCORES_ALL;
layout(constant_id = 5) const uint CAPPED = 0;
layout(constant_id = 6) const uint MASKED = 0;
layout(constant_id = 7) const uint FUNCTION = TSR_SCORES_ALONE;
// the bits of the temperature (tessera/attention.h), or 0, and its length
layout(constant_id = 11) const uint TEMPERATURE = 0;
layout(constant_id = 12) const uint TEMPERATURE_LENGTH = 1;
layout(constant_id = 13) const uint STARTS = 0; // 1: queries have first keys of their own

const bool DELTA_ONLY = FUNCTION == TSR_SCORES_DELTA_FIRST || FUNCTION == TSR_SCORES_DELTA_MORE;
const bool SUM = FUNCTION != TSR_SCORES_GRADIENT; // true: computes Σ p·dp

const uint LENGTHS = 0;

#include "cpu_drivers/attention_scores.glsl"

void main()
{
    scores_row r = scores_row_of();
    const float scale = scores_scale(r);
    uint64_t s_at = p.scores + r.number * (KEYS * 4), mask_at = p.mask + r.number * (KEYS * 4);
    uint64_t g_at = p.gradient + r.number * (KEYS * 4), state_at = p.state + r.number * 4;
    float lse = Float(scores_lse(r)).v;
    float shift = mix(lse, 0.0, lse == MINUS_INFINITY);
    precise float sum = 0.0;

    vec2 s[UNITS], g[UNITS], slope[UNITS];
    [[unroll]] for (uint i = 0; i < UNITS; i++) {
        s[i] = LOAD_UNIT(s_at, i) * scale;
        slope[i] = vec2(scale);
        if (CAPPED != 0) {
            vec2 x = attention_tanh(s[i].x / p.softcap), y = attention_tanh(s[i].y / p.softcap);
            s[i] = p.softcap * vec2(x.x, y.x);
            slope[i] *= vec2(x.y, y.y);
        }
        if (MASKED != 0)
            s[i] += LOAD_UNIT(mask_at, i);
        precise vec2 difference = s[i] - shift;
        s[i] = vec2(tsr_exp_down(difference.x), tsr_exp_down(difference.y));
        if (COLUMNS != TSR_SCORES_ALL)
            s[i] = mix(vec2(0.0), s[i], scores_seen(r, i));
        s[i] = mix(s[i], vec2(0.0), bvec2(lse == MINUS_INFINITY));
        g[i] = LOAD_UNIT(g_at, i);
        if (COLUMNS != TSR_SCORES_ALL) // products beyond the keys are undefined
            g[i] = mix(vec2(0.0), g[i], scores_seen(r, i));
        if (SUM)
            sum += s[i].x * g[i].x + s[i].y * g[i].y;
    }
    float delta = 0.0;
    if (FUNCTION == TSR_SCORES_GRADIENT || FUNCTION == TSR_SCORES_DELTA_MORE)
        delta = Float(state_at).v;
    if (SUM) {
        LANE_SUM(sum);
        delta += sum;
    }

    uvec2 pinned = uvec2(floatBitsToUint(delta));
    if (!DELTA_ONLY) {
        [[unroll]] for (uint i = 0; i < UNITS; i++) {
            g[i] = s[i] * (g[i] - delta) * slope[i];
            pinned ^= floatBitsToUint(s[i]) ^ floatBitsToUint(g[i]);
        }
    }
    // This is a second use of all values, which is never executed. It keeps LLVM from moving the
    // arithmetic into each lane's store; see PIN() in matmul_lavapipe.glsl.
    if (p.identity[0] != 0)
        Word2(p.scores).v = pinned;
    // Values that are computed from push constants must precede the first branch; see
    // lavapipe.glsl.
    uint lowest = mix(LANES, 0, r.own);
    if (!DELTA_ONLY) {
        [[unroll]] for (uint i = 0; i < UNITS; i++)
            STORE_UNIT(s_at, i, s[i]);
        [[unroll]] for (uint i = 0; i < UNITS; i++)
            STORE_UNIT(g_at, i, g[i]);
    }
    if (DELTA_ONLY)
        if (gl_SubgroupInvocationID == lowest)
            Float(state_at).v = delta;
}
