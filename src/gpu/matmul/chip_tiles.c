/* The table of chips (chip_tiles.h). A tile is named by its configuration (kernels/configs.c). */
#include "gpu/matmul/chip_tiles.h"

#define ENOUGH_TILES 128
/* The number of processors of a large chip. It stands for chips on which nothing has been
 * measured. */
#define LARGE_CHIP 80

/* A tile that is used if y fills more than half of the tile's rows and of its columns and has
 * enough such tiles to occupy a GPU. */
#define TILE(name)                                                                                 \
    {                                                                                              \
        .config = TSR__MATMUL_##name, .enough_tiles = ENOUGH_TILES, .counts_ranges = true,         \
        .half_rows = true, .half_columns = true                                                    \
    }
#define END                                                                                        \
    {                                                                                              \
        .config = TSR__MATMUL_GPU_CONFIGS                                                          \
    }

/* The more elements of y an invocation computes, the less often it reads shared memory, but the
 * more registers it needs. With 4×4 elements, reads of shared memory limit an AMD GPU, and RDNA
 * 3 reaches less than half of its peak. With 8×8, the registers of a SIMD of GCN suffice for
 * only two subgroups, which always have 64 invocations on GCN. */
static const tsr__chip_tile nvidia_tiles[] = {TILE(TILED_L), TILE(TILED_M), END};
static const tsr__chip_tile rdna_tiles[] = {TILE(TILED_L), TILE(TILED_M8), TILE(TILED_M), END};
static const tsr__chip_tile gcn_tiles[] = {TILE(TILED_M8), TILE(TILED_M), END};
/* Larger tiles would spill registers: an invocation has 128 registers of 32 bits, in subgroups of 8
 * (Xe) and of 16 (Xe2). For the same reason these chips wait for loads. */
static const tsr__chip_tile intel_tiles[] = {TILE(TILED_M8), TILE(TILED_M), END};
static const tsr__chip_tile intel_coopmat_tiles[] = {{.config = TSR__MATMUL_COOPMAT_S256}, END};
static const tsr__chip_tile other_tiles[] = {TILE(TILED_M), END};
static const tsr__chip_tile large_pair_tiles[] = {
    TILE(PAIRS_L), TILE(PAIRS_M8), TILE(PAIRS_M), {.config = TSR__MATMUL_PAIRS_S}, END};
static const tsr__chip_tile small_pair_tiles[] = {
    TILE(PAIRS_M8), TILE(PAIRS_M), {.config = TSR__MATMUL_PAIRS_S}, END};

/* Measured on an H100. A larger tile reads shared memory less often for each product. With many
 * small tiles, however, some compute while others wait for memory. */
#define NVIDIA_TILE(name, tiles)                                                                   \
    {                                                                                              \
        .config = TSR__MATMUL_##name, .enough_tiles = (tiles), .counts_ranges = true,              \
        .half_rows = true                                                                          \
    }
#define NVIDIA_WHOLE_TILE(name)                                                                    \
    {                                                                                              \
        .config = TSR__MATMUL_##name, .enough_tiles = ENOUGH_TILES, .half_rows = true              \
    }
#define NVIDIA_COOPMAT_TILES(largest)                                                              \
    NVIDIA_TILE(largest, 256), NVIDIA_WHOLE_TILE(COOPMAT_L64),                                     \
        NVIDIA_TILE(COOPMAT_M, ENOUGH_TILES), NVIDIA_TILE(COOPMAT_S, ENOUGH_TILES),                \
        NVIDIA_TILE(COOPMAT_32, ENOUGH_TILES), {.config = TSR__MATMUL_COOPMAT_16}, END
static const tsr__chip_tile nvidia_coopmat_tiles[] = {NVIDIA_COOPMAT_TILES(COOPMAT_XL)};
/* Mesa's compiler (26.2.6) spills 873 registers of coopmat-xl, and none of coopmat-xl2, a tile of
 * the same size with half of its depth, which is double-buffered. */
static const tsr__chip_tile nvk_coopmat_tiles[] = {NVIDIA_COOPMAT_TILES(COOPMAT_XL2)};
/* With matrices that a workgroup shares, NVIDIA's own programs reach the peak of Ada and of
 * Blackwell for GeForce. On Hopper they are slower than those of subgroups. */
static const tsr__chip_tile geforce_coopmat_tiles[] = {NVIDIA_WHOLE_TILE(COOPMAT2_128X256),
                                                       NVIDIA_WHOLE_TILE(COOPMAT2_128X128),
                                                       NVIDIA_COOPMAT_TILES(COOPMAT_XL)};
/* These configurations compute several times as fast as those without cooperative matrices.
 * Therefore coopmat-s is faster even if y fills only a part of its tile. */
