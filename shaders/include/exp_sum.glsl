// The sum of the exponentials of a row's elements relative to the largest of them, in one reading of
// the row. Each invocation keeps the largest of its elements so far, and the sum relative to it,
// which it scales whenever it finds a larger one. The including file declares what segments.glsl
// needs, and defines LOAD_LOGITS(logits, j), which gives elements j … j+3, -inf past the end.
//
// A row that is divided into segments needs two phases: TSR_PHASE_SECOND leaves the sum and the
// largest element of each invocation and segment, TSR_PHASE_LAST merges them.
#ifndef TSR_EXP_SUM_GLSL
#define TSR_EXP_SUM_GLSL

#include "include/exp_log.glsl"
#include "include/segments.glsl"

#define EXP_SUM_NONE uintBitsToFloat(0xff800000u) // -inf

struct exp_sum {
    float largest;
    float sum; // of e^(element - largest); 0 if largest is -inf
};

// The number that is subtracted from elements of which `largest` is the largest. It is not -inf,
// because -inf - -inf would be NaN.
float exp_sum_shift(float largest)
{
    return largest == EXP_SUM_NONE ? 0.0 : largest;
}

// The sums of one invocation for the elements from `begin` to `end`.
exp_sum exp_sum_of(uvec2 logits, uint begin, uint end)
{
    float largest = EXP_SUM_NONE;
    precise vec4 sums = vec4(0.0);
    for (uint j = own_first(begin); j < end; j += OWN_STEP) {
        vec4 loaded = LOAD_LOGITS(logits, j);
        float next = max(largest, group_own(loaded, true));
        float shift = exp_sum_shift(next);
        if (next != largest) {
            sums *= tsr_exp_down(largest - shift);
            largest = next;
        }
        sums += tsr_exp4_down(loaded - shift);
    }
    return exp_sum(largest, group_own(sums, false));
}

exp_sum exp_sum_merge(exp_sum a, exp_sum b)
{
    float largest = max(a.largest, b.largest), shift = exp_sum_shift(largest);
    precise float first = a.sum * tsr_exp_down(a.largest - shift);
    precise float second = b.sum * tsr_exp_down(b.largest - shift);
    return exp_sum(largest, group_pair(first, second, false));
}

exp_sum exp_sum_merge_if(exp_sum a, exp_sum b, bool there)
{
    exp_sum merged = exp_sum_merge(a, b);
    return exp_sum(there ? merged.largest : a.largest, there ? merged.sum : a.sum);
}

exp_sum exp_sum_stored(row_part own, uint segment)
{
    return exp_sum(partial_at(own, sum_index(1u, segment)).v[0],
                   partial_at(own, sum_index(0u, segment)).v[0]);
}

// Merges what the invocations with this one's number have stored for all segments, in the order of
// the segments. Four are loaded at a time, so that the loads do not wait for each other.
exp_sum exp_sum_merged(row_part own)
{
    uint last = segment_count() - 1u;
    exp_sum all = exp_sum(EXP_SUM_NONE, 0.0);
    for (uint s = 0u; s <= last; s += 4u) {
        exp_sum a = exp_sum_stored(own, s);
        exp_sum b = exp_sum_stored(own, min(s + 1u, last));
        exp_sum c = exp_sum_stored(own, min(s + 2u, last));
        exp_sum d = exp_sum_stored(own, min(s + 3u, last));
        all = exp_sum_merge(all, a);
        all = exp_sum_merge_if(all, b, s + 1u <= last);
        all = exp_sum_merge_if(all, c, s + 2u <= last);
        all = exp_sum_merge_if(all, d, s + 3u <= last);
    }
    return all;
}

// The sum of the row, except in TSR_PHASE_SECOND, which only stores its part.
exp_sum exp_sum_of_row(row_part own, uvec2 logits)
{
    exp_sum mine = exp_sum(EXP_SUM_NONE, 0.0);
    if (PHASE == TSR_PHASE_LAST) {
        mine = exp_sum_merged(own);
    } else {
        uint begin = own.begin;
        do {
            exp_sum part = exp_sum_of(logits, begin, segment_end(own, begin));
            if (SEGMENTED && PHASE == TSR_PHASE_WHOLE)
                part = exp_sum_merge(mine, part);
            mine = part;
        } while (next_segment(own, begin));
    }
    if (PHASE == TSR_PHASE_SECOND) {
        if (own.owner) {
            partial_at(own, sum_index(0u, own.segment)).v[0] = mine.sum;
            partial_at(own, sum_index(1u, own.segment)).v[0] = mine.largest;
        }
        return mine;
    }
    float largest = group_combine_values(mine.largest, true, 1u);
    precise float scaled = mine.sum * tsr_exp_down(mine.largest - exp_sum_shift(largest));
    return exp_sum(largest, group_combine_values(scaled, false, 0u));
}

#endif
