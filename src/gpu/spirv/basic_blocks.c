/* Basic blocks, and the control flow between them after branches have been decided. */
#include "gpu/spirv/basic_blocks.h"

#include "base/error.h"

bool tsr__spirv_has_result(uint32_t opcode)
{
    switch (opcode) {
    case OP_NOP:
    case OP_LINE:
    case OP_NO_LINE:
    case OP_STORE:
    case OP_COPY_MEMORY:
    case OP_COPY_MEMORY_SIZED:
    case OP_IMAGE_WRITE:
    case OP_CONTROL_BARRIER:
    case OP_MEMORY_BARRIER:
    case OP_ATOMIC_STORE:
    case OP_LIFETIME_START:
    case OP_LIFETIME_STOP:
    case OP_COOPERATIVE_MATRIX_STORE:
        return false;
    }
    return opcode < OP_LOOP_MERGE || opcode > OP_UNREACHABLE;
}

static tsr_status no_terminator(const tsr__spirv_block *block)
{
    return tsr__fail(TSR_ERR_INVALID, "the SPIR-V is damaged: block %u does not end in a branch",
                     (unsigned)block->label);
}

tsr_status tsr__spirv_read_blocks(tsr__specialization *s)
{
    tsr__spirv_block *block = NULL; /* NULL between two blocks */
    for (size_t at = s->functions; at < s->module.count; at += tsr__spirv_length(&s->module, at)) {
        uint32_t opcode = tsr__spirv_opcode(&s->module, at);
        if (block && (opcode == OP_LABEL || opcode == OP_FUNCTION_END))
            return no_terminator(block);
        if (opcode == OP_LABEL) {
            block = &s->blocks[s->block_count++];
            *block = (tsr__spirv_block){.label = s->module.words[at + 1], .begin = at};
            s->ids[block->label].block = (uint32_t)s->block_count;
            s->ids[block->label].in_function = true;
        } else if (!block) {
            continue;
        } else if (opcode == OP_LOOP_MERGE || opcode == OP_SELECTION_MERGE) {
            block->merge = at;
        } else if (opcode >= OP_BRANCH && opcode <= OP_UNREACHABLE) {
            block->terminator = at;
            block->end = at + tsr__spirv_length(&s->module, at);
            block = NULL;
        } else if (tsr__spirv_has_result(opcode) && tsr__spirv_length(&s->module, at) > 2) {
            s->ids[s->module.words[at + 2]].in_function = true;
        }
    }
    return block ? no_terminator(block) : TSR_OK;
}

bool tsr__spirv_decided(const tsr__specialization *s, const tsr__spirv_block *block,
                        uint32_t *value)
{
    uint32_t opcode = tsr__spirv_opcode(&s->module, block->terminator);
    bool selects = (opcode == OP_BRANCH_CONDITIONAL || opcode == OP_SWITCH) && block->merge != 0 &&
                   tsr__spirv_opcode(&s->module, block->merge) == OP_SELECTION_MERGE;
    if (!selects || s->keep_branches || !s->ids[s->module.words[block->terminator + 1]].known)
        return false;
    *value = s->ids[s->module.words[block->terminator + 1]].bits;
    return true;
}

uint32_t tsr__spirv_switch_target(const tsr__specialization *s, const tsr__spirv_block *block,
                                  uint32_t value)
{
    const uint32_t *w = s->module.words + block->terminator;
    for (size_t i = 3; i + 1 < tsr__spirv_length(&s->module, block->terminator); i += 2)
        if (w[i] == value)
            return w[i + 1];
    return w[2];
}

/* The i-th label to which a block may branch, or 0 past the last. */
static uint32_t successor(const tsr__specialization *s, const tsr__spirv_block *block, size_t i)
{
    const uint32_t *w = s->module.words + block->terminator;
    size_t length = tsr__spirv_length(&s->module, block->terminator);
    uint32_t value;
    switch (tsr__spirv_opcode(&s->module, block->terminator)) {
    case OP_BRANCH:
        return i == 0 ? w[1] : 0;
    case OP_BRANCH_CONDITIONAL:
        if (tsr__spirv_decided(s, block, &value))
            return i == 0 ? w[value ? 2 : 3] : 0;
        return i < 2 ? w[2 + i] : 0;
    case OP_SWITCH:
        if (tsr__spirv_decided(s, block, &value))
            return i == 0 ? tsr__spirv_switch_target(s, block, value) : 0;
        return 2 + 2 * i < length ? w[2 + 2 * i] : 0;
    }
    return 0;
}

static bool branches_to(const tsr__specialization *s, const tsr__spirv_block *block, uint32_t label)
{
    uint32_t target;
    for (size_t i = 0; (target = successor(s, block, i)) != 0; i++)
        if (target == label)
            return true;
    return false;
}

tsr__spirv_block *tsr__spirv_block_of(const tsr__specialization *s, uint32_t label)
{
    return &s->blocks[s->ids[label].block - 1];
}

bool tsr__spirv_keeps_merge(const tsr__specialization *s, const tsr__spirv_block *block)
{
    uint32_t value;
    return block->merge != 0 &&
           !(tsr__spirv_opcode(&s->module, block->terminator) == OP_BRANCH_CONDITIONAL &&
             tsr__spirv_decided(s, block, &value));
}

static void visit(tsr__specialization *s, uint32_t label, bool reached, size_t *pending)
{
    tsr__spirv_block *block = tsr__spirv_block_of(s, label);
    if (block->kept && (block->reached || !reached))
        return;
    block->kept = true;
    block->reached = block->reached || reached;
    s->work[(*pending)++] = s->ids[label].block - 1;
}

void tsr__spirv_find_kept(tsr__specialization *s)
{
    size_t pending = 0;
    for (size_t i = 0; i < s->block_count; i++)
        s->blocks[i].kept = s->blocks[i].reached = false;
    bool entry = false;
    for (size_t at = s->functions; at < s->module.count; at += tsr__spirv_length(&s->module, at)) {
        uint32_t opcode = tsr__spirv_opcode(&s->module, at);
        if (opcode == OP_LABEL && entry)
            visit(s, s->module.words[at + 1], true, &pending);
        if (opcode == OP_FUNCTION || opcode == OP_LABEL)
            entry = opcode == OP_FUNCTION;
    }
    while (pending > 0) {
        const tsr__spirv_block *block = &s->blocks[s->work[--pending]];
        uint32_t label;
        for (size_t i = 0; (label = successor(s, block, i)) != 0; i++)
            visit(s, label, block->reached, &pending);
        if (tsr__spirv_keeps_merge(s, block)) {
            visit(s, s->module.words[block->merge + 1], false, &pending);
            if (tsr__spirv_opcode(&s->module, block->merge) == OP_LOOP_MERGE)
                visit(s, s->module.words[block->merge + 2], false, &pending);
        }
    }
}

bool tsr__spirv_comes_from(const tsr__specialization *s, const tsr__spirv_block *to,
                           uint32_t from_label)
{
    const tsr__spirv_block *from = tsr__spirv_block_of(s, from_label);
    return from->kept && branches_to(s, from, to->label);
}
