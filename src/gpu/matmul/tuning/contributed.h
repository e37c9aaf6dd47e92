/* Choices that this build contains because others have measured them on a chip (chip_tiles.h). */
#ifndef TSR_GPU_MATMUL_TUNING_CONTRIBUTED_H
#define TSR_GPU_MATMUL_TUNING_CONTRIBUTED_H

#include "gpu/matmul/chip_tiles.h"
#include "gpu/matmul/tuning/table.h"

/* Adds the choices of chip->tuning to the table. Errors: TSR_ERR_NO_MEMORY. */
tsr_status tsr__contributed_add(const tsr__chip *chip, tsr__tuned_table *table) TSR_NODISCARD;

#endif
