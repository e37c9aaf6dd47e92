// A tile of one operand on its way from memory through registers to shared memory. Included once for a and once for b, which
// differ in names only: a "line" is a row of a or a column of b, a tile is LINES lines of BK products.
//
// Elements travel in fours that are neighbours along k or, where that is the direction of a unit stride, along the lines; shared
// memory keeps them in that order, so that no four is ever taken apart.
//
// Indices beyond the matrix are clamped to its last element rather than skipped, so that all loads can be under way at once; what was
// loaded beyond k then becomes 0, and sums of lines beyond the matrix are never stored.
//
// Expects, besides what matmul_coopmat.glsl does, FETCH(x), which makes a name the operand's own, and LINES, LOAD, LINE_STRIDE, K_STRIDE, TILE, BY_LINE, PITCH.

const uint FETCH(count) = LINES * BK / 4 / THREADS;
uvec2 FETCH(registers)[FETCH(count)];

// Element of the matrix, as bits; 0 beyond k.
uint FETCH(element)(uvec2 at, uint line, uint k, uint lines, uint depth)
{
    uint from = min(line, lines - 1) * LINE_STRIDE + min(k, depth - 1) * K_STRIDE;
    uint bits = tsr_load_u16(at, from);
    return k < depth ? bits : 0u;
}

// `at` is the tile's first element; `lines` and `depth` say how much of the matrix there is from it on.
void FETCH(load)(uvec2 at, uint lines, uint depth)
{
    [[unroll]] for (uint i = 0; i < FETCH(count); i++) {
        uint e = i * THREADS + gl_LocalInvocationIndex;
        uvec2 four;
        if (LOAD == TSR_MM_LOAD_VEC_K) {
            uint line = e / (BK / 4);
            uint k = e % (BK / 4) * 4;
            four = tsr_words2(at).v[min(line, lines - 1) * (LINE_STRIDE / 4) + min(k, depth - 4) / 4];
            four = k < depth ? four : uvec2(0);
        } else if (LOAD == TSR_MM_LOAD_VEC_LINE) {
            uint line = e % (LINES / 4) * 4;
            uint k = e / (LINES / 4);
            four = tsr_words2(at).v[min(line, lines - 4) / 4 + min(k, depth - 1) * (K_STRIDE / 4)];
            four = k < depth ? four : uvec2(0);
        } else {
            uint across = BY_LINE ? LINES / 4 : BK / 4;
            uint inner = e % across * 4;
            uint outer = e / across;
            uint bits[4];
            [[unroll]] for (uint c = 0; c < 4; c++)
                bits[c] = BY_LINE ? FETCH(element)(at, inner + c, outer, lines, depth)
                                  : FETCH(element)(at, outer, inner + c, lines, depth);
            four = uvec2(bits[0] | bits[1] << 16, bits[2] | bits[3] << 16);
        }
        FETCH(registers)[i] = four;
    }
}

void FETCH(keep)()
{
    const uint across = BY_LINE ? LINES / 4 : BK / 4;
    [[unroll]] for (uint i = 0; i < FETCH(count); i++) {
        uint e = i * THREADS + gl_LocalInvocationIndex;
        uvec2 four = FETCH(registers)[i];
        tile[TILE + e / across * PITCH + e % across] = ELEMENT4_OF(four);
    }
}

#undef FETCH
#undef LINES
#undef LOAD
#undef LINE_STRIDE
#undef K_STRIDE
#undef TILE
#undef BY_LINE
#undef PITCH
