/* Every allocation of every kind of sampler fails in turn: an error, nothing leaked (the sanitizers
 * look), and nothing changed. */
#include "base/fault.h"
#include "sampler/kinds.h"

static uint64_t sum_of(tsr_sampler *sampler, tsr_status *status)
{
    int64_t indices[64];
    uint64_t count, sum = 0;
    do {
        *status = tsr_sampler_fill(sampler, 64, indices, NULL, &count);
        if (*status != TSR_OK)
            return 0;
        for (uint64_t i = 0; i < count; i++)
            sum = sum * 31 + (uint64_t)indices[i];
    } while (count > 0);
    return sum;
}

START_TEST(every_allocation_may_fail)
{
    tsr_sampler *sampler = NULL;
    tsr_status status;
    ck_assert_ok(kind_create(_i, &sampler));
    uint64_t expected = sum_of(sampler, &status);
    ck_assert_ok(status);
    tsr_sampler_destroy(&sampler);
    for (uint64_t nth = 0;; nth++) {
        tsr__fault_arm(TSR__FAULT_ALLOC, nth, 0);
        status = kind_create(_i, &sampler);
        bool is_created = status == TSR_OK;
        uint64_t sum = is_created ? sum_of(sampler, &status) : 0;
        bool reached = tsr__fault_site() != NULL;
        if (is_created) {
            if (status != TSR_OK) {
                /* Where an order has to be made only now: it is, once there is memory. */
                ck_assert_int_eq(status, TSR_ERR_NO_MEMORY);
                tsr__fault_disarm();
                ck_assert_uint_eq(tsr_sampler_position(sampler), 0);
                sum = sum_of(sampler, &status);
                ck_assert_ok(status);
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
