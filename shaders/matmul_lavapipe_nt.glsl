// y[m,n] (+)= a[m,k] · b[n,k]ᵀ over one stretch of k, for Mesa's CPU driver; k is contiguous in both operands. The lanes lie along k
// and are added up at the end. A subgroup makes one tile of TM × TN, a step is LANES products. Compiled with -O0: the driver has to
// unroll, after specialization; spirv-opt would need gigabytes for it.
//
// TSR_FINISHES is 0, or 1 for a kernel that makes y of its sums, those of the last stretch. It is a shader of its own, since the driver
// takes its time over what is left out by specialization, too.
#include "matmul_lavapipe.glsl"
#if TSR_FINISHES
#include "activation.glsl"
#include "float16.glsl"
#include "lavapipe_halves.glsl"
#include "packets.glsl"
#include "params/matmul.h"
#endif

// With PARTS the stretches of k are in x: workgroups that follow one another in time then read the lines of b on and on, as the
// processor's prefetching wants it.

// 1: a lane stores WIDTH neighbours, and n is a multiple of it. Storing four costs hardly more than storing one.
layout(constant_id = 11) const int WIDTH = 4;
const int UNITS = TM * TN / WIDTH;              // of WIDTH sums each
const int ROUNDS = (UNITS + LANES - 1) / LANES; // in which the lanes store a unit each
const int SUMS = ROUNDS * WIDTH * LANES;        // with those that only fill up the last vectors
const int FIRST = 2 * SUMS - 2 * SUMS / LANES;  // of those that are made of all lanes
// Those to pin: the last but FIRST's, since what is stored does not stay itself. A single vector's sums do not stay by any but themselves.
const int PINNED = SUMS == LANES ? 0 : 2 * SUMS - 4 * SUMS / LANES;
const int GROUP = STEPS < 8 ? STEPS : 8;        // of steps

// Lines are addressed from NEAR bytes before them, so that no offset is 0: the driver would need one round more over the shader to be rid
// of those.
const uint NEAR = 64;

float load(uint64_t line, uint dtype, int step)
{
    uint k = step * LANES + gl_SubgroupInvocationID;
    if (CAREFUL != 0)
        return mix(0.0, load_lanes_careful(line + NEAR, dtype, 0, p.k, LANES), k < p.k);
    float value = load_lanes(line, NEAR + step * LANES * bytes_of(dtype), dtype, LANES);
    // Both operands become 0: an infinity times 0 would be NaN.
    return SKIPS != 0 ? mix(0.0, value, k >= p.skip) : value;
}

// Two bf16 operands are read as words of two neighbours, of which the upper one is a float but for the mask: one operation, where
// widening takes two. The even elements are the upper ones of words that start two bytes earlier. The order of the products
// changes, for both operands alike: of two steps' elements those of even index come first.
const bool WORDS = STEPS % 2 == 0 && CAREFUL == 0 && SKIPS == 0 && A_DTYPE == TSR_DT_BF16 && B_DTYPE == TSR_DT_BF16;

float load_words(uint64_t line, int step)
{
    // Before the line may be before all memory.
    uint from = NEAR + step / 2 * LANES * 4 - (step % 2 == 0 && step > 0 ? 2 : 0);
    uint word = floatBitsToUint(load_lanes(line, from, TSR_DT_F32, LANES));
    return uintBitsToFloat(step == 0 ? word << 16 : word & 0xffff0000u);
}

// Which of the sums: element e of what lane l stores in round r is sum (r · WIDTH + e) · LANES + l.
int sum_of(int i, int j)
{
    int unit = i * (TN / WIDTH) + j / WIDTH;
    return (unit / LANES * WIDTH + j % WIDTH) * LANES + unit % LANES;
}

uint column_of(uint col0, uint unit)
{
    return min(col0 + unit % (TN / WIDTH) * WIDTH, p.n - WIDTH);
}

