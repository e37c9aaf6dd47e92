/* The choices that were measured on a chip by others, and that this build has (chips.h). */
#ifndef TSR_GPU_MATMUL_TUNING_CONTRIBUTED_H
#define TSR_GPU_MATMUL_TUNING_CONTRIBUTED_H

#include "gpu/matmul/chips.h"
#include "gpu/matmul/tuning/table.h"

/* Sets the choices of the chip's lines in the table. Choices of kernels that this build does not
 * have are left out. Errors: TSR_ERR_NO_MEMORY. */
tsr_status tsr__contributed_add(const tsr__chip *chip, tsr__tuned_table *table) TSR_NODISCARD;

#endif
