/* The distributed sampler gives the items of one rank: its share of a dataset, or of the items of a
 * wrapped sampler. */
#include <inttypes.h>

#include "base/alloc.h"
#include "base/bytes.h"
#include "base/struct_size.h"
#include "rng/rng.h"
#include "sampler/kinds/distributed_sampler.h"
#include "sampler/order/epoch_generators.h"

static uint64_t distributed_length(const tsr_sampler *sampler)
{
    const tsr__distributed *self = (const tsr__distributed *)sampler;
    return tsr__rank_items_length(&self->partition, self->partition.rank);
}

/* Returns the largest number of items that a rank can have with any number of ranks: the number of
 * all items, because a single rank has all of them, and padding never gives one of several ranks
 * more. */
static uint64_t distributed_most(const tsr_sampler *sampler)
{
    const tsr__distributed *self = (const tsr__distributed *)sampler;
    return self->base.inner != NULL ? tsr__sampler_max_length(self->base.inner) : self->n;
}

/* Checks seed + epoch as PyTorch does. PyTorch adds the two as integers of unlimited size and
 * accepts sums from −2^63 to 2^64 − 1 as seeds. */
static tsr_status check_torch_seed(const tsr__distributed *self, int64_t epoch)
{
    uint64_t low = (uint64_t)self->seed, sum = low + (uint64_t)epoch;
    /* The bits of the sum above the lowest 64. The seed, the epoch and the carry of the lower part
     * contribute to it. */
    int high = self->torch.seed_high - (self->seed < 0) - (epoch < 0) + (sum < low);
    if (high == 0 || (high == -1 && sum >> 63 != 0))
        return TSR_OK;
    return tsr__fail(TSR_ERR_OVERFLOW,
                     "distributed: seed %" PRId64 "%s + epoch %" PRId64
                     " is not one of PyTorch's seeds, -2^63 to 2^64 - 1",
                     self->seed,
                     self->torch.seed_high > 0   ? " + 2^64"
                     : self->torch.seed_high < 0 ? " - 2^64"
                                                 : "",
                     epoch);
}

/* Checks that the items can be shuffled in this epoch. This is not checked when the sampler is
 * created, because PyTorch accepts seeds that fail only in epoch 0. */
static tsr_status check_epoch(const tsr__distributed *self, int64_t epoch)
{
    if (self->order.kind == TSR_ORDER_TORCH)
        return check_torch_seed(self, epoch);
    if (self->order.kind == TSR_ORDER_MLX && epoch < 0 && self->seed + epoch < 0)
        return tsr__fail(TSR_ERR_OVERFLOW,
                         "distributed: seed %" PRId64 " + epoch %" PRId64
                         " is negative: MLX needs seeds from 0 on",
                         self->seed, epoch);
    TSR__REQUIRE(self->order.kind != TSR_ORDER_DOTNET || (epoch >= INT32_MIN && epoch <= INT32_MAX),
                 "distributed: epoch %" PRId64 " is not an int32, as the order dotnet needs",
                 epoch);
    return TSR_OK;
}

/* Gives the length of the wrapped sampler in its present epoch, and checks it. */
static tsr_status check_inner(const tsr__distributed *self, uint64_t *n)
{
    *n = tsr_sampler_length(self->base.inner);
    if (*n == TSR_LENGTH_UNKNOWN) {
        TSR__REQUIRE(self->partition.split == TSR_SPLIT_INTERLEAVED,
                     "distributed: a contiguous split needs the length of the %s sampler, which "
                     "is unknown",
                     self->base.inner->name);
    } else if (*n > TSR__MAX_ITEMS) {
        return tsr__fail(TSR_ERR_OVERFLOW,
                         "distributed: the %" PRIu64 " items of the %s sampler are more than 2^62",
                         *n, self->base.inner->name);
    }
    return TSR_OK;
}

