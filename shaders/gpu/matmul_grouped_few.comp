// Grouped product for few tokens, which reads the matrices of the chosen experts only, in one
// dispatch. A workgroup computes COLS columns of y for one pair or, with SUM, for one token: the
// weighted sum over the token's experts in the order of their rank. Its invocations are placed
// along k, and their sums are added up in a fixed tree. With GATED, a workgroup also has COLS
// columns of `up`.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "include/gated.glsl"
#include "include/grouped.glsl"

layout(constant_id = 5) const uint THREADS = 64; // a power of two
layout(local_size_x_id = 5) in;
layout(constant_id = 6) const uint COLS = 4;
layout(constant_id = 7) const uint X_DTYPE = TSR_DT_F32;
layout(constant_id = 8) const uint W_DTYPE = TSR_DT_F32;
layout(constant_id = 9) const uint Y_DTYPE = TSR_DT_F32;
layout(constant_id = 10) const uint BIAS_DTYPE = TSR_DT_F32;
layout(constant_id = 11) const uint ALIGNED = 0; // x and w are loaded four elements at a time
layout(constant_id = 12) const uint BLOCKS = 0;  // w is in a block format
layout(constant_id = 13) const uint SUM = 0;
layout(constant_id = 14) const uint GATED = 0;
layout(constant_id = 15) const uint ACTIVATION = TSR_EXPERT_ACT_SILU;
layout(constant_id = 16) const uint WORDS = 1; // BLOCKS: the units that an invocation multiplies at a time

layout(push_constant, std430) uniform tsr_push
{
    tsr_grouped_few_push p;
};

const uint LINES = GATED != 0u ? 2u * COLS : COLS;

shared float tree[LINES * THREADS];
float sums[LINES];
uvec2 line_at[LINES];

// The words of four neighbouring units are 16 bytes at a multiple of 16.
const bool WHOLE_LOW = WORDS == 4u && QUANT_CODE == TSR_QUANT_LINEAR && QUANT_LOW_AT % 16u == 0u && QUANT_BYTES % 16u == 0u;

// The words of WORDS neighbouring units.
uvec4 load_low(uvec2 block, uint unit)
{
    if (WHOLE_LOW)
        return tsr_words4(tsr_at(block, QUANT_LOW_AT + 4u * unit)).v[0];
    uvec4 low = uvec4(0u);
    [[unroll]] for (uint w = 0u; w < WORDS; w++)
        low[w] = quant_low(block, unit + w);
    return low;
}

// An invocation multiplies WORDS neighbouring units, whose elements in each run have one scale.
void add_blocks(uvec2 x, uint lane, float weight)
{
    uint count = p.k / QUANT_COUNT * (QUANT_UNITS / WORDS);
    for (uint u = lane; u < count; u += THREADS) {
        uint block = u / (QUANT_UNITS / WORDS), unit = u % (QUANT_UNITS / WORDS) * WORDS;
        uvec2 from[LINES];
        uvec4 low[LINES];
        uvec3 groups[LINES]; // of the unit's runs, for TSR_QUANT_6_6
        [[unroll]] for (uint j = 0u; j < LINES; j++) {
            from[j] = tsr_at(line_at[j], block * QUANT_BYTES); // a line has less than 2^32 bytes
            low[j] = load_low(from[j], unit);
            if (QUANT_SCALES == TSR_QUANT_6_6)
                groups[j] = quant_head_groups(quant_head(from[j]), quant_element(unit, 0u) / QUANT_SUB);
        }
        [[unroll]] for (uint part = 0u; part < QUANT_PARTS; part++) {
            uint element = quant_element(unit, part);
            vec4 row[WORDS], sum4 = vec4(0.0);
            [[unroll]] for (uint w = 0u; w < WORDS; w++) {
                row[w] = weight * grouped_row4(x, block * QUANT_COUNT + element + 4u * w, p.k, X_DTYPE, ALIGNED != 0u);
                sum4 += row[w];
            }
            float sum = sum4.x + sum4.y + (sum4.z + sum4.w);
            [[unroll]] for (uint j = 0u; j < LINES; j++) {
                vec2 scale = QUANT_SCALES == TSR_QUANT_6_6 ? quant_group_scale(groups[j], part)
                                                           : quant_scale(from[j], element / QUANT_SUB);
                float dot = QUANT_SHIFT != 0u ? -float(QUANT_SHIFT) * sum : 0.0;
                [[unroll]] for (uint w = 0u; w < WORDS; w++) {
                    vec4 level = quant_shifted_levels(from[j], unit + w, low[j][w], part);
                    [[unroll]] for (uint c = 0u; c < 4u; c++)
                        dot = fma(row[w][c], level[c], dot);
                }
                sums[j] = fma(scale.x, dot, QUANT_HAS_MIN ? fma(scale.y, sum, sums[j]) : sums[j]);
            }
        }
    }
}

