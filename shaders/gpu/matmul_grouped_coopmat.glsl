// Grouped product (matmul_grouped.comp) by cooperative matrices, with sums in f32. Rows of x and
// matrices of experts are 16-bit floats, or are narrowed to sums of such terms (TSR_MM_TERM_UNIT of
// params/matmul.h): rows of x by matmul_narrow.comp before, and matrices in block formats here, so
// that each word of a block is read once. A line of a matrix has one scale, a power of two, from
// the largest value that its blocks' scales allow.
//
// A workgroup computes BM rows and BN columns of one expert. A step adds BK products to every
// element, from tiles in shared memory, while the next tiles are loaded. The products of the
// smaller terms come first. Fragments of rows take turns over the subgroups, and those past the
// expert's last row are left out if that spares a subgroup half of its own. GATED is as in
// matmul_grouped.comp.
//
// The including file defines what matmul_coopmat.glsl expects: ELEMENT, DTYPE and perhaps ELEMENT4.
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_shader_subgroup_basic : require
#include "include/gated.glsl"
#include "include/grouped.glsl"
#include "params/matmul.h"

layout(constant_id = 5) const uint THREADS = 128;
layout(local_size_x = 128, local_size_x_id = 5) in;
layout(constant_id = 6) const uint SUBGROUP = 32;
layout(constant_id = 7) const uint DOWN = 2; // rows of subgroups in the workgroup's tile
layout(constant_id = 8) const uint BM = 64;
layout(constant_id = 9) const uint BN = 64;
layout(constant_id = 10) const uint BK = 32; // a multiple of FK and of 32
layout(constant_id = 11) const uint FM = 16;
layout(constant_id = 12) const uint FN = 16;
layout(constant_id = 13) const uint FK = 16;
layout(constant_id = 14) const uint X_TERMS = 1;
layout(constant_id = 15) const uint X_SCALES = 0; // rows of x are narrowed
layout(constant_id = 16) const uint W_TERMS = 1;
layout(constant_id = 17) const uint W_BLOCKS = 0; // w is in a block format
layout(constant_id = 18) const uint Y_DTYPE = TSR_DT_F32;
layout(constant_id = 19) const uint BIAS_DTYPE = TSR_DT_F32;
layout(constant_id = 20) const uint ACCUMULATE = 0;
layout(constant_id = 21) const uint GATED = 0;
layout(constant_id = 22) const uint ACTIVATION = TSR_EXPERT_ACT_SILU;

layout(push_constant, std430) uniform tsr_push
{
    tsr_grouped_push p;
};

const uint OWN = GATED != 0 ? BN / 2 : BN; // columns of y in a tile
const uint SUBGROUPS = THREADS / SUBGROUP;
const uint ACROSS = SUBGROUPS / DOWN;
const uint TM = BM / DOWN / FM, HALF = (TM + 1) / 2;
const uint TN = BN / ACROSS / FN;
const uint PASSES = X_TERMS + W_TERMS - 1;

// Tiles in units of UNIT elements; a row of a tile is a line, with PITCH units from row to row.
#ifdef ELEMENT4
const uint UNIT = 4;
#else
const uint UNIT = 8;
#endif
const uint PITCH = (BK + TSR_MM_COOPMAT_PAD) / UNIT;
const uint W_TILE = X_TERMS * BM * PITCH;
const uint TILE_END = W_TILE + W_TERMS * BN * PITCH;
const uint STAGE_PITCH = BN + 4;
const uint STAGE = BM * STAGE_PITCH; // all sums of the workgroup
#ifdef ELEMENT4
struct aligned_tile {
    uvec4 alignment; // fragments start at multiples of 16 bytes
    ELEMENT4 at[TILE_END];
};
shared aligned_tile tile_memory;
#define tile tile_memory.at
shared vec4 stage[STAGE / 4];
#else
shared uvec4 tile[TILE_END > STAGE / 4 ? TILE_END : STAGE / 4];
#endif
shared uint pairs[BM];
shared uint largest[BN];     // the bits of a bound of the values of each line of w
shared float scales[BM + BN]; // of rows, then of columns

