// Takes the state of the gated delta rule from chunk to chunk, as delta_scan.comp does, with cooperative matrices: the rows of q, k, W
// and the weights of y are narrowed to sums of f16 terms (TSR_MM_TERM_UNIT of params/matmul.h), and so are the state and the changes D
// here, with one scale for a workgroup's columns. Sums, the state and the changes are f32. A workgroup has COLUMNS columns of a head's
// state. Invocations keep them in registers, in blocks of four rows and four columns; products go through shared memory, because
// which elements of a fragment an invocation has is the driver's choice.
#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_shader_subgroup_basic : require
#include "include/tessera.glsl"
#include "params/delta.h"
#include "params/matmul.h"

layout(constant_id = 0) const uint THREADS = 128;
layout(local_size_x = 128, local_size_x_id = 0) in;

layout(push_constant, std430) uniform tsr_push
{
    tsr_delta_scan_matrices_push p;
};

#include "include/delta.glsl"
#include "include/rows.glsl"

layout(constant_id = 6) const uint SUBGROUP = 32; // the subgroup size that the pipeline requires
layout(constant_id = 7) const uint COLUMNS = 32;
layout(constant_id = 8) const uint Y_DTYPE = TSR_DT_F32;
layout(constant_id = 9) const uint SLOTS = 0;
layout(constant_id = 10) const uint FM = 16; // FM × FN × FK: a shape of fragments that the device supports
layout(constant_id = 11) const uint FN = 16;
layout(constant_id = 12) const uint FK = 16;
layout(constant_id = 13) const uint TERMS = 2; // 1 or 2

#include "include/slots.glsl"

const uint SUBGROUPS = THREADS / SUBGROUP;
const uint QUADS = COLUMNS / 4u;
const uint ACROSS = COLUMNS / FN;
// The blocks of an invocation: of the state, and of rows of tokens.
const uint STATE_BLOCKS = KEY_DIM / 4u * QUADS;
const uint TOKEN_BLOCKS = CHUNK / 4u * QUADS;
const uint OWN_STATE = (STATE_BLOCKS + THREADS - 1u) / THREADS;
const uint OWN_TOKENS = (TOKEN_BLOCKS + THREADS - 1u) / THREADS;

// Right operands in shared memory, for each term a line for each column: the state, whose place D and then `out · D` take. Distances are
// in uvec4, eight elements.
const uint STATE_PITCH = (KEY_DIM + TSR_MM_COOPMAT_PAD) / 8u;
const uint CHUNK_PITCH = (CHUNK + TSR_MM_COOPMAT_PAD) / 8u;
const uint CHANGES = TERMS * COLUMNS * CHUNK_PITCH; // of D
shared uvec4 tile[TERMS * COLUMNS * (STATE_PITCH > 2u * CHUNK_PITCH ? STATE_PITCH : 2u * CHUNK_PITCH)];

// Products: CHUNK rows of tokens, then CHUNK rows of tokens or KEY_DIM rows of the state.
const uint STAGE_QUADS = QUADS + 1u;
shared vec4 stage[(CHUNK + (KEY_DIM > CHUNK ? KEY_DIM : CHUNK)) * STAGE_QUADS];

shared uint largest[3]; // the bits of the largest finite absolute value of the state, of D, and of out · D

#define SUMS coopmat<float, gl_ScopeSubgroup, FM, FN, gl_MatrixUseAccumulator>
#define LEFT coopmat<float16_t, gl_ScopeSubgroup, FM, FK, gl_MatrixUseA>
#define RIGHT coopmat<float16_t, gl_ScopeSubgroup, FK, FN, gl_MatrixUseB>

// Narrowing ---------------------------------------------------------------------------------------

bvec4 is_finite(vec4 x)
{
    return lessThan(floatBitsToUint(x) & 0x7fffffffu, uvec4(0x7f800000u));
}

uint largest_of(vec4 x)
{
    uvec4 bits = mix(uvec4(0u), floatBitsToUint(x) & 0x7fffffffu, is_finite(x));
    return max(max(bits.x, bits.y), max(bits.z, bits.w));
}

