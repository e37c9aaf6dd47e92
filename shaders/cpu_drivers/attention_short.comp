// Attention over a few keys on Mesa's CPU driver, forward and backward, in f32. Each lane has one
// query, or one key, and combines it with all of the OTHERS keys or queries of its head, whose
// elements are scalar loads. Scores stay in registers and on the stack, so that one dispatch does
// what otherwise takes products of each head, transposes and a kernel between them. It is compiled
// with -O0, which leaves its loops for the driver to unroll (see matmul_lavapipe_nt.glsl).
#version 450
#extension GL_GOOGLE_include_directive : require
#include "cpu_drivers/lavapipe_extensions.glsl"
#include "params/attention_short.h"

layout(push_constant, std430) uniform tsr_push
{
    tsr_attention_short_push p;
};

// Volatile loads compile faster (see matmul_lavapipe.glsl). They are never merged, but no load
// occurs twice in a result.
#define TSR_MEMORY volatile
#define TSR_IDENTITY_BITS 3
#include "include/float16.glsl"
#include "cpu_drivers/lavapipe.glsl"
#include "include/exp_log.glsl"

layout(constant_id = 0) const uint WORKGROUP = 64;
layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint LANES = 8;
layout(constant_id = 2) const uint OTHERS = 64; // a multiple of GROUP
layout(constant_id = 3) const uint QUADS = 8;   // head_dim / 4, an even number
layout(constant_id = 4) const uint FUNCTION = TSR_SHORT_Y;
layout(constant_id = 5) const uint CAUSAL = 0;
layout(constant_id = 6) const int POSITION = 0; // the position of the first query: kv_len − q_len
// Bytes from one row to the next: of q, k and v; of y and dy; of dq, dk and dv.
layout(constant_id = 7) const uint X_ROW = 128;
layout(constant_id = 8) const uint Y_ROW = 128;
layout(constant_id = 9) const uint DX_ROW = 128;
layout(constant_id = 10) const uint ROWS = 64; // the number of rows of each head that lanes have

const uint GROUP = 8; // scores that are computed at a time, in as many registers
const bool FORWARD = FUNCTION == TSR_SHORT_Y;
const bool KEYS = FUNCTION == TSR_SHORT_DK_DV; // lanes have keys
const uint OWN_Y_ROW = KEYS ? X_ROW : Y_ROW;
const uint OTHER_Y_ROW = KEYS ? Y_ROW : X_ROW;
const uint RESULT_ROW = FORWARD ? Y_ROW : DX_ROW;
#define MINUS_INFINITY uintBitsToFloat(0xff800000u)

// to[j] = own row · other row j, for all other rows.
#define DOT(to, own_row, at, row_bytes)                                                            \
    [[unroll]] for (uint j = 0; j < OTHERS; j += GROUP) {                                          \
        [[unroll]] for (uint g = 0; g < GROUP; g++) to[j + g] = 0.0;                               \
        [[unroll]] for (uint c = 0; c < QUADS; c++) {                                              \
            [[unroll]] for (uint g = 0; g < GROUP; g++) {                                          \
                vec4 other = Float4((at) + ((j + g) * (row_bytes) + 16 * c)).v;                    \
                to[j + g] += own_row[c].x * other.x;                                               \
                to[j + g] += own_row[c].y * other.y;                                               \
                to[j + g] += own_row[c].z * other.z;                                               \
                to[j + g] += own_row[c].w * other.w;                                               \
            }                                                                                      \
        }                                                                                          \
    }

// to[c] = Σ factor[j] · other row j, eight columns at a time.
#define WEIGH(to, factor, at, row_bytes)                                                           \
    [[unroll]] for (uint c = 0; c < QUADS; c += 2) {                                               \
        to[c] = vec4(0.0);                                                                         \
        to[c + 1] = vec4(0.0);                                                                     \
        [[unroll]] for (uint j = 0; j < OTHERS; j++) {                                             \
            to[c] += factor[j] * Float4((at) + (j * (row_bytes) + 16 * c)).v;                      \
            to[c + 1] += factor[j] * Float4((at) + (j * (row_bytes) + 16 * c + 16)).v;             \
        }                                                                                          \
    }

// The driver runs a workgroup's subgroups one after the other, each up to the next barrier. The code
// between two barriers, 30 to 45 KB, stays in the processor's first cache for instructions while all
// subgroups run it. All of a kernel's code, up to 180 KB, does not.
#define PHASE_ENDS barrier();

