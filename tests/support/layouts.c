#include "support/layouts.h"

#include "support/check_main.h"

int64_t layout_addresses(const tsr_layout *layout, int64_t *addresses)
{
    int64_t index[TSR_MAX_DIMS] = {0}, count = 0;
    for (int i = 0; i < layout->ndim; i++) {
        if (layout->shape[i] == 0)
            return 0;
    }
    for (;;) {
        ck_assert(count < LAYOUT_MAX_COUNT);
        int64_t address = layout->offset;
        for (int i = 0; i < layout->ndim; i++)
            address += index[i] * layout->strides[i];
        addresses[count++] = address;

        int dim = layout->ndim - 1;
        while (dim >= 0 && ++index[dim] == layout->shape[dim])
            index[dim--] = 0;
        if (dim < 0)
            return count;
    }
}

tsr_layout layout_random(uint64_t *random, tsr_dtype dtype, int max_ndim)
{
    int64_t shape[TSR_MAX_DIMS], count = 1;
    int ndim = (int)random_between(random, 0, max_ndim);
    for (int i = 0; i < ndim; i++) {
        shape[i] = random_between(random, 0, 20) == 0 ? 0 : random_between(random, 1, 5);
        if (count * shape[i] > LAYOUT_MAX_COUNT)
            shape[i] = 1;
        count *= shape[i] > 0 ? shape[i] : 1;
    }
    tsr_layout layout;
    ck_assert_ok(tsr_layout_init(dtype, ndim, shape, &layout));
    return layout;
}

static void random_slice(uint64_t *random, tsr_layout *layout)
{
    if (layout->ndim == 0)
        return;
    int dim = (int)random_between(random, 0, layout->ndim - 1);
    int64_t size = layout->shape[dim];
    int64_t start = random_between(random, 0, size / 2);
    int64_t stop = random_between(random, size - size / 3, size + 1);
    ck_assert_ok(tsr_layout_slice(layout, dim, start, stop, random_between(random, 1, 3), layout));
}

static void random_transpose(uint64_t *random, tsr_layout *layout)
{
    if (layout->ndim == 0)
        return;
    int a = (int)random_between(random, 0, layout->ndim - 1);
    int b = (int)random_between(random, 0, layout->ndim - 1);
    ck_assert_ok(tsr_layout_transpose(layout, a, b, layout));
}

static void random_select(uint64_t *random, tsr_layout *layout)
{
    if (layout->ndim == 0)
        return;
    int dim = (int)random_between(random, 0, layout->ndim - 1);
    if (layout->shape[dim] > 0)
        ck_assert_ok(tsr_layout_select(layout, dim,
                                       random_between(random, 0, layout->shape[dim] - 1), layout));
}

static void random_broadcast(uint64_t *random, tsr_layout *layout)
{
    int64_t shape[TSR_MAX_DIMS], repeat = random_between(random, 2, 3);
    if (tsr_layout_count(layout) * repeat > LAYOUT_MAX_COUNT)
        return;
    int added = layout->ndim < TSR_MAX_DIMS && random_between(random, 0, 1);
    for (int i = 0; i < layout->ndim; i++)
        shape[added + i] = layout->shape[i];
    if (added) {
        shape[0] = repeat;
    } else if (layout->ndim > 0) {
        int dim = (int)random_between(random, 0, layout->ndim - 1);
        if (shape[dim] == 1)
            shape[dim] = repeat;
    }
    ck_assert_ok(tsr_layout_broadcast(layout, layout->ndim + added, shape, layout));
}

void layout_random_views_of(uint64_t *random, tsr_layout *layout)
{
    for (int64_t n = random_between(random, 0, 4); n > 0; n--) {
        switch (random_between(random, 0, 6)) {
        case 0:
        case 1:
        case 2:
            random_slice(random, layout);
            break;
        case 3:
        case 4:
            random_transpose(random, layout);
            break;
        case 5:
            random_select(random, layout);
            break;
        default:
            random_broadcast(random, layout);
        }
    }
}

tsr_layout layout_random_view(uint64_t *random, tsr_dtype dtype, int max_ndim)
{
    tsr_layout layout = layout_random(random, dtype, max_ndim);
    layout_random_views_of(random, &layout);
    return layout;
}

tsr_layout layout_random_strides(uint64_t *random, tsr_dtype dtype, int max_ndim,
                                 int64_t max_stride)
{
    tsr_layout layout = layout_random(random, dtype, max_ndim);
    for (int i = 0; i < layout.ndim; i++)
        layout.strides[i] = random_between(random, 0, max_stride);
    layout.offset = random_between(random, 0, max_stride);
    return layout;
}
