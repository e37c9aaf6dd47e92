/* What is known about chips that matters for products: the tiles that they should use, and from
 * which sizes. The table in chip_tiles.c is data; the chooser interprets it. */
#ifndef TSR_GPU_MATMUL_CHIP_TILES_H
#define TSR_GPU_MATMUL_CHIP_TILES_H

#include "gpu/matmul/common/kernel.h"

/* A tile, and the products for which it is worth using. */
typedef struct tsr__chip_tile {
    tsr__matmul_id config; /* TSR__MATMUL_GPU_CONFIGS ends a list */
    /* y must have this many tiles on a chip with `processors` processors; see tsr__chip_enough */
    uint64_t enough_tiles;
    bool counts_ranges; /* the ranges into which a long k can be split count as tiles */
    bool half_rows;     /* y must have more than half of the tile's rows */
    bool half_columns;  /* y must have more than half of the tile's columns */
} tsr__chip_tile;

/* A product that was measured, and the choice that was fastest. docs/gpu.md says how the output
 * of `tessera bench --tune` becomes a file of such choices, which chip_tiles.c includes. */
typedef struct tsr__chip_tuning {
    tsr_dtype dtype;
    bool transposed; /* x·wᵀ, otherwise x·w; both are contiguous */
    bool with_bias;
    int64_t batch; /* the number of matrices; 0: no batch dimension */
    int64_t m, k, n;
    tsr__matmul_id config;
    uint32_t splits;
} tsr__chip_tuning;

/* Whether kernels in shared memory compute the products of a tile without waiting for the loads of
 * the next one: AHEAD of shaders/gpu/matmul_tiled.glsl. */
typedef enum tsr__loads_ahead {
    TSR__LOADS_WAIT,           /* no */
    TSR__LOADS_AHEAD_UNROLLED, /* yes, with all products of a tile unrolled */
    TSR__LOADS_AHEAD,          /* yes, with a loop over k */
} tsr__loads_ahead;

/* A row of the table. Chips are recognised by what drivers report. A member that is 0 fits every
 * chip. */
typedef struct tsr__chip {
    const char *name;
    uint32_t vendor_id;
    uint32_t first_device, last_device; /* device ids, inclusive */
    /* the smallest size of subgroups is in this range, inclusive; it distinguishes the
     * architectures of AMD */
    uint32_t first_subgroup, last_subgroup;
    bool nvk; /* only with Mesa's driver */

    uint32_t processors;         /* the chip's number, to which `enough_tiles` refers */
    const tsr__chip_tile *tiles; /* the tiles without cooperative matrices, the largest first */
    /* the tiles for f16 on devices with an instruction for two products, the largest first */
    const tsr__chip_tile *pair_tiles;
    /* the tiles with cooperative matrices, the largest first, for products with at least these
     * sizes */
    const tsr__chip_tile *coopmat_tiles;
    uint32_t coopmat_m, coopmat_n, coopmat_k;
    bool shares_matrices; /* matrices that a workgroup shares come first (attention) */
    tsr__loads_ahead loads_ahead;
    const tsr__chip_tuning *tuning; /* may be NULL */
    int tuning_count;
} tsr__chip;

/* Returns the row at `index`, or NULL past the end of the table. */
const tsr__chip *tsr__chip_at(int index);

/* Returns the first row that fits the device. The last row fits every device. */
const tsr__chip *tsr__chip_of(const tsr__matmul_device *device);

/* The number of workgroups that occupy the device if `enough` workgroups occupy a chip with
 * chip->processors processors. It is smaller on devices with fewer processors. It is `enough` on
 * devices with more processors, or if their number is unknown. */
uint64_t tsr__chip_enough(const tsr__chip *chip, const tsr__matmul_device *device, uint64_t enough);

/* True if the row fits a device with these properties, whatever its driver is. */
bool tsr__chip_fits(const tsr__chip *chip, uint32_t vendor_id, uint32_t device_id,
                    uint32_t subgroup_size_min);

#endif
