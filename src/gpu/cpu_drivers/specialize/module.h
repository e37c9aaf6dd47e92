/* A SPIR-V module, parsed into ids and basic blocks, for specialization. */
#ifndef TSR_GPU_CPU_DRIVERS_SPECIALIZE_MODULE_H
#define TSR_GPU_CPU_DRIVERS_SPECIALIZE_MODULE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Numbers from the SPIR-V specification. */
enum {
    OP_NOP = 0,
    OP_UNDEF = 1,
    OP_NAME = 5,
    OP_MEMBER_NAME = 6,
    OP_LINE = 8,
    OP_TYPE_BOOL = 20,
    OP_TYPE_INT = 21,
    OP_CONSTANT_TRUE = 41,
    OP_CONSTANT_FALSE = 42,
    OP_CONSTANT = 43,
    OP_CONSTANT_COMPOSITE = 44,
    OP_SPEC_CONSTANT_TRUE = 48,
    OP_SPEC_CONSTANT_FALSE = 49,
    OP_SPEC_CONSTANT = 50,
    OP_SPEC_CONSTANT_COMPOSITE = 51,
    OP_SPEC_CONSTANT_OP = 52,
    OP_FUNCTION = 54,
    OP_STORE = 62,
    OP_COPY_MEMORY = 63,
    OP_COPY_MEMORY_SIZED = 64,
    OP_DECORATE = 71,
    OP_IMAGE_WRITE = 99,
    OP_CONTROL_BARRIER = 224,
    OP_MEMORY_BARRIER = 225,
    OP_ATOMIC_STORE = 228,
    OP_PHI = 245,
    OP_LOOP_MERGE = 246,
    OP_SELECTION_MERGE = 247,
    OP_LABEL = 248,
    OP_BRANCH = 249,
    OP_BRANCH_CONDITIONAL = 250,
    OP_SWITCH = 251,
    OP_KILL = 252,
    OP_RETURN = 253,
    OP_RETURN_VALUE = 254,
    OP_UNREACHABLE = 255,
    OP_LIFETIME_START = 256,
    OP_LIFETIME_STOP = 257,
    OP_NO_LINE = 317,
    OP_COOPERATIVE_MATRIX_STORE = 4458
};
enum { DECORATION_SPEC_ID = 1, HEADER_WORDS = 5, OPERANDS_MAX = 3 };

typedef enum tsr__spirv_type {
    TSR__SPIRV_OTHER,
    TSR__SPIRV_INT32,
    TSR__SPIRV_BOOL
} tsr__spirv_type;

typedef struct tsr__spirv_id {
    bool known;       /* its value is the constant `bits` */
    bool in_function; /* the id is defined in a function */
    /* The definition of the id is removed, because its block is removed or because it is a constant
     * now. The decorations of the id are removed, too. */
    bool gone;
    uint8_t type; /* if the id is a type: a tsr__spirv_type */
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

typedef struct tsr__spirv_module {
    const uint32_t *code;
    size_t words;
    const uint32_t *spec;
    uint32_t spec_count;
    uint32_t bound;
    tsr__spirv_id *ids;
    tsr__spirv_block *blocks;
    uint32_t *work; /* blocks to visit */
    size_t block_count;
    size_t functions;   /* word offset of the first function */
    bool keep_branches; /* treat no branch as decided, even if its condition is known */
    uint32_t *out;
    size_t out_words;
} tsr__spirv_module;

uint32_t tsr__spirv_opcode(const tsr__spirv_module *s, size_t at);
size_t tsr__spirv_length(const tsr__spirv_module *s, size_t at);
/* True if the instruction has a result type in word 1 and a result in word 2. Valid for
 * instructions within functions. */
bool tsr__spirv_has_result(uint32_t opcode);

/* Finds the blocks of all functions. */
void tsr__spirv_read_blocks(tsr__spirv_module *s);
/* Marks the blocks that can be reached from the functions' entries, and the merge and continue
 * blocks of the constructs among them. */
void tsr__spirv_find_kept(tsr__spirv_module *s);

tsr__spirv_block *tsr__spirv_block_of(const tsr__spirv_module *s, uint32_t label);
/* True if the block ends in a branch whose condition is a known constant; writes that constant. */
bool tsr__spirv_decided(const tsr__spirv_module *s, const tsr__spirv_block *block, uint32_t *value);
uint32_t tsr__spirv_switch_target(const tsr__spirv_module *s, const tsr__spirv_block *block,
                                  uint32_t value);
/* True if the block keeps its merge instruction and heads a construct. A block with a decided
 * two-way branch does not. A block with a decided switch does, because `break` leaves the
 * switch. */
bool tsr__spirv_keeps_merge(const tsr__spirv_module *s, const tsr__spirv_block *block);
/* True if control can pass from the block with label `from_label` to `to`. */
bool tsr__spirv_comes_from(const tsr__spirv_module *s, const tsr__spirv_block *to,
                           uint32_t from_label);

/* Writes the specialised module to s->out. */
void tsr__spirv_write(tsr__spirv_module *s);

#endif