uint64_t place_of(uint row0, uint col0, uint unit, uint stride)
{
    uint row = min(row0 + unit / (TN / WIDTH), p.m - 1);
    return uint64_t(row) * stride + column_of(col0, unit);
}

#if TSR_FINISHES
layout(constant_id = 13) const uint MODE = 0; // TSR_MM_…: bias, dtypes, activation

const uint Y_DTYPE = MODE >> TSR_MM_Y_DTYPE_SHIFT & TSR_MM_FIELD_MASK;
const uint BIAS_DTYPE = MODE >> TSR_MM_BIAS_DTYPE_SHIFT & TSR_MM_FIELD_MASK;
const uint ACTIVATION = MODE >> TSR_MM_ACTIVATION_SHIFT & TSR_MM_FIELD_MASK;

vec4 load_bias(uint col)
{
    uint64_t at = p.bias + uint64_t(col) * bytes_of(BIAS_DTYPE);
#if TSR_STORAGE16
    if (BIAS_DTYPE != TSR_DT_F32) {
        u16vec4 bits = WIDTH == 4 ? Half4(at).v : u16vec4(Half(at).v);
        return vec4(decode(bits.x, BIAS_DTYPE), decode(bits.y, BIAS_DTYPE), decode(bits.z, BIAS_DTYPE), decode(bits.w, BIAS_DTYPE));
    }
#endif
    return WIDTH == 4 ? Float4(at).v : vec4(Float(at).v);
}

#endif

void store_unit(uint64_t at, vec4 values)
{
#if TSR_FINISHES && TSR_STORAGE16
    if (Y_DTYPE != TSR_DT_F32) {
        uvec2 halves = encode_halves(values, Y_DTYPE);
        if (WIDTH == 4)
            store_lane_packets(at, PAIRS != 0 ? 8 : 2, halves);
        else
            Half(target(at)).v = uint16_t(halves.x);
        return;
    }
#endif
    if (WIDTH == 4)
        store_four(at, values, PAIRS != 0);
    else
        Float(target(at)).v = values.x;
}

