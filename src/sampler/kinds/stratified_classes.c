/* Assigns classes to the places of an epoch. Classes of the same size are entitled to equally many
 * places and take turns, so it is enough to compare one class of each size. This is faster: n items
 * have at most √(2n) different class sizes, but may have n classes. */
#include "sampler/kinds/stratified_classes.h"

#include "base/alloc.h"
#include "sampler/order/sorted.h"

/* All classes that have `size` items: members[0 … count − 1] are the numbers of these classes. */
typedef struct group {
    int64_t size;
    const uint32_t *members;
    /* number of classes, and number of places that they have together so far */
    uint64_t count, given;
    /* how many places the class of the group whose turn is next should have by now minus how many
     * it has, multiplied by the number of all items to stay an integer */
    int64_t behind;
} group;

/* A heap of groups. The group at its top gets the next place. */
typedef struct heap {
    group **at;
    uint64_t count;
} heap;

/* Returns whether group `a` gets a place before group `b`. If both lack equally many places, the
 * group of the smaller classes comes first: the array of groups is sorted by size, so its address
 * is lower. */
static bool comes_before(const group *a, const group *b)
{
    return a->behind != b->behind ? a->behind > b->behind : a < b;
}

static void sink(heap *groups, uint64_t place)
{
    group *sinking = groups->at[place];
    for (uint64_t child; (child = 2 * place + 1) < groups->count; place = child) {
        if (child + 1 < groups->count && comes_before(groups->at[child + 1], groups->at[child]))
            child++;
        if (!comes_before(groups->at[child], sinking))
            break;
        groups->at[place] = groups->at[child];
    }
    groups->at[place] = sinking;
}

/* Computes `behind`: how many of the first `places` places the group's next class should have minus
 * how many it has, times `count`, the number of all places. */
static void measure(group *one, uint64_t places, uint64_t count)
{
    one->behind = one->size * (int64_t)places - (int64_t)(one->given / one->count) * (int64_t)count;
}

static void assign(heap *groups, uint64_t count, uint64_t batch_size, uint32_t *classes)
{
    for (uint64_t start = 0, end; start < count; start = end) {
        end = start + tsr__min_u64(batch_size, count - start);
        for (uint64_t g = 0; g < groups->count; g++)
            measure(groups->at[g], end, count);
        for (uint64_t g = groups->count / 2; g-- > 0;)
            sink(groups, g);
        for (uint64_t place = start; place < end; place++) {
            group *top = groups->at[0];
            classes[place] = top->members[top->given++ % top->count];
            measure(top, end, count);
            sink(groups, 0);
        }
    }
}

/* Collects the classes of each size in one group and returns the number of groups. If `groups` is
 * NULL, it only counts. `order` contains the classes, sorted by size. */
static uint64_t group_up(const int64_t *sizes, const uint32_t *order, uint64_t class_count,
                         group *groups)
{
    uint64_t made = 0;
    for (uint64_t c = 0; c < class_count; c++) {
        if (c == 0 || sizes[order[c]] != sizes[order[c - 1]]) {
            if (groups != NULL)
                groups[made] = (group){.size = sizes[order[c]], .members = order + c};
            made++;
        }
        if (groups != NULL)
            groups[made - 1].count++;
    }
    return made;
}

tsr_status tsr__assign_classes(const int64_t *sizes, uint64_t class_count, uint64_t count,
                               uint64_t batch_size, uint32_t *classes)
{
    uint32_t *order;
    TSR__TRY(tsr__sorted(sizes, class_count, &order));
    uint64_t group_count = group_up(sizes, order, class_count, NULL);
    group *groups = tsr__calloc(group_count, sizeof *groups);
    heap all = {.count = group_count};
    if (groups != NULL)
        all.at = tsr__calloc(group_count, sizeof(group *));
    tsr_status status = all.at != NULL ? TSR_OK : TSR_ERR_NO_MEMORY;
    if (status == TSR_OK) {
        (void)group_up(sizes, order, class_count, groups);
        for (uint64_t g = 0; g < group_count; g++)
            all.at[g] = &groups[g];
        assign(&all, count, batch_size, classes);
    }
    tsr__free(all.at);
    tsr__free(groups);
    tsr__free(order);
    return status;
}