const uint X_LOADS = BM * BK / 8 / THREADS;
const uint W_LOADS = BN * BK / (W_BLOCKS != 0 ? 4 : 8) / THREADS; // fours of blocks, or eights
uvec2 x_at[X_LOADS], w_at[W_LOADS];
uvec4 x_held[X_TERMS * X_LOADS];
uvec4 w_eights[W_LOADS];
vec4 w_fours[W_LOADS];

uint offset_of(uint expert)
{
    return tsr_words(p.offsets).v[expert];
}

// The elements of a term, in narrowed rows of x, and of a row that is not narrowed, whose size is a
// multiple of 8.
uint term_elements()
{
    return (p.k + TSR_MM_TERM_UNIT - 1) / TSR_MM_TERM_UNIT * TSR_MM_TERM_UNIT;
}

// The line and the k of eight number i of this invocation.
uvec2 eight_place(uint i)
{
    uint e = i * THREADS + gl_LocalInvocationIndex;
    return uvec2(e / (BK / 8), e % (BK / 8) * 8);
}

// A step has whole units of blocks if a unit's elements are at most BK apart. The units of an
// invocation are neighbours along k; W_PARTS fours of it come from one word.
const uint SPAN = QUANT_LOW_RUN * QUANT_PARTS;
const bool WHOLE_UNITS = BK % SPAN == 0;
const uint W_PARTS = WHOLE_UNITS ? QUANT_PARTS : 1;
const uint UNITS = BK / 4 / W_PARTS; // of a line in a step

// The line and the unit of number i of this invocation, for i < W_LOADS / W_PARTS.
uvec2 unit_place(uint i)
{
    uint e = i * THREADS + gl_LocalInvocationIndex;
    return uvec2(e / UNITS, e % UNITS);
}

// The distance in k, from the start of a step, of four number `part` of a unit.
uint unit_k(uint unit, uint part)
{
    if (!WHOLE_UNITS)
        return 4 * unit;
    return unit / QUANT_UNITS * QUANT_COUNT + quant_element(unit % QUANT_UNITS, part);
}

// The largest absolute value of a level.
float most_level()
{
    if (QUANT_CODE == TSR_QUANT_SIGNED)
        return 128.0;
    if (QUANT_CODE == TSR_QUANT_NL)
        return 127.0;
    if (QUANT_CODE == TSR_QUANT_E2M1)
        return 12.0;
    return float(max((1u << (QUANT_LOW_BITS + QUANT_HIGH_BITS)) - 1u, QUANT_BIAS));
}

// f16 reaches 65504. bf16 has the range of f32, and products with it must not overflow.
const int TOP = DTYPE == TSR_DT_F16 ? 14 : 0;

int shift_of(uint bits)
{
    return clamp(TOP - (int(bits >> 23) - 127), -126, 126);
}

float power_of_two(int exponent)
{
    return uintBitsToFloat(uint(exponent + 127) << 23);
}

// Finds the scales of the columns from those of their blocks. Scales that are not finite do not
// count: their elements are infinities and NaN in any case.
void find_scales(uvec2 w, uvec2 up, uint col0)
{
    uint lane = gl_LocalInvocationIndex, groups = p.k / QUANT_SUB;
    for (uint i = lane; i < BN; i += THREADS)
        largest[i] = 0;
    barrier();
    for (uint i = lane; i < BN * groups; i += THREADS) {
        uint line = i / groups, group = i % groups;
        uvec2 from = tsr_at_stride(line < OWN ? w : up, min(col0 + line % OWN, p.n - 1), p.w_line);
        uvec2 block = tsr_at_mul(from, group * QUANT_SUB / QUANT_COUNT, QUANT_BYTES);
        vec2 scale = abs(quant_scale(block, group % (QUANT_COUNT / QUANT_SUB)));
        uint bits = floatBitsToUint(scale.x * most_level() + scale.y);
        bool finite = max(floatBitsToUint(scale.x), floatBitsToUint(scale.y)) < 0x7f800000u;
        atomicMax(largest[line], finite ? min(bits, 0x7f7fffffu) : 0u);
    }
    barrier();
    for (uint i = lane; i < BN; i += THREADS)
        scales[BM + i] = power_of_two(-shift_of(largest[i]));
}

