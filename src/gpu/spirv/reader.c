#include "gpu/spirv/reader.h"

const uint32_t *tsr__spirv_find_constant(const tsr__spirv_module *module, uint32_t id)
{
    for (size_t at = TSR__SPIRV_HEADER; at < module->count; at += tsr__spirv_length(module, at)) {
        const uint32_t op = tsr__spirv_opcode(module, at);
        if (op >= OP_CONSTANT_TRUE && op <= OP_SPEC_CONSTANT_OP &&
            tsr__spirv_length(module, at) >= 3 && module->words[at + 2] == id)
            return module->words + at;
    }
    return NULL;
}

const uint32_t *tsr__spirv_find_type(const tsr__spirv_module *module, uint32_t id, uint32_t length)
{
    for (size_t at = TSR__SPIRV_HEADER; at < module->count; at += tsr__spirv_length(module, at)) {
        const uint32_t op = tsr__spirv_opcode(module, at);
        if (op >= OP_TYPE_INT && op <= OP_TYPE_POINTER && tsr__spirv_length(module, at) >= 2 &&
            module->words[at + 1] == id)
            return tsr__spirv_length(module, at) >= length ? module->words + at : NULL;
    }
    return NULL;
}

const uint32_t *tsr__spirv_find_decoration(const tsr__spirv_module *module, uint32_t id,
                                           uint32_t member, uint32_t decoration, uint32_t operands)
{
    const bool whole = member == TSR__SPIRV_WHOLE;
    const uint32_t op = whole ? OP_DECORATE : OP_MEMBER_DECORATE;
    const uint32_t before = whole ? 2 : 3; /* words before the decoration */

    for (size_t at = TSR__SPIRV_HEADER; at < module->count; at += tsr__spirv_length(module, at)) {
        const uint32_t *words = module->words + at;
        if (tsr__spirv_opcode(module, at) == op &&
            tsr__spirv_length(module, at) > before + operands && words[1] == id &&
            (whole || words[2] == member) && words[before] == decoration)
            return words;
    }
    return NULL;
}

/* Returns the value of a specialization constant whose instruction contains the value `own`. */
static uint32_t specialized(const tsr__spirv_module *module, uint32_t id, uint32_t own)
{
    const uint32_t *found =
        tsr__spirv_find_decoration(module, id, TSR__SPIRV_WHOLE, DECORATION_SPEC_ID, 1);
    return found && found[3] < module->spec_count ? module->spec[found[3]] : own;
}

bool tsr__spirv_constant_value(const tsr__spirv_module *module, uint32_t id, uint32_t *out)
{
    const uint32_t *constant = tsr__spirv_find_constant(module, id);
    if (!constant)
        return false;
    switch (constant[0]) { /* the first word has the instruction's length and opcode */
    case 4 << 16 | OP_CONSTANT:
        *out = constant[3];
        return true;
    case 4 << 16 | OP_SPEC_CONSTANT:
        *out = specialized(module, id, constant[3]);
        return true;
    case 3 << 16 | OP_CONSTANT_NULL:
        *out = 0;
        return true;
    default:
        *out = 1;
        return (constant[0] & 0xffff) == OP_SPEC_CONSTANT_OP;
    }
}
