/* Makes every allocation of every kind of sampler fail once. The call must return an error, leak
 * nothing (which the sanitizers check) and change nothing. */
#include "base/fault.h"
#include "sampler/kinds.h"

/* Adds the indices of the rest of the epoch to `sum`. After a failure, the position is that after
 * the last index that was added. */
static tsr_status add_up(tsr_sampler *sampler, uint64_t *sum)
{
    int64_t indices[64];
    uint64_t count;
    do {
        uint64_t position = tsr_sampler_position(sampler);
        tsr_status status = tsr_sampler_fill(sampler, 64, indices, NULL, &count);
        if (status != TSR_OK) {
            ck_assert_uint_eq(tsr_sampler_position(sampler), position);
            return status;
        }
        for (uint64_t i = 0; i < count; i++)
            *sum = *sum * 31 + (uint64_t)indices[i];
    } while (count > 0);
    return TSR_OK;
}

START_TEST(every_allocation_may_fail)
{
    tsr_sampler *sampler = NULL;
    uint64_t expected = 0;
    ck_assert_ok(kind_create(_i, &sampler));
    ck_assert_ok(add_up(sampler, &expected));
    tsr_sampler_destroy(&sampler);
    for (uint64_t nth = 0;; nth++) {
        tsr__fault_arm(TSR__FAULT_ALLOC, nth, 0);
        tsr_status status = kind_create(_i, &sampler);
        bool is_created = status == TSR_OK;
        uint64_t sum = 0;
        if (is_created)
            status = add_up(sampler, &sum);
        bool reached = tsr__fault_site() != NULL;
        if (is_created) {
            if (status != TSR_OK) {
                /* If memory for an order was lacking, the next call must compute the order. */
                ck_assert_int_eq(status, TSR_ERR_NO_MEMORY);
                tsr__fault_disarm();
                ck_assert_ok(add_up(sampler, &sum));
            }
            ck_assert_uint_eq(sum, expected);
            tsr_sampler_destroy(&sampler);
        } else {
            ck_assert_int_eq(status, TSR_ERR_NO_MEMORY);
            ck_assert_ptr_null(sampler);
        }
        tsr__fault_disarm();
        if (!reached) {
            ck_assert_uint_gt(nth, 0);
            break;
        }
    }
}
END_TEST

TESTS(faults)
{
    tcase_add_loop_test(tests, every_allocation_may_fail, 0, KINDS);
}
