/* The stratified sampler. Each batch contains every class in the same proportion as the dataset.
 *
 * The members of all classes are numbered consecutively, class by class. places[p] is the number of
 * the member at place p of an epoch if the members of each class are not shuffled. The array is
 * computed once, so the class at a place is the same in every epoch. In the order feistel, each
 * epoch then shuffles the members within each class. */
#include <inttypes.h>

#include "base/alloc.h"
#include "base/struct_size.h"
#include "sampler/order/order.h"
#include "sampler/order/sort_items.h"

/* Classes of places -------------------------------------------------------------------------- */

/* Classes of the same size are entitled to equally many places and take turns, so it is enough to
 * compare one class of each size. This is faster: n items have at most √(2n) different class sizes,
 * but may have n classes. */

/* All classes that have `size` items: members[0 … count − 1] are the numbers of these classes. */
typedef struct size_group {
    int64_t size;
    const uint32_t *members;
    /* the number of classes in the group, and the number of places that they have got so far */
    uint64_t count, given;
    /* places that the group's next class should have by now, minus the places that it has; times
     * the number of all items, so that this is an integer */
    int64_t deficit;
} size_group;

/* A heap of groups. The group at its top gets the next place. */
typedef struct group_heap {
    size_group **groups;
    uint64_t count;
} group_heap;

/* Returns whether group `a` gets a place before group `b`. If both lack equally many places, the
 * group of the smaller classes comes first: the array of groups is sorted by size, so its address
 * is lower. */
static bool comes_before(const size_group *a, const size_group *b)
{
    return a->deficit != b->deficit ? a->deficit > b->deficit : a < b;
}

static void sink_group(group_heap *heap, uint64_t place)
{
    size_group *sinking = heap->groups[place];
    for (uint64_t child; (child = 2 * place + 1) < heap->count; place = child) {
        if (child + 1 < heap->count && comes_before(heap->groups[child + 1], heap->groups[child]))
            child++;
        if (!comes_before(heap->groups[child], sinking))
            break;
        heap->groups[place] = heap->groups[child];
    }
    heap->groups[place] = sinking;
}

/* Computes `deficit` after the first `places` of `count` places. */
static void measure_group(size_group *measured, uint64_t places, uint64_t count)
{
    measured->deficit = measured->size * (int64_t)places -
                        (int64_t)(measured->given / measured->count) * (int64_t)count;
}

static void assign_places(group_heap *heap, uint64_t count, uint64_t batch_size, uint32_t *classes)
{
    for (uint64_t start = 0, end; start < count; start = end) {
        end = start + tsr__min_u64(batch_size, count - start);
        for (uint64_t g = 0; g < heap->count; g++)
            measure_group(heap->groups[g], end, count);
        for (uint64_t g = heap->count / 2; g-- > 0;)
            sink_group(heap, g);
        for (uint64_t place = start; place < end; place++) {
            size_group *top = heap->groups[0];
            classes[place] = top->members[top->given++ % top->count];
            measure_group(top, end, count);
            sink_group(heap, 0);
        }
    }
}

/* Collects the classes of each size in one group and returns the number of groups. If `groups` is
 * NULL, it only counts. `order` contains the classes, sorted by size. */
static uint64_t group_by_size(const int64_t *sizes, const uint32_t *order, uint64_t class_count,
                              size_group *groups)
{
    uint64_t made = 0;
    for (uint64_t c = 0; c < class_count; c++) {
        if (c == 0 || sizes[order[c]] != sizes[order[c - 1]]) {
            if (groups != NULL)
                groups[made] = (size_group){.size = sizes[order[c]], .members = order + c};
            made++;
        }
        if (groups != NULL)
            groups[made - 1].count++;
    }
    return made;
}

/* Writes the class of each place p to classes[p]. There are `count` places, at most 2^31, and each
 * class gets as many places as its size says. The sizes must be positive, and their sum must be
 * `count`. The places of a batch are assigned in sequence. Each place goes to the class
 * that lacks the most places, compared with its proportion of all places up to the end of this
 * batch. */
