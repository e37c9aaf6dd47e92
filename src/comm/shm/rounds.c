/* What is shown and taken in each round of each operation.
 *
 * Where buffers are in place, a round reads of the caller's memory, while showing, what no round
 * before has written, and only then writes. */
#include <string.h>

#include "base/checked.h"
#include "comm/job.h"
#include "comm/shm/combine.h"
#include "comm/shm/shm.h"

/* Bytes up to which everybody combines everything: one round instead of two, more work. */
#define WHOLE_BYTES 16384

/* Where things are ------------------------------------------------------------------------------
 */

static uint64_t bytes_of(const tsr_request *request, uint64_t elements)
{
    return elements * request->element_bytes;
}

/* Elements of piece `round` of a block. */
static uint64_t piece_count(const tsr__turn *turn, uint64_t block, uint64_t round)
{
    const uint64_t start = round * turn->piece;
    return start >= block ? 0 : tsr__min_u64(turn->piece, block - start);
}

/* A rank's share of a chunk's elements, in whole cache lines. */
typedef struct share {
    uint64_t start, count;
} share;

static share share_of(uint64_t chunk, int size, int rank)
{
    const uint64_t each = tsr__align_up_u64(tsr__div_up_u64(chunk, (uint64_t)size), 64);
    const uint64_t start = tsr__min_u64(chunk, each * (uint64_t)rank);
    return (share){start, tsr__min_u64(chunk - start, each)};
}

/* What a rank shows, where it is small together with the ticket. */
static uint8_t *input_at(tsr__board_page *page, unsigned half, uint64_t total_bytes)
{
    return total_bytes <= TSR__BOARD_INLINE ? page->heads[half].line.bytes
                                            : page->halves[half].input;
}

static void copy(void *to, const void *from, uint64_t bytes)
{
    if (bytes > 0 && to != from)
        memcpy(to, from, (size_t)bytes);
}

/* Preparing -------------------------------------------------------------------------------------
 */

static uint64_t rounds_of(uint64_t elements, uint64_t piece)
{
    return elements <= piece ? 1 : tsr__div_up_u64(elements, piece);
}

static uint64_t largest_block(const tsr__blocks *blocks, int size)
{
    uint64_t most = 0;
    for (int i = 0; i < size; i++)
        most = tsr__max_u64(most, tsr__block_count(blocks, i));
    return most;
}

static void prepare_shares(const tsr_comm *comm, tsr_request *request)
{
    tsr__turn *turn = &request->turn;
    const uint64_t count = request->call.count;
    turn->whole = bytes_of(request, count) <= WHOLE_BYTES;
    turn->piece = TSR__BOARD_INPUT / request->element_bytes;
    turn->rounds = turn->whole ? 1 : rounds_of(count, turn->piece) + 1;
    /* As alike as they get. */
    if (!turn->whole)
        turn->piece = tsr__align_up_u64(tsr__div_up_u64(count, turn->rounds - 1), 64);
    turn->piece = tsr__min_u64(turn->piece, TSR__BOARD_INPUT / request->element_bytes);
    (void)comm;
}

/* A page holds a piece for each of `slots`. */
static void prepare_blocks(const tsr_comm *comm, tsr_request *request, uint64_t slots)
{
    tsr__turn *turn = &request->turn;
    const uint64_t block = largest_block(&turn->blocks, comm->size);
    turn->piece = TSR__BOARD_INPUT / slots / 64 * 64 / request->element_bytes;
    turn->rounds = rounds_of(block, turn->piece);
}

