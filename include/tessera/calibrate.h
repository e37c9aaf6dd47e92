/* Calibration: measures how fast each rank is. Partitions (shard.h), layers and plans take these
 * rates to give faster ranks more work.
 *
 *     double *rates = calloc(ranks, sizeof *rates);
 *     tsr_calibrate(group, NULL, rates);
 *     const tsr_partition_params *by_rates =
 *         tsr_partition_params(.kind = TSR_PARTITION_WEIGHTED, .rates = rates);
 *     tsr_mlp_create(tsr_mlp_params(…, .partition = by_rates), &mlp);
 */
#ifndef TESSERA_CALIBRATE_H
#define TESSERA_CALIBRATE_H

#include "tessera/group.h"
#include "tessera/shard.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tsr_calibrate_params {
    size_t struct_size;
    /* The product that is measured: y[rows, columns] = x[rows, inner] · w[columns, inner]ᵀ. 0: 256,
     * 1024 and 1024. Pass the sizes of the layer to be divided: which sizes are fast differs
     * between drivers. */
    int64_t rows, inner, columns;
    tsr_dtype dtype; /* f32, f16 or bf16; 0: f32 */
    /* How long each rank measures; 0: 200 ms. All ranks measure at the same time, as they will
     * later work at the same time. */
    uint64_t duration_ns;
} tsr_calibrate_params;
#define tsr_calibrate_params(...)                                                                  \
    (&(tsr_calibrate_params){.struct_size = sizeof(tsr_calibrate_params), __VA_ARGS__})

/* Measures products on the group's stream, after a warm-up that is not measured, and writes the
 * floating-point operations per second of all ranks to the caller's rates[size], with the same bits
 * on every rank. A rank's rate is that of its fastest product. Collective: all ranks must call it,
 * with the same params; NULL `params` means all defaults. Blocks until all ranks have measured.
 * Errors: TSR_ERR_INVALID for sizes, dtype or NULL; those of recording and of the communicator;
 * TSR_ERR_DRIVER if another rank has failed. */
TSR_API TSR_NODISCARD tsr_status tsr_calibrate(tsr_group *group, const tsr_calibrate_params *params,
                                               double *rates);

/* Computes how good a division is: rank r has ranges[r].count units of work, such as rows, does
 * rates[r] units per second, and waits for the slowest rank. Returns the units per second of all
 * ranks together, divided by the sum of the rates: 1 is perfect, and an even division among rates 3
 * and 1 gives 0.5. Returns 0 if a rank of rate 0 has work, or if there is no work. */
TSR_API double tsr_partition_efficiency(int ranks, const tsr_shard_range *ranges,
                                        const double *rates);

#ifdef __cplusplus
}
#endif

#endif
