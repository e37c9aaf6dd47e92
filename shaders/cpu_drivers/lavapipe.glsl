// Functions that the kernels for lavapipe share. The driver runs each invocation in one SIMD lane.
// It emits a load as one vector or scalar load only in top-level straight-line code, and only if it
// recognises the address as uniform, that is, as computed from constants and push constants. Every
// other load is a gather, lane by lane, ten times slower. Therefore these kernels have no loops
// after specialization and no branches before their end.
//
// Every index from gl_WorkGroupID goes through the identity table in the push constants,
// `p.identity`. Its elements are the numbers 0, 1, … 2^TSR_IDENTITY_BITS − 1. See
// docs/design/cpu_drivers.md.
#ifndef TSR_LAVAPIPE_GLSL
#define TSR_LAVAPIPE_GLSL

// The memory qualifier of the references below.
#ifndef TSR_MEMORY
#define TSR_MEMORY
#endif
layout(buffer_reference, std430, buffer_reference_align = 4) TSR_MEMORY buffer Float {
    float v;
};
layout(buffer_reference, std430, buffer_reference_align = 4) TSR_MEMORY buffer Float4 {
    vec4 v;
};
layout(buffer_reference, std430, buffer_reference_align = 8) TSR_MEMORY buffer Word64 {
    uint64_t v;
};
#if TSR_STORAGE16
layout(buffer_reference, std430, buffer_reference_align = 2) TSR_MEMORY buffer Word16 {
    uint16_t v;
};
layout(buffer_reference, std430, buffer_reference_align = 2) TSR_MEMORY buffer Half4 {
    u16vec4 v;
};
#endif

#ifndef TSR_IDENTITY_BITS
#define TSR_IDENTITY_BITS 4
#endif
#ifndef TSR_INDEX_BITS
#define TSR_INDEX_BITS 16
#endif

// Returns x, which has TSR_INDEX_BITS bits, in a form that the compiler recognises as uniform. Each digit of x is looked up in the identity
// table twice: the first look-up makes it uniform, and the second makes it a scalar load. The code has no loop, because each loop makes the
// driver pass over the whole shader once more.
#define DIGIT(n) (p.identity[p.identity[x >> (n) * TSR_IDENTITY_BITS & (1 << TSR_IDENTITY_BITS) - 1]] << (n) * TSR_IDENTITY_BITS)
uint uniform_index(uint x)
{
    uint result = DIGIT(0) | DIGIT(1) | DIGIT(2) | DIGIT(3);
#if TSR_INDEX_BITS > 6 * TSR_IDENTITY_BITS
#error more digits than these
#elif TSR_INDEX_BITS > 4 * TSR_IDENTITY_BITS
    result |= DIGIT(4) | DIGIT(5);
#endif
    return result;
}
#undef DIGIT

// Returns the tile of this subgroup, one of `count`, from the workgroup's index. The `subgroups`
// subgroups of a workgroup (at most 8) compute neighbouring tiles, because starting a workgroup
// costs as much as about a hundred vector operations, and a further subgroup costs little. A
// subgroup past the last tile computes that tile again; `own` is then false, and it must not store.
uint lavapipe_tile(uint group, uint subgroups, uint count, out bool own)
{
    uint tile = uniform_index(group);
    own = true;
    if (subgroups > 1) {
        tile = tile * subgroups + p.identity[p.identity[gl_SubgroupID]];
        own = tile < count;
        tile = min(tile, count - 1);
    }
    return tile;
}

// Code that a constant excludes is removed before the driver sees the shader, but code that a function's argument excludes is not.
// Therefore the following are macros, in which dtypes and alignments are constants.
#define BYTES_OF(dtype) ((dtype) == TSR_DT_F32 ? 4u : 2u)

#if TSR_STORAGE16
#define DECODE(bits, dtype) ((dtype) == TSR_DT_F16 ? unpackHalf2x16(uint(bits)).x : uintBitsToFloat(uint(bits) << 16))
#define LOAD_ONE(at, dtype) ((dtype) == TSR_DT_F32 ? Float(at).v : DECODE(Word16(at).v, dtype))
#else
#define LOAD_ONE(at, dtype) Float(at).v
#endif

// Prefetches `bytes` bytes from `at` on by reading a word of every cache line. Kernels prefetch the
// next tile's operands during the arithmetic of the current one. The caller must pass the result to
// after(); otherwise the compiler removes the loads.
uint touch(uint64_t at, uint bytes)
{
    const uint LINE = 64;
    uint words = 0;
    [[unroll]] for (uint byte = 0; byte < bytes; byte += LINE)
        words ^= floatBitsToUint(Float((at & ~uint64_t(3)) + byte).v);
    return words;
}

// Returns `value`, because identity[0] is 0. The compiler does not know that it is 0, and therefore
// keeps the loads of touch().
float after(float value, uint touched)
{
    return uintBitsToFloat(floatBitsToUint(value) | (touched & p.identity[0]));
}

// Puts the four elements into lanes first … first + 3. mix() becomes a select with a constant lane
// mask, and LLVM merges the chain into one vector load; ?: would become control flow. These are
// macros because functions take the driver longer to compile.
#define TAKE_THREE(value, four, first)                                                             \
    mix(mix(mix(value, four.y, gl_SubgroupInvocationID == first + 1), four.z, gl_SubgroupInvocationID == first + 2), four.w, \
        gl_SubgroupInvocationID == first + 3)
