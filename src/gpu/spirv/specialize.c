/* Specialization has three steps. The first computes the values of constants. The second computes
 * the values within functions and finds the blocks that are still needed, until nothing changes.
 * The third writes the new module. Structured control flow stays valid: only branches that head a
 * selection are decided, a decided switch keeps its construct with one target, and constructs that
 * stay keep their merge and continue blocks. */
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "gpu/spirv/basic_blocks.h"
#include "gpu/spirv/constant_folding.h"
#include "gpu/spirv/spirv.h"

enum { OPERANDS_MAX = 3 };

static tsr__folded_value value_of(const tsr__specialization *s, uint32_t id)
{
    return (tsr__folded_value){s->ids[id].known, s->ids[id].bits};
}

static void set_known(tsr__specialization *s, uint32_t id, uint32_t bits)
{
    s->ids[id].known = true;
    s->ids[id].bits = bits;
}

/* Folds an instruction with a result of a 32-bit integer or boolean type; the operands are ids. */
static void fold_operands(tsr__specialization *s, uint32_t type, uint32_t result, uint32_t opcode,
                          const uint32_t *operands, size_t count)
{
    tsr__folded_value values[OPERANDS_MAX];
    if (s->ids[type].type == TSR__SPIRV_OTHER || count == 0 || count > OPERANDS_MAX)
        return;
    for (size_t i = 0; i < count; i++) {
        if (operands[i] >= s->bound)
            return; /* an unknown word is a literal; such instructions are not folded */
        values[i] = value_of(s, operands[i]);
    }
    tsr__folded_value value = tsr__spirv_fold(opcode, values, (int)count);
    if (value.known)
        set_known(s, result, value.bits);
}

static uint32_t spec_value(const tsr__specialization *s, uint32_t id, uint32_t otherwise)
{
    uint32_t spec_id = s->ids[id].spec_id;
    return spec_id > 0 && spec_id <= s->module.spec_count ? s->module.spec[spec_id - 1] : otherwise;
}

static void read_global(tsr__specialization *s, size_t at, size_t length)
{
    const uint32_t *w = s->module.words + at;
    switch (tsr__spirv_opcode(&s->module, at)) {
    case OP_DECORATE:
        if (length == 4 && w[2] == DECORATION_SPEC_ID)
            s->ids[w[1]].spec_id = w[3] + 1;
        break;
    case OP_TYPE_BOOL:
        s->ids[w[1]].type = TSR__SPIRV_BOOL;
        break;
    case OP_TYPE_INT:
        if (w[2] == 32)
            s->ids[w[1]].type = TSR__SPIRV_INT32;
        break;
    case OP_CONSTANT_TRUE:
    case OP_CONSTANT_FALSE:
        set_known(s, w[2], tsr__spirv_opcode(&s->module, at) == OP_CONSTANT_TRUE);
        break;
    case OP_SPEC_CONSTANT_TRUE:
    case OP_SPEC_CONSTANT_FALSE:
        set_known(s, w[2],
                  spec_value(s, w[2], tsr__spirv_opcode(&s->module, at) == OP_SPEC_CONSTANT_TRUE) !=
                      0);
        break;
    case OP_CONSTANT:
        if (s->ids[w[1]].type == TSR__SPIRV_INT32)
            set_known(s, w[2], w[3]);
        break;
    case OP_SPEC_CONSTANT:
        set_known(s, w[2], spec_value(s, w[2], w[3]));
        break;
    case OP_SPEC_CONSTANT_OP:
        fold_operands(s, w[1], w[2], w[3], w + 4, length - 4);
        break;
    }
}

static void fold_phi(tsr__specialization *s, const tsr__spirv_block *block, const uint32_t *w,
                     size_t length)
{
    bool first = true;
    uint32_t bits = 0;
    if (s->ids[w[1]].type == TSR__SPIRV_OTHER)
        return;
    for (size_t i = 3; i + 1 < length; i += 2) {
        if (!tsr__spirv_comes_from(s, block, w[i + 1]))
            continue;
        tsr__folded_value value = value_of(s, w[i]);
        if (!value.known || (!first && value.bits != bits))
            return;
        bits = value.bits;
        first = false;
    }
    if (!first)
        set_known(s, w[2], bits);
}

