/* Every allocation of a bootstrap fails in turn. Each failure must give an error without a leak,
 * and no rank may wait for ever. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/fault.h"
#include "bootstrap/job.h"
#include "comm/bootstrap/bootstrap.h"
#include "support/check_main.h"

static tsr__rendezvous_params params[2];
static int failing;  /* the rank whose allocations fail */
static uint64_t nth; /* the allocation that fails */
/* NOT_REACHED is returned instead of a status if there are fewer allocations than `nth`. */
#define NOT_REACHED 7

static tsr_status meet_failing(int slot, void *user)
{
    tsr__fault_arm(TSR__FAULT_ALLOC, nth, 0);
    tsr_status status = job_meet(slot, user);
    if (tsr__fault_site() == NULL)
        return (tsr_status)NOT_REACHED;
    return status;
}

START_TEST(of_a_rendezvous)
{
    int reached = 0, late = 0;
    failing = _i;
    for (nth = 0;; nth++) {
        uint16_t port = job_port();
        for (int rank = 0; rank < 2; rank++) {
            params[rank] = job_params(rank, 2, port);
            params[rank].timeout_ns = TSR__SECOND / 10;
            job_start(rank, rank == failing ? meet_failing : job_meet, &params[rank]);
        }
        const job_rank *failed = job_wait(failing), *other = job_wait(1 - failing);
        if (failed->status == (tsr_status)NOT_REACHED) {
            if (other->status == TSR_ERR_TIMEOUT && late++ < 5) { /* may happen on a busy machine */
                nth--;
                continue;
            }
            ck_assert_str_eq(other->error, "");
            break;
        }
        ck_assert_str_eq(tsr_status_name(failed->status), "TSR_ERR_NO_MEMORY");
        /* The other rank may have finished before the failure. */
        ck_assert(other->status == TSR_OK || other->status == TSR_ERR_NO_MEMORY ||
                  other->status == TSR_ERR_TIMEOUT || other->status == TSR_ERR_PEER_LOST);
        reached++;
    }
    ck_assert_int_ge(reached, 10);
}
END_TEST

static int gather_alone(void *user, const void *mine, uint64_t size_bytes, void *all)
{
    (void)user;
    memcpy(all, mine, (size_t)size_bytes);
    return 0;
}

static tsr_status bootstrap_once(tsr__bootstrap_kind kind)
{
    tsr__bootstrap *bootstrap = NULL;
    tsr__bootstrap_params one = {.kind = kind, .size = 1, .gather = gather_alone};
    tsr__bootstrap_gathered blocks;
    tsr_status status = tsr__bootstrap_open(&one, &bootstrap);
    if (status == TSR_OK)
        status = tsr__bootstrap_exchange(bootstrap, "hello", 5, NULL, &blocks);
    if (status == TSR_OK)
        tsr__bootstrap_gathered_finish(&blocks);
    tsr__bootstrap_close(&bootstrap);
    return status;
}

START_TEST(of_a_single_process)
{
    static const tsr__bootstrap_kind kinds[] = {TSR__BOOTSTRAP_SINGLE, TSR__BOOTSTRAP_CALLBACK,
                                                TSR__BOOTSTRAP_ENV};
    setenv("RANK", "0", 1);
    setenv("WORLD_SIZE", "1", 1);
    int reached = 0;
    for (uint64_t at = 0;; at++) {
        tsr__fault_arm(TSR__FAULT_ALLOC, at, 0);
        tsr_status status = bootstrap_once(kinds[_i]);
        bool hit = tsr__fault_site() != NULL;
        tsr__fault_disarm();
        if (!hit) {
            ck_assert_int_eq(status, TSR_OK);
            break;
        }
        ck_assert_int_eq(status, TSR_ERR_NO_MEMORY);
        reached++;
    }
    ck_assert_int_ge(reached, 6);
}
END_TEST

TESTS(faults)
{
    tcase_add_loop_test(tests, of_a_rendezvous, 0, 2);
    tcase_add_loop_test(tests, of_a_single_process, 0, 3);
}
