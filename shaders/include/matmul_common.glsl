// Functions that the matmul kernels share: addresses of operands, loads of four neighbours, and the
// epilogue.
#ifndef TSR_MATMUL_COMMON_GLSL
#define TSR_MATMUL_COMMON_GLSL

#include "include/tessera.glsl"
#include "include/activation.glsl"
#include "params/matmul.h"

layout(push_constant, std430) uniform tsr_push
{
    tsr_matmul_push p;
};

// The mode, which consists of the fields TSR_MM_… of params/matmul.h. It is in the push constants,
// unless a kernel is specialised for one mode.
#ifndef MM_MODE
#define MM_MODE p.mode
#endif

// A kernel whose mode is a constant may define MM_FUSED as this constant. Its products then also have a
// factor (TSR_MM_TIMES) or another matrix (TSR_MM_SLOPE, TSR_MM_ADDED).

// The address `count` · `stride` elements after `base`, in 64 bits.
uvec2 mm_at(uvec2 base, uint count, uint stride, uint dtype)
{
    uint high, low, carry;
    umulExtended(count, stride, high, low);
    uint shift = dtype == TSR_DT_F32 ? 2u : 1u;
    high = (high << shift) | (low >> (32u - shift));
    low = uaddCarry(base.x, low << shift, carry);
    return uvec2(low, base.y + high + carry);
}

// Widens four 16-bit elements.
vec4 mm_floats4(uvec2 pairs, uint dtype)
{
    if (dtype == TSR_DT_F16)
        return vec4(tsr_f32_from_f16_pair(pairs.x), tsr_f32_from_f16_pair(pairs.y));
    return uintBitsToFloat(uvec4(pairs.x << 16, pairs.x & 0xffff0000u, pairs.y << 16, pairs.y & 0xffff0000u));
}

// Loads elements 4·i … 4·i + 3 of an array that is aligned to four elements.
vec4 mm_load4(uvec2 base, uint i, uint dtype)
{
    if (dtype == TSR_DT_F32)
        return tsr_floats4(base).v[i];
    return mm_floats4(tsr_words2(base).v[i], dtype);
}

// Returns the bits of element i of an array.
uint mm_load_bits(uvec2 base, uint i, uint dtype)
{
    return dtype == TSR_DT_F32 ? tsr_words(base).v[i] : tsr_load_u16(base, i);
}

// Returns the bits of elements 4·i … 4·i + 3 of an array that is aligned to four elements. Four
// 16-bit elements are in the first two words, and the other two words are 0.
uvec4 mm_load_bits4(uvec2 base, uint i, uint dtype)
{
    if (dtype == TSR_DT_F32)
        return tsr_words4(base).v[i];
    return uvec4(tsr_words2(base).v[i], 0, 0);
}

// Returns where the last vector of `width` elements begins, of those that begin at multiples of `width`,
// a power of two. It may reach beyond the `count` elements, but not beyond its own aligned bytes.
uint mm_last_vector(uint count, uint width)
{
    return (count - 1) & ~(width - 1);
}

// Replaces all but the first `count` of the elements whose bits mm_load_bits4() returned by 0.
uvec4 mm_first_bits4(uvec4 bits, uint count, uint dtype)
{
    const uvec4 all = uvec4(0xffffffffu);
    if (dtype == TSR_DT_F32)
        return bits & mix(uvec4(0), all, lessThan(uvec4(0, 1, 2, 3), uvec4(count)));
    uvec2 low = mix(uvec2(0), uvec2(0xffffu), lessThan(uvec2(0, 2), uvec2(count)));
    uvec2 high = mix(uvec2(0), uvec2(0xffff0000u), lessThan(uvec2(1, 3), uvec2(count)));
    return uvec4(bits.xy & (low | high), 0, 0);
}

// Returns the value of an element whose bits mm_load_bits() returned.
float mm_widen(uint bits, uint dtype)
{
    if (dtype == TSR_DT_F16)
        return tsr_f32_from_f16(bits);
    return uintBitsToFloat(dtype == TSR_DT_BF16 ? bits << 16 : bits);
}

// Returns the values of four elements whose bits mm_load_bits4() returned.
vec4 mm_widen4(uvec4 bits, uint dtype)
{
    return dtype == TSR_DT_F32 ? uintBitsToFloat(bits) : mm_floats4(bits.xy, dtype);
}

uint mm_y_dtype()
{
    return (MM_MODE >> TSR_MM_Y_DTYPE_SHIFT) & TSR_MM_FIELD_MASK;
}

uint mm_bias_dtype()
{
    return (MM_MODE >> TSR_MM_BIAS_DTYPE_SHIFT) & TSR_MM_FIELD_MASK;
}

// The number of the range of k that this workgroup multiplies. params/matmul.h calls it a split.
uint mm_split()
{
    return gl_WorkGroupID.z % p.splits;
}

// The workgroup's index in the inner batch dimension.
uint mm_inner()
{
    return gl_WorkGroupID.z / p.splits % p.batch_inner;
}

// The workgroup's index in the outer batch dimension.
uint mm_outer()
{
    return gl_WorkGroupID.z / p.splits / p.batch_inner;
}

uvec2 mm_a_matrix(uint dtype)
{
    return mm_at(mm_at(p.a, mm_outer(), p.a_outer, dtype), mm_inner(), p.a_inner, dtype);
}

uvec2 mm_b_matrix(uint dtype)
{
    return mm_at(mm_at(p.b, mm_outer(), p.b_outer, dtype), mm_inner(), p.b_inner, dtype);
}

// The addresses of y and of the bias for the first element of a block of y. Inside a block, 32-bit
// offsets suffice.
struct mm_block
{
    uvec2 y, bias;
#ifdef MM_FUSED
    uvec2 other; // of TSR_MM_SLOPE or TSR_MM_ADDED
#endif
};