static bool fold_block(tsr__specialization *s, const tsr__spirv_block *block)
{
    bool changed = false;
    for (size_t at = block->begin; at < block->terminator;
         at += tsr__spirv_length(&s->module, at)) {
        const uint32_t *w = s->module.words + at;
        size_t length = tsr__spirv_length(&s->module, at);
        uint32_t opcode = tsr__spirv_opcode(&s->module, at);
        if (opcode == OP_LABEL || !tsr__spirv_has_result(opcode) || length < 4 ||
            s->ids[w[2]].known)
            continue;
        if (opcode == OP_PHI)
            fold_phi(s, block, w, length);
        else
            fold_operands(s, w[1], w[2], opcode, w + 3, length - 3);
        changed |= s->ids[w[2]].known;
    }
    return changed;
}

static void fold_functions(tsr__specialization *s)
{
    bool changed = true;
    while (changed) {
        tsr__spirv_find_kept(s);
        changed = false;
        for (size_t i = 0; i < s->block_count; i++)
            if (s->blocks[i].kept && fold_block(s, &s->blocks[i]))
                changed = true;
    }
}

static void mark_gone(tsr__specialization *s)
{
    for (size_t i = 0; i < s->block_count; i++) {
        const tsr__spirv_block *block = &s->blocks[i];
        s->ids[block->label].gone = !block->kept;
        for (size_t at = block->begin; at < block->terminator;
             at += tsr__spirv_length(&s->module, at))
            if (tsr__spirv_opcode(&s->module, at) != OP_LABEL &&
                tsr__spirv_has_result(tsr__spirv_opcode(&s->module, at))) {
                tsr__spirv_id *id = &s->ids[s->module.words[at + 2]];
                id->gone = !block->kept || id->known;
            }
    }
}

/* True if a block that is kept but not reached uses a value that a removed block defined. Reached
 * blocks never do, because definitions dominate their uses. A literal may be mistaken for an id;
 * the result may then be true without need, which is safe. */
static bool misses_definition(const tsr__specialization *s)
{
    for (size_t i = 0; i < s->block_count; i++) {
        const tsr__spirv_block *block = &s->blocks[i];
        if (!block->kept || block->reached)
            continue;
        for (size_t at = block->begin; at < block->end; at += tsr__spirv_length(&s->module, at)) {
            if (tsr__spirv_opcode(&s->module, at) == OP_PHI)
                continue;
            for (size_t k = 1; k < tsr__spirv_length(&s->module, at); k++) {
                uint32_t id = s->module.words[at + k];
                if (id < s->bound && s->ids[id].in_function && s->ids[id].gone && !s->ids[id].known)
                    return true;
            }
        }
    }
    return false;
}

/* Writing -------------------------------------------------------------------------------------- */

static void append_words(tsr__specialization *s, const uint32_t *words, size_t count)
{
    memcpy(s->out + s->out_words, words, count * sizeof *words);
    s->out_words += count;
}

static void write_constant(tsr__specialization *s, uint32_t type, uint32_t id)
{
    uint32_t bits = s->ids[id].bits;
    if (s->ids[type].type == TSR__SPIRV_BOOL)
        append_words(
            s, (uint32_t[]){3U << 16 | (bits ? OP_CONSTANT_TRUE : OP_CONSTANT_FALSE), type, id}, 3);
    else
        append_words(s, (uint32_t[]){4U << 16 | OP_CONSTANT, type, id, bits}, 4);
}

static void write_composite(tsr__specialization *s, const uint32_t *w, size_t length)
{
    bool known = true;
    for (size_t i = 3; i < length; i++)
        known = known && s->ids[w[i]].known;
    append_words(s, w, length);
    if (known)
        s->out[s->out_words - length] = (uint32_t)length << 16 | OP_CONSTANT_COMPOSITE;
}

