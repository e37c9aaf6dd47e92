/* The staged path, on which data pass through a ring of pieces of host memory. The device can fill
 * one piece and empty another while a third is being sent. A piece contains the same range of
 * elements of each rank's block. The work that fills a piece is recorded on the stream after the
 * copies that have emptied it, so no other synchronisation is needed. In an all-to-all and an
 * exchange, the first half of a piece is sent and the second half received. */
#include "base/checked.h"
#include "gpu/internal.h"
#include "parallel/group/group.h"
#include "tessera/ops.h"

/* Returns the number of blocks in the request's full tensor; 1 if it is not divided. */
static int block_count(const tsr__group_request *request)
{
    return request->in && request->kind != TSR__GROUP_EXCHANGE ? request->group->size : 1;
}

/* Returns whether one half of a piece is sent and the other half received. */
static bool is_exchange(const tsr__group_request *request)
{
    return request->kind == TSR__GROUP_ALL_TO_ALL || request->kind == TSR__GROUP_EXCHANGE;
}

/* Returns the element of a piece at which the received blocks start. */
static uint64_t received_at(const tsr__group_request *request)
{
    return is_exchange(request) ? request->group->piece_bytes / 2 / tsr_dtype_size(request->dtype)
                                : 0;
}

/* Returns the number of elements of each block that fit into a piece. */
static uint64_t piece_elements(const tsr__group_request *request)
{
    const tsr_group *group = request->group;
    const uint64_t capacity = is_exchange(request)
                                  ? received_at(request)
                                  : group->piece_bytes / tsr_dtype_size(request->dtype);
    return capacity / (uint64_t)block_count(request);
}

static uint64_t count_from(uint64_t block, uint64_t first, uint64_t most)
{
    return block > first ? tsr__min_u64(block - first, most) : 0;
}

/* Sets group->counts and group->recv_counts to the number of elements of each block, sent and
 * received, in the piece that starts at element `first` of the blocks. */
static void count_piece(const tsr__group_request *request, uint64_t first)
{
    tsr_group *group = request->group;
    uint64_t most = piece_elements(request);
    for (int r = 0; r < block_count(request); r++) {
        group->counts[r] = count_from(request->counts[r], first, most);
        group->recv_counts[r] = count_from(request->recv_counts[r], first, most);
    }
}

/* Returns the sum of the first `ranks` counts. */
static uint64_t sum_before(const uint64_t *counts, int ranks)
{
    uint64_t sum = 0;
    for (int r = 0; r < ranks; r++)
        sum += counts[r];
    return sum;
}

/* Copies between pieces and tensors ---------------------------------------------------------- */

/* Copies elements between a piece and a flat tensor. The elements start at `in_piece` and
 * `in_flat`. */
static tsr_status copy_range(const tsr__group_request *request, const tsr__group_piece *piece,
                             bool fill, tsr_tensor *flat, uint64_t in_flat, uint64_t in_piece,
                             uint64_t elements)
{
    if (elements == 0)
        return TSR_OK;
    tsr_layout layout;
    tsr_tensor *host = NULL, *device = NULL;
    TSR__TRY(tsr_layout_init(request->dtype, 1, (int64_t[]){(int64_t)elements}, &layout));
    layout.offset = (int64_t)in_piece;
    TSR__TRY(tsr_tensor_view(piece->memory, &layout, &host));
    tsr_status status =
        tsr_tensor_slice(flat, 0, (int64_t)in_flat, (int64_t)(in_flat + elements), 1, &device);
    if (status == TSR_OK)
        status = tsr_copy(request->group->stream, fill ? host : device, fill ? device : host);
    tsr_tensor_destroy(&device);
    tsr_tensor_destroy(&host);
    return status;
}

/* Copies the piece's range of every rank's block between the piece and the request's full tensor.
 */
