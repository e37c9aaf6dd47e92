// Loads and stores of elements of any size as raw bits, one at a time or four neighbours at once.
// `size` is a specialization constant: 1, 2, 4 or 8 bytes. An element's bits are a uvec2, low word
// first; the bits above those of a smaller element are 0.
#ifndef TSR_ELEMENTS_GLSL
#define TSR_ELEMENTS_GLSL

#include "include/tessera.glsl"

uvec2 tsr_load_bits(uvec2 base, uint i, uint size)
{
    switch (size) {
    case 1u:
        return uvec2(tsr_load_u8(base, i), 0u);
    case 2u:
        return uvec2(tsr_load_u16(base, i), 0u);
    case 4u:
        return uvec2(tsr_words(base).v[i], 0u);
    }
    return tsr_words2(base).v[i];
}

void tsr_store_bits(uvec2 base, uint i, uint size, uvec2 bits)
{
    switch (size) {
    case 1u:
        tsr_store_u8(base, i, bits.x);
        break;
    case 2u:
        tsr_store_u16(base, i, bits.x);
        break;
    case 4u:
        tsr_words(base).v[i] = bits.x;
        break;
    case 8u:
        tsr_words2(base).v[i] = bits;
        break;
    }
}

// Loads elements i … i + 3 of an array. The address of element i must be a multiple of the size of
// four elements, or of 16 bytes if `size` is 8.
void tsr_load_bits4(uvec2 base, uint i, uint size, out uvec2 bits[4])
{
    uvec2 at = tsr_at(base, i * size);
    uvec4 low = uvec4(0u), high = uvec4(0u);
    switch (size) {
    case 1u: {
        uint word = tsr_words(at).v[0];
        low = (uvec4(word) >> uvec4(0u, 8u, 16u, 24u)) & 0xffu;
        break;
    }
    case 2u: {
        uvec2 pair = tsr_words2(at).v[0];
        low = uvec4(pair.x & 0xffffu, pair.x >> 16, pair.y & 0xffffu, pair.y >> 16);
        break;
    }
    case 4u:
        low = tsr_words4(at).v[0];
        break;
    case 8u: {
        uvec4 front = tsr_words4(at).v[0], back = tsr_words4(at).v[1];
        low = uvec4(front.xz, back.xz);
        high = uvec4(front.yw, back.yw);
        break;
    }
    }
    [[unroll]] for (uint k = 0u; k < 4u; k++)
        bits[k] = uvec2(low[k], high[k]);
}

void tsr_store_bits4(uvec2 base, uint i, uint size, uvec2 bits[4])
{
    uvec2 at = tsr_at(base, i * size);
    switch (size) {
    case 1u:
        tsr_words(at).v[0] = bits[0].x | bits[1].x << 8 | bits[2].x << 16 | bits[3].x << 24;
        break;
    case 2u:
        tsr_words2(at).v[0] = uvec2(bits[0].x | bits[1].x << 16, bits[2].x | bits[3].x << 16);
        break;
    case 4u:
        tsr_words4(at).v[0] = uvec4(bits[0].x, bits[1].x, bits[2].x, bits[3].x);
        break;
    case 8u:
        tsr_words4(at).v[0] = uvec4(bits[0], bits[1]);
        tsr_words4(at).v[1] = uvec4(bits[2], bits[3]);
        break;
    }
}

// Stores the first `count` of four neighbouring elements, at any alignment. No other invocation may
// store to these elements. In the variant without 16-bit storage (tessera.glsl), elements that fill
// a complete word are stored without atomics. Only the first and the last element may share a word
// with elements of other invocations, and then need atomics.
void tsr_store_run(uvec2 base, uint i, uint size, uint count, uvec2 bits[4])
{
#if !TSR_STORAGE16
    if (size == 2u) {
        uvec2 at = tsr_at(base, 2u * i);
        bool odd = (at.x & 2u) != 0u;
        uvec2 word = tsr_at(uvec2(at.x & ~3u, at.y), odd ? 4u : 0u);
        uint first = odd ? 1u : 0u; // the first element that begins a word
        if (odd)
            tsr_store_u16(at, 0u, bits[0].x);
        if (first + 1u < count)
            tsr_words(word).v[0] = (odd ? bits[1].x : bits[0].x) | (odd ? bits[2].x : bits[1].x) << 16;
        else if (first < count)
            tsr_store_u16(at, first, odd ? bits[1].x : bits[0].x);
        if (!odd && count == 4u)
            tsr_words(word).v[1] = bits[2].x | bits[3].x << 16;
        else if (first + 2u < count)
            tsr_store_u16(at, first + 2u, odd ? bits[3].x : bits[2].x);
        return;
    }
    if (size == 1u) {
        uvec2 at = tsr_at(base, i);
        if ((at.x & 3u) == 0u && count == 4u) {
            tsr_words(at).v[0] = bits[0].x | bits[1].x << 8 | bits[2].x << 16 | bits[3].x << 24;
            return;
        }
    }
#endif
    [[unroll]] for (uint k = 0u; k < 4u; k++)
        if (k < count)
            tsr_store_bits(base, i + k, size, bits[k]);
}

// Encodes a number as an element of a float dtype, in the lowest bits of the result.
uint tsr_bits_of(float value, uint dtype)
{
    return dtype == TSR_DT_F16    ? tsr_f16_from_f32(value)
           : dtype == TSR_DT_BF16 ? tsr_bf16_from_f32(value)
                                  : floatBitsToUint(value);
}

#endif
