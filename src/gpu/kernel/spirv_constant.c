#include "gpu/kernel/spirv_source.h"

const uint32_t *tsr__spirv_constant(const tsr__spirv_source *source, uint32_t id)
{
    for (uint64_t at = TSR__SPIRV_HEADER; at < source->count; at += source->words[at] >> 16) {
        const uint32_t *instruction = source->words + at;
        const uint32_t op = instruction[0] & 0xffff;
        if (op >= OP_CONSTANT_TRUE && op <= OP_SPEC_CONSTANT_OP && instruction[0] >> 16 >= 3 &&
            instruction[2] == id)
            return instruction;
    }
    return NULL;
}

/* Returns the value of a specialization constant: the caller's value, or otherwise `own`, the value
 * in the module. */
static uint32_t specialized(const tsr__spirv_source *source, uint32_t id, uint32_t own)
{
    for (uint64_t at = TSR__SPIRV_HEADER; at < source->count; at += source->words[at] >> 16) {
        const uint32_t *instruction = source->words + at;
        if ((instruction[0] & 0xffff) == OP_DECORATE && instruction[0] >> 16 >= 4 &&
            instruction[1] == id && instruction[2] == DECORATION_SPEC_ID)
            return instruction[3] < (uint32_t)source->constant_count
                       ? source->constants[instruction[3]]
                       : own;
    }
    return own;
}

bool tsr__spirv_value(const tsr__spirv_source *source, uint32_t id, uint32_t *out)
{
    const uint32_t *constant = tsr__spirv_constant(source, id);
    if (!constant)
        return false;
    switch (constant[0]) { /* the first word has the instruction's length and opcode */
    case 4 << 16 | OP_CONSTANT:
        *out = constant[3];
        return true;
    case 4 << 16 | OP_SPEC_CONSTANT:
        *out = specialized(source, id, constant[3]);
        return true;
    case 3 << 16 | OP_CONSTANT_NULL:
        *out = 0;
        return true;
    default:
        *out = 1;
        return (constant[0] & 0xffff) == OP_SPEC_CONSTANT_OP;
    }
}
