// The kernel of planted.c: y[i] = x[i] + 1. With SHARED, invocations read what others of their
// workgroup have written to shared memory: y[i] = x[i − 16] + 1.
#version 450
#extension GL_EXT_buffer_reference : require

layout(local_size_x = 64) in;
layout(constant_id = 0) const bool SHARED = false;
layout(constant_id = 1) const bool BARRIER = true; // false: the barrier is missing

layout(buffer_reference, std430, buffer_reference_align = 4) buffer words
{
    uint v[];
};
layout(push_constant) uniform push
{
    words x, y;
    int first, end; // the elements
};
shared uint others[64];

void main()
{
    const int i = first + int(gl_WorkGroupID.x * 64 + gl_LocalInvocationID.x);
    if (!SHARED) {
        if (i < end)
            y.v[i] = x.v[i] + 1;
        return;
    }
    others[gl_LocalInvocationID.x] = x.v[i];
    if (BARRIER)
        barrier();
    // In ascending order, what is read was written before, also without the barrier.
    const uint own = gl_LocalInvocationID.x;
    y.v[i] = others[own < 16 ? own : own - 16] + 1;
}