// The exponent of the power of two by which numbers are multiplied before they are narrowed, so that the largest has an exponent of 14:
// f16 reaches 65504. The limits keep that power and its inverse normal.
int shift_of(uint bits)
{
    return clamp(14 - (int(bits >> 23) - 127), -126, 126);
}

float power_of_two(int exponent)
{
    return uintBitsToFloat(uint(exponent + 127) << 23);
}

// Narrows a block, four rows from `row` on, and keeps it in a right operand whose tile begins at `at`.
void keep(uint at, uint pitch, uint row, uint quad, vec4 rows[4], float factor)
{
    [[unroll]] for (uint c = 0u; c < 4u; c++) {
        vec4 x = vec4(rows[0][c], rows[1][c], rows[2][c], rows[3][c]);
        bvec4 finite = is_finite(x);
        precise vec4 rest = x * factor;
        [[unroll]] for (uint term = 0u; term < TERMS; term++) {
            // All terms but the last are cut off instead of rounded, so that the rest depends on no conversion, which compilers may undo.
            vec4 cut = uintBitsToFloat(floatBitsToUint(rest) & ~0x1fffu);
            vec4 value = term + 1u < TERMS ? mix(rest, cut, finite) : rest;
            f16vec4 rounded = f16vec4(value);
            uint place = at + (term * COLUMNS + 4u * quad + c) * pitch + row / 8u, half_of = row % 8u / 2u;
            tile[place][half_of] = packFloat2x16(rounded.xy);
            tile[place][half_of + 1u] = packFloat2x16(rounded.zw);
            precise vec4 difference = rest - value;
            rest = mix(vec4(0.0), difference, finite);
        }
    }
}

// Narrowed lines of f16: terms of `dim` elements, then the scale.
uint line_elements(uint dim)
{
    return TERMS * dim + TSR_MM_TERM_UNIT;
}

uvec2 line_at(uvec2 lines, uint line, uint dim)
{
    return tsr_at_mul(lines, line, 2u * line_elements(dim));
}

float scale_of(uvec2 lines, uint line, uint dim)
{
    return tsr_floats(tsr_at(line_at(lines, line, dim), 2u * TERMS * dim)).v[0];
}

// Products ----------------------------------------------------------------------------------------

// Computes FM rows, from row `FM · block` on, of the product of narrowed lines and a right operand, whose tile begins at `at`, and puts them
// into the stage from row `to` on. The lines, whose terms have `dim` elements, are rows of the left operand or, if `columns` is
// true, its columns. Products of two second terms are left out.
void multiply(uvec2 lines, bool columns, uint dim, uint block, uint depth, uint at, uint pitch, uint to)
{
    uint line = line_elements(dim) / 8u;
    SUMS sums[ACROSS];
    [[unroll]] for (uint n = 0u; n < ACROSS; n++)
        sums[n] = SUMS(0.0);
    for (uint k = 0u; k < depth; k += FK) {
        LEFT left[TERMS];
        [[unroll]] for (uint term = 0u; term < TERMS; term++) {
            if (columns)
                coopMatLoad(left[term], tsr_words4(lines).v, k * line + (term * dim + block * FM) / 8u, line,
                            gl_CooperativeMatrixLayoutColumnMajor);
            else
                coopMatLoad(left[term], tsr_words4(lines).v, block * FM * line + (term * dim + k) / 8u, line,
                            gl_CooperativeMatrixLayoutRowMajor);
        }
        [[unroll]] for (uint n = 0u; n < ACROSS; n++)
            [[unroll]] for (uint term = 0u; term < TERMS; term++) {
                RIGHT right;
                coopMatLoad(right, tile, at + (term * COLUMNS + n * FN) * pitch + k / 8u, pitch,
                            gl_CooperativeMatrixLayoutColumnMajor);
                [[unroll]] for (uint other = 0u; other < TERMS - term; other++)
                    sums[n] = coopMatMulAdd(left[other], right, sums[n]);
            }
    }
    [[unroll]] for (uint n = 0u; n < ACROSS; n++)
        coopMatStore(sums[n], stage, (to + block * FM) * STAGE_QUADS + n * FN / 4u, STAGE_QUADS,
                     gl_CooperativeMatrixLayoutRowMajor);
}