static tsr_status distributed_set_epoch(tsr_sampler *sampler, int64_t epoch)
{
    tsr__distributed *self = (tsr__distributed *)sampler;
    uint64_t n = self->n;
    if (self->base.inner != NULL) {
        int64_t before = self->base.inner->epoch;
        TSR__TRY(tsr_sampler_set_epoch(self->base.inner, epoch));
        tsr_status status = check_inner(self, &n);
        if (status != TSR_OK) {
            /* Move the wrapped sampler back. If this fails too, report only the first error; the
             * next seek moves the wrapped sampler back. */
            const tsr__error first = tsr__error_take();
            (void)!tsr_sampler_set_epoch(self->base.inner, before);
            tsr__error_put_back(&first);
            return status;
        }
    } else {
        TSR__TRY(check_epoch(self, epoch));
    }
    if (epoch != sampler->epoch)
        self->ready = false;
    tsr__rank_items_start(&self->partition, n);
    return TSR_OK;
}

/* Computes the order in which this epoch visits the dataset's items. */
static tsr_status make_order(tsr__distributed *self)
{
    uint64_t epoch = (uint64_t)self->base.epoch, seed = (uint64_t)self->seed, n = self->n;
    tsr_rng rng;
    if (self->ready)
        return TSR_OK;
    TSR__TRY(check_epoch(self, self->base.epoch));
    switch (self->order.kind) {
    case TSR_ORDER_FEISTEL:
        TSR__TRY(tsr_feistel_init(n, seed, epoch, 0, &self->order.feistel));
        break;
    case TSR_ORDER_TORCH:
        tsr__mt19937_init(seed + epoch, &rng.as.mt19937);
        TSR__TRY(tsr__table_torch(&self->order.table, self->torch.version, n, &rng.as.mt19937));
        break;
    case TSR_ORDER_DOTNET:
        if (tsr__distributed_drops_first(self))
            n -= n % self->partition.ranks;
        tsr__dotnet_init(tsr__as_i32((uint32_t)seed + (uint32_t)epoch), &rng.as.dotnet);
        TSR__TRY(tsr__table_dotnet(&self->order.table, n, &rng.as.dotnet));
        break;
    case TSR_ORDER_MLX:
        TSR__TRY(tsr__table_mlx(&self->order.table, n, tsr_threefry_key_from_seed(seed + epoch)));
        break;
    case TSR_ORDER_NONE:
        break;
    }
    self->ready = true;
    return TSR_OK;
}

/* Reads from the wrapped sampler, starting at its item `first`: one batch, or up to `count`
 * consecutive indices if it does not give batches. */
static tsr_status read_inner(tsr__distributed *self, uint64_t first, uint64_t count,
                             uint64_t capacity, int64_t *indices, uint8_t *mask, uint64_t *got)
{
    uint64_t reached;
    *got = 0;
    TSR__TRY(tsr__sampler_seek_up_to(self->base.inner, first, &reached));
    if (reached == first && self->base.inner->batch_max != 0)
        TSR__TRY(tsr_sampler_next(self->base.inner, capacity, indices, mask, got));
    else if (reached == first)
        TSR__TRY(tsr_sampler_fill(self->base.inner, count, indices, mask, got));
    TSR__REQUIRE(*got > 0 || self->partition.n == TSR_LENGTH_UNKNOWN,
                 "distributed: the %s sampler ended after %" PRIu64 " of %" PRIu64 " items",
                 self->base.inner->name, reached, self->partition.n);
    return TSR_OK;
}

/* Reads the items of one run (rank_items.h). Each item is a single index, or a batch if the wrapped
 * sampler gives batches. *got is the number of indices. */
