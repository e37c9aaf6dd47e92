// Finds the elements of an invocation and their random words, for random_fill.comp and
// dropout.comp. The including file declares the push constants `p` and DENSE, and defines
// tsr_random_emit() and tsr_random_emit4().
//
// Philox computes random words in blocks; a block has the words of four elements with consecutive
// indices. If indices are consecutive along the innermost dimension, an invocation computes the
// elements of one block, or fewer at the ends of a row. Otherwise it computes one element, and
// three words of its block are unused. If DENSE is 1, the elements are one contiguous row of
// complete blocks.
#ifndef TSR_RANDOM_WALK_GLSL
#define TSR_RANDOM_WALK_GLSL

#include "include/philox.glsl"

// Computes and stores element e of a row from its random word. In y the row starts y_row elements
// after p.y, and in x it starts x_row elements after p.x.
void tsr_random_emit(uint y_row, uint x_row, uint e, uint word);
// Computes and stores elements e … e + 3 of a dense row.
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
    // A row may start at any word of a block, so that its ends may be in two incomplete blocks.
    uint per_row = blocks ? (size + 6u) / 4u : size;
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

    // Finds the index of an element in the block, the first word of the block to use, the number of
    // words to use, and the element that the first of these words belongs to.
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
