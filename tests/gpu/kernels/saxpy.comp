// A user's kernel, compiled when the tests are built: y = FACTOR · scale · x + y for the first n elements.
#version 450
#extension GL_EXT_buffer_reference : require

layout(buffer_reference, std430, buffer_reference_align = 4) buffer Floats {
    float v[];
};

layout(local_size_x_id = 0) in;
layout(constant_id = 1) const float FACTOR = 1.0;

layout(push_constant, std430) uniform Params {
    Floats x;
    Floats y;
    uint n;
    float scale;
} p;

void main()
{
    uint i = gl_GlobalInvocationID.x;
    if (i < p.n)
        p.y.v[i] = FACTOR * p.scale * p.x.v[i] + p.y.v[i];
}