void load_x(uint k)
{
    [[unroll]] for (uint term = 0; term < X_TERMS; term++)
        [[unroll]] for (uint i = 0; i < X_LOADS; i++) {
            uint at = k + eight_place(i).y;
            uvec4 bits = tsr_words4(tsr_at(x_at[i], (term * term_elements() + min(at, term_elements() - 8)) * 2)).v[0];
            x_held[term * X_LOADS + i] = mix(uvec4(0), bits, bvec4(at < p.k));
        }
}

void load_blocks(uint k)
{
    [[unroll]] for (uint i = 0; i < W_LOADS / W_PARTS; i++) {
        uint unit = unit_place(i).y;
        if (!WHOLE_UNITS) {
            w_fours[i] = grouped_blocks4(w_at[i], k + 4 * unit, p.k);
            continue;
        }
        uint number = k / QUANT_COUNT * QUANT_UNITS + k % QUANT_COUNT / (4 * QUANT_PARTS) + unit;
        uint last = p.k / QUANT_COUNT * QUANT_UNITS - 1, from = min(number, last);
        uvec2 block = tsr_at_mul(w_at[i], from / QUANT_UNITS, QUANT_BYTES);
        uint low = quant_low(block, from % QUANT_UNITS);
        [[unroll]] for (uint part = 0; part < W_PARTS; part++)
            w_fours[i * W_PARTS + part] =
                mix(vec4(0.0), quant_values(block, from % QUANT_UNITS, low, part), bvec4(number <= last));
    }
}

void load_w(uint k)
{
    if (W_BLOCKS != 0) {
        load_blocks(k);
        return;
    }
    [[unroll]] for (uint i = 0; i < W_LOADS; i++) {
        uint at = k + eight_place(i).y;
        uvec4 bits = tsr_words4(tsr_at(w_at[i], min(at, p.k - 8) * 2)).v[0];
        w_eights[i] = mix(uvec4(0), bits, bvec4(at < p.k));
    }
}

// Stores four elements; `at` counts fours.
void keep4(uint at, uvec2 bits)
{
#ifdef ELEMENT4
    tile[at] = ELEMENT4_OF(bits);
#else
    if (at % 2 == 0)
        tile[at / 2].xy = bits;
    else
        tile[at / 2].zw = bits;
#endif
}

void keep8(uint at, uvec4 bits)
{
#ifdef ELEMENT4
    tile[2 * at] = ELEMENT4_OF(bits.xy);
    tile[2 * at + 1] = ELEMENT4_OF(bits.zw);
#else
    tile[at] = bits;
#endif
}

void keep_blocks()
{
    [[unroll]] for (uint i = 0; i < W_LOADS; i++) {
        uvec2 place = unit_place(i / W_PARTS);
        vec4 value = w_fours[i];
        bvec4 finite = lessThan(floatBitsToUint(value) & 0x7fffffffu, uvec4(0x7f800000u));
        precise vec4 rest = value * (1.0 / scales[BM + place.x]);
        [[unroll]] for (uint term = 0; term < W_TERMS; term++) {
            uvec4 bits = DTYPE == TSR_DT_F16 ? tsr_f16_from_f32(rest) : tsr_bf16_from_f32(rest);
            uvec2 words = uvec2(bits.x | bits.y << 16, bits.z | bits.w << 16);
            uint line = (W_TILE + (term * BN + place.x) * PITCH) * UNIT;
            keep4((line + unit_k(place.y, i % W_PARTS)) / 4, words);
            vec4 rounded = DTYPE == TSR_DT_F16 ? vec4(tsr_f32_from_f16_pair(words.x), tsr_f32_from_f16_pair(words.y))
                                               : uintBitsToFloat(bits << 16);
            precise vec4 difference = rest - rounded;
            rest = mix(vec4(0.0), difference, finite);
        }
    }
}

