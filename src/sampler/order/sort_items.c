#include "sampler/order/sort_items.h"
#include "sampler/order/names.h"

#include <inttypes.h>

#include "base/alloc.h"
#include "sampler/order/order.h"

#define DIGIT_BITS 8
#define DIGITS (1 << DIGIT_BITS)

/* Returns digit number `place` of a key. The sign bit is inverted, so that negative keys come
 * before the others. */
static unsigned digit(int64_t key, int place)
{
    uint64_t shifted = (uint64_t)key ^ UINT64_C(1) << 63;
    return (unsigned)(shifted >> (place * DIGIT_BITS)) & (DIGITS - 1);
}

/* A radix sort that starts with the lowest digit. Most digits are usually equal in all keys; for
 * such a digit, the function counts the keys with each value of the digit, but moves no key. */
tsr_status tsr__sort_items(const int64_t *keys, uint64_t count, uint32_t **out)
{
    uint32_t *from = tsr__calloc(count, sizeof *from);
    uint32_t *to = from != NULL ? tsr__calloc(count, sizeof *to) : NULL;
    if (to == NULL) {
        tsr__free(from);
        return TSR_ERR_NO_MEMORY;
    }
    for (uint64_t i = 0; i < count; i++)
        from[i] = (uint32_t)i;
    for (int place = 0; place < 64 / DIGIT_BITS; place++) {
        uint64_t starts[DIGITS] = {0}, sum = 0;
        for (uint64_t i = 0; i < count; i++)
            starts[digit(keys[i], place)]++;
        if (count == 0 || starts[digit(keys[0], place)] == count)
            continue;
        for (int i = 0; i < DIGITS; i++) {
            uint64_t here = starts[i];
            starts[i] = sum;
            sum += here;
        }
        for (uint64_t i = 0; i < count; i++)
            to[starts[digit(keys[from[i]], place)]++] = from[i];
        uint32_t *swapped = from;
        from = to;
        to = swapped;
    }
    tsr__free(to);
    *out = from;
    return TSR_OK;
}

tsr_status tsr__check_items(const char *what, const void *items, const char *name, uint64_t count)
{
    TSR__REQUIRE(items != NULL || count == 0, "%s: %s is NULL for %" PRIu64 " items", what, name,
                 count);
    TSR__REQUIRE(count <= TSR_MAX_SAMPLER_SORTED, "%s: %" PRIu64 " items are more than 2^31", what,
                 count);
    return TSR_OK;
}

tsr_status tsr__check_item_batches(const char *what, int64_t batch_size, tsr_order order)
{
    TSR__REQUIRE(batch_size > 0, "%s: batch size %" PRId64 " is not positive", what, batch_size);
    TSR__TRY(tsr__order_check(what, order));
    TSR__REQUIRE(order == TSR_ORDER_FEISTEL || order == TSR_ORDER_NONE,
                 "%s: order '%s' is not supported: use feistel or none", what,
                 tsr__order_name(order));
    return TSR_OK;
}
