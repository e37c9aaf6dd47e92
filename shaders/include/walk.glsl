// Finds the elements that an invocation works on; see params/walk.h.
#ifndef TSR_WALK_GLSL
#define TSR_WALK_GLSL

#include "params/walk.h"

uint tsr_walk_divide(tsr_walk walk, uint i, uint n)
{
    uint high, low;
    umulExtended(n, walk.magic[i], high, low);
    return (high + n) >> ((walk.shifts >> (8u * i)) & 0xffu);
}

// The position of the elements of invocation `item`. w is the number of its group of elements in
// the row; x, y and z are the indices of the row, outermost first.
uvec4 tsr_walk_position(tsr_walk walk, uint item)
{
    uint row = tsr_walk_divide(walk, 0u, item);
    uint plane = tsr_walk_divide(walk, 1u, row);
    uint outer = tsr_walk_divide(walk, 2u, plane);
    return uvec4(outer, plane - outer * walk.size[2], row - plane * walk.size[1],
                 item - row * walk.size[0]);
}

// The offset of a position in an operand, in elements. The caller must have multiplied w by the
// number of elements in a group.
uint tsr_walk_element(uvec4 position, uint strides[TSR_WALK_DIMS])
{
    return position.x * strides[0] + position.y * strides[1] + position.z * strides[2] +
           position.w * strides[3];
}

#endif