static void write_global(tsr__specialization *s, size_t at, size_t length)
{
    const uint32_t *w = s->module.words + at;
    switch (tsr__spirv_opcode(&s->module, at)) {
    case OP_NAME:
    case OP_MEMBER_NAME:
        return;
    case OP_CAPABILITY:
        /* Not all devices have it, and kernels have forms without it. */
        if ((w[1] == CAPABILITY_GROUP_NON_UNIFORM_ARITHMETIC && s->drops_arithmetic) ||
            (w[1] == CAPABILITY_GROUP_NON_UNIFORM_QUAD && s->drops_quads))
            return;
        break;
    case OP_DECORATE:
        if (w[2] == DECORATION_SPEC_ID || s->ids[w[1]].gone)
            return;
        break;
    case OP_SPEC_CONSTANT_TRUE:
    case OP_SPEC_CONSTANT_FALSE:
    case OP_SPEC_CONSTANT:
        write_constant(s, w[1], w[2]);
        return;
    case OP_SPEC_CONSTANT_OP:
        if (s->ids[w[2]].known) {
            write_constant(s, w[1], w[2]);
            return;
        }
        break;
    case OP_SPEC_CONSTANT_COMPOSITE:
        write_composite(s, w, length);
        return;
    }
    append_words(s, w, length);
}

/* Declares the results of instructions that turned out to be constants. */
static void write_found_constants(tsr__specialization *s)
{
    for (size_t i = 0; i < s->block_count; i++) {
        const tsr__spirv_block *block = &s->blocks[i];
        for (size_t at = block->begin; block->kept && at < block->terminator;
             at += tsr__spirv_length(&s->module, at))
            if (tsr__spirv_opcode(&s->module, at) != OP_LABEL &&
                tsr__spirv_has_result(tsr__spirv_opcode(&s->module, at)) &&
                s->ids[s->module.words[at + 2]].known)
                write_constant(s, s->module.words[at + 1], s->module.words[at + 2]);
    }
}

static void write_phi(tsr__specialization *s, const tsr__spirv_block *block, const uint32_t *w,
                      size_t length)
{
    size_t begin = s->out_words;
    append_words(s, w, 3);
    for (size_t i = 3; i + 1 < length; i += 2)
        if (tsr__spirv_comes_from(s, block, w[i + 1]))
            append_words(s, w + i, 2);
    uint32_t words = (uint32_t)(s->out_words - begin);
    s->out[begin] = words << 16 | (words > 3 ? OP_PHI : OP_UNDEF);
}

static void write_terminator(tsr__specialization *s, const tsr__spirv_block *block)
{
    const uint32_t *w = s->module.words + block->terminator;
    uint32_t value;
    if (!tsr__spirv_decided(s, block, &value))
        append_words(s, w, tsr__spirv_length(&s->module, block->terminator));
    else if (tsr__spirv_opcode(&s->module, block->terminator) == OP_SWITCH)
        append_words(
            s, (uint32_t[]){3U << 16 | OP_SWITCH, w[1], tsr__spirv_switch_target(s, block, value)},
            3);
    else
        append_words(s, (uint32_t[]){2U << 16 | OP_BRANCH, w[value ? 2 : 3]}, 2);
}

static void write_block(tsr__specialization *s, const tsr__spirv_block *block)
{
    for (size_t at = block->begin; at < block->terminator;
         at += tsr__spirv_length(&s->module, at)) {
        const uint32_t *w = s->module.words + at;
        size_t length = tsr__spirv_length(&s->module, at);
        uint32_t opcode = tsr__spirv_opcode(&s->module, at);
        if (opcode != OP_LABEL && tsr__spirv_has_result(opcode) && s->ids[w[2]].known)
            continue;
        if (at == block->merge && !tsr__spirv_keeps_merge(s, block))
            continue;
        if (opcode == OP_PHI)
            write_phi(s, block, w, length);
        else
            append_words(s, w, length);
    }
    write_terminator(s, block);
}