void tsr__turn_prepare(tsr_comm *comm, tsr_request *request)
{
    switch ((tsr__call_kind)request->call.kind) {
    case TSR__CALL_ALL_REDUCE:
    case TSR__CALL_REDUCE:
        prepare_shares(comm, request);
        break;
    case TSR__CALL_REDUCE_SCATTER:
    case TSR__CALL_REDUCE_SCATTER_V:
    case TSR__CALL_SCATTER:
    case TSR__CALL_ALL_TO_ALL:
        prepare_blocks(comm, request, (uint64_t)comm->size);
        break;
    case TSR__CALL_ALL_GATHER:
    case TSR__CALL_ALL_GATHER_V:
    case TSR__CALL_GATHER:
    case TSR__CALL_SPLIT:
    case TSR__CALL_DUPLICATE:
        prepare_blocks(comm, request, 1);
        break;
    case TSR__CALL_BROADCAST:
        request->turn.piece = TSR__BOARD_INPUT / request->element_bytes;
        request->turn.rounds = rounds_of(request->call.count, request->turn.piece);
        break;
    case TSR__CALL_BARRIER:
        request->turn.rounds = 1;
        break;
    default:
        request->turn.rounds = 0;
    }
}

/* Reductions ------------------------------------------------------------------------------------
 */

static void combine(tsr_comm *comm, const tsr_request *request, void *out, uint64_t count)
{
    const tsr__combination combination = {.combine = request->combine,
                                          .divide = request->divide,
                                          .dtype = (tsr_dtype)request->call.dtype,
                                          .op = (tsr_op)request->call.op,
                                          .element_bytes = (size_t)request->element_bytes,
                                          .size = comm->size,
                                          .exact = request->turn.exact};
    tsr__combine_all(&combination, comm->inputs, out, (size_t)count);
}

static bool gets_all(const tsr_comm *comm, const tsr_request *request)
{
    return request->call.kind != TSR__CALL_REDUCE || request->call.peer == comm->rank;
}

static void show_shares(const tsr_comm *comm, const tsr_request *request, tsr__board_page *mine,
                        unsigned half)
{
    const tsr__turn *turn = &request->turn;
    const uint64_t chunk = piece_count(turn, request->call.count, turn->round);
    const uint8_t *from = request->send + bytes_of(request, turn->round * turn->piece);
    if (chunk == 0)
        return;
    uint8_t *to = input_at(mine, half, bytes_of(request, chunk));
    if (turn->whole) {
        memcpy(to, from, (size_t)bytes_of(request, chunk));
        return;
    }
    /* Nobody else needs this rank's own share. */
    const share own = share_of(chunk, comm->size, comm->rank);
    const uint64_t end = own.start + own.count;
    copy(to, from, bytes_of(request, own.start));
    copy(to + bytes_of(request, end), from + bytes_of(request, end),
         bytes_of(request, chunk - end));
}

static void take_whole(tsr_comm *comm, const tsr_request *request, tsr__board_page *const *pages,
                       unsigned half)
{
    const uint64_t count = request->call.count;
    if (count == 0 || !gets_all(comm, request))
        return;
    for (int i = 0; i < comm->size; i++)
        comm->inputs[i] =
            i == comm->rank ? request->send : input_at(pages[i], half, bytes_of(request, count));
    combine(comm, request, request->recv, count);
}

/* The others' shares of the chunk before. */
static void take_results(const tsr_comm *comm, const tsr_request *request,
                         tsr__board_page *const *pages, unsigned half)
{
    const tsr__turn *turn = &request->turn;
    if (turn->round == 0 || !gets_all(comm, request))
        return;
    const uint64_t chunk = piece_count(turn, request->call.count, turn->round - 1);
    uint8_t *to = request->recv + bytes_of(request, (turn->round - 1) * turn->piece);
    for (int i = 1; i < comm->size; i++) {
        const int from = (comm->rank + i) % comm->size;
        const share theirs = share_of(chunk, comm->size, from);
        copy(to + bytes_of(request, theirs.start), pages[from]->halves[half].result,
             bytes_of(request, theirs.count));
    }
}

/* This rank's share of this chunk, to be shown with the next. */
static void take_share(tsr_comm *comm, const tsr_request *request, tsr__board_page *const *pages,
                       unsigned half)
{
    const tsr__turn *turn = &request->turn;
    const uint64_t chunk = piece_count(turn, request->call.count, turn->round);
    const share own = share_of(chunk, comm->size, comm->rank);
    const uint64_t at = turn->round * turn->piece + own.start;
    uint8_t *result = pages[comm->rank]->halves[half ^ 1].result;
    if (own.count == 0)
        return;
    for (int i = 0; i < comm->size; i++)
        comm->inputs[i] = i == comm->rank ? request->send + bytes_of(request, at)
                                          : input_at(pages[i], half, bytes_of(request, chunk)) +
                                                bytes_of(request, own.start);
    combine(comm, request, result, own.count);
    if (gets_all(comm, request))
        memcpy(request->recv + bytes_of(request, at), result, (size_t)bytes_of(request, own.count));
}