#define TAKE_FOUR(value, four, first) TAKE_THREE(mix(value, four.x, gl_SubgroupInvocationID == first), four, first)

// The body of a function with the parameters `line`, at0, at4, at8 and at12, which are offsets in
// bytes from `line`. It loads one element for each lane: four elements from each offset, as many as
// there are lanes. All lanes start with the first element, which saves one selection. Addresses
// have the form line + offset, which the driver simplifies fastest. In LOAD_LANES, the dtype is a
// constant, so that constant folding leaves one of the branches.
#define TAKE_LANES(type, type4, reference4, lanes)                                                 \
    type4 four = reference4(line + at0).v;                                                         \
    type value = TAKE_THREE(four.x, four, 0);                                                      \
    if (lanes > 4) {                                                                               \
        four = reference4(line + at4).v;                                                           \
        value = TAKE_FOUR(value, four, 4);                                                         \
    }                                                                                              \
    if (lanes > 8) {                                                                               \
        four = reference4(line + at8).v;                                                           \
        value = TAKE_FOUR(value, four, 8);                                                         \
        four = reference4(line + at12).v;                                                          \
        value = TAKE_FOUR(value, four, 12);                                                        \
    }
#if TSR_STORAGE16
#define LOAD_LANES(dtype, lanes)                                                                   \
    if (dtype == TSR_DT_F32) {                                                                     \
        TAKE_LANES(float, vec4, Float4, lanes)                                                     \
        return value;                                                                              \
    }                                                                                              \
    TAKE_LANES(uint16_t, u16vec4, Half4, lanes)                                                    \
    return DECODE(value, dtype);
#else
#define LOAD_LANES(dtype, lanes)                                                                   \
    TAKE_LANES(float, vec4, Float4, lanes)                                                         \
    return value;
#endif

// Gives each lane one of the elements that start `from` bytes after `line`. `from` is a constant.
float load_lanes(uint64_t line, uint from, uint dtype, uint lanes)
{
    uint quarter = 4 * BYTES_OF(dtype);
    uint64_t at0 = from, at4 = from + quarter, at8 = from + 2 * quarter, at12 = from + 3 * quarter;
    LOAD_LANES(dtype, lanes)
}

// Gives each lane one of the elements first … first + lanes − 1 of a line of `count` elements.
// Lanes past the end of the line get its last element.
float load_lanes_careful(uint64_t line, uint dtype, uint first, uint count, uint lanes)
{
    float value = LOAD_ONE(line + uint64_t(min(first, count - 1)) * BYTES_OF(dtype), dtype);
    [[unroll]] for (uint e = 1; e < lanes; e++)
        value = mix(value, LOAD_ONE(line + uint64_t(min(first + e, count - 1)) * BYTES_OF(dtype), dtype),
                    gl_SubgroupInvocationID == e);
    return value;
}

// Gives each lane four elements: 4·lane … 4·lane + 3.
vec4 load_lanes4(uint64_t at, uint dtype, uint lanes)
{
#if TSR_STORAGE16
    if (dtype != TSR_DT_F32) {
        u16vec4 bits = u16vec4(0);
        [[unroll]] for (uint e = 0; e < lanes; e++)
            bits = mix(bits, Half4(at + e * 8).v, bvec4(gl_SubgroupInvocationID == e));
        return vec4(DECODE(bits.x, dtype), DECODE(bits.y, dtype), DECODE(bits.z, dtype), DECODE(bits.w, dtype));
    }
#endif
    vec4 value = vec4(0.0);
    [[unroll]] for (uint e = 0; e < lanes; e++)
        value = mix(value, Float4(at + e * 16).v, bvec4(gl_SubgroupInvocationID == e));
    return value;
}

// Composes a 64-bit value or address for a store. Mesa 22 stores in a loop over lanes. Each
// iteration writes the vectors of addresses and values to the stack and reads the lane's elements
// back. Intel's processors forward such stores at once for vectors of 32 bytes, but take 27 cycles
// for vectors of 64 bytes.
//
// LLVM moves additions and shifts by constants to after the reading if nothing else uses their
// result. This function therefore composes the number of two words by a shift and an addition, and
// hides from the compiler that the words belong together: it applies | with identity[0], which is
// 0.
uint64_t by_words(uvec2 words)
{
    return uint64_t(words.x | p.identity[0]) + (uint64_t(words.y | p.identity[0]) << 32);
}

// Composes the address for one store; see by_words().
uint64_t target(uint64_t at)
{
    return by_words(uvec2(uint(at), uint(at >> 32)));
}

void store_vector(uint64_t at, uvec2 words)
{
    Word64(target(at)).v = by_words(words);
}

// Stores four neighbours one by one. They may start at any multiple of 4 bytes.
void store_floats(uint64_t at, vec4 values)
{
    Float(target(at)).v = values.x;
    Float(target(at + 4)).v = values.y;
    Float(target(at + 8)).v = values.z;
    Float(target(at + 12)).v = values.w;
}

// Stores four neighbours as two words of 64 bits, which costs less than store_floats(). They must start at a multiple of 8 bytes.
void store_pairs(uint64_t at, vec4 values)
{
    uvec4 bits = floatBitsToUint(values);
    store_vector(at, bits.xy);
    store_vector(at + 8, bits.zw);
}

#endif