/* True if the blocks that are kept have an instruction with one of these opcodes. */
static bool has_opcode(const tsr__specialization *s, uint32_t first, uint32_t last)
{
    for (size_t i = 0; i < s->block_count; i++) {
        const tsr__spirv_block *block = &s->blocks[i];
        for (size_t at = block->begin; block->kept && at < block->terminator;
             at += tsr__spirv_length(&s->module, at)) {
            const uint32_t opcode = tsr__spirv_opcode(&s->module, at);
            if (opcode >= first && opcode <= last)
                return true;
        }
    }
    return false;
}

static void write_module(tsr__specialization *s)
{
    s->drops_arithmetic =
        !has_opcode(s, OP_GROUP_NON_UNIFORM_I_ADD, OP_GROUP_NON_UNIFORM_LOGICAL_XOR);
    s->drops_quads =
        !has_opcode(s, OP_GROUP_NON_UNIFORM_QUAD_BROADCAST, OP_GROUP_NON_UNIFORM_QUAD_SWAP);
    append_words(s, s->module.words, TSR__SPIRV_HEADER);
    for (size_t at = TSR__SPIRV_HEADER; at < s->functions; at += tsr__spirv_length(&s->module, at))
        write_global(s, at, tsr__spirv_length(&s->module, at));
    write_found_constants(s);
    for (size_t at = s->functions; at < s->module.count;) {
        if (tsr__spirv_opcode(&s->module, at) !=
            OP_LABEL) { /* the instruction is between two blocks */
            append_words(s, s->module.words + at, tsr__spirv_length(&s->module, at));
            at += tsr__spirv_length(&s->module, at);
            continue;
        }
        const tsr__spirv_block *block = tsr__spirv_block_of(s, s->module.words[at + 1]);
        if (block->kept)
            write_block(s, block);
        at = block->end;
    }
}

static tsr_status specialize(tsr__specialization *s)
{
    size_t at = TSR__SPIRV_HEADER;
    for (; at < s->module.count && tsr__spirv_opcode(&s->module, at) != OP_FUNCTION;
         at += tsr__spirv_length(&s->module, at))
        read_global(s, at, tsr__spirv_length(&s->module, at));
    s->functions = at;
    TSR__TRY(tsr__spirv_read_blocks(s));
    fold_functions(s);
    mark_gone(s);
    if (misses_definition(s)) {
        /* Keep the branches, and with them the blocks that define these values. The constants that
         * were found before stay correct, because those blocks are never executed. */
        s->keep_branches = true;
        tsr__spirv_find_kept(s);
        mark_gone(s);
    }
    write_module(s);
    return TSR_OK;
}

tsr_status tsr__spirv_specialize(const uint32_t *words, size_t size_bytes, const uint32_t *spec,
                                 int spec_count, uint32_t **out, size_t *out_size_bytes)
{
    const size_t count = size_bytes / sizeof *words;
    tsr__specialization s = {
        .module = {.words = words,
                   .count = count,
                   .spec = spec,
                   .spec_count = (uint32_t)spec_count},
        .bound = words[3],
    };
    s.ids = tsr__calloc(s.bound, sizeof *s.ids);
    /* each block begins with a label of two words */
    s.blocks = tsr__calloc(count / 2, sizeof *s.blocks);
    s.work = tsr__calloc(count, sizeof *s.work); /* a block is visited at most twice */
    /* no instruction's replacement is longer */
    s.out = tsr__calloc(count, sizeof *s.out);
    tsr_status status = s.ids && s.blocks && s.work && s.out ? TSR_OK : TSR_ERR_NO_MEMORY;
    if (status == TSR_OK)
        status = specialize(&s);
    if (status == TSR_OK) {
        *out = s.out;
        *out_size_bytes = s.out_words * sizeof *s.out;
    } else {
        tsr__free(s.out);
    }
    tsr__free(s.ids);
    tsr__free(s.blocks);
    tsr__free(s.work);
    return status;
}
