// Which part of which row a subgroup works on, where rows are divided among subgroups: of Mesa's CPU driver.
#ifndef TSR_ROW_PARTS_GLSL
#define TSR_ROW_PARTS_GLSL

struct part {
    uint number; // of all parts, row by row
    bool own;    // else it is past the last, a repetition of that, and must not store
    uint row;
    uint first;  // of the row's elements or vectors, and how many from there on are another part's
    uint before;
};

uint part_number(uint subgroups)
{
    return uniform_index(gl_WorkGroupID.x) * subgroups + p.identity[p.identity[gl_SubgroupID]];
}

// Parts of `size`, at most p.parts.extent: the last starts early, to end with its row.
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
