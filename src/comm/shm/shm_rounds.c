/* The data of each round of each operation: what a rank publishes (writes to its slot), and what it
 * consumes (reads from the slots of all ranks). A chunk is the elements that one round transfers.
 *
 * `send` and `recv` may be the same memory. So a rank publishes only elements of `send` that
 * consuming earlier rounds has not overwritten, and publishes the data of a round before consuming
 * that round. */
#include <string.h>

#include "base/checked.h"
#include "comm/algorithms/choose.h"
#include "comm/shm/shm_state.h"

/* Positions in the data ---------------------------------------------------------------------------
 */

static uint64_t bytes_of(const tsr__shm_operation *operation, uint64_t elements)
{
    return elements * operation->element_bytes;
}

/* Returns the number of elements of a block of `block` elements that round number `round`
 * transfers. */
static uint64_t chunk_count(const tsr__shm_operation *operation, uint64_t block, uint64_t round)
{
    const uint64_t start = round * operation->chunk;
    return start >= block ? 0 : tsr__min_u64(operation->chunk, block - start);
}

/* The elements of a chunk that one rank reduces. A share consists of complete cache lines. */
typedef struct share {
    uint64_t start, count;
} share;

static share share_of(uint64_t chunk, int size, int rank)
{
    const uint64_t each = tsr__align_up_u64(tsr__div_up_u64(chunk, (uint64_t)size), 64);
    const uint64_t start = tsr__min_u64(chunk, each * (uint64_t)rank);
    return (share){start, tsr__min_u64(chunk - start, each)};
}

/* Returns where a rank publishes the data of an operation of `total_bytes`. Small data goes into
 * the cache line that contains the sequence number. */
static uint8_t *input_at(const tsr__shm *shm, int rank, uint64_t total_bytes)
{
    const unsigned index = tsr__shm_buffer_index(shm);
    tsr__shm_slot *slot = shm->slots[rank];
    return total_bytes <= TSR__SHM_INLINE_BYTES ? slot->headers[index].line.data
                                                : slot->buffers[index].input;
}

/* Returns where a rank publishes one chunk for each other rank. */
static uint8_t *chunks_of_rank(const tsr__shm *shm, int rank)
{
    return shm->slots[rank]->buffers[tsr__shm_buffer_index(shm)].input;
}

static void copy_bytes(void *to, const void *from, uint64_t bytes)
{
    if (bytes > 0 && to != from)
        memcpy(to, from, (size_t)bytes);
}

/* Preparing ---------------------------------------------------------------------------------------
 */

static uint64_t rounds_of(uint64_t elements, uint64_t chunk)
{
    return elements <= chunk ? 1 : tsr__div_up_u64(elements, chunk);
}

static uint64_t largest_block(const tsr__blocks *blocks, int size)
{
    uint64_t most = 0;
    for (int i = 0; i < size; i++)
        most = tsr__max_u64(most, tsr__block_count(blocks, i));
    return most;
}

/* Sets the rounds of a reduction. A large reduction needs one round more than it has chunks,
 * because the results of a chunk are published together with the next chunk. */
static void prepare_reduction(tsr__shm_operation *operation)
{
    const uint64_t count = operation->count;
    const uint64_t most = TSR__SHM_INPUT_BYTES / operation->element_bytes;
    operation->each_reduces_all = tsr__choose_one_round(bytes_of(operation, count));
    operation->rounds = operation->each_reduces_all ? 1 : rounds_of(count, most) + 1;
    operation->chunk = most;
    /* a large reduction: make the chunks nearly equal in size */
    if (!operation->each_reduces_all) {
        const uint64_t even = tsr__div_up_u64(count, operation->rounds - 1);
        operation->chunk = tsr__min_u64(tsr__align_up_u64(even, 64), most);
    }
}

/* Sets the number of rounds and the size of a chunk of an operation that moves blocks, if a rank
 * publishes `chunks` chunks in each round, which must fit in its buffer together. */
static void prepare_blocks(int size, tsr__shm_operation *operation, uint64_t chunks)
{
    const uint64_t block = largest_block(&operation->blocks, size);
    operation->chunk = TSR__SHM_INPUT_BYTES / chunks / 64 * 64 / operation->element_bytes;
    operation->rounds = rounds_of(block, operation->chunk);
}

