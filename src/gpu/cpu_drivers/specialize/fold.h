/* Arithmetic on constants, as SPIR-V's instructions define it, for 32-bit integers and booleans. */
#ifndef TSR_GPU_CPU_DRIVERS_SPECIALIZE_FOLD_H
#define TSR_GPU_CPU_DRIVERS_SPECIALIZE_FOLD_H

#include <stdbool.h>
#include <stdint.h>

/* An operand whose value may not be known. */
typedef struct tsr__spirv_value {
    bool known;
    uint32_t bits; /* a boolean is 0 or 1 */
} tsr__spirv_value;

/* The result of `opcode`; unknown where the operands, or the instruction, do not allow one. */
tsr__spirv_value tsr__spirv_fold(uint32_t opcode, const tsr__spirv_value *operands, int count);

#endif
