// The gradients of layer or RMS normalisation of short rows on Mesa's CPU driver in one kernel. A subgroup processes ROWS rows as
// norm_short.comp does one. It writes dx, to which it may add another gradient. It also sums its rows' terms of dweight and dbias. A
// workgroup adds up the sums of its subgroups, and writes the result; later kernels add up the results of the workgroups. dx and these sums
// are f32. All loads of rows precede all stores, so that dx may be x or dy. It is compiled with -O0, which leaves its loops for the driver
// to unroll (see matmul_lavapipe_nt.glsl).
#version 450
#extension GL_GOOGLE_include_directive : require
#include "cpu_drivers/lavapipe_extensions.glsl"
#include "params/norm_short.h"
#include "params/vectors.h"

layout(push_constant, std430) uniform tsr_push
{
    tsr_norm_short_grad_push p;
};

#define TSR_IDENTITY_BITS 3
#include "include/float16.glsl"
#include "cpu_drivers/lavapipe.glsl"

layout(constant_id = 0) const uint WORKGROUP = 64;
layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint LANES = 8;
layout(constant_id = 2) const uint UNITS = 8;
layout(constant_id = 3) const uint ROWS = 2; // 1 to 4
layout(constant_id = 4) const uint CENTRED = 1; // 0: RMS
layout(constant_id = 5) const uint DX_DTYPE = TSR_DT_F32; // unused
layout(constant_id = 6) const uint X_DTYPE = TSR_DT_F32;
layout(constant_id = 7) const uint DY_DTYPE = TSR_DT_F32;
layout(constant_id = 8) const uint WEIGHT_DTYPE = TSR_DT_F32; // 0: none
layout(constant_id = 9) const uint ADDED_DTYPE = 0;           // the dtype of the gradient that is added to dx; 0: none
layout(constant_id = 10) const uint DX_FORM = 8;              // the alignment of the vectors of an operand, in bytes
layout(constant_id = 11) const uint X_FORM = 8;
layout(constant_id = 12) const uint DY_FORM = 8;
layout(constant_id = 13) const uint WEIGHT_FORM = 8;
layout(constant_id = 14) const uint ADDED_FORM = 8;
layout(constant_id = 15) const uint OUTPUTS = TSR_NORM_WRITES_DX | TSR_NORM_WRITES_WEIGHT;
layout(constant_id = 16) const uint SUMS_FORM = 8;

const uint GROUP = TSR_VECTOR_BYTES / 4; // elements of a vector

#include "cpu_drivers/norm_short.glsl"

// The sums of the subgroup's rows so far for dweight and dbias, and its rows of dx.
vec2 dweight[UNITS], dbias[UNITS];
uvec2 dx[ROWS * UNITS], pinned;

