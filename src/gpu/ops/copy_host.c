/* Rows copied by the host's CPUs. One of them does not fill the memory's bandwidth, so that large
 * copies are shared with threads that live as long as the copy. */
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "base/checked.h"
#include "gpu/ops/copy.h"

enum {
    MAX_SHARES = 4, /* more do not make memory faster */
    /* Bytes of a share that are worth a thread: some 100 µs of copying, and a thread takes 20 to 40
       to come and go. */
    SHARE_BYTES = 2 << 20,
};

/* Elements `first` to `end` of a piece, in row-major order. */
typedef struct share {
    const tsr__piece *piece;
    char *destination;
    const char *source;
    uint64_t element_bytes, first, end;
} share;

static void *copy_share(void *opaque)
{
    const share *mine = opaque;
    const tsr__piece *piece = mine->piece;
    uint32_t inner = tsr__copy_row_elements(piece);
    int outer_dims = inner > 1 ? piece->ndim - 1 : piece->ndim;
    uint32_t position[TSR__PIECE_DIMS] = {0};

    uint64_t row = mine->first / inner, in_row = mine->first % inner;
    for (int i = outer_dims - 1; i >= 0; i--) {
        position[i] = (uint32_t)(row % piece->shape[i]);
        row /= piece->shape[i];
    }
    uint64_t next;
    for (uint64_t at = mine->first; at < mine->end; at = next) {
        uint64_t to = (uint64_t)piece->offset[0] + in_row,
                 from = (uint64_t)piece->offset[1] + in_row;
        for (int i = 0; i < outer_dims; i++) {
            to += (uint64_t)position[i] * piece->strides[0][i];
            from += (uint64_t)position[i] * piece->strides[1][i];
        }
        next = tsr__min_u64(at + inner - in_row, mine->end);
        memcpy(mine->destination + to * mine->element_bytes,
               mine->source + from * mine->element_bytes, (next - at) * mine->element_bytes);
        in_row = 0;
        for (int i = outer_dims - 1; i >= 0 && ++position[i] == piece->shape[i]; i--)
            position[i] = 0;
    }
    return NULL;
}

static int share_count(uint64_t bytes)
{
    uint64_t count = tsr__min_u64(bytes / SHARE_BYTES, MAX_SHARES);

    if (count < 2) /* most copies: counting CPUs would take longer than many of them */
        return 1;
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    return (int)tsr__min_u64(count, cpus > 1 ? (uint64_t)cpus : 1);
}

void tsr__copy_host(const tsr__piece *piece, uint64_t element_bytes, void *destination,
                    const void *source)
{
    int count = share_count(piece->count * element_bytes), started = 0;
    share shares[MAX_SHARES];
    pthread_t threads[MAX_SHARES];

    for (int i = 0; i < count; i++)
        shares[i] = (share){.piece = piece,
                            .destination = destination,
                            .source = source,
                            .element_bytes = element_bytes,
                            .first = piece->count * (uint64_t)i / (uint64_t)count,
                            .end = piece->count * (uint64_t)(i + 1) / (uint64_t)count};
    if (count > 1) { /* the process's signals are not for these threads */
        sigset_t all, before;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before);
        while (started < count - 1 &&
               pthread_create(&threads[started], NULL, copy_share, &shares[started]) == 0)
            started++;
        pthread_sigmask(SIG_SETMASK, &before, NULL);
    }
    /* All of them, where there are no threads to be had. */
    for (int i = started; i < count; i++)
        copy_share(&shares[i]);
    for (int i = 0; i < started; i++)
        pthread_join(threads[i], NULL);
}