static tsr_status copy_blocks(const tsr__group_request *request, const tsr__group_piece *piece,
                              bool fill, tsr_tensor *flat)
{
    const tsr_group *group = request->group;
    for (int r = 0; r < block_count(request); r++) {
        if (!fill && request->in_place && r == group->rank)
            continue;
        TSR__TRY(copy_range(request, piece, fill, flat,
                            sum_before(request->counts, r) + piece->first,
                            sum_before(group->counts, r), group->counts[r]));
    }
    return TSR_OK;
}

/* Copies a piece's range of the blocks that an all-to-all or an exchange has received. */
static tsr_status copy_received(const tsr__group_request *request, const tsr__group_piece *piece)
{
    const tsr_group *group = request->group;
    for (int r = 0; r < block_count(request); r++)
        TSR__TRY(copy_range(
            request, piece, false, request->out, sum_before(request->recv_counts, r) + piece->first,
            received_at(request) + sum_before(group->recv_counts, r), group->recv_counts[r]));
    return TSR_OK;
}

/* Copies between a piece and the request's tensor that holds only this rank's block. Copies the
 * piece's range of this block. */
static tsr_status copy_own(const tsr__group_request *request, const tsr__group_piece *piece,
                           bool fill, tsr_tensor *flat)
{
    const tsr_group *group = request->group;
    int block = request->in ? group->rank : 0;
    return copy_range(request, piece, fill, flat, piece->first, sum_before(group->counts, block),
                      group->counts[block]);
}

static tsr_status fill_piece(const tsr__group_request *request, const tsr__group_piece *piece)
{
    if (request->kind == TSR__GROUP_REDUCE_SCATTER || is_exchange(request))
        return copy_blocks(request, piece, true, request->in);
    if (request->kind == TSR__GROUP_BROADCAST && request->root != request->group->rank)
        return TSR_OK;
    return copy_own(request, piece, true, request->in ? request->in : request->out);
}

static tsr_status empty_piece(const tsr__group_request *request, const tsr__group_piece *piece)
{
    if (request->kind == TSR__GROUP_ALL_GATHER)
        return copy_blocks(request, piece, false, request->out);
    if (is_exchange(request))
        return copy_received(request, piece);
    if (request->kind == TSR__GROUP_BROADCAST && request->root == request->group->rank)
        return TSR_OK;
    return copy_own(request, piece, false, request->out);
}

/* The ring ----------------------------------------------------------------------------------- */

static tsr__group_piece *piece_at(tsr_group *group, int index)
{
    return &group->piece[(group->oldest + index) % TSR__GROUP_PIECES];
}

/* Takes a free piece and records the copies that fill it. */
static tsr_status issue_piece(tsr_group *group, tsr__group_request *request)
{
    tsr__group_piece *piece = piece_at(group, group->piece_count);
    piece->first = request->issued;
    piece->started = false;
    count_piece(request, piece->first);
    TSR__TRY(fill_piece(request, piece));
    TSR__TRY(tsr_stream_mark(group->stream, &piece->point));
    TSR__TRY(tsr_stream_submit(group->stream));
    piece->request = request;
    group->piece_count++;
    request->issued += tsr__min_u64(request->most - request->issued, piece_elements(request));
    request->unfinished++;
    request->state = TSR__GROUP_ACTIVE;
    return TSR_OK;
}

static tsr_status issue_all(tsr_group *group)
{
    for (tsr__group_request *request = group->queue; request; request = request->next)
        while (request->issued < request->most) {
            if (group->piece_count == TSR__GROUP_PIECES)
                return TSR_OK;
            TSR__TRY(issue_piece(group, request));
        }
    return TSR_OK;
}

/* Sets *in and *out to the operands in a piece with blocks of `counts` elements. */
static void place_operands(const tsr__group_request *request, uint8_t *piece,
                           const uint64_t *counts, void **in, void **out)
{
    const uint64_t element = tsr_dtype_size(request->dtype);
    uint8_t *own = piece + (request->in ? sum_before(counts, request->group->rank) * element : 0);
    *in = *out = piece;
    if (is_exchange(request))
        *out = piece + received_at(request) * element;
    else if (request->kind == TSR__GROUP_REDUCE_SCATTER)
        *out = own;
    else
        *in = own;
}