// Computes row `r` of the subgroup with this number. This is a function, called for each row, because
// the driver does not unroll a loop around this code.
void compute_row(uint number, uint r)
{
    float each = 1.0 / float(UNITS * UNIT - p.overlap);
    // Rows past the end repeat the last row and do not count in the sums.
    bool counts = number * ROWS + r < p.rows;
    uint64_t row = min(number * ROWS + r, p.rows - 1);
    uint64_t x_at = p.x + row * p.x_row, dy_at = p.dy + row * p.dy_row;
    uint64_t added_at = p.added + row * p.added_row;

    // The loads and the sums are as in norm_short.comp.
    vec4 x[UNITS], dy[UNITS], g[UNITS];
    float shift = 0.0;
    if (CENTRED != 0)
        shift = load_element(x_at, X_DTYPE);
    precise float sum = 0.0;
    [[unroll]] for (uint i = 0; i < UNITS; i++) {
        x[i] = LOAD_OPERAND(x_at + start_of(i) * BYTES_OF(X_DTYPE), X_DTYPE, X_FORM);
        dy[i] = LOAD_OPERAND(dy_at + start_of(i) * BYTES_OF(DY_DTYPE), DY_DTYPE, DY_FORM);
        g[i] = dy[i] * load_weight(p.weight, i, WEIGHT_DTYPE, WEIGHT_FORM, 1.0);
        [[unroll]] for (uint k = 0; k < GROUP; k++)
            if (CENTRED != 0)
                sum += once(x[i][k] - shift, i, k);
    }
    precise float mean = shift;
    if (CENTRED != 0)
        mean += subgroup_sum(sum) * each;
    precise float rest = 0.0, squares = 0.0;
    [[unroll]] for (uint i = 0; i < UNITS; i++)
        [[unroll]] for (uint k = 0; k < GROUP; k++) {
            precise float value = x[i][k] - mean;
            x[i][k] = value;
            value = once(value, i, k);
            rest += value;
            squares += value * value;
        }
    precise float lost = 0.0;
    if (CENTRED != 0)
        lost = subgroup_sum(rest) * each;
    precise float variance = subgroup_sum(squares) * each - lost * lost;
    float factor = 1.0 / sqrt(mix(variance, 0.0, variance < 0.0) + p.epsilon);

    precise float incoming = 0.0, products = 0.0;
    [[unroll]] for (uint i = 0; i < UNITS; i++)
        [[unroll]] for (uint k = 0; k < GROUP; k++) {
            x[i][k] = (x[i][k] - lost) * factor;
            if ((OUTPUTS & TSR_NORM_WRITES_DX) != 0) {
                incoming += once(g[i][k], i, k);
                products += once(g[i][k] * x[i][k], i, k);
            }
        }
    if ((OUTPUTS & TSR_NORM_WRITES_DX) != 0) {
        incoming = CENTRED != 0 ? subgroup_sum(incoming) * each : 0.0;
        products = subgroup_sum(products) * each;
    }

    [[unroll]] for (uint i = 0; i < UNITS; i++) {
        precise vec4 values = vec4(0.0);
        if ((OUTPUTS & TSR_NORM_WRITES_DX) != 0)
            values = (g[i] - incoming - x[i] * products) * factor;
        if (ADDED_DTYPE != 0)
            values += LOAD_OPERAND(added_at + start_of(i) * BYTES_OF(ADDED_DTYPE), ADDED_DTYPE, ADDED_FORM);
        dx[r * UNITS + i] = floatBitsToUint(values.xy);
        pinned ^= dx[r * UNITS + i];
        if ((OUTPUTS & TSR_NORM_WRITES_WEIGHT) != 0)
            dweight[i] += mix(vec2(0.0), (dy[i] * x[i]).xy, bvec2(counts));
        if ((OUTPUTS & TSR_NORM_WRITES_BIAS) != 0)
            dbias[i] += mix(vec2(0.0), dy[i].xy, bvec2(counts));
    }
}

// Stores the sums of a subgroup's rows for dweight or dbias, after the sums of all workgroups.
void store_own(uint64_t sums, uint number, vec2 own[UNITS])
{
    uint64_t at = sums + p.subgroup_sums_bytes + uint64_t(number) * p.sums_row + gl_SubgroupInvocationID * TSR_VECTOR_BYTES;
    [[unroll]] for (uint i = 0; i < UNITS; i++)
        STORE_LANE_VECTORS(at + start_of(i) * 4, SUMS_FORM, floatBitsToUint(own[i]))
}

// Adds up unit i of the sums that the workgroup's subgroups have stored.
vec2 add_up(uint64_t sums, uint first, uint i)
{
    uint64_t at = sums + p.subgroup_sums_bytes + uint64_t(first) * p.sums_row + start_of(i) * 4;
    precise vec2 sum = uintBitsToFloat(words_of(LOAD_LANE_VECTORS(at, TSR_VECTOR_BYTES, SUMS_FORM)));
    [[unroll]] for (uint s = 1; s < WORKGROUP / LANES; s++)
        sum += uintBitsToFloat(words_of(LOAD_LANE_VECTORS(at + s * p.sums_row, TSR_VECTOR_BYTES, SUMS_FORM)));
    return sum;
}

