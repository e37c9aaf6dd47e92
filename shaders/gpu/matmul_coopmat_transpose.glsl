// Moves a tile of one operand to shared memory, as matmul_coopmat_fetch.glsl does, and transposes it
// on the way: memory is contiguous from line to line, and shared memory is contiguous along k. Many
// matrix units take neighbours along k, which would otherwise be read 2 bytes at a time.
//
// Elements are moved in blocks of 8 lines and 2 values of k, which are stored as pairs along k.
// Neighbouring invocations have neighbouring pairs, and store to different banks. Everything else is
// as in matmul_coopmat_fetch.glsl.

const uint FETCH(blocks) = LINES * BK / 16;
const uint FETCH(block_count) = (FETCH(blocks) + THREADS - 1) / THREADS; // blocks of an invocation
uvec4 FETCH(rows)[2 * FETCH(block_count)]; // each element: 8 lines at one k
uint FETCH(block_at)[FETCH(block_count)];  // the offset from the first element of the tile, in bytes

// The line and the k of the first element of an invocation's block number i.
uvec2 FETCH(block_place)(uint i)
{
    uint e = min(i * THREADS + gl_LocalInvocationIndex, FETCH(blocks) - 1);
    return uvec2(e / (BK / 2) * 8, e % (BK / 2) * 2);
}

void FETCH(prepare_blocks)(uint lines)
{
    [[unroll]] for (uint i = 0; i < FETCH(block_count); i++) {
        uvec2 place = FETCH(block_place)(i);
        FETCH(block_at)[i] = (min(place.x, mm_last_vector(lines, FETCH(width))) * LINE_STRIDE + place.y * K_STRIDE) * 2;
    }
}

// Loads 8 lines at one k as single elements, which are 0 beyond the end of k.
uvec4 FETCH(load_row)(uvec2 tile_at, uint line, uint k, uint lines, uint depth)
{
    uvec4 row = uvec4(0);
    [[unroll]] for (uint c = 0; c < 8; c++)
        if (k < depth)
            row[c / 2] |= tsr_load_u16(tile_at, min(line + c, lines - 1) * LINE_STRIDE + k * K_STRIDE) << (c % 2 * 16);
    return row;
}

void FETCH(load_blocks_end)(uvec2 tile_at, uint lines, uint depth)
{
    [[unroll]] for (uint i = 0; i < FETCH(block_count); i++) {
        uvec2 place = FETCH(block_place)(i);
        FETCH(rows)[2 * i] = FETCH(load_row)(tile_at, place.x, place.y, lines, depth);
        FETCH(rows)[2 * i + 1] = FETCH(load_row)(tile_at, place.x, place.y + 1, lines, depth);
    }
}

void FETCH(load_blocks)(uvec2 tile_at, uint lines)
{
    if (FETCH(width) == 1) {
        FETCH(load_blocks_end)(tile_at, lines, BK);
        return;
    }
    uvec2 k_at[2] = uvec2[2](tile_at, mm_at(tile_at, 1, K_STRIDE, DTYPE));
    [[unroll]] for (uint i = 0; i < FETCH(block_count); i++)
        [[unroll]] for (uint k = 0; k < 2; k++) {
            uint at = FETCH(block_at)[i];
            if (FETCH(width) == 8) {
                FETCH(rows)[2 * i + k] = eight_at(k_at[k], at);
            } else {
                uvec2 place = FETCH(block_place)(i);
                uint next = (min(place.x + 4, mm_last_vector(lines, 4)) * LINE_STRIDE + place.y * K_STRIDE) * 2;
                FETCH(rows)[2 * i + k] = uvec4(four_at(k_at[k], at), four_at(k_at[k], next));
            }
        }
}

// Stores a pair of elements at element `k` of a row of the tile, which starts at index `row`.
void FETCH(keep_pair)(uint row, uint k, uint pair)
{
#ifdef ELEMENT4
    tile[row + k / UNIT][k % UNIT] = ELEMENT2_OF(pair).x;
    tile[row + k / UNIT][k % UNIT + 1] = ELEMENT2_OF(pair).y;
#else
    tile[row + k / UNIT][k % UNIT / 2] = pair;
#endif
}

void FETCH(keep_blocks)(uint slot)
{
    [[unroll]] for (uint i = 0; i < FETCH(block_count); i++) {
        if (FETCH(blocks) % THREADS != 0 && i * THREADS + gl_LocalInvocationIndex >= FETCH(blocks))
            continue;
        uvec2 place = FETCH(block_place)(i);
        uint row = slot + TILE + place.x * PITCH;
        [[unroll]] for (uint c = 0; c < 4; c++) {
            uint bits = FETCH(rows)[2 * i][c], next = FETCH(rows)[2 * i + 1][c];
            FETCH(keep_pair)(row + 2 * c * PITCH, place.y, LOW_PAIR(bits, next));
            FETCH(keep_pair)(row + (2 * c + 1) * PITCH, place.y, HIGH_PAIR(bits, next));
        }
    }
}
