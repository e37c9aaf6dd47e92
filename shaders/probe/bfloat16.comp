#version 450
#extension GL_EXT_bfloat16 : require
layout(local_size_x = 1) in;
layout(std430, binding = 0) buffer Data { bfloat16_t v[]; } data;
void main()
{
    data.v[0] = bfloat16_t(float(data.v[1]));
}