static tsr_status read_run(tsr__distributed *self, const tsr__item_run *run, uint64_t capacity,
                           int64_t *indices, uint8_t *mask, uint64_t *got)
{
    uint64_t total = 0, here;
    if (self->base.inner == NULL) {
        TSR__TRY(make_order(self));
        tsr__order_fill(&self->order, run->first, run->step, run->count, indices);
        total = run->count;
    } else if (self->base.batch_max != 0) {
        TSR__TRY(read_inner(self, run->first, 1, capacity, indices, mask, &total));
    } else {
        while (total < run->count) {
            uint64_t wanted = run->step == 1 ? run->count - total : 1;
            TSR__TRY(read_inner(self, run->first + total * run->step, wanted, wanted,
                                indices + total, mask != NULL ? mask + total : NULL, &here));
            total += here;
        }
    }
    if (mask != NULL && run->padding && self->partition.tail == TSR_TAIL_PAD_MASK)
        for (uint64_t i = 0; i < total; i++)
            mask[i] = 0;
    *got = total;
    return TSR_OK;
}

/* Reads this rank's item number `item` while the number of items is still unknown. If there is no
 * such item, the function sets the number of items. *got is the number of indices. */
static tsr_status read_unknown(tsr__distributed *self, uint64_t item, uint64_t capacity,
                               int64_t *indices, uint8_t *mask, uint64_t *got)
{
    tsr__rank_items *partition = &self->partition;
    uint64_t round = partition->offset + item * partition->ranks,
             last = round + partition->ranks - 1, probed = 1;
    *got = 0;
    uint64_t found = 0;
    TSR__TRY(read_inner(self, round + partition->rank, 1, capacity, indices, mask, &found));
    /* A round consists of one item for each rank. With TSR_TAIL_DROP, this rank's item counts only
     * if all ranks have an item in this round. */
    if (found > 0 && partition->tail == TSR_TAIL_DROP && partition->rank + 1 < partition->ranks)
        TSR__TRY(read_inner(self, last, 1, tsr__max_u64(self->base.batch_max, 1), self->scratch,
                            NULL, &probed));
    if (found > 0 && probed > 0)
        *got = found;
    else
        tsr__rank_items_set_length(partition, tsr_sampler_position(self->base.inner));
    return TSR_OK;
}

static tsr_status distributed_fill(tsr_sampler *sampler, uint64_t capacity, int64_t *indices,
                                   uint8_t *mask, uint64_t *count)
{
    tsr__distributed *self = (tsr__distributed *)sampler;
    uint64_t item = sampler->position, total = 0, got;
    bool is_batch = sampler->batch_max != 0;
    while (total < capacity) {
        uint8_t *mask_here = mask != NULL ? mask + total : NULL;
        got = 0;
        if (self->partition.n == TSR_LENGTH_UNKNOWN)
            TSR__TRY(read_unknown(self, item, is_batch ? capacity : 1, indices + total, mask_here,
                                  &got));
        if (got == 0) {
            if (item >= distributed_length(sampler))
                break;
            tsr__item_run run =
                tsr__rank_items_find(&self->partition, item, is_batch ? 1 : capacity - total);
            TSR__TRY(read_run(self, &run, capacity - total, indices + total, mask_here, &got));
        }
        total += got;
        item += got;
        if (is_batch)
            break;
    }
    *count = total;
    return TSR_OK;
}

/* Moves the wrapped sampler back to the right epoch and position. A failure
 * may have changed both. */
static tsr_status find_inner(const tsr__distributed *self)
{
    uint64_t reached;
    if (self->base.inner->epoch != self->base.epoch)
        return tsr_sampler_set_epoch(self->base.inner, self->base.epoch);
    return tsr__sampler_seek_up_to(self->base.inner, self->base.inner->position, &reached);
}

static tsr_status distributed_seek(tsr_sampler *sampler, uint64_t position, uint64_t *reached)
{
    tsr__distributed *self = (tsr__distributed *)sampler;
    tsr__rank_items *partition = &self->partition;
    if (self->base.inner != NULL && sampler->must_seek)
        TSR__TRY(find_inner(self));
    if (partition->n == TSR_LENGTH_UNKNOWN) {
        /* Move the wrapped sampler to the start of the round of this item (a round has one item for
         * each rank), or to the end. */
        uint64_t rounds, start, reached_item;
        if (!tsr__mul_u64(position, partition->ranks, &rounds) ||
            !tsr__add_u64(rounds, partition->offset, &start))
            start = UINT64_MAX - 1;
        TSR__TRY(tsr__sampler_seek_up_to(self->base.inner, start, &reached_item));
        if (reached_item < start)
            tsr__rank_items_set_length(partition, reached_item);
    }
    *reached = tsr__min_u64(position, distributed_length(sampler));
    return TSR_OK;
}

