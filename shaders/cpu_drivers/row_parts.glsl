// Finds the part of a row that a subgroup works on, in the kernels of Mesa's CPU driver that divide
// rows among subgroups.
#ifndef TSR_ROW_PARTS_GLSL
#define TSR_ROW_PARTS_GLSL

struct part {
    uint number; // the part's number among the parts of all rows, counted row by row
    bool own;    // false: the subgroup computes the last part again and must not store
    uint row;
    // `first` is the first element or vector of the part. The first `before` of its elements or
    // vectors belong to the part before it as well.
    uint first;
    uint before;
};

uint part_number(uint subgroups)
{
    return uniform_index(gl_WorkGroupID.x) * subgroups + p.identity[p.identity[gl_SubgroupID]];
}

// Finds part number `number` among the parts of all rows. A part is `size` elements or vectors of a
// row, which has at least as many (p.parts.extent). A row's last part is shifted back to end with
// the row.
part find_part(uint number, uint size)
{
    part at;
    uint count = p.parts.rows * p.parts.across;
    at.own = number < count;
    at.number = min(number, count - 1);
    uint high, low;
    umulExtended(at.number, p.parts.magic, high, low);
    at.row = high + at.number >> p.parts.shift;
    uint start = (at.number - at.row * p.parts.across) * size;
    at.first = min(start, p.parts.extent - size);
    at.before = start - at.first;
    return at;
}

#endif
