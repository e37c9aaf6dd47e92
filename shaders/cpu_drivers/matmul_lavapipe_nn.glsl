// y[m,n] = op(a) · b[k,n] over one range of k, or y += …, on lavapipe; n is contiguous in b and y.
// The lanes are placed along n, so that no sums of lanes have to be added up. a is read one element
// at a time; it is [m,k] or, with A_TRANSPOSED, [k,m]. A subgroup computes a tile of TM rows and TN
// vectors of LANES columns, where TN is a multiple of 4. A step adds one product to each element.
// It is compiled with -O0, which leaves its loops for the driver to unroll (see
// matmul_lavapipe_nt.glsl).
//
// If TSR_FINISHES is 1, the kernel computes all of k, without CAREFUL and SPLIT, and applies the
// epilogue to the sums.
#include "cpu_drivers/matmul_lavapipe.glsl"
#if TSR_FINISHES
#include "include/activation.glsl"
#include "include/float16.glsl"
#include "cpu_drivers/lavapipe_float16.glsl"
#include "cpu_drivers/vectors.glsl"
#include "params/matmul.h"
#endif

layout(constant_id = 11) const uint A_TRANSPOSED = 0;
// 1: the dispatch sets the sums instead of adding to them. Columns may then be computed twice,
// because they get the same bits.
layout(constant_id = 15) const uint FRESH = 0;

// Exchanges the lower lane's `high` and the upper lane's `low`, for lanes that are `distance`
// apart.
void exchange(inout float low, inout float high, uint distance)
{
    bool upper = (gl_SubgroupInvocationID & distance) != 0;
    float other = subgroupShuffleXor(mix(high, low, upper), distance);
    low = mix(low, other, upper);
    high = mix(other, high, upper);
}

float load_b(uint64_t line, uint64_t at0, uint64_t at4, uint64_t at8, uint64_t at12)
{
    LOAD_LANES(B_DTYPE, LANES)
}

float load_sums(uint64_t line, uint64_t at0, uint64_t at4, uint64_t at8, uint64_t at12)
{
    LOAD_LANES(TSR_DT_F32, LANES)
}

#if TSR_FINISHES
layout(constant_id = 13) const uint MODE = 0; // TSR_MM_…: bias, dtypes, activation

const uint Y_DTYPE = MODE >> TSR_MM_Y_DTYPE_SHIFT & TSR_MM_FIELD_MASK;
const uint BIAS_DTYPE = MODE >> TSR_MM_BIAS_DTYPE_SHIFT & TSR_MM_FIELD_MASK;
const uint Y_BYTES = BYTES_OF(Y_DTYPE);
const uint ACTIVATION = MODE >> TSR_MM_ACTIVATION_SHIFT & TSR_MM_FIELD_MASK;

float load_bias(uint64_t line, uint64_t at0, uint64_t at4, uint64_t at8, uint64_t at12)
{
    LOAD_LANES(BIAS_DTYPE, LANES)
}

// Returns act(x), and its derivative as tsr_activate_grad() computes it. GELU computes the normal
// distribution once for both.
float activate_with_slope(float x, out float slope)
{
    if (ACTIVATION == TSR_ACTIVATION_GELU_ERF) {
        float density;
        float b = clamp(x, -16.0, 16.0);
        float cdf = tsr_normal_cdf(b, density);
        precise float y = max(x, -16.0) * cdf;
        precise float grad = cdf + b * density;
        slope = mix(grad, x, tsr_is_nan(x));
        return mix(y, x, tsr_is_nan(x));
    }
    slope = tsr_activate_grad(x, ACTIVATION);
    return tsr_activate(x, ACTIVATION);
}
#else
const uint Y_DTYPE = TSR_DT_F32;
const uint Y_BYTES = 4;
#endif

void store_four(uint64_t at, vec4 values)
{
#if TSR_FINISHES && TSR_STORAGE16
    if (Y_DTYPE != TSR_DT_F32) {
        uvec2 float16s = ENCODE_FLOAT16S(values, Y_DTYPE);
        if (PAIRS != 0)
            store_vector(at, float16s);
        else
            store_words16(at, float16s);
        return;
    }
#endif
    if (PAIRS != 0)
        store_pairs(at, values);
    else
        store_floats(at, values);
}