// From chunk to chunk -----------------------------------------------------------------------------

uint block_row(uint n)
{
    return (gl_LocalInvocationID.x + n * THREADS) / QUADS * 4u;
}

void main()
{
    uint blocks = (VALUE_DIM + COLUMNS - 1u) / COLUMNS, group = tsr_flat_group();
    if (group >= p.batch * HEADS * blocks)
        return;
    uint head = group / blocks % HEADS, b = group / blocks / HEADS;
    uint quad = gl_LocalInvocationID.x % QUADS; // THREADS is a multiple of QUADS
    uint column = group % blocks * COLUMNS + 4u * quad;
    uint old_slot = tsr_slot(TSR_READS_SLOTS, p.read_slots, b, p.slots);
    uvec2 from = tsr_at_mul(p.state, old_slot * HEADS + head, KEY_DIM * VALUE_DIM * 4u);
    bool zero = (p.state.x | p.state.y) == 0u || (TSR_READS_SLOTS && old_slot == TSR_NO_SLOT);
    vec4 state[OWN_STATE][4];
    [[unroll]] for (uint n = 0u; n < OWN_STATE; n++)
        [[unroll]] for (uint m = 0u; m < 4u; m++) {
            state[n][m] = vec4(0.0);
            if (!zero && column < VALUE_DIM && block_row(n) < KEY_DIM)
                state[n][m] = tsr_floats4_loose(tsr_at_mul(from, block_row(n) + m, VALUE_DIM * 4u)).v[column / 4u];
        }
    if (gl_LocalInvocationID.x < 3u)
        largest[gl_LocalInvocationID.x] = 0u;
    barrier();
    for (uint c = p.first_chunk; c < p.end_chunk; c++) {
        uint chunk = b * p.chunks + c, rows = (chunk * HEADS + head) * CHUNK;
        uint key_rows = (chunk * KEY_HEADS + delta_key_head(head)) * CHUNK;
        uint most = 0u;
        [[unroll]] for (uint n = 0u; n < OWN_STATE; n++)
            [[unroll]] for (uint m = 0u; m < 4u; m++)
                most = max(most, largest_of(state[n][m]));
        atomicMax(largest[0], most);
        barrier();
        int shift = shift_of(largest[0]);
        float state_scale = power_of_two(-shift);
        [[unroll]] for (uint n = 0u; n < OWN_STATE; n++)
            if (block_row(n) < KEY_DIM)
                keep(0u, STATE_PITCH, block_row(n), quad, state[n], power_of_two(shift));
        barrier();
        for (uint block = gl_SubgroupID; block < CHUNK / FM; block += SUBGROUPS) {
            multiply(line_at(p.w, rows, KEY_DIM), false, KEY_DIM, block, KEY_DIM, 0u, STATE_PITCH, 0u);
            multiply(line_at(p.queries, key_rows, KEY_DIM), false, KEY_DIM, block, KEY_DIM, 0u, STATE_PITCH, CHUNK);
        }
        if (gl_LocalInvocationID.x < 2u)
            largest[1u + gl_LocalInvocationID.x] = 0u;
        barrier();
        vec4 deltas[OWN_TOKENS][4], left[OWN_TOKENS][4], sums[OWN_TOKENS][4];
        uint most_delta = 0u, most_left = 0u;
        [[unroll]] for (uint n = 0u; n < OWN_TOKENS; n++)
            [[unroll]] for (uint m = 0u; m < 4u; m++) {
                deltas[n][m] = left[n][m] = sums[n][m] = vec4(0.0);
                uint t = block_row(n) + m;
                if (t >= CHUNK || column >= VALUE_DIM)
                    continue;
                vec4 numbers = tsr_floats4(delta_row(p.work, p.decay, rows + t, TSR_DELTA_DECAY_FLOATS)).v[0];
                vec4 old = stage[t * STAGE_QUADS + quad] * scale_of(p.w, rows + t, KEY_DIM) * state_scale;
                deltas[n][m] = tsr_floats4(delta_row(p.work, p.u, rows + t, VALUE_DIM)).v[column / 4u] - old;
                left[n][m] = numbers.z * deltas[n][m] * scale_of(p.keys, key_rows + t, KEY_DIM);
                sums[n][m] = stage[(CHUNK + t) * STAGE_QUADS + quad] * scale_of(p.queries, key_rows + t, KEY_DIM) * state_scale * numbers.y;
                most_delta = max(most_delta, largest_of(deltas[n][m]));
                most_left = max(most_left, largest_of(left[n][m]));
            }
        atomicMax(largest[1], most_delta);
        atomicMax(largest[2], most_left);
        barrier(); // all products with the old state have been read, and the largest changes are known
        int delta_shift = shift_of(largest[1]), left_shift = shift_of(largest[2]);
        [[unroll]] for (uint n = 0u; n < OWN_TOKENS; n++)
            if (block_row(n) < CHUNK) {
                keep(0u, CHUNK_PITCH, block_row(n), quad, deltas[n], power_of_two(delta_shift));
                keep(CHANGES, CHUNK_PITCH, block_row(n), quad, left[n], power_of_two(left_shift));
            }
        if (gl_LocalInvocationID.x == 0u)
            largest[0] = 0u;
        barrier();
        for (uint block = gl_SubgroupID; block < CHUNK / FM; block += SUBGROUPS)
            multiply(line_at(p.weights, rows, CHUNK), false, CHUNK, block, CHUNK, 0u, CHUNK_PITCH, 0u);
        for (uint block = gl_SubgroupID; block < KEY_DIM / FM; block += SUBGROUPS)
            multiply(line_at(p.keys, key_rows, KEY_DIM), true, KEY_DIM, block, CHUNK, CHANGES, CHUNK_PITCH, CHUNK);
        barrier();
        [[unroll]] for (uint n = 0u; n < OWN_TOKENS; n++)
            [[unroll]] for (uint m = 0u; m < 4u; m++) {
                uint t = block_row(n) + m, token = c * CHUNK + t;
                if (t >= CHUNK || column >= VALUE_DIM || token >= p.tokens || (p.y.x | p.y.y) == 0u)
                    continue;
                vec4 y = sums[n][m] + stage[t * STAGE_QUADS + quad] * scale_of(p.weights, rows + t, CHUNK) * power_of_two(-delta_shift);
                uvec2 to = tsr_at_mul(p.y, b * p.tokens + token, p.y_stride * tsr_dtype_bytes(Y_DTYPE));
                [[unroll]] for (uint i = 0u; i < 4u; i++)
                    tsr_store_float(to, head * VALUE_DIM + column + i, Y_DTYPE, y[i]);
            }
        float carry_out = tsr_floats4(delta_row(p.work, p.decay, rows, TSR_DELTA_DECAY_FLOATS)).v[1].y;
        [[unroll]] for (uint n = 0u; n < OWN_STATE; n++)
            [[unroll]] for (uint m = 0u; m < 4u; m++)
                if (block_row(n) < KEY_DIM)
                    state[n][m] = carry_out * state[n][m] +
                                  stage[(CHUNK + block_row(n) + m) * STAGE_QUADS + quad] * power_of_two(-left_shift);
    }
    uint new_slot = tsr_slot(TSR_WRITES_SLOTS, p.write_slots, b, p.slots);
    if ((p.new_state.x | p.new_state.y) == 0u || column >= VALUE_DIM || (TSR_WRITES_SLOTS && new_slot == TSR_NO_SLOT))
        return;
    uvec2 to = tsr_at_mul(p.new_state, new_slot * HEADS + head, KEY_DIM * VALUE_DIM * 4u);
    [[unroll]] for (uint n = 0u; n < OWN_STATE; n++)
        [[unroll]] for (uint m = 0u; m < 4u; m++)
            if (block_row(n) < KEY_DIM)
                tsr_floats4_loose(tsr_at_mul(to, block_row(n) + m, VALUE_DIM * 4u)).v[column / 4u] = state[n][m];
}