static void take_blocks_combined(tsr_comm *comm, const tsr_request *request,
                                 tsr__board_page *const *pages, unsigned half)
{
    const tsr__turn *turn = &request->turn;
    const uint64_t count =
        piece_count(turn, tsr__block_count(&turn->blocks, comm->rank), turn->round);
    const uint64_t at = turn->round * turn->piece;
    const uint64_t slot = (uint64_t)comm->rank * turn->piece;
    if (count == 0)
        return;
    for (int i = 0; i < comm->size; i++)
        comm->inputs[i] =
            i == comm->rank
                ? request->send +
                      bytes_of(request, tsr__block_start(&turn->blocks, comm->rank) + at)
                : pages[i]->halves[half].input + bytes_of(request, slot);
    combine(comm, request, request->recv + bytes_of(request, at), count);
}

/* Moving ----------------------------------------------------------------------------------------
 */

/* A piece of every other rank's block of what this rank sends, each in its slot. */
static void show_slots(const tsr_comm *comm, const tsr_request *request, tsr__board_page *mine,
                       unsigned half)
{
    const tsr__turn *turn = &request->turn;
    for (int i = 0; i < comm->size; i++) {
        const uint64_t count = piece_count(turn, tsr__block_count(&turn->blocks, i), turn->round);
        const uint64_t at = tsr__block_start(&turn->blocks, i) + turn->round * turn->piece;
        if (i != comm->rank && count > 0)
            memcpy(mine->halves[half].input + bytes_of(request, (uint64_t)i * turn->piece),
                   request->send + bytes_of(request, at), (size_t)bytes_of(request, count));
    }
}

static void take_slots(const tsr_comm *comm, const tsr_request *request,
                       tsr__board_page *const *pages, unsigned half)
{
    const tsr__turn *turn = &request->turn;
    const uint64_t slot = bytes_of(request, (uint64_t)comm->rank * turn->piece);
    for (int i = 0; i < comm->size; i++) {
        const int from = (comm->rank + i) % comm->size;
        const uint64_t count =
            piece_count(turn, tsr__block_count(&turn->blocks, from), turn->round);
        const uint64_t at = tsr__block_start(&turn->blocks, from) + turn->round * turn->piece;
        if (count > 0)
            copy(request->recv + bytes_of(request, at),
                 from == comm->rank ? request->send + bytes_of(request, at)
                                    : pages[from]->halves[half].input + slot,
                 bytes_of(request, count));
    }
}

static void take_own_slot(const tsr_comm *comm, const tsr_request *request,
                          tsr__board_page *const *pages, unsigned half)
{
    const tsr__turn *turn = &request->turn;
    const int root = request->call.peer;
    const uint64_t count = piece_count(turn, request->call.count, turn->round);
    const uint64_t at = turn->round * turn->piece;
    const uint8_t *from =
        root == comm->rank
            ? request->send + bytes_of(request, (uint64_t)root * request->call.count + at)
            : pages[root]->halves[half].input +
                  bytes_of(request, (uint64_t)comm->rank * turn->piece);
    if (count > 0)
        copy(request->recv + bytes_of(request, at), from, bytes_of(request, count));
}

/* A piece of this rank's block. */
static void show_block(const tsr_comm *comm, const tsr_request *request, tsr__board_page *mine,
                       unsigned half)
{
    const tsr__turn *turn = &request->turn;
    const uint64_t count =
        piece_count(turn, tsr__block_count(&turn->blocks, comm->rank), turn->round);
    if (count > 0)
        memcpy(input_at(mine, half, bytes_of(request, count)),
               request->send + bytes_of(request, turn->round * turn->piece),
               (size_t)bytes_of(request, count));
}

