// Measures the memory bandwidth of kernels: reads one array and writes another, 16 bytes at a time.
#version 450
#extension GL_EXT_buffer_reference : require

layout(local_size_x = 256) in;

// The number of vectors per invocation, whose loads are all in progress at the same time.
layout(constant_id = 0) const uint VECTORS = 1;

layout(buffer_reference, std430, buffer_reference_align = 16) readonly buffer source {
    uvec4 v[];
};
layout(buffer_reference, std430, buffer_reference_align = 16) writeonly buffer target {
    uvec4 v[];
};

layout(push_constant) uniform params {
    source from;
    target to;
} p;

void main()
{
    uint group = gl_WorkGroupID.y * gl_NumWorkGroups.x + gl_WorkGroupID.x;
    // Neighbouring invocations read neighbouring vectors.
    uint at = group * (256 * VECTORS) + gl_LocalInvocationID.x;
    uvec4 a = p.from.v[at], b = uvec4(0), c = uvec4(0), d = uvec4(0);
    if (VECTORS > 1)
        b = p.from.v[at + 256];
    if (VECTORS > 2) {
        c = p.from.v[at + 512];
        d = p.from.v[at + 768];
    }
    p.to.v[at] = a;
    if (VECTORS > 1)
        p.to.v[at + 256] = b;
    if (VECTORS > 2) {
        p.to.v[at + 512] = c;
        p.to.v[at + 768] = d;
    }
}
