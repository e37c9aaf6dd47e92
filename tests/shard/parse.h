/* Parses model files while allocations fail. */
#ifndef TESTS_SHARD_PARSE_H
#define TESTS_SHARD_PARSE_H

#include "base/fault.h"
#include "shard/files.h"
#include "shard/formats/readers.h"
#include "tessera/shard.h"

/* Parses a file while each of its allocations fails in turn. There must be more than `least`
 * allocations. */
static inline void assert_any_allocation_may_fail(tsr_shard_format format, const bytes *file,
                                                  uint64_t least)
{
    uint64_t nth = 0;
    for (bool reached = true; reached; nth++) {
        tsr_shard_list *list = NULL;
        tsr__fault_arm(TSR__FAULT_ALLOC, nth, 0);
        tsr_status status = tsr__list_parse(format, file->data, file->size, file->size, &list);
        reached = tsr__fault_site() != NULL;
        tsr__fault_disarm();
        ck_assert_int_eq(status, reached ? TSR_ERR_NO_MEMORY : TSR_OK);
        ck_assert(reached == (list == NULL));
        tsr_shard_list_destroy(&list);
    }
    ck_assert_uint_gt(nth - 1, least);
}

#endif
