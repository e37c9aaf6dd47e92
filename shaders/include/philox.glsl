// The random number generator Philox4x32-10. src/base/philox.c gives the same bits.
#ifndef TSR_PHILOX_GLSL
#define TSR_PHILOX_GLSL

uvec4 tsr_philox4x32(uvec4 counter, uvec2 key)
{
    for (uint round = 0u; round < 10u; round++) {
        uint high0, low0, high1, low1;
        umulExtended(0xD2511F53u, counter.x, high0, low0);
        umulExtended(0xCD9E8D57u, counter.z, high1, low1);
        counter = uvec4(high1 ^ counter.y ^ key.x, low1, high0 ^ counter.w ^ key.y, low0);
        key += uvec2(0x9E3779B9u, 0xBB67AE85u);
    }
    return counter;
}

// Computes the block of four random words that contains the word of element `index`. That word is
// component index.x & 3.
uvec4 tsr_philox_block(uvec2 seed, uvec2 subsequence, uvec2 index)
{
    uvec2 block = uvec2((index.x >> 2) | (index.y << 30), index.y >> 2);
    return tsr_philox4x32(uvec4(block, subsequence), seed);
}

#endif
