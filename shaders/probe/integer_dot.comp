#version 450
#extension GL_EXT_integer_dot_product : require
layout(local_size_x = 1) in;
layout(std430, binding = 0) buffer Data { int v[]; } data;
void main()
{
    data.v[0] = dotPacked4x8EXT(data.v[1], data.v[2]);
}