void add_floats(uvec2 x, uint lane, float weight)
{
    for (uint k = 4u * lane; k < p.k; k += 4u * THREADS) {
        vec4 row = grouped_row4(x, k, p.k, X_DTYPE, ALIGNED != 0u);
        row *= weight;
        [[unroll]] for (uint j = 0u; j < LINES; j++) {
            vec4 value = grouped_row4(line_at[j], k, p.k, W_DTYPE, ALIGNED != 0u);
            [[unroll]] for (uint c = 0u; c < 4u; c++)
                sums[j] = fma(row[c], value[c], sums[j]);
        }
    }
}

void add_pair(uint pair, uint expert, uint col0, uint lane, float weight)
{
    uvec2 w = tsr_at_stride(p.w, expert, p.w_expert), up = tsr_at_stride(p.up, expert, p.w_expert);
    // Columns past the edge repeat the last one, and their sums are not stored.
    [[unroll]] for (uint j = 0u; j < LINES; j++)
        line_at[j] = tsr_at_mul(j < COLS ? w : up, min(col0 + j % COLS, p.n - 1u), p.w_line);
    uvec2 x = tsr_at_mul(p.x, pair / p.x_divide, p.x_stride * tsr_dtype_bytes(X_DTYPE));
    if (BLOCKS != 0u)
        add_blocks(x, lane, weight);
    else
        add_floats(x, lane, weight);
}

uint id_of(uint token, uint rank)
{
    return tsr_words(p.ids).v[token * p.ids_stride + rank];
}

float weight_of(uint token, uint rank)
{
    return (p.weights.x | p.weights.y) != 0u ? tsr_floats(p.weights).v[token * p.weights_stride + rank] : 1.0;
}

float bias_of(uvec2 bias, uint expert, uint col)
{
    return (bias.x | bias.y) != 0u
               ? tsr_load_float(tsr_at_mul(bias, expert * p.bias_stride + col, tsr_dtype_bytes(BIAS_DTYPE)), 0u, BIAS_DTYPE)
               : 0.0;
}

void main()
{
    uint across = (p.n + COLS - 1u) / COLS;
    uint item = tsr_flat_group() / across, col0 = tsr_flat_group() % across * COLS;
    if (item >= (SUM != 0u ? p.tokens : p.tokens * p.chosen))
        return;
    uint lane = gl_LocalInvocationIndex;
    uint token = SUM != 0u ? item : item / p.chosen;
    uint first = SUM != 0u ? 0u : item % p.chosen;
    if (SUM == 0u && id_of(token, first) >= p.experts)
        return;
    [[unroll]] for (uint j = 0u; j < LINES; j++)
        sums[j] = 0.0;
    if (SUM != 0u) {
        for (uint rank = 0u; rank < p.chosen; rank++) {
            uint expert = id_of(token, rank);
            if (expert < p.experts)
                add_pair(token * p.chosen + rank, expert, col0, lane, weight_of(token, rank));
        }
    } else {
        add_pair(item, id_of(token, first), col0, lane, 1.0);
    }

    [[unroll]] for (uint e = 0u; e < LINES; e++)
        tree[e * THREADS + lane] = sums[e];
    for (uint half_size = THREADS / 2u; half_size > 0u; half_size /= 2u) {
        barrier();
        if (lane < half_size)
            [[unroll]] for (uint e = 0u; e < LINES; e++)
                tree[e * THREADS + lane] += tree[e * THREADS + lane + half_size];
    }
    barrier();

    uint col = col0 + lane;
    if (lane >= COLS || col >= p.n)
        return;
    uvec2 to = tsr_at_mul(p.y, item, p.y_stride * tsr_dtype_bytes(Y_DTYPE));
    precise float value = tree[lane * THREADS];
    if (SUM != 0u) {
        if ((p.bias.x | p.bias.y) != 0u)
            for (uint rank = 0u; rank < p.chosen; rank++) {
                uint expert = id_of(token, rank);
                if (expert < p.experts)
                    value += weight_of(token, rank) * bias_of(p.bias, expert, col);
            }
    } else {
        uint expert = id_of(token, first);
        value += bias_of(p.bias, expert, col);
        if (GATED != 0u)
            value = tsr_gated(value, tree[(COLS + lane) * THREADS] + bias_of(p.up_bias, expert, col), p.limit, ACTIVATION);
    }
    if ((p.flags & TSR_GROUPED_ACCUMULATE) != 0u)
        value += tsr_load_float(to, col, Y_DTYPE);
    if (SUM != 0u && (p.flags & TSR_GROUPED_ADDED) != 0u)
        value += tsr_load_float(tsr_at_mul(p.up, item, p.y_stride * tsr_dtype_bytes(Y_DTYPE)), col, Y_DTYPE);
    tsr_store_float(to, col, Y_DTYPE, value);
}
