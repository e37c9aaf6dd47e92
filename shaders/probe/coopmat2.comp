#version 450
#extension GL_KHR_cooperative_matrix : require
#extension GL_NV_cooperative_matrix2 : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
layout(local_size_x = 32) in;
layout(std430, binding = 0) buffer Data { float16_t v[]; } data;
void main()
{
    coopmat<float16_t, gl_ScopeWorkgroup, 16, 16, gl_MatrixUseA> a;
    tensorLayoutNV<2> rows = createTensorLayoutNV(2);
    rows = setTensorLayoutDimensionNV(rows, 16, 16);
    coopMatLoadTensorNV(a, data.v, 0, rows);
    coopmat<float, gl_ScopeWorkgroup, 16, 16, gl_MatrixUseAccumulator> sums = coopmat<float, gl_ScopeWorkgroup, 16, 16, gl_MatrixUseAccumulator>(1.0);
    a += coopmat<float16_t, gl_ScopeWorkgroup, 16, 16, gl_MatrixUseA>(sums);
    data.v[0] = a[0];
}