void main()
{
    uint x = uniform_index(gl_WorkGroupID.x), part = 0;
    // Blocks of rows one after another, each of which all of b passes by; or of parts, whose tiles of rows are in z.
    if (PARTS != 0) {
        part = x;
        x = PARTS > 1 ? uniform_index(gl_WorkGroupID.z) : 0;
    } else if (BATCHED == 0) {
        x += p.identity[p.identity[gl_WorkGroupID.z]] * p.block;
    }
    uint row0 = x * TM;
    uint64_t batch = batch_index();
    bool own;
    uint col0 = lavapipe_tile(gl_WorkGroupID.y, TEAM, (p.n + TN - 1) / TN, own) * TN;

    // Lines past an edge repeat the last ones: they compute and store the same bits again, so that no tile needs a branch.
    uint64_t a_line[TM], b_line[TN];
    [[unroll]] for (int i = 0; i < TM; i++)
        a_line[i] = p.a - NEAR + (batch * p.a_batch + uint64_t(min(row0 + i, p.m - 1)) * p.a_stride + part * (STEPS * LANES)) * bytes_of(A_DTYPE);
    [[unroll]] for (int j = 0; j < TN; j++) {
        uint col = min(col0 + j / WIDTH * WIDTH, p.n - WIDTH) + j % WIDTH;
        b_line[j] = p.b - NEAR + (batch * p.b_batch + uint64_t(col) * p.b_stride + part * (STEPS * LANES)) * bytes_of(B_DTYPE);
    }

    // A heap: the sums, then those of its elements 0 and 1, 2 and 3, ….
    float c[2 * SUMS];
    vec4 old[ROUNDS];
#if TSR_FINISHES
    vec4 bias[ROUNDS];
#endif
    [[unroll]] for (int e = 0; e < SUMS; e++) {
        c[e] = 0.0;
        old[e / (WIDTH * LANES)] = vec4(0.0);
#if TSR_FINISHES
        bias[e / (WIDTH * LANES)] = vec4(0.0);
#endif
    }
    [[unroll]] for (int first = 0; first < STEPS; first += GROUP) {
        [[unroll]] for (int g = 0; g < GROUP; g++) { // from a constant to a constant: else the driver unrolls nothing
            int step = first + g;
            float b[TN];
            [[unroll]] for (int j = 0; j < TN; j++)
                b[j] = WORDS ? load_words(b_line[j], step) : load(b_line[j], B_DTYPE, step);
            [[unroll]] for (int i = 0; i < TM; i++) {
                float a = WORDS ? load_words(a_line[i], step) : load(a_line[i], A_DTYPE, step);
                [[unroll]] for (int j = 0; j < TN; j++)
                    c[sum_of(i, j)] += a * b[j];
            }
        }
    }

    // All loads of sums before all stores, because repeated lines share their addresses, and before all branches. What is not to be added
    // to is loaded nevertheless.
    uint lane = gl_SubgroupInvocationID;
    uint64_t sums = p.sums + 4 * (batch * p.sums_batch + uint64_t(part) * p.m * p.sums_stride);
    [[unroll]] for (int unit = 0; unit < UNITS; unit++) {
        uint64_t at = sums + 4 * place_of(row0, col0, unit, p.sums_stride);
        bool here = lane == unit % LANES;
        if (WIDTH == 4)
            old[unit / LANES] = mix(old[unit / LANES], Float4(at).v, bvec4(here));
        else
            old[unit / LANES].x = mix(old[unit / LANES].x, Float(at).v, here);
#if TSR_FINISHES
        if ((MODE & TSR_MM_BIAS) != 0)
            bias[unit / LANES] = mix(bias[unit / LANES], load_bias(column_of(col0, unit)), bvec4(here));
#endif
    }

    // Adds the lanes of all sums in one fixed tree. Each round halves the number of vectors: a lane keeps one sum of a pair
    // and gives the other to its partner. In the end lane l of c[FIRST + q] holds sum q · LANES + l.
    [[unroll]] for (int e = 0; e < SUMS - SUMS / LANES; e++) {
        int distance = e < SUMS / 2 ? 1 : e < SUMS / 4 * 3 ? 2 : e < SUMS / 8 * 7 ? 4 : 8;
        bool high = (lane & distance) != 0;
        c[SUMS + e] = mix(c[2 * e], c[2 * e + 1], high) +
                      subgroupShuffleXor(mix(c[2 * e + 1], c[2 * e], high), distance);
        int q = SUMS + e - FIRST;
        if (q >= 0)
            c[SUMS + e] += mix(0.0, old[q / WIDTH][q % WIDTH], p.accumulate != 0);
    }
    PIN(c, PINNED, PINNED == 0 ? SUMS : 2 * SUMS / LANES)

    [[unroll]] for (int r = 0; r < ROUNDS; r++) {
        uint unit = r * LANES + lane;
        int e = FIRST + r * WIDTH;
        vec4 values = WIDTH == 4 ? vec4(c[e], c[e + 1], c[e + 2], c[e + 3]) : vec4(c[e]);
#if TSR_FINISHES
        uint64_t at = p.y + (batch * p.y_batch + place_of(row0, col0, unit, p.y_stride)) * bytes_of(Y_DTYPE);
        if ((MODE & TSR_MM_BIAS) != 0)
            values += bias[r];
        if (ACTIVATION != TSR_ACTIVATION_NONE)
            [[unroll]] for (int i = 0; i < WIDTH; i++)
                values[i] = tsr_activate(values[i], ACTIVATION);
#else
        uint64_t at = sums + 4 * place_of(row0, col0, unit, p.sums_stride);
#endif
        if (own && row0 < p.m && unit < UNITS)
            store_unit(at, values);
    }
}