void main()
{
    // With SPLIT, the workgroup's index in x counts the tiles, so that consecutive workgroups read
    // the lines of b sequentially. The range of k of a workgroup has few lines, because processors
    // prefetch only a few streams at a time.
    uint row0 = SPLIT != 0 ? 0 : uniform_index(gl_WorkGroupID.x) * TM;
    uint split = SPLIT != 0 ? uniform_index(gl_WorkGroupID.y) : 0;
    bool own;
    uint tiles = (p.n + TN * LANES - 1) / (TN * LANES);
    uint col0 = lavapipe_tile(SPLIT != 0 ? gl_WorkGroupID.x : gl_WorkGroupID.y, SUBGROUPS, tiles, own) * TN * LANES;
    if (FRESH != 0) // the last tile ends with the last column
        col0 = min(col0, p.n - TN * LANES);
    uint lane = gl_SubgroupInvocationID;
    uint64_t batch = BATCHED != 0 ? uniform_index(gl_WorkGroupID.z) : 0, k0 = split * STEPS;

    // Rows past the edge repeat the last row, as in matmul_lavapipe_nt.glsl. The old contents of
    // the sums are read here, before any store. If they are not needed, a word of each cache line
    // is read, because stores to lines that are not in a cache wait for each other.
    uint touched = 0;
    uint64_t to_slope = p.sums - p.y; // the distance from an element of y to its slope
    uint64_t a_row[TM], y_row[TM];
    float c[TM * TN];
    [[unroll]] for (int i = 0; i < TM; i++) {
        uint64_t row = min(row0 + i, p.m - 1);
        a_row[i] = p.a + (batch * p.a_batch + (A_TRANSPOSED != 0 ? row + k0 * p.a_stride : row * p.a_stride + k0)) * A_BYTES;
#if TSR_FINISHES
        y_row[i] = p.y + Y_BYTES * (batch * p.y_batch + row * p.y_stride + col0);
        if ((MODE & TSR_MM_SLOPE) != 0)
            touched ^= touch(y_row[i] + to_slope, TN * LANES * 4);
#else
        y_row[i] = p.sums + 4 * (batch * p.sums_batch + uint64_t(split) * p.sums_stride + row * p.sums_stride + col0);
#endif
        if (FRESH != 0)
            touched ^= touch(y_row[i], TN * LANES * Y_BYTES);
        [[unroll]] for (int j = 0; j < TN; j++) {
            float sum = 0.0;
            if (FRESH == 0) {
                if (CAREFUL != 0)
                    sum = Float(y_row[i] + 4 * (min(col0 + j * LANES + lane, p.n - 1) - col0)).v;
                else
                    sum = load_sums(y_row[i] + 4 * j * LANES, 0, 16, 32, 48);
                sum = mix(0.0, sum, p.accumulate != 0);
            }
            c[i * TN + j] = sum;
        }
    }

    // `b_before` is the address one line before the first one, so that every step adds at least one
    // line: the driver would need one more pass to remove an addition of 0. With CAREFUL, it does
    // not include the column, because load_lanes_careful() adds the column.
    uint64_t b_before = p.b + (batch * p.b_batch + (k0 - 1) * p.b_stride + (CAREFUL != 0 ? 0 : col0)) * B_BYTES;
    [[unroll]] for (int first = 0; first < STEPS; first += GROUP) {
        [[unroll]] for (int g = 0; g < GROUP; g++) {
            int step = first + g;
            // With CAREFUL, k may have fewer elements than there are steps.
            int line = CAREFUL != 0 ? int(min(uint(step), p.k - 1)) : step;
            bool counts = SKIPS == 0 || step >= p.skip && (CAREFUL == 0 || step < p.k);
            // Each address is computed from the base: LLVM 19 takes minutes to compile a chain of
            // additions.
            uint64_t b_line = b_before + uint64_t((line + 1) * B_BYTES) * p.b_stride;
            uint64_t a_step = uint64_t(line) * (A_TRANSPOSED != 0 ? p.a_stride : 1) * A_BYTES;
            float b[TN];
            [[unroll]] for (int j = 0; j < TN; j++) {
                if (CAREFUL != 0)
                    b[j] = load_lanes_careful(b_line, B_DTYPE, col0 + j * LANES, p.n, LANES);
                else
                    b[j] = load_b(b_line + j * LANES * B_BYTES, 0, 4 * B_BYTES, 8 * B_BYTES, 12 * B_BYTES);
                if (SKIPS != 0) // both operands become 0, because infinity times 0 is NaN
                    b[j] = mix(0.0, b[j], counts);
            }
            [[unroll]] for (int i = 0; i < TM; i++) {
                float a = LOAD_ONE(a_row[i] + a_step, A_DTYPE);
                if (SKIPS != 0)
                    a = mix(0.0, a, counts);
                [[unroll]] for (int j = 0; j < TN; j++)
                    c[i * TN + j] += a * b[j];
            }
        }
    }

#if TSR_FINISHES
    if ((MODE & TSR_MM_BIAS_ROWS) != 0)
        [[unroll]] for (int i = 0; i < TM; i++) {
            uint64_t row = min(row0 + i, p.m - 1), at = p.bias + (row * p.sums_batch + col0) * BYTES_OF(BIAS_DTYPE);
            [[unroll]] for (int j = 0; j < TN; j++) {
                float bias = load_bias(at + j * LANES * BYTES_OF(BIAS_DTYPE), 0, 4 * BYTES_OF(BIAS_DTYPE),
                                       8 * BYTES_OF(BIAS_DTYPE), 12 * BYTES_OF(BIAS_DTYPE));
                if ((MODE & TSR_MM_TIMES) != 0)
                    c[i * TN + j] *= bias;
                else
                    c[i * TN + j] += bias;
            }
        }
    else if ((MODE & TSR_MM_BIAS) != 0)
        [[unroll]] for (int j = 0; j < TN; j++) {
            float bias = load_bias(p.bias + (col0 + j * LANES) * BYTES_OF(BIAS_DTYPE), 0, 4 * BYTES_OF(BIAS_DTYPE),
                                   8 * BYTES_OF(BIAS_DTYPE), 12 * BYTES_OF(BIAS_DTYPE));
            [[unroll]] for (int i = 0; i < TM; i++)
                c[i * TN + j] += bias;
        }
    float slope[TM * TN];
    if ((MODE & TSR_MM_SLOPE) != 0) {
        if (PHASES != 0)
            barrier();
        [[unroll]] for (int e = 0; e < TM * TN; e++)
            c[e] = activate_with_slope(c[e], slope[e]);
    } else if (ACTIVATION != TSR_ACTIVATION_NONE) {
        [[unroll]] for (int e = 0; e < TM * TN; e++)
            c[e] = tsr_activate(c[e], ACTIVATION);
    }
#endif
    if (FRESH != 0)
        c[0] = after(c[0], touched);
    PIN(c, 0, TM * TN)
#if TSR_FINISHES
    if ((MODE & TSR_MM_SLOPE) != 0)
        PIN(slope, 0, TM * TN)
#endif
    // Storing four numbers per lane costs little more than storing one. Therefore four vectors of a
    // row are transposed first: columns that are LANES apart become neighbours.
    if (CAREFUL == 0) {
        [[unroll]] for (int q = 0; q < TM * TN / 4; q++) {
            exchange(c[4 * q], c[4 * q + 1], 1);
            exchange(c[4 * q + 2], c[4 * q + 3], 1);
            exchange(c[4 * q], c[4 * q + 2], 2);
            exchange(c[4 * q + 1], c[4 * q + 3], 2);
#if TSR_FINISHES
            if ((MODE & TSR_MM_SLOPE) != 0) {
                exchange(slope[4 * q], slope[4 * q + 1], 1);
                exchange(slope[4 * q + 2], slope[4 * q + 3], 1);
                exchange(slope[4 * q], slope[4 * q + 2], 2);
                exchange(slope[4 * q + 1], slope[4 * q + 3], 2);
            }
#endif
        }
    }
    if (own) {
        if (CAREFUL != 0) {
            [[unroll]] for (int e = 0; e < TM * TN; e++)
                Float(target(y_row[e / TN] + 4 * min(e % TN * LANES + lane, p.n - 1 - col0))).v = c[e];
        } else {
            [[unroll]] for (int q = 0; q < TM * TN / 4; q++) {
                uint64_t at = y_row[4 * q / TN] + Y_BYTES * (4 * q % TN * LANES + LANES * (lane & 3) + (lane & ~3u));
                store_four(at, vec4(c[4 * q], c[4 * q + 1], c[4 * q + 2], c[4 * q + 3]));
#if TSR_FINISHES
                if ((MODE & TSR_MM_SLOPE) != 0)
                    store_four(at + to_slope, vec4(slope[4 * q], slope[4 * q + 1], slope[4 * q + 2], slope[4 * q + 3]));
#endif
            }
        }
    }
}
