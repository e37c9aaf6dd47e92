/* How fast each rank is: rates for partitions (shard.h), layers and plans on GPUs that are not
 * alike.
 *
 *     double *rates = calloc(ranks, sizeof *rates);
 *     tsr_calibrate(group, NULL, rates);
 *     tsr_mlp_create(tsr_mlp_params(…, .partition = {.kind = TSR_PARTITION_WEIGHTED,
 *                                                    .rates = rates}), &mlp);
 */
#ifndef TESSERA_CALIBRATE_H
#define TESSERA_CALIBRATE_H

#include "tessera/group.h"
#include "tessera/shard.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tsr_calibrate_params {
    /* The product that is measured: y[rows, columns] = x[rows, inner] · w[columns, inner]ᵀ.
     * 0: 256, 1024 and 1024. Better the sizes of the layer: drivers differ in what they are good
     * at. */
    int64_t rows, inner, columns;
    tsr_dtype dtype; /* f32, f16 or bf16; 0: f32 */
    /* Each rank measures for this long, all of them at once, since that is how they will work;
     * 0: 200 ms. */
    uint64_t duration_ns;
} tsr_calibrate_params;
#define tsr_calibrate_params(...) (&(tsr_calibrate_params){__VA_ARGS__})

/* Measures each rank's products per second on the group's stream, after a warm-up that is not
 * counted, and writes floating-point operations per second of all ranks to the caller's
 * rates[size]: the same bits on every rank. The fastest repetition counts. All ranks call
 * it, with the same params; NULL is all zero. Errors: TSR_ERR_INVALID (sizes, dtype, NULL), those
 * of recording and of the communicator. */
TSR_API TSR_NODISCARD tsr_status tsr_calibrate(tsr_group *group, const tsr_calibrate_params *params,
                                               double *rates);

/* How good a division is, by arithmetic alone: ranks work on work[i] units at rates[i] units per
 * second, all of them until the last is done. Returns the units per second that makes, over the sum
 * of the rates: 1 is perfect. An even division among rates 3 and 1 is 0.5. 0 where a rank of rate 0
 * has work, or where there is none. */
TSR_API double tsr_partition_efficiency(int ranks, const tsr_shard_range *ranges,
                                        const double *rates);

#ifdef __cplusplus
}
#endif

#endif
