// Functions that the kernels for blocks of attention scores share. A subgroup processes one row. A
// unit of a row is two neighbouring elements per lane.
#ifndef TSR_ATTENTION_SCORES_GLSL
#define TSR_ATTENTION_SCORES_GLSL

const uint Y_DTYPE = TSR_DT_F32;
const uint GROUP = 2;
const bool EXACT = false;
const uint UNIT = LANES * GROUP;

#include "cpu_drivers/vector_floats.glsl"
#include "include/attention_tanh.glsl"

#define LOAD_UNIT(at, i) (LOAD_OPERAND((at) + (i) * UNIT * 4, TSR_DT_F32, 8).xy)
#define MINUS_INFINITY uintBitsToFloat(0xff800000u)

struct scores_row {
    uint row, head;
    bool own;      // false: this subgroup only repeats the last row and must not store
    int position; // among the sequence's keys
    int first, end; // the query sees the keys in columns first … end − 1
    uint64_t number; // the row's number among the rows of all heads
};

scores_row scores_row_of()
{
    scores_row r;
    uint number = uniform_index(gl_WorkGroupID.x) * (WORKGROUP / LANES) + p.identity[p.identity[gl_SubgroupID]];
    r.own = number < p.rows;
    r.row = min(number, p.rows - 1);
    r.head = uniform_index(gl_WorkGroupID.y);
    int position = p.position + int(r.row);
    r.end = int(p.keys);
    if (LENGTHS != 0) {
        uint sequence = uniform_index(gl_WorkGroupID.z);
        r.head += sequence * p.heads;
        int queries = int(Word(p.lengths + sequence * 8).v), keys = int(Word(p.lengths + sequence * 8 + 4).v);
        position += keys - queries;
        r.end = min(r.end, keys - int(p.key));
        r.end = mix(r.end, 0, int(p.row + r.row) >= queries);
    }
    r.position = position + int(p.key);
    r.number = uint64_t(r.head) * p.rows + r.row;
    if (COLUMNS >= TSR_SCORES_CAUSAL)
        r.end = min(r.end, position + 1);
    r.first = 0;
    if (COLUMNS >= TSR_SCORES_WINDOW)
        r.first = position - int(p.window) + 1;
    if (STARTS != 0) {
        int start = max(int(Word(p.lengths + ((r.head / p.heads) * p.q_len + p.row + r.row) * 4).v), 0);
        r.first = max(r.first, start - int(p.key));
        r.position -= start;
    }
    return r;
}

// The factor of a row's products, which may grow with the query's position.
float scores_scale(scores_row r)
{
    if (TEMPERATURE == 0)
        return p.scale;
    return p.scale * (1.0 + uintBitsToFloat(TEMPERATURE) * tsr_log(1.0 + float(uint(max(r.position, 0)) / TEMPERATURE_LENGTH)));
}

uint64_t scores_lse(scores_row r)
{
    return p.lse + (uint64_t(r.head) * p.q_len + r.row) * 4;
}

// Says for each of the two columns that a lane has in unit i whether the query sees it.
bvec2 scores_seen(scores_row r, uint i)
{
    int column = int(i * UNIT + gl_SubgroupInvocationID * GROUP);
    bvec2 seen = bvec2(true);
    if (COLUMNS >= TSR_SCORES_KEYS)
        seen = bvec2(column < r.end, column + 1 < r.end);
    if (COLUMNS >= TSR_SCORES_WINDOW)
        seen = bvec2(seen.x && column >= r.first, seen.y && column + 1 >= r.first);
    return seen;
}

#define LANE_SUM(value)                                                                            \
    [[unroll]] for (uint distance = LANES / 2; distance > 0; distance /= 2)                        \
        value += subgroupShuffleXor(value, distance)

#define STORE_UNIT(at, i, values)                                                                  \
    if (gl_SubgroupInvocationID >= lowest)                                                         \
        store_vector((at) + (i) * UNIT * 4 + gl_SubgroupInvocationID * TSR_VECTOR_BYTES, floatBitsToUint(values))

#endif
