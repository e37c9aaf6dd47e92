// Loads a tile of one operand of f16 from memory into registers, and stores it to shared memory as
// pairs, which are two neighbours along k in a word. See matmul_fetch.glsl, which does the same for
// single elements: the including file defines the same names, and there are the same functions.
//
// An invocation loads pieces. With loads along k, a piece is one load. Otherwise it is two loads, at
// two neighbouring values of k, whose elements become pairs when they are stored.

const bool FETCH(along_k) = LOAD == TSR_MM_LOAD_VEC_K || LOAD == TSR_MM_LOAD_VEC8_K;
const uint FETCH(vector) = LOAD == TSR_MM_LOAD_SCALAR                                        ? 1
                           : LOAD == TSR_MM_LOAD_VEC8_K || LOAD == TSR_MM_LOAD_VEC8_LINE ? 8
                                                                                             : 4;
// A piece has `width` lines and `depth` values of k.
const uint FETCH(width) = FETCH(along_k) ? 1 : FETCH(vector);
const uint FETCH(depth) = FETCH(along_k) ? FETCH(vector) : 2;
const uint FETCH(pieces) = LINES * BK / (FETCH(width) * FETCH(depth)) / THREADS; // pieces of an invocation
// The bits of the elements, as they are in memory. A load fills `words` registers.
const uint FETCH(words) = (FETCH(vector) + 1) / 2;
const uint FETCH(loads) = FETCH(along_k) ? 1 : 2; // loads of a piece
uint FETCH(registers)[FETCH(pieces) * FETCH(loads) * FETCH(words)];

// The line and the k of the first element of a piece, counted from the start of the tile.
uvec2 FETCH(place)(uint i)
{
    const uint across = LINES / FETCH(width), down = BK / FETCH(depth);
    uint e = i * THREADS + gl_LocalInvocationIndex;
    bool lanes_line = FETCH(vector) == 1 ? (p.mode & LANES_LINE) != 0 : !FETCH(along_k);
    return uvec2(mix(e / down, e % across, lanes_line) * FETCH(width),
        mix(e % down, e / across, lanes_line) * FETCH(depth));
}

// Used by FETCH(load_whole): the offset of each piece from the first element of the tile, in bytes.
uint FETCH(at)[FETCH(pieces)];

void FETCH(prepare)(uint lines)
{
    [[unroll]] for (uint i = 0; i < FETCH(pieces); i++) {
        uvec2 place = FETCH(place)(i);
        FETCH(at)[i] = (min(place.x, mm_last_vector(lines, FETCH(width))) * LINE_STRIDE + place.y * K_STRIDE) * 2;
    }
}

void FETCH(load_whole)(uvec2 tile_at)
{
    uvec2 from[2] = uvec2[2](tile_at, mm_at(tile_at, 1, K_STRIDE, DTYPE));
    [[unroll]] for (uint i = 0; i < FETCH(pieces); i++)
        [[unroll]] for (uint load = 0; load < FETCH(loads); load++) {
            uvec2 at = tsr_at(from[load], FETCH(at)[i]);
            uvec4 bits = uvec4(0);
            if (FETCH(vector) == 8)
                bits = tsr_words4(at).v[0];
            else if (FETCH(vector) == 4)
                bits.xy = tsr_words2(at).v[0];
            else
                bits.x = tsr_load_u16(at, 0);
            [[unroll]] for (uint c = 0; c < FETCH(words); c++)
                FETCH(registers)[(i * FETCH(loads) + load) * FETCH(words) + c] = bits[c];
        }
}

// Loads a tile as FETCH(load_whole) does, but one element at a time, and those beyond the end of k
// are 0. Only the last step uses it.
void FETCH(load)(uvec2 at, uint lines, uint depth)
{
    [[unroll]] for (uint i = 0; i < FETCH(pieces); i++)
        [[unroll]] for (uint load = 0; load < FETCH(loads); load++)
            [[unroll]] for (uint c = 0; c < FETCH(words); c++) {
                uvec2 place = FETCH(place)(i);
                uint bits[2] = uint[2](0, 0);
                [[unroll]] for (uint half_word = 0; half_word < min(FETCH(vector), 2); half_word++) {
                    uint line = place.x + (FETCH(along_k) ? 0 : 2 * c + half_word);
                    uint k = place.y + (FETCH(along_k) ? 2 * c + half_word : load);
                    uint from = min(line, lines - 1) * LINE_STRIDE + min(k, depth - 1) * K_STRIDE;
                    bits[half_word] = mix(0, tsr_load_u16(at, from), k < depth);
                }
                FETCH(registers)[(i * FETCH(loads) + load) * FETCH(words) + c] = bits[0] | bits[1] << 16;
            }
}

// Stores the tile to shared memory, where neighbouring lines are neighbours.
void FETCH(keep)()
{
    [[unroll]] for (uint i = 0; i < FETCH(pieces); i++) {
        uvec2 place = FETCH(place)(i);
        uint first = i * FETCH(loads) * FETCH(words);
        uint at = TILE + place.y / 2 * (LINES + PAD) + place.x;
        [[unroll]] for (uint c = 0; c < FETCH(words); c++) {
            uint bits = FETCH(registers)[first + c];
            if (FETCH(along_k)) {
                tile[at + c * (LINES + PAD)] = bits;
            } else {
                uint next = FETCH(registers)[first + FETCH(words) + c];
                tile[at + 2 * c] = (bits & 0xffffu) | next << 16;
                if (FETCH(vector) > 1)
                    tile[at + 2 * c + 1] = bits >> 16 | (next & 0xffff0000u);
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