static void take_blocks(const tsr_comm *comm, const tsr_request *request,
                        tsr__board_page *const *pages, unsigned half)
{
    const tsr__turn *turn = &request->turn;
    if ((request->call.kind == TSR__CALL_GATHER) && request->call.peer != comm->rank)
        return;
    for (int i = 0; i < comm->size; i++) {
        const int from = (comm->rank + i) % comm->size;
        const uint64_t offset = turn->round * turn->piece;
        const uint64_t count =
            piece_count(turn, tsr__block_count(&turn->blocks, from), turn->round);
        const uint64_t at = tsr__block_start(&turn->blocks, from) + offset;
        if (count > 0)
            copy(request->recv + bytes_of(request, at),
                 from == comm->rank ? request->send + bytes_of(request, offset)
                                    : input_at(pages[from], half, bytes_of(request, count)),
                 bytes_of(request, count));
    }
}

static void broadcast(const tsr_comm *comm, const tsr_request *request,
                      tsr__board_page *const *pages, unsigned half, bool showing)
{
    const tsr__turn *turn = &request->turn;
    const int root = request->call.peer;
    const uint64_t count = piece_count(turn, request->call.count, turn->round);
    uint8_t *data = request->recv + bytes_of(request, turn->round * turn->piece);
    uint8_t *shown = input_at(pages[root], half, bytes_of(request, count));
    if (count > 0 && (comm->rank == root) == showing)
        copy(showing ? shown : data, showing ? data : shown, bytes_of(request, count));
}

/* All kinds -------------------------------------------------------------------------------------
 */

void tsr__turn_show(tsr_comm *comm, tsr_request *request, tsr__board_page *const *pages,
                    unsigned half)
{
    tsr__board_page *mine = pages[comm->rank];
    switch ((tsr__call_kind)request->call.kind) {
    case TSR__CALL_ALL_REDUCE:
    case TSR__CALL_REDUCE:
        show_shares(comm, request, mine, half);
        break;
    case TSR__CALL_SCATTER:
        if (request->call.peer == comm->rank)
            show_slots(comm, request, mine, half);
        break;
    case TSR__CALL_REDUCE_SCATTER:
    case TSR__CALL_REDUCE_SCATTER_V:
    case TSR__CALL_ALL_TO_ALL:
        show_slots(comm, request, mine, half);
        break;
    case TSR__CALL_ALL_GATHER:
    case TSR__CALL_ALL_GATHER_V:
    case TSR__CALL_GATHER:
    case TSR__CALL_SPLIT:
    case TSR__CALL_DUPLICATE:
        show_block(comm, request, mine, half);
        break;
    case TSR__CALL_BROADCAST:
        broadcast(comm, request, pages, half, true);
        break;
    default:
        break;
    }
}

void tsr__turn_take(tsr_comm *comm, tsr_request *request, tsr__board_page *const *pages,
                    unsigned half)
{
    switch ((tsr__call_kind)request->call.kind) {
    case TSR__CALL_ALL_REDUCE:
    case TSR__CALL_REDUCE:
        if (request->turn.whole) {
            take_whole(comm, request, pages, half);
        } else {
            take_results(comm, request, pages, half);
            take_share(comm, request, pages, half);
        }
        break;
    case TSR__CALL_REDUCE_SCATTER:
    case TSR__CALL_REDUCE_SCATTER_V:
        take_blocks_combined(comm, request, pages, half);
        break;
    case TSR__CALL_SCATTER:
        take_own_slot(comm, request, pages, half);
        break;
    case TSR__CALL_ALL_TO_ALL:
        take_slots(comm, request, pages, half);
        break;
    case TSR__CALL_ALL_GATHER:
    case TSR__CALL_ALL_GATHER_V:
    case TSR__CALL_GATHER:
    case TSR__CALL_SPLIT:
    case TSR__CALL_DUPLICATE:
        take_blocks(comm, request, pages, half);
        break;
    case TSR__CALL_BROADCAST:
        broadcast(comm, request, pages, half, false);
        break;
    default:
        break;
    }
}
