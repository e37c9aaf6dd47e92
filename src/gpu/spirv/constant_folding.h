/* Constant folding: the results of SPIR-V's instructions on constant 32-bit
 * integers and booleans. */
#ifndef TSR_GPU_SPIRV_CONSTANT_FOLDING_H
#define TSR_GPU_SPIRV_CONSTANT_FOLDING_H

#include <stdbool.h>
#include <stdint.h>

/* An operand whose value may be unknown. */
typedef struct tsr__folded_value {
    bool known;
    uint32_t bits; /* a boolean is 0 or 1 */
} tsr__folded_value;

/* Returns the result of `opcode`. It is unknown if the operands do not determine it, if the
 * instruction is not folded, or if its result is undefined. */
tsr__folded_value tsr__spirv_fold(uint32_t opcode, const tsr__folded_value *operands, int count);

#endif