void main()
{
    bool own;
    uint row0 = lavapipe_tile(gl_WorkGroupID.x, WORKGROUP / LANES, (ROWS + LANES - 1) / LANES, own) * LANES;
    uint head = uniform_index(gl_WorkGroupID.y), batch = uniform_index(gl_WorkGroupID.z);
    uint lane = gl_SubgroupInvocationID;
    own = own && row0 + lane < ROWS;
    uint64_t x_at = uint64_t(batch) * p.x_batch + uint64_t(head) * p.x_head;
    uint64_t y_at = uint64_t(batch) * p.y_batch + uint64_t(head) * p.y_head;
    uint64_t dx_at = uint64_t(batch) * p.dx_batch + uint64_t(head) * p.dx_head;
    uint64_t state_at = 4 * uint64_t((batch * p.heads + head) * (KEYS ? OTHERS : ROWS));
    uint64_t other_x = p.other_x + x_at, other_y = p.other_y + (KEYS ? y_at : x_at);

    // Rows past the last one repeat it.
    vec4 x[QUADS], y[QUADS];
    float lse = 0.0;
    [[unroll]] for (uint e = 0; e < LANES; e++) {
        uint64_t row = min(row0 + e, ROWS - 1);
        uint64_t own_x = p.own_x + x_at + row * X_ROW, own_y = p.own_y + (KEYS ? x_at : y_at) + row * OWN_Y_ROW;
        [[unroll]] for (uint c = 0; c < QUADS; c++) {
            x[c] = mix(e == 0 ? vec4(0.0) : x[c], Float4(own_x + 16 * c).v, bvec4(lane == e));
            if (!FORWARD)
                y[c] = mix(e == 0 ? vec4(0.0) : y[c], Float4(own_y + 16 * c).v, bvec4(lane == e));
        }
        if (FUNCTION == TSR_SHORT_DQ)
            lse = mix(lse, Float(p.lse + state_at + 4 * row).v, lane == e);
    }

    float s[OTHERS], dp[OTHERS];
    int first_seen = int(row0 + lane) - POSITION; // with KEYS, the first query that sees the key
    int seen = int(row0 + lane) + POSITION;       // without KEYS, the last key that the query sees
    float largest = MINUS_INFINITY, delta = 0.0;
    precise float sum = 0.0;
    vec4 result[QUADS], result_v[QUADS];

    DOT(s, x, other_x, X_ROW)
    PHASE_ENDS
    if (FORWARD) {
        [[unroll]] for (uint j = 0; j < OTHERS; j++) {
            s[j] *= p.scale;
            if (CAUSAL != 0)
                s[j] = mix(MINUS_INFINITY, s[j], int(j) <= seen);
            largest = max(largest, s[j]);
        }
        float shift = mix(largest, 0.0, largest == MINUS_INFINITY); // avoids -inf − -inf
        [[unroll]] for (uint j = 0; j < OTHERS; j++) {
            s[j] = tsr_exp_down(s[j] - shift);
            sum += s[j];
        }
        float factor = mix(1.0 / sum, 0.0, sum == 0.0);
        lse = mix(shift + tsr_log(sum), MINUS_INFINITY, sum == 0.0);
        WEIGH(result, s, other_y, X_ROW)
        [[unroll]] for (uint c = 0; c < QUADS; c++)
            result[c] *= factor;
    } else {
        DOT(dp, y, other_y, OTHER_Y_ROW)
        PHASE_ENDS
        [[unroll]] for (uint j = 0; j < OTHERS; j++) {
            float of_query = KEYS ? Float(p.lse + state_at + 4 * j).v : lse;
            float shift = mix(of_query, 0.0, of_query == MINUS_INFINITY);
            s[j] = tsr_exp_down(s[j] * p.scale - shift);
            s[j] = mix(s[j], 0.0, of_query == MINUS_INFINITY);
            if (CAUSAL != 0)
                s[j] = mix(0.0, s[j], KEYS ? int(j) >= first_seen : int(j) <= seen);
            sum += s[j] * dp[j];
        }
        delta = sum;
        [[unroll]] for (uint j = 0; j < OTHERS; j++) {
            float of_query = KEYS ? Float(p.delta + state_at + 4 * j).v : delta;
            dp[j] = s[j] * (dp[j] - of_query) * p.scale;
        }
        WEIGH(result, dp, other_x, X_ROW)
        if (KEYS) {
            PHASE_ENDS
            WEIGH(result_v, s, other_y, Y_ROW)
        }
    }

    // A second use of the results, which is never executed; see PIN() in matmul_lavapipe.glsl.
    float pinned = lse + delta;
    [[unroll]] for (uint c = 0; c < QUADS; c++) {
        pinned += result[c].x + result[c].y + result[c].z + result[c].w;
        if (KEYS)
            pinned += result_v[c].x + result_v[c].y + result_v[c].z + result_v[c].w;
    }
    if (p.identity[0] != 0)
        Float(p.result).v = pinned;
    uint64_t at = p.result + (FORWARD ? y_at : dx_at) + uint64_t(row0 + lane) * RESULT_ROW;
    uint64_t v_at = p.result_v + dx_at + uint64_t(row0 + lane) * RESULT_ROW;
    uint64_t own_state = state_at + 4 * (row0 + lane);
    if (own) {
        [[unroll]] for (uint c = 0; c < QUADS; c++)
            store_pairs(at + 16 * c, result[c]);
        if (KEYS)
            [[unroll]] for (uint c = 0; c < QUADS; c++)
                store_pairs(v_at + 16 * c, result_v[c]);
        if (FORWARD && p.lse != 0)
            Float(p.lse + own_state).v = lse;
        if (FUNCTION == TSR_SHORT_DQ)
            Float(p.delta + own_state).v = delta;
    }
}
