/* Specialization has three steps. The first computes the values of constants. The second computes
 * the values within functions and finds the blocks that are still needed, until nothing changes.
 * The third writes the new module. Structured control flow stays valid: only branches that head a
 * selection are decided, a decided switch keeps its construct with one target, and constructs that
 * stay keep their merge and continue blocks. */
#include "gpu/cpu_drivers/specialize/specialize.h"

#include "base/alloc.h"
#include "base/error.h"
#include "gpu/cpu_drivers/specialize/constant_folding.h"
#include "gpu/cpu_drivers/specialize/module.h"

static tsr__spirv_value value_of(const tsr__spirv_module *s, uint32_t id)
{
    return (tsr__spirv_value){s->ids[id].known, s->ids[id].bits};
}

static void set_known(tsr__spirv_module *s, uint32_t id, uint32_t bits)
{
    s->ids[id].known = true;
    s->ids[id].bits = bits;
}

/* Folds an instruction with a result of a 32-bit integer or boolean type; the operands are ids. */
static void fold_operands(tsr__spirv_module *s, uint32_t type, uint32_t result, uint32_t opcode,
                          const uint32_t *operands, size_t count)
{
    tsr__spirv_value values[OPERANDS_MAX];
    if (s->ids[type].type == TSR__SPIRV_OTHER || count == 0 || count > OPERANDS_MAX)
        return;
    for (size_t i = 0; i < count; i++) {
        if (operands[i] >= s->bound)
            return; /* an unknown word is a literal; such instructions are not folded */
        values[i] = value_of(s, operands[i]);
    }
    tsr__spirv_value value = tsr__spirv_fold(opcode, values, (int)count);
    if (value.known)
        set_known(s, result, value.bits);
}

static uint32_t spec_value(const tsr__spirv_module *s, uint32_t id, uint32_t otherwise)
{
    uint32_t spec_id = s->ids[id].spec_id;
    return spec_id > 0 && spec_id <= s->spec_count ? s->spec[spec_id - 1] : otherwise;
}

static void read_global(tsr__spirv_module *s, size_t at, size_t length)
{
    const uint32_t *w = s->code + at;
    switch (tsr__spirv_opcode(s, at)) {
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
        set_known(s, w[2], tsr__spirv_opcode(s, at) == OP_CONSTANT_TRUE);
        break;
    case OP_SPEC_CONSTANT_TRUE:
    case OP_SPEC_CONSTANT_FALSE:
        set_known(s, w[2],
                  spec_value(s, w[2], tsr__spirv_opcode(s, at) == OP_SPEC_CONSTANT_TRUE) != 0);
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

static void fold_phi(tsr__spirv_module *s, const tsr__spirv_block *block, const uint32_t *w,
                     size_t length)
{
    bool first = true;
    uint32_t bits = 0;
    if (s->ids[w[1]].type == TSR__SPIRV_OTHER)
        return;
    for (size_t i = 3; i + 1 < length; i += 2) {
        if (!tsr__spirv_comes_from(s, block, w[i + 1]))
            continue;
        tsr__spirv_value value = value_of(s, w[i]);
        if (!value.known || (!first && value.bits != bits))
            return;
        bits = value.bits;
        first = false;
    }
    if (!first)
        set_known(s, w[2], bits);
}

static bool fold_block(tsr__spirv_module *s, const tsr__spirv_block *block)
{
    bool changed = false;
    for (size_t at = block->begin; at < block->terminator; at += tsr__spirv_length(s, at)) {
        const uint32_t *w = s->code + at;
        size_t length = tsr__spirv_length(s, at);
        uint32_t opcode = tsr__spirv_opcode(s, at);
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

static void fold_functions(tsr__spirv_module *s)
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

static void mark_gone(tsr__spirv_module *s)
{
    for (size_t i = 0; i < s->block_count; i++) {
        const tsr__spirv_block *block = &s->blocks[i];
        s->ids[block->label].gone = !block->kept;
        for (size_t at = block->begin; at < block->terminator; at += tsr__spirv_length(s, at))
            if (tsr__spirv_opcode(s, at) != OP_LABEL &&
                tsr__spirv_has_result(tsr__spirv_opcode(s, at))) {
                tsr__spirv_id *id = &s->ids[s->code[at + 2]];
                id->gone = !block->kept || id->known;
            }
    }
}

/* True if a block that is kept but not reached uses a value that a removed block defined. Reached
 * blocks never do, because definitions dominate their uses. A literal may be mistaken for an id;
 * the result may then be true without need, which is safe. */
static bool misses_definition(const tsr__spirv_module *s)
{
    for (size_t i = 0; i < s->block_count; i++) {
        const tsr__spirv_block *block = &s->blocks[i];
        if (!block->kept || block->reached)
            continue;
        for (size_t at = block->begin; at < block->end; at += tsr__spirv_length(s, at)) {
            if (tsr__spirv_opcode(s, at) == OP_PHI)
                continue;
            for (size_t k = 1; k < tsr__spirv_length(s, at); k++) {
                uint32_t id = s->code[at + k];
                if (id < s->bound && s->ids[id].in_function && s->ids[id].gone && !s->ids[id].known)
                    return true;
            }
        }
    }
    return false;
}

static void run(tsr__spirv_module *s)
{
    size_t at = HEADER_WORDS;
    for (; at < s->words && tsr__spirv_opcode(s, at) != OP_FUNCTION; at += tsr__spirv_length(s, at))
        read_global(s, at, tsr__spirv_length(s, at));
    s->functions = at;
    tsr__spirv_read_blocks(s);
    fold_functions(s);
    mark_gone(s);
    if (misses_definition(s)) {
        /* Keep the branches, and with them the blocks that define these values. The constants that
         * were found before stay correct, because those blocks are never executed. */
        s->keep_branches = true;
        tsr__spirv_find_kept(s);
        mark_gone(s);
    }
    tsr__spirv_write(s);
}

tsr_status tsr__specialize(const uint32_t *code, size_t size_bytes, const uint32_t *spec,
                           int spec_count, uint32_t **out, size_t *out_size_bytes)
{
    tsr__spirv_module s = {
        .code = code,
        .words = size_bytes / sizeof *code,
        .spec = spec,
        .spec_count = (uint32_t)spec_count,
        .bound = code[3],
    };
    s.ids = tsr__calloc(s.bound, sizeof *s.ids);
    /* each block begins with a label of two words */
    s.blocks = tsr__calloc(s.words / 2, sizeof *s.blocks);
    s.work = tsr__calloc(s.words, sizeof *s.work); /* a block is visited at most twice */
    /* no instruction's replacement is longer */
    s.out = tsr__calloc(s.words, sizeof *s.out);
    tsr_status status = s.ids && s.blocks && s.work && s.out ? TSR_OK : TSR_ERR_NO_MEMORY;
    if (status == TSR_OK) {
        run(&s);
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