mm_block mm_block_at(uint row, uint col)
{
    uint dtype = mm_y_dtype();
    uvec2 y = mm_at(mm_at(p.y, mm_outer(), p.y_outer, dtype), mm_inner(), p.y_inner, dtype);
    if (p.splits > 1)
        y = mm_at(y, mm_split(), p.m * p.n, dtype); // if k is split, the host keeps m·n below 2^32
    y = mm_at(mm_at(y, row, p.y_row, dtype), col, p.y_col, dtype);
#ifdef MM_FUSED
    uvec2 other = mm_at(mm_at(uvec2(p.TSR_MM_OTHER_LOW, p.TSR_MM_OTHER_HIGH), row, p.y_row, dtype), col, p.y_col, dtype);
#endif
    dtype = mm_bias_dtype();
    uvec2 bias = mm_at(mm_at(p.bias, mm_outer(), p.bias_outer, dtype), mm_inner(), p.bias_inner, dtype);
    bias = mm_at(mm_at(bias, row, p.bias_row, dtype), col, p.bias_col, dtype);
#ifdef MM_FUSED
    return mm_block(y, bias, other);
#else
    return mm_block(y, bias);
#endif
}

uint mm_activation()
{
    return (MM_MODE >> TSR_MM_ACTIVATION_SHIFT) & TSR_MM_FIELD_MASK;
}

// Returns act(alpha·sum + y + bias). `y_at` and `bias_at` are offsets from the first element of the
// block.
float mm_value(mm_block block, uint y_at, uint bias_at, float sum)
{
    precise float value = p.alpha * sum;
    if ((MM_MODE & TSR_MM_ACCUMULATE) != 0)
        value += tsr_load_float(block.y, y_at, mm_y_dtype());
#ifdef MM_FUSED
    if ((MM_FUSED & TSR_MM_TIMES) != 0)
        value *= tsr_load_float(block.bias, bias_at, mm_bias_dtype());
    else
#endif
    if ((MM_MODE & TSR_MM_BIAS) != 0)
        value += tsr_load_float(block.bias, bias_at, mm_bias_dtype());
#ifdef MM_FUSED
    if ((MM_FUSED & TSR_MM_SLOPE) != 0)
        tsr_store_float(block.other, y_at, mm_y_dtype(), tsr_activate_grad(value, mm_activation()));
#endif
    if (mm_activation() != 0)
        value = tsr_activate(value, mm_activation());
#ifdef MM_FUSED
    if ((MM_FUSED & TSR_MM_ADDED) != 0)
        value += tsr_load_float(block.other, y_at, mm_y_dtype());
#endif
    return value;
}

// Stores the result of mm_value() at a row and column of the block.
void mm_store(mm_block block, uint row, uint col, float sum)
{
    uint y_at = row * p.y_row + col * p.y_col;
    tsr_store_float(block.y, y_at, mm_y_dtype(), mm_value(block, y_at, row * p.bias_row + col * p.bias_col, sum));
}

// Returns the bias of four neighbouring columns.
vec4 mm_bias4(mm_block block, uint row, uint col)
{
    vec4 bias;
    uint at = row * p.bias_row + col * p.bias_col;
    [[unroll]] for (uint i = 0; i < 4; i++)
        bias[i] = tsr_load_float(block.bias, at + i * p.bias_col, mm_bias_dtype());
    return bias;
}

void mm_put4(uvec2 at, vec4 value)
{
    uint dtype = mm_y_dtype();
    if (dtype == TSR_DT_F32) {
        tsr_floats4(at).v[0] = value;
        return;
    }
    uvec4 bits = dtype == TSR_DT_F16 ? tsr_f16_from_f32(value) : tsr_bf16_from_f32(value);
    tsr_words2(at).v[0] = uvec2(bits[0] | bits[1] << 16, bits[2] | bits[3] << 16);
}

// Stores what mm_store() would store for four neighbouring columns, which are one aligned vector of
// y (TSR_MM_Y_VECTORS). `bias` is not used if the mode has none.
void mm_store4(mm_block block, uint row, uint col, vec4 sum, vec4 bias)
{
    uint dtype = mm_y_dtype(), offset = (row * p.y_row + col) * (dtype == TSR_DT_F32 ? 4u : 2u);
    uvec2 at = tsr_at(block.y, offset);
    precise vec4 value = p.alpha * sum;
    if ((MM_MODE & TSR_MM_ACCUMULATE) != 0)
        value += mm_load4(at, 0, dtype);
#ifdef MM_FUSED
    if ((MM_FUSED & TSR_MM_TIMES) != 0)
        value *= bias;
    else
#endif
    if ((MM_MODE & TSR_MM_BIAS) != 0)
        value += bias;
    uint activation = mm_activation();
#ifdef MM_FUSED
    uvec2 other = tsr_at(block.other, offset);
    if ((MM_FUSED & TSR_MM_SLOPE) != 0)
        mm_put4(other, vec4(tsr_activate_grad(value.x, activation), tsr_activate_grad(value.y, activation),
                            tsr_activate_grad(value.z, activation), tsr_activate_grad(value.w, activation)));
#endif
    // without a loop: the compiler's copies of a loop's body are no longer precise
    if (activation != 0)
        value = vec4(tsr_activate(value.x, activation), tsr_activate(value.y, activation),
                     tsr_activate(value.z, activation), tsr_activate(value.w, activation));
#ifdef MM_FUSED
    if ((MM_FUSED & TSR_MM_ADDED) != 0)
        value += mm_load4(other, 0, dtype);
#endif
    mm_put4(at, value);
}

#endif