static tsr_status start_piece(tsr_group *group, tsr__group_piece *piece)
{
    const tsr__group_request *request = piece->request;
    void *in, *out;
    count_piece(request, piece->first);
    place_operands(request, piece->host, group->counts, &in, &out);
    TSR__TRY(tsr__group_start(request, in, out, group->counts, group->recv_counts, &piece->active));
    piece->started = true;
    return TSR_OK;
}

/* Records the copies that empty a piece. The piece is free afterwards, because the copies of its
 * next use are recorded later on the same stream. */
static tsr_status finish_piece(tsr__group_piece *piece)
{
    tsr__group_request *request = piece->request;
    count_piece(request, piece->first);
    TSR__TRY(empty_piece(request, piece));
    piece->request = NULL;
    if (--request->unfinished > 0 || request->issued < request->most)
        return TSR_OK;
    TSR__TRY(tsr__group_copy_out(request));
    tsr__group_done(request);
    return TSR_OK;
}

static tsr_status advance_pieces(tsr_group *group)
{
    bool may_start = true;
    for (int i = 0; i < group->piece_count; i++) {
        tsr__group_piece *piece = piece_at(group, i);
        if (!piece->request)
            continue;
        if (!piece->started) {
            bool reached = false;
            if (may_start)
                TSR__TRY(tsr_stream_reached(group->stream, piece->point, &reached));
            may_start = reached;
            if (!reached)
                continue;
            TSR__TRY(start_piece(group, piece));
        }
        bool ended = true;
        TSR__TRY(tsr__group_test_active(&piece->active, &ended));
        if (ended)
            TSR__TRY(finish_piece(piece));
    }
    while (group->piece_count > 0 && !piece_at(group, 0)->request) {
        group->oldest = (group->oldest + 1) % TSR__GROUP_PIECES;
        group->piece_count--;
    }
    return TSR_OK;
}

static tsr_status staged_progress(tsr_group *group)
{
    TSR__TRY(advance_pieces(group));
    return issue_all(group);
}

static void staged_cancel(tsr_group *group)
{
    for (int i = 0; i < TSR__GROUP_PIECES; i++) {
        tsr__group_cancel_active(&group->piece[i].active);
        group->piece[i].request = NULL;
    }
    group->piece_count = 0;
}

static void staged_add_pending(tsr_group *group, tsr__group_pending *all)
{
    for (int i = 0; i < group->piece_count; i++) {
        tsr__group_piece *piece = piece_at(group, i);
        if (tsr__group_is_active(&piece->active))
            tsr__group_pending_transport(all, group, &piece->active);
        else if (piece->request && !piece->started)
            tsr__group_pending_device(all, piece->point);
    }
}

/* Deferred requests ---------------------------------------------------------------------------- */

/* They use the first piece, one after another: the stream fills it for a request after it has
 * emptied it for the one before. */

static bool staged_fits(const tsr__group_request *request)
{
    return request->group->piece_count == 0 && request->most <= piece_elements(request);
}

static tsr_status staged_fill(const tsr__group_request *request)
{
    tsr__group_piece *piece = &request->group->piece[0];
    piece->first = 0;
    count_piece(request, 0);
    return fill_piece(request, piece);
}

static tsr_status staged_empty(const tsr__group_request *request)
{
    count_piece(request, 0);
    return empty_piece(request, &request->group->piece[0]);
}

static tsr_status staged_memory(const tsr__group_request *request, void **in, void **out)
{
    place_operands(request, request->group->piece[0].host, request->counts, in, out);
    return TSR_OK;
}

const tsr__group_path tsr__group_staged = {
    .progress = staged_progress,
    .cancel = staged_cancel,
    .add_pending = staged_add_pending,
    .fits = staged_fits,
    .fill = staged_fill,
    .empty = staged_empty,
    .memory = staged_memory,
};
