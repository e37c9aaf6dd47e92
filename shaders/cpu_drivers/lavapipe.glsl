// What kernels for Mesa's CPU driver share. That driver compiles one SIMD lane per invocation, and turns a load into
// one vector or scalar load only where it stands in straight-line code at top level and its address is visibly uniform: built
// from constants and push constants only. Everything else is a gather, lane by lane, ten times slower. Hence no loop survives
// specialization, no branch comes before the end, and every index that comes from gl_WorkGroupID goes through the identity
// table in the push constants, `p.identity`: 0, 1, … 15, or as far as TSR_IDENTITY_BITS says.
#ifndef TSR_LAVAPIPE_GLSL
#define TSR_LAVAPIPE_GLSL

// A memory qualifier for what follows.
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

// A number of TSR_INDEX_BITS bits that the compiler knows to be the same in all invocations: the inner look-up makes it uniform, the
// outer one a scalar load. Not a loop, which would take the driver a round over the shader wherever it is.
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

// Which of `count` tiles, from the number of the workgroup along them. The `subgroups` subgroups of a workgroup, 1 or up to 8 of them, make
// tiles beside one another: a workgroup costs this driver as much as some hundred vector operations, a subgroup little. Past the last
// tile a subgroup makes that once more and must not store it.
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

// What a constant leaves out is left out before the driver sees the shader, but not what an argument does: macros, so that dtypes and
// alignments are constants wherever they are named.
#define BYTES_OF(dtype) ((dtype) == TSR_DT_F32 ? 4u : 2u)

#if TSR_STORAGE16
#define DECODE(bits, dtype) ((dtype) == TSR_DT_F16 ? unpackHalf2x16(uint(bits)).x : uintBitsToFloat(uint(bits) << 16))
#define LOAD_ONE(at, dtype) ((dtype) == TSR_DT_F32 ? Float(at).v : DECODE(Word16(at).v, dtype))
#else
#define LOAD_ONE(at, dtype) Float(at).v
#endif

// Reads a word of every line of cache, to have `bytes` bytes from there on in the caches when they are needed: for the next tile's,
// while this one's arithmetic goes on. What comes of it has to be used, by after().
uint touch(uint64_t at, uint bytes)
{
    const uint LINE = 64;
    uint words = 0;
    [[unroll]] for (uint byte = 0; byte < bytes; byte += LINE)
        words ^= floatBitsToUint(Float((at & ~uint64_t(3)) + byte).v);
    return words;
}

// The value itself, since identity[0] is 0, which the compiler cannot know.
float after(float value, uint touched)
{
    return uintBitsToFloat(floatBitsToUint(value) | (touched & p.identity[0]));
}

// Four elements to lanes first … first + 3. mix() becomes a select with a constant lane mask, and LLVM folds the chain into one vector
// load; ?: would become control flow. Macros, since functions leave the driver much to tidy up wherever they are called.
#define TAKE_THREE(value, four, first)                                                             \
    mix(mix(mix(value, four.y, gl_SubgroupInvocationID == first + 1), four.z, gl_SubgroupInvocationID == first + 2), four.w, \
        gl_SubgroupInvocationID == first + 3)
#define TAKE_FOUR(value, four, first) TAKE_THREE(mix(value, four.x, gl_SubgroupInvocationID == first), four, first)

// The body of a function of `line`, at0, at4, at8 and at12: element by lane, four each from so many bytes behind `line`, as far as there
// are lanes. A function for each constant dtype has but one of these branches when constants are folded, before the driver sees it. The
// first element is every lane's until the others come, which is one selection less. Addresses are the line and one number, in which the
// driver has least to tidy up.
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

// Element by lane, from `from` bytes behind `line`, a constant.
float load_lanes(uint64_t line, uint from, uint dtype, uint lanes)
{
    uint quarter = 4 * BYTES_OF(dtype);
    uint64_t at0 = from, at4 = from + quarter, at8 = from + 2 * quarter, at12 = from + 3 * quarter;
    LOAD_LANES(dtype, lanes)
}

// The same for elements first … first + lanes − 1 of a line of `count`: lanes past its end repeat the last element.
float load_lanes_careful(uint64_t line, uint dtype, uint first, uint count, uint lanes)
{
    float value = LOAD_ONE(line + uint64_t(min(first, count - 1)) * BYTES_OF(dtype), dtype);
    [[unroll]] for (uint e = 1; e < lanes; e++)
        value = mix(value, LOAD_ONE(line + uint64_t(min(first + e, count - 1)) * BYTES_OF(dtype), dtype),
                    gl_SubgroupInvocationID == e);
    return value;
}

// Elements 4·lane … 4·lane + 3 by lane.
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

// A 64-bit number to store, or to store to, by lane. Mesa 22 stores in a loop over lanes, each round of which writes the vectors of addresses
// and values to the stack and reads the lane's elements back. Intel's processors do that at once for vectors of 32 bytes, but take
// 27 cycles for those of 64. LLVM moves additions and shifts by constants behind the reading where nothing else uses their result:
// so numbers are put together from words, of which the compiler must not see that they are one number's. identity[0] is 0.
uint64_t by_words(uvec2 words)
{
    return uint64_t(words.x | p.identity[0]) + (uint64_t(words.y | p.identity[0]) << 32);
}

// The address for one store.
uint64_t target(uint64_t at)
{
    return by_words(uvec2(uint(at), uint(at >> 32)));
}

void store_vector(uint64_t at, uvec2 words)
{
    Word64(target(at)).v = by_words(words);
}

// Four neighbours; and where they start at a multiple of 8 bytes, as two words of 64 bits: those cost less to store than four of 32.
void store_floats(uint64_t at, vec4 values)
{
    Float(target(at)).v = values.x;
    Float(target(at + 4)).v = values.y;
    Float(target(at + 8)).v = values.z;
    Float(target(at + 12)).v = values.w;
}

void store_pairs(uint64_t at, vec4 values)
{
    uvec4 bits = floatBitsToUint(values);
    store_vector(at, bits.xy);
    store_vector(at + 8, bits.zw);
}

#endif
