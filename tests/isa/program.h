/* A program of machine code, as the readers of AMD's and Intel's texts give it: blocks of
 * instructions. */
#ifndef TESTS_ISA_PROGRAM_H
#define TESTS_ISA_PROGRAM_H

#include <stdint.h>

#include "isa/machine_code.h"

#define ISA_BLOCKS_MAX 2048
#define ISA_LOOPS_MAX 128

typedef enum isa_kind {
    ISA_FMA,
    ISA_PAIRS,
    ISA_MATRIX,
    ISA_VALU,
    ISA_ADDRESS,
    ISA_SALU,
    ISA_LOAD,
    ISA_STORE,
    ISA_LDS_READ,
    ISA_LDS_WRITE,
    ISA_WAIT,
    ISA_OTHER
} isa_kind;

typedef struct isa_instruction {
    isa_kind kind;
    int amount;    /* multiply-adds per lane, instructions for pairs, or the index of a width */
    double weight; /* which fraction of the subgroup the instruction computes */
} isa_instruction;

typedef struct isa_block {
    int number;
    int first, count; /* places in the program's instructions */
    int target;       /* the number of the block to which it jumps, or −1 */
    bool falls;       /* the block may continue with the next one */
} isa_block;

typedef struct isa_span {
    int begin, end; /* block indices, both inclusive */
} isa_span;

typedef struct isa_program {
    isa_block blocks[ISA_BLOCKS_MAX];
    int block_count;
    isa_instruction *code;
    int code_count;
    isa_span loops[ISA_LOOPS_MAX];
    int loop_count;
    uint32_t loading; /* Intel: the tokens of loads from global memory, as bits */
} isa_program;

/* Adds an empty block, which continues with the next one. Returns false if there are too many. */
bool isa_add_block(isa_program *p, int number);
/* Adds an instruction to the last block. */
void isa_add(isa_program *p, isa_instruction instruction);
/* Makes the last block jump to a block. `falls`: it may also continue with the next one. */
void isa_jump(isa_program *p, int target, bool falls);

bool isa_begins(const char *text, const char *start);
/* Returns the index of the width of an access of this many bytes. */
int isa_width_index(int bytes);

/* Adds the block or instructions of a line of text. Returns false if that is impossible. */
bool isa_amd_line(isa_program *p, const char *line);
bool isa_intel_line(isa_program *p, const char *line, const isa_gpu *gpu);

#endif
