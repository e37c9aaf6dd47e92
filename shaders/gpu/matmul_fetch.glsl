// Loads a tile of one operand from memory into registers, and stores it to shared memory. It is
// included once for a and once for b, which differ in names only. A "line" is a row of a or a
// column of b, and a tile is LINES lines of BK products.
//
// Loads beyond the matrix are not skipped: their indices are clamped to its last element, so that
// all loads can be in flight at once. Elements beyond the end of k are then replaced by 0, and sums
// of lines beyond the matrix are never stored.
//
// Unrolled loops use mix() instead of ?:, because some shader compilers turn each ?: into basic
// blocks, and drivers that keep so many blocks take minutes to compile.
//
// The including file defines FETCH(x), which adds the operand's prefix to a name, and LINES, DTYPE,
// LOAD, LINE_STRIDE, K_STRIDE, LANES_LINE, TILE.

const uint FETCH(count) = LINES * BK / THREADS;
float FETCH(registers)[FETCH(count)];

// Loads the tile whose first element is at `at`. From there on, the matrix has `lines` lines and
// `depth` values of k.
void FETCH(load)(uvec2 at, uint lines, uint depth)
{
    if (LOAD == TSR_MM_LOAD_SCALAR) {
        bool lanes_line = (p.mode & LANES_LINE) != 0;
        [[unroll]] for (uint i = 0; i < FETCH(count); i++) {
            uint e = i * THREADS + gl_LocalInvocationIndex;
            uint line = mix(e / BK, e % LINES, lanes_line);
            uint k = mix(e % BK, e / LINES, lanes_line);
            uint from = min(line, lines - 1) * LINE_STRIDE + min(k, depth - 1) * K_STRIDE;
            float value = tsr_load_float(at, from, DTYPE);
            FETCH(registers)[i] = k < depth ? value : 0.0;
        }
    } else {
        [[unroll]] for (uint i = 0; i < FETCH(count) / 4; i++) {
            uint e = i * THREADS + gl_LocalInvocationIndex;
            uint line, k, from;
            if (LOAD == TSR_MM_LOAD_VEC_K) {
                line = e / (BK / 4);
                k = e % (BK / 4) * 4;
                from = min(line, lines - 1) * (LINE_STRIDE / 4) + min(k, depth - 4) / 4;
            } else {
                line = e % (LINES / 4) * 4;
                k = e / (LINES / 4);
                from = min(line, lines - 4) / 4 + min(k, depth - 1) * (K_STRIDE / 4);
            }
            vec4 value = mm_load4(at, from, DTYPE);
            value = k < depth ? value : vec4(0.0);
            [[unroll]] for (uint c = 0; c < 4; c++)
                FETCH(registers)[i * 4 + c] = value[c];
        }
    }
}

// Stores the tile to shared memory. Whatever the order in which it was loaded, neighbouring lines
// become neighbours, and k is the slow index.
void FETCH(keep)()
{
    if (LOAD == TSR_MM_LOAD_SCALAR) {
        bool lanes_line = (p.mode & LANES_LINE) != 0;
        [[unroll]] for (uint i = 0; i < FETCH(count); i++) {
            uint e = i * THREADS + gl_LocalInvocationIndex;
            uint line = mix(e / BK, e % LINES, lanes_line);
            uint k = mix(e % BK, e / LINES, lanes_line);
            tile[TILE + k * (LINES + PAD) + line] = FETCH(registers)[i];
        }
    } else {
        [[unroll]] for (uint i = 0; i < FETCH(count) / 4; i++) {
            uint e = i * THREADS + gl_LocalInvocationIndex;
            [[unroll]] for (uint c = 0; c < 4; c++) {
                uint line, k;
                if (LOAD == TSR_MM_LOAD_VEC_K) {
                    line = e / (BK / 4);
                    k = e % (BK / 4) * 4 + c;
                } else {
                    line = e % (LINES / 4) * 4 + c;
                    k = e / (LINES / 4);
                }
                tile[TILE + k * (LINES + PAD) + line] = FETCH(registers)[i * 4 + c];
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
