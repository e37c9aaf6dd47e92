/* Writes the module without the code that specialization made unreachable. */
#include "gpu/cpu_drivers/specialize/module.h"

#include <string.h>

static void put(tsr__spirv_module *s, const uint32_t *words, size_t count)
{
    memcpy(s->out + s->out_words, words, count * sizeof *words);
    s->out_words += count;
}

static void put_constant(tsr__spirv_module *s, uint32_t type, uint32_t id)
{
    uint32_t bits = s->ids[id].bits;
    if (s->ids[type].type == TSR__SPIRV_BOOL)
        put(s, (uint32_t[]){3U << 16 | (bits ? OP_CONSTANT_TRUE : OP_CONSTANT_FALSE), type, id}, 3);
    else
        put(s, (uint32_t[]){4U << 16 | OP_CONSTANT, type, id, bits}, 4);
}

static void put_composite(tsr__spirv_module *s, const uint32_t *w, size_t length)
{
    bool known = true;
    for (size_t i = 3; i < length; i++)
        known = known && s->ids[w[i]].known;
    put(s, w, length);
    if (known)
        s->out[s->out_words - length] = (uint32_t)length << 16 | OP_CONSTANT_COMPOSITE;
}

static void put_global(tsr__spirv_module *s, size_t at, size_t length)
{
    const uint32_t *w = s->code + at;
    switch (tsr__spirv_opcode(s, at)) {
    case OP_NAME:
    case OP_MEMBER_NAME:
        return;
    case OP_DECORATE:
        if (w[2] == DECORATION_SPEC_ID || s->ids[w[1]].gone)
            return;
        break;
    case OP_SPEC_CONSTANT_TRUE:
    case OP_SPEC_CONSTANT_FALSE:
    case OP_SPEC_CONSTANT:
        put_constant(s, w[1], w[2]);
        return;
    case OP_SPEC_CONSTANT_OP:
        if (s->ids[w[2]].known) {
            put_constant(s, w[1], w[2]);
            return;
        }
        break;
    case OP_SPEC_CONSTANT_COMPOSITE:
        put_composite(s, w, length);
        return;
    }
    put(s, w, length);
}

/* Declares the results of instructions that turned out to be constants. */
static void put_found_constants(tsr__spirv_module *s)
{
    for (size_t i = 0; i < s->block_count; i++) {
        const tsr__spirv_block *block = &s->blocks[i];
        for (size_t at = block->begin; block->kept && at < block->terminator;
             at += tsr__spirv_length(s, at))
            if (tsr__spirv_opcode(s, at) != OP_LABEL &&
                tsr__spirv_has_result(tsr__spirv_opcode(s, at)) && s->ids[s->code[at + 2]].known)
                put_constant(s, s->code[at + 1], s->code[at + 2]);
    }
}

static void put_phi(tsr__spirv_module *s, const tsr__spirv_block *block, const uint32_t *w,
                    size_t length)
{
    size_t begin = s->out_words;
    put(s, w, 3);
    for (size_t i = 3; i + 1 < length; i += 2)
        if (tsr__spirv_comes_from(s, block, w[i + 1]))
            put(s, w + i, 2);
    uint32_t words = (uint32_t)(s->out_words - begin);
    s->out[begin] = words << 16 | (words > 3 ? OP_PHI : OP_UNDEF);
}

static void put_terminator(tsr__spirv_module *s, const tsr__spirv_block *block)
{
    const uint32_t *w = s->code + block->terminator;
    uint32_t value;
    if (!tsr__spirv_decided(s, block, &value))
        put(s, w, tsr__spirv_length(s, block->terminator));
    else if (tsr__spirv_opcode(s, block->terminator) == OP_SWITCH)
        put(s, (uint32_t[]){3U << 16 | OP_SWITCH, w[1], tsr__spirv_switch_target(s, block, value)},
            3);
    else
        put(s, (uint32_t[]){2U << 16 | OP_BRANCH, w[value ? 2 : 3]}, 2);
}

static void put_block(tsr__spirv_module *s, const tsr__spirv_block *block)
{
    for (size_t at = block->begin; at < block->terminator; at += tsr__spirv_length(s, at)) {
        const uint32_t *w = s->code + at;
        size_t length = tsr__spirv_length(s, at);
        uint32_t opcode = tsr__spirv_opcode(s, at);
        if (opcode != OP_LABEL && tsr__spirv_has_result(opcode) && s->ids[w[2]].known)
            continue;
        if (at == block->merge && !tsr__spirv_keeps_merge(s, block))
            continue;
        if (opcode == OP_PHI)
            put_phi(s, block, w, length);
        else
            put(s, w, length);
    }
    put_terminator(s, block);
}

void tsr__spirv_write(tsr__spirv_module *s)
{
    put(s, s->code, HEADER_WORDS);
    for (size_t at = HEADER_WORDS; at < s->functions; at += tsr__spirv_length(s, at))
        put_global(s, at, tsr__spirv_length(s, at));
    put_found_constants(s);
    for (size_t at = s->functions; at < s->words;) {
        if (tsr__spirv_opcode(s, at) != OP_LABEL) { /* the instruction is between two blocks */
            put(s, s->code + at, tsr__spirv_length(s, at));
            at += tsr__spirv_length(s, at);
            continue;
        }
        const tsr__spirv_block *block = tsr__spirv_block_of(s, s->code[at + 1]);
        if (block->kept)
            put_block(s, block);
        at = block->end;
    }
}
