// Loads a tile of one operand from memory into registers, and stores it to shared memory. It is
// included once for a and once for b, which differ in names only. A "line" is a row of a or a
// column of b, and a tile is LINES lines of BK products.
//
// Loads beyond the matrix are not skipped: their indices are clamped to its last element, or to the
// last vector that begins in it, so that all loads can be in flight at once. Elements beyond the end
// of k are then replaced by 0, and sums of lines beyond the matrix are never stored.
//
// There are two load functions. FETCH(load) is for any step, and computes everything in each step.
// FETCH(load_whole) is for steps that do not reach beyond the end of k. Its offsets are computed
// once, by FETCH(prepare), and no instruction waits for its loads before they are stored.
//
// Unrolled loops use mix() instead of ?:, because some shader compilers turn each ?: into basic
// blocks, and drivers that keep so many blocks take minutes to compile.
//
// The including file defines FETCH(x), which adds the operand's prefix to a name, and LINES, DTYPE,
// LOAD, LINE_STRIDE, K_STRIDE, LANES_LINE, TILE.

const uint FETCH(count) = LINES * BK / THREADS;
// The bits of the elements, as they are in memory. 16-bit elements that were loaded together are in
// the first two of their four registers.
uint FETCH(registers)[FETCH(count)];

// The line and the k of the first of the elements that an invocation loads together, counted from
// the start of the tile.
uvec2 FETCH(place)(uint i)
{
    uint e = i * THREADS + gl_LocalInvocationIndex;
    if (LOAD == TSR_MM_LOAD_VEC_K)
        return uvec2(e / (BK / 4), e % (BK / 4) * 4);
    if (LOAD == TSR_MM_LOAD_VEC_LINE)
        return uvec2(e % (LINES / 4) * 4, e / (LINES / 4));
    bool lanes_line = (p.mode & LANES_LINE) != 0;
    return uvec2(mix(e / BK, e % LINES, lanes_line), mix(e % BK, e / LINES, lanes_line));
}

// Used by FETCH(load_whole): the offset of each load from the first element of the tile, in bytes.
const uint FETCH(loads) = LOAD == TSR_MM_LOAD_SCALAR ? FETCH(count) : FETCH(count) / 4;
uint FETCH(at)[FETCH(loads)];

void FETCH(prepare)(uint lines)
{
    const uint size = DTYPE == TSR_DT_F32 ? 4 : 2;
    [[unroll]] for (uint i = 0; i < FETCH(loads); i++) {
        uvec2 place = FETCH(place)(i);
        uint last = LOAD == TSR_MM_LOAD_VEC_LINE ? mm_last_vector(lines, 4) : lines - 1;
        FETCH(at)[i] = (min(place.x, last) * LINE_STRIDE + place.y * K_STRIDE) * size;
    }
}

void FETCH(load_whole)(uvec2 tile_at)
{
    if (LOAD == TSR_MM_LOAD_SCALAR) {
        [[unroll]] for (uint i = 0; i < FETCH(count); i++)
            FETCH(registers)[i] = mm_load_bits(tsr_at(tile_at, FETCH(at)[i]), 0, DTYPE);
    } else {
        [[unroll]] for (uint i = 0; i < FETCH(count) / 4; i++) {
            uvec4 bits = mm_load_bits4(tsr_at(tile_at, FETCH(at)[i]), 0, DTYPE);
            [[unroll]] for (uint c = 0; c < 4; c++)
                FETCH(registers)[i * 4 + c] = bits[c];
        }
    }
}

// Loads the tile whose first element is at `at`. From there on, the matrix has `lines` lines and
// `depth` values of k.
void FETCH(load)(uvec2 at, uint lines, uint depth)
{
    if (LOAD == TSR_MM_LOAD_SCALAR) {
        [[unroll]] for (uint i = 0; i < FETCH(count); i++) {
            uvec2 place = FETCH(place)(i);
            uint from = min(place.x, lines - 1) * LINE_STRIDE + min(place.y, depth - 1) * K_STRIDE;
            uint bits = mm_load_bits(at, from, DTYPE);
            FETCH(registers)[i] = place.y < depth ? bits : 0;
        }
    } else {
        [[unroll]] for (uint i = 0; i < FETCH(count) / 4; i++) {
            uvec2 place = FETCH(place)(i);
            uint from;
            if (LOAD == TSR_MM_LOAD_VEC_K)
                from = min(place.x, lines - 1) * (LINE_STRIDE / 4) + min(place.y, mm_last_vector(depth, 4)) / 4;
            else
                from = min(place.x, mm_last_vector(lines, 4)) / 4 + min(place.y, depth - 1) * (K_STRIDE / 4);
            uvec4 bits = mm_load_bits4(at, from, DTYPE);
            bits = LOAD == TSR_MM_LOAD_VEC_K ? mm_first_bits4(bits, depth - min(place.y, depth), DTYPE)
                                             : (place.y < depth ? bits : uvec4(0));
            [[unroll]] for (uint c = 0; c < 4; c++)
                FETCH(registers)[i * 4 + c] = bits[c];
        }
    }
}

// Stores the tile to shared memory. Whatever the order in which it was loaded, neighbouring lines
// become neighbours, and k is the slow index.
void FETCH(keep)()
{
    if (LOAD == TSR_MM_LOAD_SCALAR) {
        [[unroll]] for (uint i = 0; i < FETCH(count); i++) {
            uvec2 place = FETCH(place)(i);
            tile[TILE + place.y * (LINES + PAD) + place.x] = mm_widen(FETCH(registers)[i], DTYPE);
        }
    } else {
        [[unroll]] for (uint i = 0; i < FETCH(count) / 4; i++) {
            uvec2 place = FETCH(place)(i);
            uint at = i * 4;
            vec4 values = mm_widen4(uvec4(FETCH(registers)[at], FETCH(registers)[at + 1],
                FETCH(registers)[at + 2], FETCH(registers)[at + 3]), DTYPE);
            [[unroll]] for (uint c = 0; c < 4; c++) {
                uint line = LOAD == TSR_MM_LOAD_VEC_K ? place.x : place.x + c;
                uint k = LOAD == TSR_MM_LOAD_VEC_K ? place.y + c : place.y;
                tile[TILE + k * (LINES + PAD) + line] = values[c];
            }
        }
    }
}

#undef FETCH
#undef LINES
#undef DTYPE
#undef LOAD
#undef LINE_STRIDE
#undef K_STRIDE
#undef LANES_LINE
#undef TILE