static tsr_status assign_classes(const int64_t *sizes, uint64_t class_count, uint64_t count,
                                 uint64_t batch_size, uint32_t *classes)
{
    uint32_t *order;
    TSR__TRY(tsr__sort_items(sizes, class_count, &order));
    uint64_t group_count = group_by_size(sizes, order, class_count, NULL);
    size_group *groups = tsr__calloc(group_count, sizeof *groups);
    group_heap heap = {.count = group_count};
    if (groups != NULL)
        heap.groups = tsr__calloc(group_count, sizeof(size_group *));
    tsr_status status = heap.groups != NULL ? TSR_OK : TSR_ERR_NO_MEMORY;
    if (status == TSR_OK) {
        (void)group_by_size(sizes, order, class_count, groups);
        for (uint64_t g = 0; g < group_count; g++)
            heap.groups[g] = &groups[g];
        assign_places(&heap, count, batch_size, classes);
    }
    tsr__free(heap.groups);
    tsr__free(groups);
    tsr__free(order);
    return status;
}

/* The sampler -------------------------------------------------------------------------------- */

/* One class. Its members are those from members[start] up to, not including, the start of the next
 * class. */
typedef struct stratum {
    uint32_t start;
    /* the order of the class's members in this epoch; not used in the order none */
    tsr_feistel order;
} stratum;

typedef struct stratified {
    tsr_sampler base;
    uint64_t count, classes, seed;
    tsr_order order;
    uint32_t *members; /* [count] all items, sorted by label */
    uint32_t *places; /* [count] the member at each place of the epoch; see the head of this file */
    stratum *strata;  /* [classes + 1]; the last entry only marks the end of the last class */
} stratified;

static uint64_t stratified_length(const tsr_sampler *sampler)
{
    return tsr__div_up_u64(((const stratified *)sampler)->count, sampler->batch_max);
}

static tsr_status stratified_set_epoch(tsr_sampler *sampler, int64_t epoch)
{
    stratified *self = (stratified *)sampler;
    TSR__REQUIRE(epoch >= 0, "stratified: epoch %" PRId64 " is negative", epoch);
    if (self->order == TSR_ORDER_FEISTEL)
        for (uint64_t c = 0; c < self->classes; c++)
            TSR__TRY(tsr_feistel_init(self->strata[c + 1].start - self->strata[c].start, self->seed,
                                      (uint64_t)epoch, c, &self->strata[c].order));
    return TSR_OK;
}

/* Returns the class of a member: the last class whose start is not above the member's number. */
static const stratum *class_of(const stratified *self, uint32_t member)
{
    uint64_t low = 0, high = self->classes;
    while (high - low > 1) {
        uint64_t middle = low + (high - low) / 2;
        if (self->strata[middle].start <= member)
            low = middle;
        else
            high = middle;
    }
    return &self->strata[low];
}

static tsr_status stratified_fill(tsr_sampler *sampler, uint64_t capacity, int64_t *indices,
                                  uint8_t *mask, uint64_t *count)
{
    (void)capacity;
    (void)mask;
    const stratified *self = (const stratified *)sampler;
    uint64_t first = sampler->position * sampler->batch_max;
    *count = first < self->count ? tsr__min_u64(sampler->batch_max, self->count - first) : 0;
    for (uint64_t i = 0; i < *count; i++) {
        uint64_t member = self->places[first + i];
        if (self->order == TSR_ORDER_FEISTEL) {
            const stratum *its_class = class_of(self, (uint32_t)member);
            member =
                its_class->start + tsr__feistel_at(&its_class->order, member - its_class->start);
        }
        indices[i] = self->members[member];
    }
    return TSR_OK;
}

static void stratified_finish(tsr_sampler *sampler)
{
    stratified *self = (stratified *)sampler;
    tsr__free(self->members);
    tsr__free(self->places);
    tsr__free(self->strata);
}

static const tsr__sampler_class stratified_class = {
    .kind = TSR__SAMPLER_STRATIFIED,
    .name = "stratified",
    .fill = stratified_fill,
    .set_epoch = stratified_set_epoch,
    .length = stratified_length,
    .finish = stratified_finish,
};

