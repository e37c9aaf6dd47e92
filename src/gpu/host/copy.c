#include "gpu/host/copy.h"

#include "gpu/host/threads.h"

static void copy_rows(const void *work, uint64_t first, uint64_t end)
{
    tsr__host_copy_rows(work, first, end);
}

static void copy_bands(const void *work, uint64_t first, uint64_t end)
{
    tsr__host_copy_bands(work, first, end);
}

static void copy_piece(const tsr__host_piece *work)
{
    const uint64_t bytes = (uint64_t)work->piece->count *
                           (work->to_bytes > work->from_bytes ? work->to_bytes : work->from_bytes);

    if (tsr__host_rows(work))
        tsr__host_share(work->piece->count, bytes, copy_rows, work);
    else
        tsr__host_share(tsr__host_bands(work), bytes, copy_bands, work);
}

bool tsr__copy_host_knows(tsr_dtype to, tsr_dtype from)
{
    return to == from || tsr__converter(to, from) != NULL;
}

void tsr__copy_host(const tsr_layout *dst, void *to, const tsr_layout *src, const void *from)
{
    tsr__piece piece;
    tsr__host_piece work = {.piece = &piece,
                            .to = to,
                            .from = from,
                            .to_bytes = (uint32_t)tsr_dtype_size(dst->dtype),
                            .from_bytes = (uint32_t)tsr_dtype_size(src->dtype),
                            .convert = tsr__converter(dst->dtype, src->dtype)};
    tsr__pieces walk;
    tsr__pieces_init(&walk, 2, (const tsr_layout *[]){dst, src}, 0);
    while (tsr__pieces_next(&walk, &piece))
        copy_piece(&work);
}
