// Finds the span of a row that a subgroup works on, in the kernels of Mesa's CPU driver that divide
// rows among subgroups.
#ifndef TSR_ROW_SPANS_GLSL
#define TSR_ROW_SPANS_GLSL

struct span {
    uint number; // the span's number among the spans of all rows, counted row by row
    bool own;    // false: the subgroup computes the last span again and must not store
    uint row;
    // `first` is the first element or vector of the span. The first `before` of its elements or
    // vectors belong to the span before it as well.
    uint first;
    uint before;
};

uint span_number(uint subgroups)
{
    return uniform_index(gl_WorkGroupID.x) * subgroups + p.identity[p.identity[gl_SubgroupID]];
}

// Finds span number `number` among the spans of all rows. A span is `size` elements or vectors of a
// row, which has at least as many (p.spans.extent). A row's last span is shifted back to end with
// the row.
span find_span(uint number, uint size)
{
    span at;
    uint count = p.spans.rows * p.spans.across;
    at.own = number < count;
    at.number = min(number, count - 1);
    uint high, low;
    umulExtended(at.number, p.spans.magic, high, low);
    at.row = high + at.number >> p.spans.shift;
    uint start = (at.number - at.row * p.spans.across) * size;
    at.first = min(start, p.spans.extent - size);
    at.before = start - at.first;
    return at;
}

#endif
