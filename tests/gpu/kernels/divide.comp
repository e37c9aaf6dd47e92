// Computes y = a / b with the division of include/divide.glsl. p.wrong makes the first quotient
// wrong.
#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_buffer_reference : require
#include "include/divide.glsl"

layout(buffer_reference, std430, buffer_reference_align = 4) buffer Words {
    uint v[];
};

layout(local_size_x = 64) in;

layout(push_constant, std430) uniform Params {
    Words a;
    Words b;
    Words y;
    uint n;
    int wrong;
} p;

void main()
{
    uint i = gl_GlobalInvocationID.x;
    if (i < p.n)
        p.y.v[i] = tsr_divide_wrong(p.a.v[i], p.b.v[i], p.wrong);
}
