/* The ids and basic blocks of a SPIR-V module that is being specialised, and the control flow
 * between its blocks after branches have been decided. */
#ifndef TSR_GPU_SPIRV_BASIC_BLOCKS_H
#define TSR_GPU_SPIRV_BASIC_BLOCKS_H

#include "gpu/spirv/reader.h"
#include "tessera/base.h"

typedef enum tsr__folded_type {
    TSR__SPIRV_OTHER,
    TSR__SPIRV_INT32,
    TSR__SPIRV_BOOL
} tsr__folded_type;

typedef struct tsr__spirv_id {
    bool known;       /* its value is the constant `bits` */
    bool in_function; /* the id is defined in a function */
    /* The definition of the id is removed, because its block is removed or because it is a constant
     * now. The decorations of the id are removed, too. */
    bool gone;
    uint8_t type; /* if the id is a type: a tsr__folded_type */
    uint32_t bits;
    uint32_t spec_id; /* id of the specialization constant + 1; 0: none */
    uint32_t block;   /* if the id is a label: index of its block + 1 */
} tsr__spirv_id;

typedef struct tsr__spirv_block {
    uint32_t label;
    size_t begin, merge, terminator, end; /* word offsets; merge is 0 if there is none */
    bool reached;                         /* control can reach the block */
    bool kept; /* reached, or the merge or continue block of a construct that is kept */
} tsr__spirv_block;

typedef struct tsr__specialization {
    tsr__spirv_module module;
    uint32_t bound;
    tsr__spirv_id *ids;
    tsr__spirv_block *blocks;
    uint32_t *work; /* blocks to visit */
    size_t block_count;
    size_t functions; /* word offset of the first function */
    /* the module gets no capability for arithmetic among subgroups, or for their quads */
    bool drops_arithmetic, drops_quads;
    bool keep_branches; /* treat no branch as decided, even if its condition is known */
    uint32_t *out;
    size_t out_words;
} tsr__specialization;

/* True if the instruction has a result type in word 1 and a result in word 2. Valid for
 * instructions within functions. */
bool tsr__spirv_has_result(uint32_t opcode);

/* Finds the blocks of all functions. Fails if one of them has no terminator. */
tsr_status tsr__spirv_read_blocks(tsr__specialization *s) TSR_NODISCARD;
/* Marks the blocks that can be reached from the functions' entries, and the merge and continue
 * blocks of the constructs among them. */
void tsr__spirv_find_kept(tsr__specialization *s);

tsr__spirv_block *tsr__spirv_block_of(const tsr__specialization *s, uint32_t label);
/* True if the block ends in a branch whose condition is a known constant; writes that constant. */
bool tsr__spirv_decided(const tsr__specialization *s, const tsr__spirv_block *block,
                        uint32_t *value);
uint32_t tsr__spirv_switch_target(const tsr__specialization *s, const tsr__spirv_block *block,
                                  uint32_t value);
/* True if the block keeps its merge instruction and heads a construct. A block with a decided
 * two-way branch does not. A block with a decided switch does, because `break` leaves the
 * switch. */
bool tsr__spirv_keeps_merge(const tsr__specialization *s, const tsr__spirv_block *block);
/* True if control can pass from the block with label `from_label` to `to`. */
bool tsr__spirv_comes_from(const tsr__specialization *s, const tsr__spirv_block *to,
                           uint32_t from_label);

#endif
