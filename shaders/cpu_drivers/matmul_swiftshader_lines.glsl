// The lines of one operand that a subgroup multiplies: rows of a or columns of b, VECTORS of them
// in each lane. This file is included once for a and once for b, which differ in names only.
//
// On SwiftShader, a load computes four addresses, and executes a branch and a scalar load for each
// lane. Loading four neighbours only saves the computation of addresses. The references are made
// once and only the index changes, because making a reference takes 70 instructions.
//
// The including file defines LINES(x), which adds the operand's prefix to a name, and VECTORS,
// DTYPE, LOAD, LINE_STRIDE, K_STRIDE.

struct LINES(t)
{
    uvec2 at[VECTORS];
    tsr_floats floats[VECTORS];
    tsr_floats4 fours[VECTORS];
    tsr_words2 pairs[VECTORS];
};

// Returns the number, within the tile, of the line that is vector v of `lane`. Loads of four
// neighbouring lines give a lane four vectors at once.
uint LINES(line)(uint v, uint lane)
{
    return LOAD == TSR_MM_LOAD_VEC_LINE ? v / 4 * (4 * LANES) + lane * 4 + v % 4 : v * LANES + lane;
}

// Prepares loads of the lines from `first` on. `base` is the address of element 0 of line 0. Lines
// beyond the matrix repeat its last lines; their sums are not stored.
LINES(t) LINES(from)(uvec2 base, uint first, uint lines)
{
    LINES(t) l;
    [[unroll]] for (uint v = 0; v < VECTORS; v++) {
        uint line = LOAD == TSR_MM_LOAD_VEC_LINE ? min(first + LINES(line)(v / 4 * 4, gl_SubgroupInvocationID), lines - 4)
                                                 : min(first + LINES(line)(v, gl_SubgroupInvocationID), lines - 1);
        l.at[v] = mm_at(base, line, LINE_STRIDE, DTYPE);
        l.floats[v] = tsr_floats(l.at[v]);
        l.fours[v] = tsr_floats4(l.at[v]);
        l.pairs[v] = tsr_words2(l.at[v]);
    }
    return l;
}

vec4 LINES(four)(LINES(t) l, uint v, uint i)
{
    if (DTYPE == TSR_DT_F32)
        return l.fours[v].v[i];
    uvec2 pairs = l.pairs[v].v[i];
    return vec4(tsr_floats_from(pairs.x, DTYPE), tsr_floats_from(pairs.y, DTYPE));
}

// Loads the elements of all vectors at one k.
float[VECTORS] LINES(step)(LINES(t) l, uint k)
{
    float value[VECTORS];
    if (LOAD == TSR_MM_LOAD_VEC_LINE) {
        [[unroll]] for (uint v = 0; v < VECTORS; v += 4) {
            vec4 four = LINES(four)(l, v, k * (K_STRIDE / 4));
            [[unroll]] for (uint c = 0; c < 4; c++)
                value[min(v + c, VECTORS - 1)] = four[c]; // if VECTORS < 4, LOAD is never VEC_LINE
        }
    } else {
        [[unroll]] for (uint v = 0; v < VECTORS; v++)
            if (DTYPE == TSR_DT_F32)
                value[v] = l.floats[v].v[k * K_STRIDE];
            else
                value[v] = tsr_float_at(l.at[v], k * K_STRIDE, DTYPE);
    }
    return value;
}

// Loads the elements of all vectors at four k, one k after another. `count` is a loop counter: the
// first k is count · 4 / FOUR_COUNTS.
float[4 * VECTORS] LINES(steps)(LINES(t) l, uint count)
{
    float value[4 * VECTORS];
    if (LOAD == TSR_MM_LOAD_VEC_K) {
        [[unroll]] for (uint v = 0; v < VECTORS; v++) {
            vec4 values = LINES(four)(l, v, FOUR_COUNTS == 1 ? count : count / 4);
            [[unroll]] for (uint u = 0; u < 4; u++)
                value[u * VECTORS + v] = values[u];
        }
    } else {
        [[unroll]] for (uint u = 0; u < 4; u++) {
            float one[VECTORS] = LINES(step)(l, count + u);
            [[unroll]] for (uint v = 0; v < VECTORS; v++)
                value[u * VECTORS + v] = one[v];
        }
    }
    return value;
}