void main()
{
    uint number = uniform_index(gl_WorkGroupID.x) * (WORKGROUP / LANES) + p.identity[p.identity[gl_SubgroupID]];
    pinned = uvec2(0);
    [[unroll]] for (uint i = 0; i < UNITS; i++)
        dweight[i] = dbias[i] = vec2(0.0);
    compute_row(number, 0);
    if (ROWS > 1)
        compute_row(number, 1);
    if (ROWS > 2)
        compute_row(number, 2);
    if (ROWS > 3)
        compute_row(number, 3);
    [[unroll]] for (uint i = 0; i < UNITS; i++)
        pinned ^= floatBitsToUint(dweight[i]) ^ floatBitsToUint(dbias[i]);
    // This is a second use of all values, which is never executed. It keeps LLVM from moving the
    // arithmetic into each lane's store; see PIN() in matmul_lavapipe.glsl.
    if (p.identity[0] != 0)
        Word2(p.sums).v = pinned;

    // Values that are computed from push constants must precede the first branch; see
    // lavapipe.glsl.
    uint64_t dx_at[ROWS];
    uint lowest[ROWS];
    [[unroll]] for (uint r = 0; r < ROWS; r++) {
        dx_at[r] = p.dx + uint64_t(number * ROWS + r) * p.dx_row + gl_SubgroupInvocationID * TSR_VECTOR_BYTES;
        lowest[r] = mix(LANES, 0, number * ROWS + r < p.rows);
    }
    [[unroll]] for (uint i = 0; i < ROWS * UNITS; i++)
        if ((OUTPUTS & TSR_NORM_WRITES_DX) != 0 && gl_SubgroupInvocationID >= lowest[i / UNITS])
            STORE_LANE_VECTORS(dx_at[i / UNITS] + start_of(i % UNITS) * 4, DX_FORM, dx[i]);
    if ((OUTPUTS & TSR_NORM_WRITES_WEIGHT) != 0)
        store_own(p.sums, number, dweight);
    if ((OUTPUTS & TSR_NORM_WRITES_BIAS) != 0)
        store_own(p.sums + p.sums_bytes, number, dbias);
    memoryBarrierBuffer();
    barrier();

    // Each subgroup adds up some units of the sums. The last subgroups may add up the last unit again.
    const uint SUBGROUPS = WORKGROUP / LANES, ROUNDS = (UNITS + SUBGROUPS - 1) / SUBGROUPS;
    uint group = uniform_index(gl_WorkGroupID.x), subgroup = p.identity[p.identity[gl_SubgroupID]];
    vec2 weight[ROUNDS], bias[ROUNDS];
    [[unroll]] for (uint r = 0; r < ROUNDS; r++) {
        uint i = min(r * SUBGROUPS + subgroup, UNITS - 1);
        weight[r] = bias[r] = vec2(0.0);
        if ((OUTPUTS & TSR_NORM_WRITES_WEIGHT) != 0)
            weight[r] = add_up(p.sums, group * SUBGROUPS, i);
        if ((OUTPUTS & TSR_NORM_WRITES_BIAS) != 0)
            bias[r] = add_up(p.sums + p.sums_bytes, group * SUBGROUPS, i);
    }
    uint64_t sums_at = p.sums + uint64_t(group) * p.sums_row + gl_SubgroupInvocationID * TSR_VECTOR_BYTES;
    [[unroll]] for (uint r = 0; r < ROUNDS; r++) {
        uint64_t at = sums_at + start_of(min(r * SUBGROUPS + subgroup, UNITS - 1)) * 4;
        if ((OUTPUTS & TSR_NORM_WRITES_WEIGHT) != 0)
            STORE_LANE_VECTORS(at, SUMS_FORM, floatBitsToUint(weight[r]))
        if ((OUTPUTS & TSR_NORM_WRITES_BIAS) != 0)
            STORE_LANE_VECTORS(at + p.sums_bytes, SUMS_FORM, floatBitsToUint(bias[r]))
    }
}