void keep()
{
    [[unroll]] for (uint term = 0; term < X_TERMS; term++)
        [[unroll]] for (uint i = 0; i < X_LOADS; i++) {
            uvec2 place = eight_place(i);
            keep8(((term * BM + place.x) * PITCH * UNIT + place.y) / 8, x_held[term * X_LOADS + i]);
        }
    if (W_BLOCKS != 0) {
        keep_blocks();
        return;
    }
    [[unroll]] for (uint i = 0; i < W_LOADS; i++) {
        uvec2 place = eight_place(i);
        keep8(((W_TILE + place.x * PITCH) * UNIT + place.y) / 8, w_eights[i]);
    }
}

float staged_sum(uint at)
{
#ifdef ELEMENT4
    return stage[at / 4][at % 4];
#else
    return uintBitsToFloat(tile[at / 4][at % 4]);
#endif
}

// The sum of an element, with the scales of its row and its column. The smaller scale comes first,
// so that no intermediate result overflows if the last one does not.
float scaled(uint row, uint col)
{
    precise float value = staged_sum(row * STAGE_PITCH + col);
    if (X_SCALES != 0 && W_BLOCKS != 0) {
        value = value * min(scales[row], scales[BM + col]);
        value = value * max(scales[row], scales[BM + col]);
    } else if (X_SCALES != 0) {
        value = value * scales[row];
    } else if (W_BLOCKS != 0) {
        value = value * scales[BM + col];
    }
    return value;
}

float bias_of(uvec2 bias, uint expert, uint col)
{
    if ((bias.x | bias.y) == 0)
        return 0.0;
    return tsr_load_float(tsr_at_mul(bias, expert * p.bias_stride, tsr_dtype_bytes(BIAS_DTYPE)), col, BIAS_DTYPE);
}

void store(uint rows, uint col0, uint expert)
{
    for (uint e = gl_LocalInvocationIndex; e < BM * OWN; e += THREADS) {
        uint row = e / OWN, own = e % OWN, col = col0 + own;
        if (row >= rows || col >= p.n)
            continue;
        uvec2 to = tsr_at_mul(p.y, pairs[row], p.y_stride * tsr_dtype_bytes(Y_DTYPE));
        precise float value = scaled(row, own);
        if (ACCUMULATE != 0)
            value += tsr_load_float(to, col, Y_DTYPE);
        value += bias_of(p.bias, expert, col);
        if (GATED != 0)
            value = tsr_gated(value, scaled(row, OWN + own) + bias_of(p.up_bias, expert, col), p.limit, ACTIVATION);
        tsr_store_float(to, col, Y_DTYPE, value);
    }
}

// The first row of fragment i of this subgroup.
uint row_of(uint i)
{
    return (i * DOWN + gl_SubgroupID / ACROSS) * FM;
}

// Adds the products of a step to the sums of the first COUNT fragments of rows.
#define MULTIPLY(COUNT) \
    [[unroll]] for (uint f = 0; f < BK; f += FK) \
        [[unroll]] for (uint n = 0; n < PASSES; n++) { \
            uint pass = PASSES - 1 - n; \
            uint x_line = pass < X_TERMS ? pass * BM : 0, w_line = pass < X_TERMS ? 0 : (pass - X_TERMS + 1) * BN; \
            coopmat<ELEMENT, gl_ScopeSubgroup, FM, FK, gl_MatrixUseA> fa[COUNT]; \
            [[unroll]] for (uint i = 0; i < COUNT; i++) \
                coopMatLoad(fa[i], tile, (x_line + row_of(i)) * PITCH + f / UNIT, PITCH, gl_CooperativeMatrixLayoutRowMajor); \
            [[unroll]] for (uint j = 0; j < TN; j++) { \
                coopmat<ELEMENT, gl_ScopeSubgroup, FK, FN, gl_MatrixUseB> fb; \
                coopMatLoad(fb, tile, W_TILE + (w_line + col + j * FN) * PITCH + f / UNIT, PITCH, gl_CooperativeMatrixLayoutColumnMajor); \
                [[unroll]] for (uint i = 0; i < COUNT; i++) \
                    sums[i * TN + j] = coopMatMulAdd(fa[i], fb, sums[i * TN + j]); \
            } \
        }