void tsr__shm_prepare(int size, tsr__shm_operation *operation)
{
    switch (operation->kind) {
    case TSR__CALL_ALL_REDUCE:
    case TSR__CALL_REDUCE:
        prepare_reduction(operation);
        break;
    case TSR__CALL_REDUCE_SCATTER:
    case TSR__CALL_REDUCE_SCATTER_V:
    case TSR__CALL_SCATTER:
    case TSR__CALL_ALL_TO_ALL:
        prepare_blocks(size, operation, (uint64_t)size);
        break;
    case TSR__CALL_ALL_GATHER:
    case TSR__CALL_ALL_GATHER_V:
    case TSR__CALL_GATHER:
    case TSR__CALL_SPLIT:
    case TSR__CALL_DUPLICATE:
        prepare_blocks(size, operation, 1);
        break;
    case TSR__CALL_BROADCAST:
        operation->chunk = TSR__SHM_INPUT_BYTES / operation->element_bytes;
        operation->rounds = rounds_of(operation->count, operation->chunk);
        break;
    case TSR__CALL_BARRIER:
        operation->rounds = 1;
        break;
    default:
        operation->rounds = 0;
    }
}

/* Reductions --------------------------------------------------------------------------------------
 */

/* Combines the contributions of all ranks, to which shm->inputs points, into `out`. */
static void combine_inputs(tsr__shm *shm, const tsr__shm_operation *operation, void *out,
                           uint64_t count)
{
    const tsr__combination combination = {.combine = operation->combine,
                                          .divide = operation->divide,
                                          .dtype = (tsr_dtype)operation->call->dtype,
                                          .op = (tsr_op)operation->call->op,
                                          .element_bytes = (size_t)operation->element_bytes,
                                          .size = shm->size,
                                          .exact = operation->exact};
    tsr__combine_all(&combination, shm->inputs, out, (size_t)count);
}

static bool gets_result(const tsr__shm *shm, const tsr__shm_operation *operation)
{
    return operation->kind != TSR__CALL_REDUCE || operation->root == shm->rank;
}

static void publish_reduction(tsr__shm *shm, const tsr__shm_operation *operation)
{
    const uint64_t chunk = chunk_count(operation, operation->count, operation->round);
    const uint8_t *from =
        operation->send + bytes_of(operation, operation->round * operation->chunk);
    if (chunk == 0)
        return;
    uint8_t *to = input_at(shm, shm->rank, bytes_of(operation, chunk));
    if (operation->each_reduces_all) {
        memcpy(to, from, (size_t)bytes_of(operation, chunk));
        return;
    }
    /* Do not copy this rank's own share of the chunk: only this rank reduces that share, so no
     * other rank reads it. */
    const share own = share_of(chunk, shm->size, shm->rank);
    const uint64_t end = own.start + own.count;
    copy_bytes(to, from, bytes_of(operation, own.start));
    copy_bytes(to + bytes_of(operation, end), from + bytes_of(operation, end),
               bytes_of(operation, chunk - end));
}

static void consume_small_reduction(tsr__shm *shm, const tsr__shm_operation *operation)
{
    const uint64_t count = operation->count;
    if (count == 0 || !gets_result(shm, operation))
        return;
    for (int i = 0; i < shm->size; i++)
        shm->inputs[i] =
            i == shm->rank ? operation->send : input_at(shm, i, bytes_of(operation, count));
    combine_inputs(shm, operation, operation->recv, count);
}

/* Copies the results that the other ranks have computed for the previous chunk. */
static void consume_results(const tsr__shm *shm, const tsr__shm_operation *operation)
{
    if (operation->round == 0 || !gets_result(shm, operation))
        return;
    const unsigned index = tsr__shm_buffer_index(shm);
    const uint64_t chunk = chunk_count(operation, operation->count, operation->round - 1);
    uint8_t *to = operation->recv + bytes_of(operation, (operation->round - 1) * operation->chunk);
    for (int i = 1; i < shm->size; i++) {
        const int from = (shm->rank + i) % shm->size;
        const share theirs = share_of(chunk, shm->size, from);
        copy_bytes(to + bytes_of(operation, theirs.start), shm->slots[from]->buffers[index].result,
                   bytes_of(operation, theirs.count));
    }
}

/* Reduces this rank's share of the current chunk. Writes the result into the buffer of the next
 * round. */
