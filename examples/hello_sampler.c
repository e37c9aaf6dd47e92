/* A sampler of one's own: it gives every STRIDE-th item, then the items behind these, and so on,
 * and begins each epoch elsewhere. Two ranks share its items, and one of them stops and goes on. */
#include <stdio.h>
#include <stdlib.h>
#include <tessera/tessera.h>

enum { ITEMS = 20, STRIDE = 4, RANKS = 2 };

typedef struct strided {
    int64_t epoch;
    uint64_t position;
} strided;

static int64_t item_at(const strided *self, uint64_t position)
{
    const uint64_t row = position % (ITEMS / STRIDE), column = position / (ITEMS / STRIDE);
    return (int64_t)((row * STRIDE + column + (uint64_t)self->epoch) % ITEMS);
}

static tsr_status fill(void *self_, uint64_t capacity, int64_t *indices, uint8_t *mask,
                       uint64_t *count)
{
    strided *self = self_;
    (void)mask; /* no item is padding */
    for (*count = 0; *count < capacity && self->position < ITEMS; ++*count)
        indices[*count] = item_at(self, self->position++);
    return TSR_OK;
}

static tsr_status set_epoch(void *self_, int64_t epoch)
{
    *(strided *)self_ = (strided){.epoch = epoch};
    return TSR_OK;
}

static uint64_t length(void *self_)
{
    (void)self_;
    return ITEMS;
}

static tsr_status seek(void *self_, uint64_t position)
{
    ((strided *)self_)->position = position;
    return TSR_OK;
}

/* Opens a rank's share of the sampler's items. */
static tsr_status open_share(int rank, tsr_sampler **out)
{
    tsr_sampler_ops ops = TSR_INIT(tsr_sampler_ops);
    tsr_sampler *base = NULL;
    ops.name = "strided";
    ops.fill = fill;
    ops.set_epoch = set_epoch;
    ops.length = length;
    ops.seek = seek;
    ops.destroy = free;
    strided *self = calloc(1, sizeof *self);
    if (!self)
        return TSR_ERR_NO_MEMORY;
    tsr_status status = tsr_sampler_create(&ops, self, &base);
    if (status != TSR_OK)
        free(self);
    else
        status = tsr_sampler_create_distributed(
            tsr_sampler_distributed_params(.base = base, .ranks = RANKS, .rank = rank), out);
    tsr_sampler_destroy(&base); /* the share keeps a reference of its own */
    return status;
}

/* Prints the next `most` items, and adds their number to *given. */
static tsr_status print_items(tsr_sampler *sampler, int rank, uint64_t most, uint64_t *given)
{
    int64_t items[ITEMS];
    uint64_t count = 0;
    const uint64_t first = tsr_sampler_position(sampler);
    tsr_status status = tsr_sampler_fill(sampler, most, items, NULL, &count);
    if (status != TSR_OK)
        return status;
    printf("rank %d, epoch %d, from %d on:", rank, (int)tsr_sampler_epoch(sampler), (int)first);
    for (uint64_t i = 0; i < count; i++)
        printf(" %d", (int)items[i]);
    printf("\n");
    *given += count;
    return TSR_OK;
}

int main(void)
{
    tsr_sampler *ranks[RANKS] = {NULL}, *again = NULL;
    char state[TSR_SAMPLER_STATE_BYTES];
    size_t size;
    uint64_t given[RANKS] = {0};
    tsr_status status = TSR_OK;
    for (int r = 0; r < RANKS && status == TSR_OK; r++) {
        status = open_share(r, &ranks[r]);
        if (status == TSR_OK)
            status = tsr_sampler_set_epoch(ranks[r], 3);
        if (status == TSR_OK)
            status = print_items(ranks[r], r, 4, &given[r]);
    }
    if (status == TSR_OK) /* rank 1 stops */
        status =
            tsr_sampler_save(ranks[1], tsr_sampler_position(ranks[1]), sizeof state, state, &size);
    if (status == TSR_OK)
        status = open_share(1, &again);
    if (status == TSR_OK)
        status = tsr_sampler_resume(again, state, size);
    if (status == TSR_OK)
        status = print_items(again, 1, ITEMS, &given[1]);
    if (status != TSR_OK)
        fprintf(stderr, "hello_sampler: %s\n", tsr_last_error());
    for (int r = 0; r < RANKS; r++)
        tsr_sampler_destroy(&ranks[r]);
    tsr_sampler_destroy(&again);
    return status != TSR_OK || given[1] != ITEMS / RANKS || fflush(stdout) != 0;
}
