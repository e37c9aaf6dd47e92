/* Which tokens of a sequence the ranks of a context group have. A causal token's work grows with
 * its place, so each rank has a chunk from the front and one as far from the back: its tokens then
 * have the same mean place as those of every other rank. */
#include "base/alloc.h"
#include "parallel/layers/context.h"
#include "tensor/check.h"

void tsr__context_chunks(int ranks, const int64_t *sizes, int rank, tsr_shard_range out[2])
{
    int64_t front = 0, back = 0;
    for (int r = 0; r < rank; r++)
        front += sizes[r] - sizes[r] / 2;
    for (int r = 0; r < ranks; r++)
        back += r >= rank ? sizes[r] - sizes[r] / 2 : 0;
    for (int r = rank + 1; r < ranks; r++)
        back += sizes[r] / 2;
    out[0] = (tsr_shard_range){(uint64_t)front, (uint64_t)(sizes[rank] - sizes[rank] / 2)};
    out[1] = (tsr_shard_range){(uint64_t)(front + back), (uint64_t)(sizes[rank] / 2)};
}

static tsr_status divide(int64_t tokens, int ranks, const tsr_partition_params *params,
                         int64_t *sizes)
{
    tsr_shard_range *ranges = tsr__calloc((size_t)ranks, sizeof *ranges);
    if (!ranges)
        return TSR_ERR_NO_MEMORY;
    const tsr_status status = tsr_partition((uint64_t)tokens, ranks, params, ranges);
    for (int r = 0; r < ranks && status == TSR_OK; r++)
        sizes[r] = (int64_t)ranges[r].count;
    tsr__free(ranges);
    return status;
}

tsr_status tsr_context_divide(int64_t tokens, int ranks, const tsr_partition_params *partition,
                              int rank, tsr_shard_range chunks[2])
{
    TSR__REQUIRE(chunks, "context_divide: chunks is NULL");
    TSR__REQUIRE(tokens >= 0, "context_divide: tokens is %lld", (long long)tokens);
    TSR__REQUIRE(ranks >= 1 && rank >= 0 && rank < ranks, "context_divide: rank %d of %d", rank,
                 ranks);
    const tsr_partition_params *even = tsr_partition_params(.kind = TSR_PARTITION_UNEVEN);
    int64_t *sizes = tsr__calloc((size_t)ranks, sizeof *sizes);
    if (!sizes)
        return TSR_ERR_NO_MEMORY;
    const tsr_status status = divide(tokens, ranks, partition ? partition : even, sizes);
    if (status == TSR_OK)
        tsr__context_chunks(ranks, sizes, rank, chunks);
    tsr__free(sizes);
    return status;
}
