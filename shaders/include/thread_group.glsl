// Sums and maxima over a thread group: THREADS neighbouring invocations that work on one row. They
// are computed in a fixed order. The including file declares WORKGROUP and THREADS; THREADS is 1,
// 8, or a multiple of 8 that equals WORKGROUP. There are few barriers because on CPU drivers each
// one costs a switch between the workgroup's invocations.
#ifndef TSR_THREAD_GROUP_GLSL
#define TSR_THREAD_GROUP_GLSL

// Memory for two calls of group_combine_values(). The memory of one call is a slot. Successive
// calls use different slots, so that no call has to wait for invocations that still read the result
// of the call before it.
shared float group_parts[2 * WORKGROUP];
shared float group_eighths[2 * 8];

uint group_thread()
{
    return gl_LocalInvocationID.x % THREADS;
}

// The row that this invocation works on. It may be past the last row.
uint group_row()
{
    return tsr_flat_group() * (WORKGROUP / THREADS) + gl_LocalInvocationID.x / THREADS;
}

// The maximum or the sum of a pair. max() may drop a NaN.
float group_pair(float a, float b, bool largest)
{
    precise float sum = a + b;
    return largest ? max(a, b) : sum;
}

// The maximum or the sum of four numbers.
float group_own(vec4 mine, bool largest)
{
    return group_pair(group_pair(mine.x, mine.z, largest), group_pair(mine.y, mine.w, largest),
                      largest);
}

// Computes the maximum (if `largest`) or the sum of `value` over all invocations of the thread
// group, and returns it to each of them. `largest` and `slot` are constants. Successive calls must
// alternate between slots 0 and 1. The control flow must be uniform.
float group_combine_values(float value, bool largest, uint slot)
{
    if (THREADS == 1u)
        return value;
    uint base = slot * WORKGROUP + gl_LocalInvocationID.x - group_thread();
    group_parts[base + group_thread()] = value;
    barrier();
    float eighths[8];
    if (THREADS > 8u) {
        if (group_thread() < 8u) {
            // unrolled, so that the loads do not wait for each other
            [[unroll]] for (uint i = 1u; i < THREADS / 8u; i++)
                value = group_pair(value, group_parts[base + group_thread() + 8u * i], largest);
            group_eighths[8u * slot + group_thread()] = value;
        }
        barrier();
        [[unroll]] for (uint i = 0u; i < 8u; i++)
            eighths[i] = group_eighths[8u * slot + i];
    } else {
        [[unroll]] for (uint i = 0u; i < 8u; i++)
            eighths[i] = group_parts[base + i];
    }
    // There is no loop, because glslc's optimizer drops `precise` when it unrolls a loop.
    float even = group_pair(group_pair(eighths[0], eighths[4], largest),
                            group_pair(eighths[2], eighths[6], largest), largest);
    float odd = group_pair(group_pair(eighths[1], eighths[5], largest),
                           group_pair(eighths[3], eighths[7], largest), largest);
    return group_pair(even, odd, largest);
}

// The sum of all components of `mine`.
float group_sum(vec4 mine)
{
    return group_combine_values(group_own(mine, false), false, 0u);
}

#endif