static const tsr__epoch_generator *distributed_epoch_generator(const tsr_sampler *sampler)
{
    const tsr_sampler *inner = sampler->inner;
    return inner != NULL && inner->class_->epoch_generator != NULL
               ? inner->class_->epoch_generator(inner)
               : NULL;
}

static void distributed_finish(tsr_sampler *sampler)
{
    tsr__distributed *self = (tsr__distributed *)sampler;
    tsr__table_finish(&self->order.table);
    tsr__free(self->scratch);
}

static void distributed_info(const tsr_sampler *sampler, tsr_sampler_info *info)
{
    const tsr__rank_items *partition = &((const tsr__distributed *)sampler)->partition;
    bool known = partition->n != TSR_LENGTH_UNKNOWN;
    info->ranks = (int64_t)partition->ranks;
    info->rank = (int64_t)partition->rank;
    info->n = known ? partition->left : TSR_LENGTH_UNKNOWN;
    info->total = known ? tsr__rank_items_total(partition) : TSR_LENGTH_UNKNOWN;
}

static const tsr__sampler_class distributed_class = {
    .info = distributed_info,
    .kind = TSR__SAMPLER_DISTRIBUTED,
    .name = "distributed",
    .fill = distributed_fill,
    .set_epoch = distributed_set_epoch,
    .length = distributed_length,
    .most = distributed_most,
    .seek = distributed_seek,
    .save = tsr__distributed_save,
    .load = tsr__distributed_load,
    .epoch_generator = distributed_epoch_generator,
    .finish = distributed_finish,
};

static tsr_status check_distributed_params(const tsr_sampler_distributed_params *params,
                                           int64_t *ranks, int64_t *rank)
{
    *ranks = params->ranks;
    *rank = params->rank;
    if (*ranks == 0) {
        TSR__REQUIRE(*rank == 0, "distributed: rank %" PRId64 " is given without ranks", *rank);
        TSR__TRY(tsr_rank_from_environment(rank, ranks));
    }
    TSR__REQUIRE(*ranks >= 1 && *ranks <= TSR__MAX_RANKS,
                 "distributed: the number of ranks %" PRId64 " is not 1 to %" PRId32, *ranks,
                 TSR__MAX_RANKS);
    TSR__REQUIRE(*rank >= 0 && *rank < *ranks, "distributed: rank %" PRId64 " is not 0 to %" PRId64,
                 *rank, *ranks - 1);
    TSR__REQUIRE(tsr__tail_name(params->tail)[0] != '?', "distributed: %d is no tail",
                 (int)params->tail);
    TSR__REQUIRE(tsr__split_name(params->split)[0] != '?', "distributed: %d is no split",
                 (int)params->split);
    if (params->base != NULL) {
        TSR__REQUIRE(params->n == 0,
                     "distributed: there are both a sampler and a dataset of %" PRIu64 " items",
                     params->n);
        return TSR_OK;
    }
    TSR__REQUIRE(params->n <= TSR__MAX_ITEMS, "distributed: %" PRIu64 " items are more than 2^62",
                 params->n);
    TSR__TRY(tsr__order_check("distributed", params->order));
    TSR__TRY(tsr__order_check_shuffle("distributed", params->order, params->n));
    TSR__TRY(tsr__order_check_seed("distributed", params->order, params->seed));
    return TSR_OK;
}

/* Adds to the sampler's params all that determine the order of all items. The number of ranks and
 * the rank do not affect this order. */
