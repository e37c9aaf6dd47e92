// y[m,n] = a[m,k] · b[n,k]ᵀ over one range of k, or y += …, on lavapipe; k is contiguous in both
// operands. The lanes are placed along k, and their sums are added up at the end. A subgroup
// computes one tile of TM × TN elements. A step adds LANES products to each element, one per lane.
// The shader is compiled with -O0, which leaves its loops as they are written. The driver unrolls
// them after specialization, when their bounds are numbers. The optimizer of glslc -O cannot unroll
// them, because the bounds are specialization constants, and often makes more of them by inlining
// functions.
// If TSR_FINISHES is 1, the kernel computes the last range of k and applies the epilogue to the
// sums. If it is 0, the kernel applies no epilogue. These are two shaders because the driver spends
// time even on code that specialization excludes.
#include "cpu_drivers/matmul_lavapipe.glsl"
#if TSR_FINISHES
#include "include/activation.glsl"
#include "include/float16.glsl"
#include "cpu_drivers/lavapipe_float16.glsl"
#include "cpu_drivers/vectors.glsl"
#include "params/matmul.h"
#endif

// With SPLIT, the workgroup's index in x is the number of its range of k. Consecutive workgroups
// then read the lines of b sequentially, which suits the processor's prefetching.

// A lane stores WIDTH neighbouring sums, called a unit; n is a multiple of WIDTH. Storing four
// numbers costs little more than storing one.
layout(constant_id = 11) const int WIDTH = 4;
const int UNITS = TM * TN / WIDTH;              // units of a tile
const int ROUNDS = (UNITS + LANES - 1) / LANES; // in each round, every lane stores one unit
const int SUMS = ROUNDS * WIDTH * LANES;        // the number of sums, including those that only pad the last vectors
const int FIRST = 2 * SUMS - 2 * SUMS / LANES;  // the index in c of the first sum that has been added up over all lanes
// PIN uses the sums from index PINNED on. These are one level before FIRST, because pinning the
// values that are stored does not keep the arithmetic in place. If there is only one vector of
// sums, PIN must use these sums themselves.
const int PINNED = SUMS == LANES ? 0 : 2 * SUMS - 4 * SUMS / LANES;
const int LINES = TM > TN ? TM : TN;
// The number of sums that the iteration for each line sets to 0.
const int ZEROS = (SUMS + LINES - 1) / LINES;

// If both operands are bf16, they are read as words of two neighbours. Masking a word gives the f32
// of its upper element in one operation; widening a single element takes two. The order of the
// products changes in the same way for both operands: of the elements of two steps, those of even
// index come first.
const bool WORDS = STEPS % 2 == 0 && CAREFUL == 0 && SKIPS == 0 && A_DTYPE == TSR_DT_BF16 && B_DTYPE == TSR_DT_BF16;

// 1: a and b are stored in panels. A panel has the lines of one tile for one range of k, in the
// order in which the steps load them. The panels of a range of k follow one another.
layout(constant_id = 14) const uint PANELS = 0;

// The bytes of a step, and the bytes that one load of four elements or words reads. Lines are
// addressed from one step before their start, so that no offset is 0: the driver would need one
// more pass over the shader to remove additions of 0.
const uint A_STEP = LANES * A_BYTES * (PANELS != 0 ? TM : 1);
const uint B_STEP = LANES * B_BYTES * (PANELS != 0 ? TN : 1);
const uint A_QUARTER = 4 * (WORDS ? 4 : A_BYTES);
const uint B_QUARTER = 4 * (WORDS ? 4 : B_BYTES);
const uint A_LOADED = WORDS ? TSR_DT_F32 : A_DTYPE;
const uint B_LOADED = WORDS ? TSR_DT_F32 : B_DTYPE;

float load_a(uint64_t line, uint64_t at0, uint64_t at4, uint64_t at8, uint64_t at12)
{
    if (CAREFUL != 0)
        return load_lanes_careful(line + at0, A_DTYPE, 0, p.k, LANES);
    LOAD_LANES(A_LOADED, LANES)
}

float load_b(uint64_t line, uint64_t at0, uint64_t at4, uint64_t at8, uint64_t at12)
{
    if (CAREFUL != 0)
        return load_lanes_careful(line + at0, B_DTYPE, 0, p.k, LANES);
    LOAD_LANES(B_LOADED, LANES)
}

// Returns the value that this step multiplies, for either operand, given a loaded value.
float counted(float value, int step)
{
    if (WORDS) {
        uint word = floatBitsToUint(value);
        return uintBitsToFloat(step == 0 ? word << 16 : word & 0xffff0000u);
    }
    uint k = step * LANES + gl_SubgroupInvocationID;
    // Both operands are set to 0, because infinity times 0 would be NaN.
    if (CAREFUL != 0)
        return mix(0.0, value, k < p.k);
    return SKIPS != 0 ? mix(0.0, value, k >= p.skip) : value;
}

