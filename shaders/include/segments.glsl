// Sums and maxima of rows that are divided into segments (params/rows.h). The including file
// declares WORKGROUP, THREADS and PHASE, and defines ROW_LENGTH as the number of elements in a row
// and PARTIALS as the address of the partial results. A kernel computes maxima before sums.
#ifndef TSR_SEGMENTS_GLSL
#define TSR_SEGMENTS_GLSL

#include "include/rows.glsl"
#include "include/thread_group.glsl"

// The elements that a thread group works on: those of a row, or of one of its segments. A group
// whose row number is past the last row has no elements and only takes part in barriers.
struct row_part {
    uint row;
    bool owner; // false: there is no such row
    uint segment, begin, end;
};

// Small thread groups do not divide their rows: there is one segment, and the compiler removes the
// loop over segments.
const bool SEGMENTED = THREADS > TSR_UNDIVIDED_THREADS;

uint segment_length()
{
    return TSR_SEGMENT_LENGTH(ROW_LENGTH);
}

uint segment_count()
{
    return (ROW_LENGTH - 1u) / segment_length() + 1u;
}

row_part own_part(uint rows)
{
    row_part own;
    uint wanted = group_row();
    own.segment = 0u;
    if (PHASE != TSR_PHASE_WHOLE) {
        own.segment = wanted % segment_count();
        wanted /= segment_count();
    }
    own.owner = wanted < rows;
    own.row = min(wanted, rows - 1u);
    own.begin = own.owner ? own.segment * segment_length() : ROW_LENGTH;
    own.end = PHASE == TSR_PHASE_WHOLE ? ROW_LENGTH : min(ROW_LENGTH, own.begin + segment_length());
    return own;
}

// The index of the first of the four neighbouring elements that an invocation takes in its first
// iteration.
uint own_first(uint begin)
{
    return begin + 4u * group_thread();
}

// The distance from these elements to those of the next iteration.
const uint OWN_STEP = 4u * THREADS;

// If a row is one segment, an invocation may keep its elements in registers, in HELD groups of four
// (the including file declares HELD). Returns the index of the first element of group number `h`.
uint held_first(row_part own, uint h)
{
    return own_first(own.begin) + OWN_STEP * h;
}

// Says which of the four elements from number j on exist.
bvec4 held_there(uint j, uint form)
{
    return form >= TSR_ROW_DENSE4 ? bvec4(j < ROW_LENGTH)
                                  : lessThan(uvec4(j) + uvec4(0u, 1u, 2u, 3u), uvec4(ROW_LENGTH));
}

// Returns j or, if j is past the end of the row, the index of the last four elements, which are
// then loaded and ignored.
uint held_within(uint j)
{
    return min(j, (ROW_LENGTH - 1u) / 4u * 4u);
}

// The end of the segment that begins at `begin`.
uint segment_end(row_part own, uint begin)
{
    return SEGMENTED ? min(own.end, begin + segment_length()) : own.end;
}

// Moves `begin` to the next segment. Returns false if there is none.
bool next_segment(row_part own, inout uint begin)
{
    begin += segment_length();
    return SEGMENTED && begin < own.end;
}

// True if this dispatch computes the partial results that `phase` leaves.
bool in_phase(uint phase)
{
    return PHASE == TSR_PHASE_WHOLE || PHASE == phase;
}

tsr_floats partial_at(row_part own, uint index)
{
    uint row_floats = TSR_SEGMENT_SUMS_AT + TSR_SEGMENT_SUMS * segment_count() * THREADS;
    return tsr_floats(tsr_at_mul(PARTIALS, own.row * row_floats + index, 4u));
}

uint sum_index(uint sum, uint segment)
{
    return TSR_SEGMENT_SUMS_AT + (sum * segment_count() + segment) * THREADS + group_thread();
}

// The largest component of `mine` of all invocations that work on the row. `mine` is used only if
// in_phase(TSR_PHASE_FIRST). In the first phase the result covers this segment only; later phases
// return that of the row.
float row_max(row_part own, vec4 mine)
{
    float value = group_own(mine, true);
    if (PHASE == TSR_PHASE_SECOND || PHASE == TSR_PHASE_LAST)
        value = partial_at(own, min(group_thread(), segment_count() - 1u)).v[0];
    value = group_combine_values(value, true, 1u);
    if (PHASE == TSR_PHASE_FIRST && own.owner && group_thread() == 0u)
        partial_at(own, own.segment).v[0] = value;
    return value;
}

// Stores one value of the row, for a later phase.
void keep_row_value(row_part own, float value)
{
    if (own.owner && own.segment == 0u && group_thread() == 0u)
        partial_at(own, TSR_SEGMENT_ROW_VALUE).v[0] = value;
}

// Returns the value that keep_row_value() stored in an earlier phase.
float kept_row_value(row_part own)
{
    return partial_at(own, TSR_SEGMENT_ROW_VALUE).v[0];
}

// Adds the sum of a segment's elements, `sums`, to `total`, the sum of the segments before it.
void add_segment(inout float total, vec4 sums)
{
    total = group_pair(total, group_own(sums, false), false);
}

float add_if(float total, float value, bool there)
{
    float sum = group_pair(total, value, false);
    return there ? sum : total;
}

// Adds the partial sums that the invocations with this one's number in their thread groups have
// stored for all segments, in the order of the segments. Eight loads are issued at a time, so that
// they do not wait for each other. The additions are written without a loop, because glslc's
// optimizer drops `precise` when it unrolls a loop.
float merged_sum(row_part own, uint sum)
{
    uint count = segment_count();
    float total = 0.0;
    for (uint s = 0u; s < count; s += 8u) {
        float loaded[8];
        [[unroll]] for (uint i = 0u; i < 8u; i++)
            loaded[i] = partial_at(own, sum_index(sum, min(s + i, count - 1u))).v[0];
        total = add_if(total, loaded[0], true);
        total = add_if(total, loaded[1], s + 1u < count);
        total = add_if(total, loaded[2], s + 2u < count);
        total = add_if(total, loaded[3], s + 3u < count);
        total = add_if(total, loaded[4], s + 4u < count);
        total = add_if(total, loaded[5], s + 5u < count);
        total = add_if(total, loaded[6], s + 6u < count);
        total = add_if(total, loaded[7], s + 7u < count);
    }
    return total;
}

// Returns the sum of the row. `mine` is the sum of this invocation's elements, and is used only if
// in_phase(phase). If rows are divided, the result is 0 in the phase `phase` itself, because the
// other segments are not known; a later phase returns the sum. `sum` is the number of this sum
// among those that the kernel computes. Successive calls must alternate between slots 0 and 1
// (thread_group.glsl); row_max uses slot 1.
float row_sum(row_part own, uint phase, uint sum, uint slot, float mine)
{
    if (PHASE == phase) {
        if (own.owner)
            partial_at(own, sum_index(sum, own.segment)).v[0] = mine;
        return 0.0;
    }
    return group_combine_values(PHASE == TSR_PHASE_WHOLE ? mine : merged_sum(own, sum), false, slot);
}

#endif
