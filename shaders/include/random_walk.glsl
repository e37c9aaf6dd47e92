// The walk that random_fill.comp and dropout.comp share: which elements an invocation makes, and their random words. The
// including shader declares the push constants `p` and DENSE, and defines tsr_random_emit() and tsr_random_emit4().
//
// A Philox block holds the words of four consecutive indices. Where the innermost dimension runs along the indices, one
// invocation makes the elements of one block (fewer at the ends of a row); elsewhere one element, and drops three words.
// DENSE: one row of whole blocks, its elements side by side from multiples of 4 bytes on.
#ifndef TSR_RANDOM_WALK_GLSL
#define TSR_RANDOM_WALK_GLSL

#include "include/philox.glsl"

// Element (row, e) of the piece: the row's start in y and x, in elements, and its position in the row.
void tsr_random_emit(uint y_row, uint x_row, uint e, uint word);
// Elements e … e + 3 where they are dense.
void tsr_random_emit4(uint e, uvec4 words);

void tsr_random_walk()
{
    uint i = tsr_flat_invocation();
    if (i >= p.invocations)
        return;
    if (DENSE != 0u) {
        tsr_random_emit4(4u * i, tsr_philox_block(p.seed, p.subsequence, tsr_at(p.index, 4u * i)));
        return;
    }
    uint size = p.shape[3];
    bool blocks = p.index_strides[3] == 1u;
    uint per_row = blocks ? (size + 6u) / 4u : size; // a row may start at any word of its first block
    uint row = i / per_row;
    uint j = i - row * per_row;

    uint y_row = 0u, x_row = 0u, index_row = 0u;
    for (int d = 2; d >= 0; d--) {
        uint position = row % p.shape[d];
        row /= p.shape[d];
        y_row += position * p.y_strides[d];
        x_row += position * p.x_strides[d];
        index_row += position * p.index_strides[d];
    }

    // The block, its first word that is wanted, how many are, and which element the first of them goes to.
    uvec2 index = tsr_at(p.index, index_row);
    if (!blocks)
        index = tsr_at(index, j * p.index_strides[3]);
    uint skip = index.x & 3u;
    uint first = blocks && j > 0u ? 0u : skip;
    uint element = blocks && j > 0u ? 4u * j - skip : j;
    uint count = blocks ? min(4u - first, size - min(element, size)) : 1u;
    if (blocks)
        index = tsr_at(index, element);

    uvec4 words = tsr_philox_block(p.seed, p.subsequence, index);
    for (uint k = 0u; k < count; k++)
        tsr_random_emit(y_row, x_row, element + k, words[first + k]);
}

#endif
