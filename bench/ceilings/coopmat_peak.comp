// Measures the rate of products of cooperative matrices: independent chains of c = a·b + c in
// registers, where a and b are f16 and c is f32. a and b come from memory, and the sum of the
// chains is written to memory, so that no compiler can compute the result or leave work out. All
// subgroups compute the same values.
#version 450
#extension GL_EXT_buffer_reference : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_EXT_shader_16bit_storage : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_shader_subgroup_basic : require

layout(local_size_x = 128, local_size_x_id = 0) in;
layout(constant_id = 0) const uint THREADS = 128;
layout(constant_id = 1) const uint M = 16;
layout(constant_id = 2) const uint N = 16;
layout(constant_id = 3) const uint K = 16;
layout(constant_id = 4) const uint CHAINS = 4;

layout(buffer_reference, std430, buffer_reference_align = 16) buffer halfs {
    float16_t v[];
};
layout(buffer_reference, std430, buffer_reference_align = 16) buffer floats {
    float v[];
};

layout(push_constant) uniform params {
    halfs operands; // a[M,K], b[K,N]
    floats result;  // [M,N] of each subgroup
    uint rounds;    // number of rounds; each has 8 steps
} p;

#define SUMS coopmat<float, gl_ScopeSubgroup, M, N, gl_MatrixUseAccumulator>

void main()
{
    coopmat<float16_t, gl_ScopeSubgroup, M, K, gl_MatrixUseA> a;
    coopmat<float16_t, gl_ScopeSubgroup, K, N, gl_MatrixUseB> b;
    coopMatLoad(a, p.operands.v, 0, K, gl_CooperativeMatrixLayoutRowMajor);
    coopMatLoad(b, p.operands.v, M * K, N, gl_CooperativeMatrixLayoutRowMajor);
    SUMS sums[CHAINS];
    // All chains start with different values, so that no compiler merges them.
    [[unroll]] for (uint c = 0; c < CHAINS; c++)
        sums[c] = SUMS(float(c));
    for (uint round = 0; round < p.rounds; round++)
        [[unroll]] for (uint step = 0; step < 8; step++)
            [[unroll]] for (uint c = 0; c < CHAINS; c++)
                sums[c] = coopMatMulAdd(a, b, sums[c]);
    [[unroll]] for (uint c = 1; c < CHAINS; c++)
        sums[0] = sums[0] + sums[c];
    uint subgroup = gl_WorkGroupID.x * gl_NumSubgroups + gl_SubgroupID;
    coopMatStore(sums[0], p.result.v, subgroup * (M * N), N, gl_CooperativeMatrixLayoutRowMajor);
}