static void consume_share(tsr__shm *shm, const tsr__shm_operation *operation)
{
    const uint64_t chunk = chunk_count(operation, operation->count, operation->round);
    const share own = share_of(chunk, shm->size, shm->rank);
    const uint64_t position = operation->round * operation->chunk + own.start;
    const unsigned next = tsr__shm_buffer_index(shm) ^ 1;
    uint8_t *result = shm->slots[shm->rank]->buffers[next].result;
    if (own.count == 0)
        return;
    for (int i = 0; i < shm->size; i++)
        shm->inputs[i] = i == shm->rank ? operation->send + bytes_of(operation, position)
                                        : input_at(shm, i, bytes_of(operation, chunk)) +
                                              bytes_of(operation, own.start);
    combine_inputs(shm, operation, result, own.count);
    if (gets_result(shm, operation))
        memcpy(operation->recv + bytes_of(operation, position), result,
               (size_t)bytes_of(operation, own.count));
}

static void consume_reduce_scatter(tsr__shm *shm, const tsr__shm_operation *operation)
{
    const uint64_t block = tsr__block_count(&operation->blocks, shm->rank);
    const uint64_t count = chunk_count(operation, block, operation->round);
    const uint64_t position = operation->round * operation->chunk;
    const uint64_t start = tsr__block_start(&operation->blocks, shm->rank) + position;
    const uint64_t offset = bytes_of(operation, (uint64_t)shm->rank * operation->chunk);
    if (count == 0)
        return;
    for (int i = 0; i < shm->size; i++)
        shm->inputs[i] = i == shm->rank ? operation->send + bytes_of(operation, start)
                                        : chunks_of_rank(shm, i) + offset;
    combine_inputs(shm, operation, operation->recv + bytes_of(operation, position), count);
}

/* Moving ------------------------------------------------------------------------------------------
 */

/* Publishes, for each other rank, a chunk of the block that this rank sends to it. */
static void publish_chunks(tsr__shm *shm, const tsr__shm_operation *operation)
{
    uint8_t *chunks = chunks_of_rank(shm, shm->rank);
    for (int i = 0; i < shm->size; i++) {
        const uint64_t block = tsr__block_count(&operation->blocks, i);
        const uint64_t count = chunk_count(operation, block, operation->round);
        const uint64_t position =
            tsr__block_start(&operation->blocks, i) + operation->round * operation->chunk;
        if (i != shm->rank && count > 0)
            memcpy(chunks + bytes_of(operation, (uint64_t)i * operation->chunk),
                   operation->send + bytes_of(operation, position),
                   (size_t)bytes_of(operation, count));
    }
}

static void consume_all_to_all(tsr__shm *shm, const tsr__shm_operation *operation)
{
    const uint64_t offset = bytes_of(operation, (uint64_t)shm->rank * operation->chunk);
    for (int i = 0; i < shm->size; i++) {
        const int from = (shm->rank + i) % shm->size;
        const uint64_t block = tsr__block_count(&operation->blocks, from);
        const uint64_t count = chunk_count(operation, block, operation->round);
        const uint64_t position =
            tsr__block_start(&operation->blocks, from) + operation->round * operation->chunk;
        if (count > 0)
            copy_bytes(operation->recv + bytes_of(operation, position),
                       from == shm->rank ? operation->send + bytes_of(operation, position)
                                         : chunks_of_rank(shm, from) + offset,
                       bytes_of(operation, count));
    }
}

static void consume_scatter(tsr__shm *shm, const tsr__shm_operation *operation)
{
    const int root = operation->root;
    const uint64_t block = operation->count;
    const uint64_t count = chunk_count(operation, block, operation->round);
    const uint64_t position = operation->round * operation->chunk;
    const uint8_t *from =
        root == shm->rank ? operation->send + bytes_of(operation, (uint64_t)root * block + position)
                          : chunks_of_rank(shm, root) +
                                bytes_of(operation, (uint64_t)shm->rank * operation->chunk);
    if (count > 0)
        copy_bytes(operation->recv + bytes_of(operation, position), from,
                   bytes_of(operation, count));
}

