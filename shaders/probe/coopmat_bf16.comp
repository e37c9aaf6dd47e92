#version 450
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_EXT_bfloat16 : require
layout(local_size_x = 32) in;
layout(std430, binding = 0) buffer Data { bfloat16_t v[]; } data;
void main()
{
    coopmat<bfloat16_t, gl_ScopeSubgroup, 16, 16, gl_MatrixUseA> a;
    coopMatLoad(a, data.v, 0, 16, gl_CooperativeMatrixLayoutRowMajor);
    data.v[0] = a[0];
}