void main()
{
    uint across = (p.n + OWN - 1) / OWN;
    uint slot = p.first_slot + tsr_flat_group() / across, col0 = tsr_flat_group() % across * OWN;
    if (slot >= p.slots)
        return;
    // The last expert whose tiles start at `slot` or before it.
    uint expert = 0, past = p.experts;
    while (past - expert > 1) {
        uint middle = (expert + past) / 2;
        if (offset_of(middle) / BM + middle <= slot)
            expert = middle;
        else
            past = middle;
    }
    uint begin = offset_of(expert), end = offset_of(expert + 1);
    uint first = begin + (slot - begin / BM - expert) * BM;
    if (first >= end)
        return;
    uint rows = min(end - first, BM), lane = gl_LocalInvocationIndex;
    for (uint i = lane; i < BM; i += THREADS)
        pairs[i] = tsr_words(p.order).v[first + min(i, rows - 1)];
    barrier();

    [[unroll]] for (uint i = 0; i < X_LOADS; i++)
        x_at[i] = tsr_at_mul(p.x, pairs[eight_place(i).x] / p.x_divide, p.x_stride * 2);
    if (X_SCALES != 0)
        for (uint i = lane; i < BM; i += THREADS)
            scales[i] = tsr_floats(tsr_at(tsr_at_mul(p.x, pairs[i] / p.x_divide, p.x_stride * 2), X_TERMS * term_elements() * 2)).v[0];
    uvec2 w = tsr_at_stride(p.w, expert, p.w_expert), up = tsr_at_stride(p.up, expert, p.w_expert);
    // Columns past the edge repeat the last one, and their sums are not stored.
    [[unroll]] for (uint i = 0; i < W_LOADS / (W_BLOCKS != 0 ? W_PARTS : 1); i++) {
        uint line = W_BLOCKS != 0 ? unit_place(i).x : eight_place(i).x;
        w_at[i] = tsr_at_stride(line < OWN ? w : up, min(col0 + line % OWN, p.n - 1), p.w_line);
    }
    if (W_BLOCKS != 0)
        find_scales(w, up, col0);

    uint col = gl_SubgroupID % ACROSS * (TN * FN);
    coopmat<float, gl_ScopeSubgroup, FM, FN, gl_MatrixUseAccumulator> sums[TM * TN];
    [[unroll]] for (uint i = 0; i < TM * TN; i++)
        sums[i] = coopmat<float, gl_ScopeSubgroup, FM, FN, gl_MatrixUseAccumulator>(0.0);
    load_x(0);
    load_w(0);
    for (uint k = 0; k < p.k; k += BK) {
        barrier();
        keep();
        barrier();
        if (k + BK < p.k) {
            load_x(k + BK);
            load_w(k + BK);
        }
        if (HALF < TM && row_of(HALF) < rows) {
            MULTIPLY(TM)
        } else if (row_of(0) < rows) {
            MULTIPLY(HALF)
        }
    }

    barrier(); // all subgroups have read their last fragments
    [[unroll]] for (uint i = 0; i < TM * TN; i++) {
        uint at = row_of(i / TN) * STAGE_PITCH + col + i % TN * FN;
#ifdef ELEMENT4
        coopMatStore(sums[i], stage, at / 4, STAGE_PITCH / 4, gl_CooperativeMatrixLayoutRowMajor);
#else
        coopMatStore(sums[i], tile, at / 4, STAGE_PITCH / 4, gl_CooperativeMatrixLayoutRowMajor);
#endif
    }
    barrier();
    store(rows, col0, expert);
}
