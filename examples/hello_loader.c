#include <stdio.h>
#include <tessera/tessera.h>

enum { ITEMS = 1000 };

/* Runs in the workers' threads. Numbers drawn from work->seed do not depend on the number of
 * workers. */
static tsr_status load(void *dataset, tsr_loader_work *work, int64_t index, void *item)
{
    tsr_rng noise;
    tsr_status status = tsr_rng_init(TSR_RNG_PHILOX, (uint64_t)work->seed, work->place, &noise);
    if (status == TSR_OK)
        *(double *)item = ((const float *)dataset)[index] + 0.01 * tsr_rng_next_double(&noise);
    return status;
}

/* Opens the share of process 1 of 4. */
static tsr_status open_share(float *dataset, tsr_loader **loader)
{
    tsr_sampler *sampler = NULL;
    tsr_status status = tsr_sampler_create_distributed(
        tsr_sampler_distributed_params(.n = ITEMS, .ranks = 4, .rank = 1, .seed = 42), &sampler);
    if (status == TSR_OK)
        status = tsr_loader_create(
            tsr_loader_params(.sampler = sampler, .n = ITEMS, .batch_size = 32, .workers = 2,
                              .load_item = load, .user = dataset, .item_bytes = sizeof(double),
                              .seed = 42, .seed_strategy = TSR_SEED_STRATEGY_HASHED, .node = 1),
            loader);
    tsr_sampler_destroy(&sampler); /* the loader keeps a reference of its own */
    return status;
}

/* Reads up to `most` of the epoch's remaining batches. */
static tsr_status read_some(tsr_loader *loader, int most, uint64_t *items)
{
    tsr_loader_batch batch = TSR_INIT(tsr_loader_batch);
    bool got = true;
    while (most-- > 0 && got) {
        tsr_status status = tsr_loader_next(loader, &batch, &got);
        if (status != TSR_OK)
            return status;
        if (got) /* … train on batch.data */
            *items += batch.count;
    }
    return TSR_OK;
}

int main(void)
{
    static float dataset[ITEMS];
    unsigned char state[TSR_SAMPLER_STATE_BYTES];
    size_t size;
    uint64_t before = 0, after = 0;
    tsr_loader *loader = NULL, *resumed = NULL;

    int failed = open_share(dataset, &loader) || tsr_loader_set_epoch(loader, 7) ||
                 read_some(loader, 3, &before) ||
                 tsr_loader_save(loader, sizeof state, state, &size) ||
                 open_share(dataset, &resumed) || tsr_loader_resume(resumed, state, size) ||
                 read_some(resumed, 1000, &after);
    if (failed)
        fprintf(stderr, "%s\n", tsr_last_error());
    else
        printf("%d items before, %d after\n", (int)before, (int)after); /* 96, 154 */
    if (fflush(stdout) != 0) {
        perror("standard output");
        failed = 1;
    }

    tsr_loader_destroy(&loader);
    tsr_loader_destroy(&resumed);
    return failed || before + after != ITEMS / 4;
}
