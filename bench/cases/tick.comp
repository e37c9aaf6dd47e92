// The smallest kernel whose effect can be checked: it counts its own runs.
#version 450
#extension GL_EXT_buffer_reference : require

layout(local_size_x = 1) in;

layout(buffer_reference, std430, buffer_reference_align = 4) buffer words {
    uint v[];
};

layout(push_constant) uniform params {
    words counter;
} p;

void main()
{
    p.counter.v[0] += 1;
}