static const tsr__chip_tile other_coopmat_tiles[] = {{.config = TSR__MATMUL_COOPMAT_L,
                                                      .enough_tiles = ENOUGH_TILES,
                                                      .half_rows = true,
                                                      .half_columns = true},
                                                     {.config = TSR__MATMUL_COOPMAT_S},
                                                     END};
#define OTHER_COOPMAT                                                                              \
    .coopmat_tiles = other_coopmat_tiles, .coopmat_m = 32, .coopmat_n = 32, .coopmat_k = 32

/* Rows of the table that fit fewer devices come first, because the first one that fits is used. */
static const tsr__chip table[] = {
/* For up to 8 rows, kernels without cooperative matrices are faster. On an H100, unrolled
 * products in f32 are slower. */
#define NVIDIA                                                                                     \
    .vendor_id = TSR__VENDOR_NVIDIA, .processors = 132, .tiles = nvidia_tiles,                     \
    .pair_tiles = large_pair_tiles, .coopmat_m = 9, .coopmat_n = 16, .coopmat_k = 16,              \
    .loads_ahead = TSR__LOADS_AHEAD
    {.name = "NVIDIA with NVK", .nvk = true, NVIDIA, .coopmat_tiles = nvk_coopmat_tiles},
    {.name = "NVIDIA Ada",
     .first_device = 0x2680,
     .last_device = 0x28ff,
     NVIDIA,
     .shares_matrices = true,
     .coopmat_tiles = geforce_coopmat_tiles},
    {.name = "NVIDIA Blackwell for GeForce",
     .first_device = 0x2b80,
     .last_device = 0x2fff,
     NVIDIA,
     .shares_matrices = true,
     .coopmat_tiles = geforce_coopmat_tiles},
    {.name = "NVIDIA", NVIDIA, .coopmat_tiles = nvidia_coopmat_tiles},
    {.name = "AMD RDNA",
     .vendor_id = TSR__VENDOR_AMD,
     .last_subgroup = 63,
     .processors = LARGE_CHIP,
     .tiles = rdna_tiles,
     .pair_tiles = large_pair_tiles,
     OTHER_COOPMAT,
     .loads_ahead = TSR__LOADS_AHEAD_UNROLLED},
    {.name = "AMD GCN",
     .vendor_id = TSR__VENDOR_AMD,
     .first_subgroup = 64,
     .processors = LARGE_CHIP,
     .tiles = gcn_tiles,
     .pair_tiles = small_pair_tiles,
     OTHER_COOPMAT,
     .loads_ahead = TSR__LOADS_AHEAD_UNROLLED},
    {.name = "Intel Xe2",
     .vendor_id = TSR__VENDOR_INTEL,
     .first_subgroup = 16,
     .processors = LARGE_CHIP,
     .tiles = intel_tiles,
     .pair_tiles = small_pair_tiles,
     .coopmat_tiles = intel_coopmat_tiles,
     .coopmat_m = 32,
     .coopmat_n = 32,
     .coopmat_k = 32},
    {.name = "Intel Xe",
     .vendor_id = TSR__VENDOR_INTEL,
     .processors = LARGE_CHIP,
     .tiles = intel_tiles,
     .pair_tiles = small_pair_tiles,
     OTHER_COOPMAT},
    {.name = "others",
     .processors = LARGE_CHIP,
     .tiles = other_tiles,
     .pair_tiles = small_pair_tiles,
     OTHER_COOPMAT,
     .loads_ahead = TSR__LOADS_AHEAD_UNROLLED},
};

const tsr__chip *tsr__chip_at(int index)
{
    return index >= 0 && (size_t)index < sizeof table / sizeof *table ? &table[index] : NULL;
}

static bool between(uint32_t value, uint32_t first, uint32_t last)
{
    return value >= first && (last == 0 || value <= last);
}

bool tsr__chip_fits(const tsr__chip *chip, uint32_t vendor_id, uint32_t device_id,
                    uint32_t subgroup_size_min)
{
    return (chip->vendor_id == 0 || chip->vendor_id == vendor_id) &&
           between(device_id, chip->first_device, chip->last_device) &&
           between(subgroup_size_min, chip->first_subgroup, chip->last_subgroup);
}

uint64_t tsr__chip_enough(const tsr__chip *chip, const tsr__matmul_device *device, uint64_t enough)
{
    if (device->processors == 0 || device->processors >= chip->processors)
        return enough;
    return (enough * device->processors + chip->processors - 1) / chip->processors;
}

const tsr__chip *tsr__chip_of(const tsr__matmul_device *device)
{
    const tsr__chip *chip;

    for (int i = 0; (chip = tsr__chip_at(i)) != NULL; i++)
        if ((!chip->nvk || device->nvk) &&
            tsr__chip_fits(chip, device->vendor_id, device->device_id, device->subgroup_size_min))
            return chip;
    return &table[sizeof table / sizeof *table - 1];
}
