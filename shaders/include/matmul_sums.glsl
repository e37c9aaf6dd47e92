// Adds up the sums of a workgroup's invocations, for kernels whose invocations are placed along k.
// The including file defines the constants THREADS, SUMS and SUBGROUP and the array sums[SUMS].
//
// SUBGROUP is the smallest number of invocations of a subgroup, of which THREADS is a multiple; the
// device adds up the sums of each subgroup. If SUBGROUP is 0, the sums are added up in a fixed tree,
// eight at a time. The module then needs no capability for that (spirv/specialize.c).
#ifndef TSR_MATMUL_SUMS_GLSL
#define TSR_MATMUL_SUMS_GLSL

#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_arithmetic : require

const uint TREE_PITCH = THREADS / (SUBGROUP != 0u ? SUBGROUP : 1u);
shared float tree[SUMS * TREE_PITCH];

void add_up()
{
    if (SUBGROUP != 0u) {
        [[unroll]] for (uint e = 0u; e < SUMS; e++) {
            float sum = subgroupAdd(sums[e]);
            if (subgroupElect())
                tree[e * TREE_PITCH + gl_SubgroupID] = sum;
        }
        barrier();
        return;
    }
    [[unroll]] for (uint e = 0u; e < SUMS; e++)
        tree[e * TREE_PITCH + gl_LocalInvocationIndex] = sums[e];
    for (uint left = THREADS; left > 1u;) {
        uint after = (left + 7u) / 8u;
        barrier();
        for (uint at = gl_LocalInvocationIndex; at < SUMS * after; at += THREADS) {
            uint first = at / after * TREE_PITCH + at % after, end = at / after * TREE_PITCH + left;
            float sum = tree[first];
            [[unroll]] for (uint n = 1u; n < 8u; n++)
                if (first + n * after < end)
                    sum += tree[first + n * after];
            tree[first] = sum; // nothing else reads or writes this element now
        }
        left = after;
    }
    barrier();
}

// Sum e of all invocations, after add_up().
float total(uint e)
{
    float sum = tree[e * TREE_PITCH];
    if (SUBGROUP != 0u)
        for (uint i = 1u; i < gl_NumSubgroups; i++)
            sum += tree[e * TREE_PITCH + i];
    return sum;
}

#endif