// The index of the sum for row i and column j of the tile. In round r, lane l stores one unit,
// whose element e is the sum (r · WIDTH + e) · LANES + l.
int sum_of(int i, int j)
{
    int unit = i * (TN / WIDTH) + j / WIDTH;
    return (unit / LANES * WIDTH + j % WIDTH) * LANES + unit % LANES;
}

// The bytes from the first line to `line`, if operands are in panels of `lines` lines.
uint64_t in_panels(uint line, uint lines, uint bytes)
{
    return uint64_t(line / lines * (STEPS * lines) + line % lines) * (LANES * bytes);
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
const uint Y_BYTES = BYTES_OF(Y_DTYPE);
const uint ACTIVATION = MODE >> TSR_MM_ACTIVATION_SHIFT & TSR_MM_FIELD_MASK;

vec4 load_bias(uint64_t element)
{
    uint64_t at = p.bias + element * BYTES_OF(BIAS_DTYPE);
#if TSR_STORAGE16
    if (BIAS_DTYPE != TSR_DT_F32) {
        u16vec4 bits = WIDTH == 4 ? Half4(at).v : u16vec4(Word16(at).v);
        return vec4(DECODE(bits.x, BIAS_DTYPE), DECODE(bits.y, BIAS_DTYPE), DECODE(bits.z, BIAS_DTYPE), DECODE(bits.w, BIAS_DTYPE));
    }
#endif
    return WIDTH == 4 ? Float4(at).v : vec4(Float(at).v);
}

#endif

void store_unit(uint64_t at, vec4 values)
{
#if TSR_FINISHES && TSR_STORAGE16
    if (Y_DTYPE != TSR_DT_F32) {
        uvec2 float16s = ENCODE_FLOAT16S(values, Y_DTYPE);
        if (WIDTH == 4 && PAIRS != 0)
            store_vector(at, float16s);
        else if (WIDTH == 4)
            store_words16(at, float16s);
        else
            Word16(target(at)).v = uint16_t(float16s.x);
        return;
    }
#endif
    if (WIDTH == 4 && PAIRS != 0)
        store_pairs(at, values);
    else if (WIDTH == 4)
        store_floats(at, values);
    else
        Float(target(at)).v = values.x;
}

void main()
{
    uint x = uniform_index(gl_WorkGroupID.x), z = uniform_index(gl_WorkGroupID.z), split = 0;
    // Without SPLIT, x is the number of a tile within a block of rows, and z the number of the
    // block, so that all of b is read once for each block. With SPLIT, x is the number of the range
    // of k, and z that of the tile of rows.
    if (SPLIT != 0) {
        split = x;
        x = SPLIT > 1 ? z : 0;
    } else if (BATCHED == 0) {
        x += p.identity[p.identity[gl_WorkGroupID.z]] * p.block;
    } else if (BATCHED == 2) {
        x += z * p.block;
    }
    uint row0 = x * TM;
    uint64_t batch = BATCHED == 1 ? z : 0, b_batch = batch;
    if (BATCHED == 2)
        b_batch = uniform_index(floatBitsToUint(Float(p.bias + uint64_t(x) * 4).v));
    bool own;
    uint col0 = lavapipe_tile(gl_WorkGroupID.y, SUBGROUPS, (p.n + TN - 1) / TN, own) * TN;

    // Lines past an edge repeat the last line: they compute and store the same bits again, so that
    // tiles need no branch.
    uint first_k = split * (STEPS * LANES);
    uint64_t a_first = p.a - A_STEP + (batch * p.a_batch + first_k) * A_BYTES, a_stride = uint64_t(p.a_stride) * A_BYTES;
    uint64_t b_first = p.b - B_STEP + (b_batch * p.b_batch + first_k) * B_BYTES, b_stride = uint64_t(p.b_stride) * B_BYTES;
    uint64_t a_line[TM], b_line[TN];
    // The sums, followed by the levels of the tree that adds up their lanes. Each level has the
    // sums of elements 0 and 1, 2 and 3, … of the level before.
    float c[2 * SUMS];
    [[unroll]] for (int i = 0; i < LINES; i++) {
        if (i < TM) {
            uint row = min(row0 + i, p.m - 1);
            a_line[i] = a_first + (PANELS != 0 ? in_panels(row, TM, A_BYTES) : row * a_stride);
        }
        if (i < TN) {
            uint col = min(col0 + i / WIDTH * WIDTH, p.n - WIDTH) + i % WIDTH;
            b_line[i] = b_first + (PANELS != 0 ? in_panels(col, TN, B_BYTES) : col * b_stride);
        }
        [[unroll]] for (int e = 0; e < ZEROS; e++)
            c[min(i * ZEROS + e, SUMS - 1)] = 0.0;
    }

    uint64_t a0 = A_STEP, a4 = A_STEP + A_QUARTER, a8 = A_STEP + 2 * A_QUARTER, a12 = A_STEP + 3 * A_QUARTER;
    uint64_t b0 = B_STEP, b4 = B_STEP + B_QUARTER, b8 = B_STEP + 2 * B_QUARTER, b12 = B_STEP + 3 * B_QUARTER;
    [[unroll]] for (int first = 0; first < STEPS; first += GROUP) {
        // The bounds are constant, because the driver unrolls no other loops.
        [[unroll]] for (int g = 0; g < GROUP; g++) {
            int step = first + g;
            float b[TN];
            [[unroll]] for (int j = 0; j < TN; j++)
                b[j] = counted(load_b(b_line[j], b0, b4, b8, b12), step);
            [[unroll]] for (int i = 0; i < TM; i++) {
                float a = counted(load_a(a_line[i], a0, a4, a8, a12), step);
                [[unroll]] for (int j = 0; j < TN; j++)
                    c[sum_of(i, j)] += a * b[j];
            }
            // Only upper halves of words are used (see WORDS). For elements of even index, a step
            // therefore reads words that start two bytes earlier. The first step uses the lower
            // halves of words instead, because there may be no memory before a line.
            const uint64_t a_more = !WORDS ? A_STEP : step == 0 ? 0 : g == 0 ? 2 : 2 * A_STEP - 2;
            const uint64_t b_more = !WORDS ? B_STEP : a_more;
            a0 += a_more, a4 += a_more, a8 += a_more, a12 += a_more;
            b0 += b_more, b4 += b_more, b8 += b_more, b12 += b_more;
        }
    }

    // All old sums are loaded before any store, because repeated lines have the same addresses, and
    // before any branch. They are loaded even if they are not used.
    uint lane = gl_SubgroupInvocationID;
    uint64_t sums = p.sums + 4 * (batch * p.sums_batch + uint64_t(split) * p.m * p.sums_stride);
    vec4 old[ROUNDS];
#if TSR_FINISHES
    vec4 bias[ROUNDS];
#endif
    [[unroll]] for (int unit = 0; unit < UNITS; unit++) {
        uint64_t at = sums + 4 * place_of(row0, col0, unit, p.sums_stride);
        vec4 four = WIDTH == 4 ? Float4(at).v : vec4(Float(at).v);
        old[unit / LANES] = unit % LANES == 0 ? four : mix(old[unit / LANES], four, bvec4(lane == unit % LANES));
#if TSR_FINISHES
        if ((MODE & TSR_MM_BIAS) != 0) {
            four = load_bias((MODE & TSR_MM_BIAS_ROWS) != 0 ? place_of(row0, col0, unit, p.sums_batch) : uint64_t(column_of(col0, unit)));
            bias[unit / LANES] = unit % LANES == 0 ? four : mix(bias[unit / LANES], four, bvec4(lane == unit % LANES));
        }
#endif
    }

    // Adds up the lanes of all sums in one fixed tree. Each level has half as many vectors as the
    // level before: a lane keeps one sum of a pair and gives the other to its partner. At the end,
    // lane l of c[FIRST + q] holds sum q · LANES + l.
    vec4 result[ROUNDS];
    [[unroll]] for (int e = 0; e < SUMS - SUMS / LANES; e++) {
        int level = e < SUMS / 2 ? 1 : e < SUMS / 4 * 3 ? 2 : e < SUMS / 8 * 7 ? 3 : 4;
        int number = e - SUMS + 2 * (SUMS >> level); // index within the level
        // Sums that only pad a vector are computed from the vector's first sums. Zeros would make
        // compilation slower: the driver would find them level by level, in one pass each.
        bool fills = number / (WIDTH * LANES >> level) * LANES + (number << level) % LANES >= UNITS;
        int from = e - mix(0, number % (LANES >> level), fills);
        int q = SUMS + e - FIRST, distance = 1 << level - 1;
        bool high = (lane & distance) != 0;
        float low = c[2 * from], upper = c[2 * from + 1];
        float sum = mix(low, upper, high) + subgroupShuffle(mix(upper, low, high), lane ^ distance);
        if (q >= 0) {
            sum += mix(0.0, old[q / WIDTH][q % WIDTH], p.accumulate != 0);
            result[q / WIDTH][q % WIDTH] = sum;
        }
        c[SUMS + e] = sum;
    }
    PIN(c, PINNED, PINNED == 0 ? SUMS : 2 * SUMS / LANES)

    [[unroll]] for (int r = 0; r < ROUNDS; r++) {
        uint unit = r * LANES + lane;
        vec4 values = result[r];
#if TSR_FINISHES
        uint64_t at = p.y + (batch * p.y_batch + place_of(row0, col0, unit, p.y_stride)) * Y_BYTES;
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