/* Returns whether this member is the first one of its class. */
static bool begins(const stratified *self, const int64_t *labels, uint64_t member)
{
    return member == 0 || labels[self->members[member]] != labels[self->members[member - 1]];
}

static tsr_status find_classes(stratified *self, const int64_t *labels)
{
    for (uint64_t i = 0; i < self->count; i++)
        self->classes += begins(self, labels, i);
    self->strata = tsr__calloc((size_t)self->classes + 1, sizeof *self->strata);
    if (self->strata == NULL)
        return TSR_ERR_NO_MEMORY;
    stratum *next = self->strata;
    for (uint64_t i = 0; i < self->count; i++)
        if (begins(self, labels, i))
            (next++)->start = (uint32_t)i;
    next->start = (uint32_t)self->count;
    return TSR_OK;
}

/* Computes the array `places`: which member is at each place of an epoch. */
static tsr_status assign_members(stratified *self)
{
    int64_t *sizes = tsr__calloc(self->classes, sizeof *sizes);
    self->places = sizes != NULL ? tsr__calloc(self->count, sizeof *self->places) : NULL;
    tsr_status status = self->places != NULL ? TSR_OK : TSR_ERR_NO_MEMORY;
    if (status == TSR_OK) {
        for (uint64_t c = 0; c < self->classes; c++)
            sizes[c] = (int64_t)self->strata[c + 1].start - (int64_t)self->strata[c].start;
        status =
            assign_classes(sizes, self->classes, self->count, self->base.batch_max, self->places);
    }
    /* Here places[p] is the class of place p. Replace it by the number of the first member of this
     * class that has no place yet. */
    for (uint64_t p = 0; status == TSR_OK && p < self->count; p++) {
        uint32_t class_index = self->places[p];
        int64_t left = sizes[class_index]--;
        self->places[p] = self->strata[class_index + 1].start - (uint32_t)left;
    }
    tsr__free(sizes);
    return status;
}

static void stratified_add_params(tsr_sampler *sampler, const tsr_sampler_stratified_params *params)
{
    tsr__sampler_add_param(sampler, "count", TSR__PARAM_COUNT, params->count);
    tsr__sampler_add_param(sampler, "batch_size", TSR__PARAM_COUNT, (uint64_t)params->batch_size);
    tsr__sampler_add_param(sampler, "order", TSR__PARAM_ORDER, (uint64_t)params->order);
    tsr__sampler_add_param(sampler, "seed", TSR__PARAM_SIGNED,
                           params->order != TSR_ORDER_NONE ? (uint64_t)params->seed : 0);
    tsr__sampler_add_param(sampler, "labels", TSR__PARAM_HASH,
                           tsr__fingerprint_array(params->labels, params->count));
}

static tsr_status prepare_stratified(stratified *self, const int64_t *labels)
{
    TSR__TRY(tsr__sort_items(labels, self->count, &self->members));
    TSR__TRY(find_classes(self, labels));
    TSR__TRY(assign_members(self));
    return stratified_set_epoch(&self->base, 0);
}

tsr_status tsr_sampler_create_stratified(const tsr_sampler_stratified_params *params,
                                         tsr_sampler **out)
{
    TSR__REQUIRE(params != NULL && out != NULL, "stratified: %s is NULL",
                 params != NULL ? "out" : "params");
    TSR__TAKE(tsr_sampler_stratified_params, params);
    TSR__TRY(tsr__check_items("stratified", params->labels, "labels", params->count));
    TSR__TRY(tsr__check_item_batches("stratified", params->batch_size, params->order));

    stratified *self = (stratified *)tsr__sampler_new(&stratified_class, sizeof *self);
    if (self == NULL)
        return TSR_ERR_NO_MEMORY;
    self->base.batch_max = tsr__batch_max(params->batch_size, params->count);
    stratified_add_params(&self->base, params);
    self->count = params->count;
    self->seed = (uint64_t)params->seed;
    self->order = params->order;
    return tsr__sampler_created(prepare_stratified(self, params->labels), &self->base, out);
}