static void distributed_add_params(tsr__distributed *self, tsr_sampler *inner)
{
    const bool is_dataset = inner == NULL, is_torch = self->order.kind == TSR_ORDER_TORCH;
    const bool has_seed = is_dataset && self->order.kind != TSR_ORDER_NONE;
    tsr__sampler_add_param(&self->base, "tail", TSR__PARAM_TAIL, (uint64_t)self->partition.tail);
    tsr__sampler_add_param(&self->base, "split", TSR__PARAM_SPLIT, (uint64_t)self->partition.split);
    tsr__sampler_add_param(&self->base, "n", TSR__PARAM_COUNT, self->n);
    tsr__sampler_add_param(&self->base, "order", TSR__PARAM_ORDER,
                           is_dataset ? (uint64_t)self->order.kind : 0);
    tsr__sampler_add_param(&self->base, "seed", TSR__PARAM_SIGNED,
                           has_seed ? (uint64_t)self->seed : 0);
    tsr__sampler_add_torch(&self->base, is_dataset && is_torch, &self->torch);
    if (!is_dataset)
        tsr__sampler_set_inner(&self->base, inner);
}

/* Allocates the memory into which an item of the wrapped sampler is read to
 * see whether it exists. */
static tsr_status reserve_scratch(tsr__distributed *self)
{
    uint64_t room = tsr__max_u64(self->base.inner->batch_max, 1);
    if (room > SIZE_MAX / sizeof *self->scratch)
        return tsr__fail(TSR_ERR_NO_MEMORY, "distributed: no memory for a batch of %" PRIu64, room);
    self->scratch = tsr__calloc((size_t)room, sizeof *self->scratch);
    return self->scratch != NULL ? TSR_OK : TSR_ERR_NO_MEMORY;
}

static tsr_status prepare_distributed(const tsr_sampler_distributed_params *params,
                                      tsr__distributed *self)
{
    uint64_t n = params->n;
    TSR__TRY(tsr__torch_version("distributed", self->torch.version, &self->torch.version));
    distributed_add_params(self, params->base);
    if (params->base != NULL) {
        self->base.batch_max = self->base.inner->batch_max;
        self->base.epoch = self->base.inner->epoch;
        TSR__TRY(check_inner(self, &n));
        if (self->partition.tail == TSR_TAIL_DROP)
            TSR__TRY(reserve_scratch(self));
        /* Partition all items of the epoch. The caller may have resumed the wrapped sampler in the
         * middle of the epoch, so move it back to the start. */
        TSR__TRY(tsr_sampler_set_epoch(self->base.inner, self->base.inner->epoch));
        TSR__TRY(check_inner(self, &n));
    }
    tsr__rank_items_start(&self->partition, n);
    return TSR_OK;
}

tsr_status tsr_sampler_create_distributed(const tsr_sampler_distributed_params *params,
                                          tsr_sampler **out)
{
    TSR__REQUIRE(params != NULL && out != NULL, "distributed: %s is NULL",
                 params != NULL ? "out" : "params");
    TSR__TAKE(tsr_sampler_distributed_params, params);
    int64_t ranks, rank;
    TSR__TRY(check_distributed_params(params, &ranks, &rank));
    tsr_torch_options torch;
    TSR__TRY(TSR__TAKE_PART(tsr_torch_options, params->torch, &torch));
    TSR__REQUIRE(params->base != NULL || (torch.seed_high >= -1 && torch.seed_high <= 1),
                 "distributed: seed_high %d is not -1, 0 or 1", torch.seed_high);
    tsr__distributed *self = (tsr__distributed *)tsr__sampler_new(&distributed_class, sizeof *self);
    if (self == NULL)
        return TSR_ERR_NO_MEMORY;
    self->n = params->n;
    self->seed = params->seed;
    self->torch = torch;
    /* PyTorch's DistributedSampler always uses its own generator, so these two options do not
     * apply. */
    self->torch.global_generator = self->torch.data_loader = false;
    self->order.kind = params->order;
    self->partition.ranks = (uint64_t)ranks;
    self->partition.rank = (uint64_t)rank;
    self->partition.tail = params->tail;
    self->partition.split = params->split;
    return tsr__sampler_created(prepare_distributed(params, self), &self->base, out);
}
