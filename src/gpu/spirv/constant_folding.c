#include "gpu/spirv/constant_folding.h"

#include "gpu/spirv/reader.h"

static tsr__folded_value known(uint32_t bits)
{
    return (tsr__folded_value){true, bits};
}

static const tsr__folded_value unknown = {false, 0};

static tsr__folded_value fold_unary(uint32_t opcode, tsr__folded_value a)
{
    if (!a.known)
        return unknown;
    switch (opcode) {
    case OP_COPY_OBJECT:
    case OP_BITCAST:
        return a;
    case OP_S_NEGATE:
        return known(0 - a.bits);
    case OP_NOT:
        return known(~a.bits);
    case OP_LOGICAL_NOT:
        return known(!a.bits);
    }
    return unknown;
}

/* Maps signed integers to unsigned integers so that comparisons give the same results. */
static uint32_t ordered(uint32_t bits)
{
    return bits ^ UINT32_C(0x80000000);
}

static tsr__folded_value fold_comparison(uint32_t opcode, uint32_t a, uint32_t b)
{
    switch (opcode) {
    case OP_I_EQUAL:
    case OP_LOGICAL_EQUAL:
        return known(a == b);
    case OP_I_NOT_EQUAL:
    case OP_LOGICAL_NOT_EQUAL:
        return known(a != b);
    case OP_U_GREATER_THAN:
        return known(a > b);
    case OP_U_GREATER_THAN_EQUAL:
        return known(a >= b);
    case OP_U_LESS_THAN:
        return known(a < b);
    case OP_U_LESS_THAN_EQUAL:
        return known(a <= b);
    case OP_S_GREATER_THAN:
        return known(ordered(a) > ordered(b));
    case OP_S_GREATER_THAN_EQUAL:
        return known(ordered(a) >= ordered(b));
    case OP_S_LESS_THAN:
        return known(ordered(a) < ordered(b));
    case OP_S_LESS_THAN_EQUAL:
        return known(ordered(a) <= ordered(b));
    }
    return unknown;
}

static tsr__folded_value fold_binary(uint32_t opcode, uint32_t a, uint32_t b)
{
    switch (opcode) {
    case OP_I_ADD:
        return known(a + b);
    case OP_I_SUB:
        return known(a - b);
    case OP_I_MUL:
        return known(a * b);
    case OP_U_DIV:
        return b == 0 ? unknown : known(a / b);
    case OP_U_MOD:
        return b == 0 ? unknown : known(a % b);
    case OP_SHIFT_RIGHT_LOGICAL:
        return b > 31 ? unknown : known(a >> b);
    case OP_SHIFT_LEFT_LOGICAL:
        return b > 31 ? unknown : known(a << b);
    case OP_BITWISE_OR:
    case OP_LOGICAL_OR:
        return known(a | b);
    case OP_BITWISE_XOR:
        return known(a ^ b);
    case OP_BITWISE_AND:
    case OP_LOGICAL_AND:
        return known(a & b);
    }
    return fold_comparison(opcode, a, b);
}

static bool is_known(tsr__folded_value value, uint32_t bits)
{
    return value.known && value.bits == bits;
}

tsr__folded_value tsr__spirv_fold(uint32_t opcode, const tsr__folded_value *operands, int count)
{
    const tsr__folded_value *v = operands;
    if (count == 1)
        return fold_unary(opcode, v[0]);
    if (count == 3 && opcode == OP_SELECT)
        return v[0].known ? v[v[0].bits ? 1 : 2] : unknown;
    if (count != 2)
        return unknown;
    /* One known operand can be enough to determine the result. */
    if (opcode == OP_LOGICAL_AND && (is_known(v[0], 0) || is_known(v[1], 0)))
        return known(0);
    if (opcode == OP_LOGICAL_OR && (is_known(v[0], 1) || is_known(v[1], 1)))
        return known(1);
    return v[0].known && v[1].known ? fold_binary(opcode, v[0].bits, v[1].bits) : unknown;
}
