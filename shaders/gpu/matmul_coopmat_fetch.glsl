// Moves a tile of one operand from memory through registers to shared memory. It is included once
// for a and once for b, which differ in names only. A "line" is a row of a or a column of b, and a
// tile is LINES lines of BK products.
//
// Elements are moved in groups of eight, called eights. The elements of an eight are neighbours
// along k or, if the stride from line to line is 1, from line to line. They are neighbours in
// shared memory too, so that an eight is never split.
//
// The offsets of an invocation's eights are computed once, before the first step. A step only
// changes the address of the tile's first element. Vectors of lines beyond the matrix repeat the last
// one that begins in it, and the sums of these lines are never stored. Only the last step can reach beyond the end of k. It has a
// separate load function, which replaces elements beyond the end by 0. In all other steps, no
// instruction before the products waits for the loads.
//
// The including file defines what matmul_coopmat.glsl expects, FETCH(x), which adds the operand's
// prefix to a name, and LINES, LOAD, LINE_STRIDE, K_STRIDE, TILE, BY_LINE, TRANSPOSES, PITCH, TERMS. If
// TRANSPOSES is true, the functions of matmul_coopmat_transpose.glsl do the work. If TERMS is not 1,
// the tiles of so many terms of narrowed lines are moved, which are one after the other in shared memory.

const uint FETCH(across) = (BY_LINE ? LINES : BK) / 8; // eights in a row of the tile
const uint FETCH(eights) = LINES * BK / 8;
const uint FETCH(count) = (FETCH(eights) + THREADS - 1) / THREADS;
uvec4 FETCH(registers)[TERMS * FETCH(count)];
// The offset of each eight from the first element of the tile: in elements if they are loaded one by
// one, otherwise in bytes. If an eight is loaded as two fours, it is the offset of the first four.
uint FETCH(at)[FETCH(count)];

// Each invocation moves FETCH(count) eights. Returns where eight number i of this one starts in the
// tile: x is the line, y is the k.
uvec2 FETCH(place)(uint i)
{
    uint e = min(i * THREADS + gl_LocalInvocationIndex, FETCH(eights) - 1);
    uint inner = e % FETCH(across) * 8;
    uint outer = e / FETCH(across);
    return BY_LINE ? uvec2(inner, outer) : uvec2(outer, inner);
}

// The width of a load, in elements.
const uint FETCH(width) = LOAD == TSR_MM_LOAD_VEC8_K || LOAD == TSR_MM_LOAD_VEC8_LINE ? 8
                          : LOAD == TSR_MM_LOAD_VEC_K || LOAD == TSR_MM_LOAD_VEC_LINE ? 4
                                                                                      : 1;

#include "gpu/matmul_coopmat_transpose.glsl"

// Computes the offsets of this invocation's eights. `lines` is the number of lines from the tile's
// first one to the end of the matrix.
void FETCH(prepare)(uint lines)
{
    if (TRANSPOSES) {
        FETCH(prepare_blocks)(lines);
        return;
    }
    [[unroll]] for (uint i = 0; i < FETCH(count); i++) {
        uvec2 place = FETCH(place)(i);
        uint last = BY_LINE ? mm_last_vector(lines, FETCH(width)) : lines - 1;
        FETCH(at)[i] = (min(place.x, last) * LINE_STRIDE + place.y * K_STRIDE) * (FETCH(width) == 1 ? 1 : 2);
    }
}

// The index in `tile`, from the first one of the operand, of the tile of a term.
uint FETCH(term_at)(uint term) { return term * ((BY_LINE ? BK : LINES) * PITCH); }

// Loads the tile whose first element is at `tile_at`.
void FETCH(load)(uvec2 tile_at, uint lines)
{
    if (TRANSPOSES) {
        FETCH(load_blocks)(tile_at, lines);
        return;
    }
    [[unroll]] for (uint e = 0; e < TERMS * FETCH(count); e++) {
        uint i = e % FETCH(count);
        uint at = FETCH(at)[i];
        uvec2 term = TERMS == 1 ? tile_at : mm_at(tile_at, e / FETCH(count), term_elements(), DTYPE);
        if (FETCH(width) == 8) {
            FETCH(registers)[e] = eight_at(term, at);
        } else if (FETCH(width) == 4) {
            uint next = at + 8;
            if (BY_LINE) {
                uvec2 place = FETCH(place)(i);
                next = (min(place.x + 4, mm_last_vector(lines, 4)) + place.y * K_STRIDE) * 2;
            }
            FETCH(registers)[e] = uvec4(four_at(term, at), four_at(term, next));
        } else {
            uvec2 place = FETCH(place)(i);
            uint bits[8];
            [[unroll]] for (uint c = 0; c < 8; c++) {
                uint line = min(BY_LINE ? place.x + c : place.x, lines - 1);
                uint k = BY_LINE ? place.y : place.y + c;
                bits[c] = tsr_load_u16(term, line * LINE_STRIDE + k * K_STRIDE);
            }
            FETCH(registers)[e] = uvec4(bits[0] | bits[1] << 16, bits[2] | bits[3] << 16, bits[4] | bits[5] << 16,
                bits[6] | bits[7] << 16);
        }
    }
}

// Loads the tile of the last step, which has only `depth` < BK values of k.
void FETCH(load_end)(uvec2 tile_at, uint lines, uint depth)
{
    if (TRANSPOSES) {
        FETCH(load_blocks_end)(tile_at, lines, depth);
        return;
    }
    [[unroll]] for (uint e = 0; e < TERMS * FETCH(count); e++) {
        uvec2 place = FETCH(place)(e % FETCH(count));
        uvec2 term = TERMS == 1 ? tile_at : mm_at(tile_at, e / FETCH(count), term_elements(), DTYPE);
        [[unroll]] for (uint pair = 0; pair < 4; pair++) {
            uint bits = 0;
            [[unroll]] for (uint c = 0; c < 2; c++) {
                uint line = min(BY_LINE ? place.x + 2 * pair + c : place.x, lines - 1);
                uint k = BY_LINE ? place.y : place.y + 2 * pair + c;
                if (k < depth)
                    bits |= tsr_load_u16(term, line * LINE_STRIDE + k * K_STRIDE) << (16 * c);
            }
            FETCH(registers)[e][pair] = bits;
        }
    }
}

// Stores the tile to shared memory. `slot` is the index at which the tiles of this step begin.
void FETCH(keep)(uint slot)
{
    if (TRANSPOSES) {
        FETCH(keep_blocks)(slot);
        return;
    }
    [[unroll]] for (uint n = 0; n < TERMS * FETCH(count); n++) {
        uint e = n % FETCH(count) * THREADS + gl_LocalInvocationIndex;
        if (FETCH(eights) % THREADS == 0 || e < FETCH(eights)) {
            uint begin = slot + TILE + FETCH(term_at)(n / FETCH(count)) + e / FETCH(across) * PITCH;
#ifdef ELEMENT4
            uint at = begin + e % FETCH(across) * 2;
            tile[at] = ELEMENT4_OF(FETCH(registers)[n].xy);
            tile[at + 1] = ELEMENT4_OF(FETCH(registers)[n].zw);
#else
            tile[begin + e % FETCH(across)] = FETCH(registers)[n];
#endif
        }
    }
}

#undef FETCH
#undef LINES
#undef LOAD
#undef LINE_STRIDE
#undef K_STRIDE
#undef TILE
#undef BY_LINE
#undef TRANSPOSES
#undef PITCH
#undef TERMS