/* Publishes the current round's chunk of this rank's block, for all ranks. */
static void publish_block(tsr__shm *shm, const tsr__shm_operation *operation)
{
    const uint64_t block = tsr__block_count(&operation->blocks, shm->rank);
    const uint64_t count = chunk_count(operation, block, operation->round);
    const uint64_t position = operation->round * operation->chunk;
    if (count > 0)
        memcpy(input_at(shm, shm->rank, bytes_of(operation, count)),
               operation->send + bytes_of(operation, position), (size_t)bytes_of(operation, count));
}

static void consume_blocks(tsr__shm *shm, const tsr__shm_operation *operation)
{
    if (operation->kind == TSR__CALL_GATHER && operation->root != shm->rank)
        return;
    const uint64_t offset = operation->round * operation->chunk;
    for (int i = 0; i < shm->size; i++) {
        const int from = (shm->rank + i) % shm->size;
        const uint64_t block = tsr__block_count(&operation->blocks, from);
        const uint64_t count = chunk_count(operation, block, operation->round);
        const uint64_t position = tsr__block_start(&operation->blocks, from) + offset;
        if (count > 0)
            copy_bytes(operation->recv + bytes_of(operation, position),
                       from == shm->rank ? operation->send + bytes_of(operation, offset)
                                         : input_at(shm, from, bytes_of(operation, count)),
                       bytes_of(operation, count));
    }
}

static void publish_broadcast(tsr__shm *shm, const tsr__shm_operation *operation)
{
    const uint64_t count = chunk_count(operation, operation->count, operation->round);
    const uint64_t position = operation->round * operation->chunk;
    if (count > 0 && shm->rank == operation->root)
        copy_bytes(input_at(shm, shm->rank, bytes_of(operation, count)),
                   operation->recv + bytes_of(operation, position), bytes_of(operation, count));
}

static void consume_broadcast(tsr__shm *shm, const tsr__shm_operation *operation)
{
    const int root = operation->root;
    const uint64_t count = chunk_count(operation, operation->count, operation->round);
    const uint64_t position = operation->round * operation->chunk;
    if (count > 0 && shm->rank != root)
        copy_bytes(operation->recv + bytes_of(operation, position),
                   input_at(shm, root, bytes_of(operation, count)), bytes_of(operation, count));
}

/* All kinds ---------------------------------------------------------------------------------------
 */

static void consume_reduction(tsr__shm *shm, const tsr__shm_operation *operation)
{
    if (operation->each_reduces_all) {
        consume_small_reduction(shm, operation);
    } else {
        consume_results(shm, operation);
        consume_share(shm, operation);
    }
}

static void publish_scatter(tsr__shm *shm, const tsr__shm_operation *operation)
{
    if (operation->root == shm->rank)
        publish_chunks(shm, operation);
}

/* The steps of a round of each kind of operation; NULL: kinds that have no rounds. */
static const struct {
    void (*publish)(tsr__shm *shm, const tsr__shm_operation *operation);
    void (*consume)(tsr__shm *shm, const tsr__shm_operation *operation);
} rounds[TSR__CALL_KINDS] = {
    [TSR__CALL_ALL_REDUCE] = {publish_reduction, consume_reduction},
    [TSR__CALL_REDUCE] = {publish_reduction, consume_reduction},
    [TSR__CALL_REDUCE_SCATTER] = {publish_chunks, consume_reduce_scatter},
    [TSR__CALL_REDUCE_SCATTER_V] = {publish_chunks, consume_reduce_scatter},
    [TSR__CALL_SCATTER] = {publish_scatter, consume_scatter},
    [TSR__CALL_ALL_TO_ALL] = {publish_chunks, consume_all_to_all},
    [TSR__CALL_ALL_GATHER] = {publish_block, consume_blocks},
    [TSR__CALL_ALL_GATHER_V] = {publish_block, consume_blocks},
    [TSR__CALL_GATHER] = {publish_block, consume_blocks},
    [TSR__CALL_SPLIT] = {publish_block, consume_blocks},
    [TSR__CALL_DUPLICATE] = {publish_block, consume_blocks},
    [TSR__CALL_BROADCAST] = {publish_broadcast, consume_broadcast},
};

void tsr__shm_publish(tsr__shm *shm, tsr__shm_operation *operation)
{
    if (rounds[operation->kind].publish != NULL)
        rounds[operation->kind].publish(shm, operation);
}

void tsr__shm_consume(tsr__shm *shm, tsr__shm_operation *operation)
{
    if (rounds[operation->kind].consume != NULL)
        rounds[operation->kind].consume(shm, operation);
}
