#include "base/fault.h"

#include <stdatomic.h>
#include <stddef.h>
#include <string.h>

/* These variables are atomic, because a thread of a driver or of a loader may call tsr__fault_hit
 * while the test's thread arms a fault. */
static atomic_int armed_kind = TSR__FAULT_NONE;
static atomic_uint_fast64_t events_left;
static atomic_int injected_code;
static atomic_bool later_fail;                       /* also the events after the nth */
static _Atomic(const char *) failed_site, only_site; /* NULL: events at all places count */

static void arm(tsr__fault_kind kind, const char *site, uint64_t nth, bool later, int code)
{
    atomic_store(&armed_kind, TSR__FAULT_NONE);
    atomic_store(&only_site, site);
    atomic_store(&events_left, nth);
    atomic_store(&later_fail, later);
    atomic_store(&injected_code, code);
    atomic_store(&failed_site, NULL);
    atomic_store(&armed_kind, (int)kind);
}

void tsr__fault_arm(tsr__fault_kind kind, uint64_t nth, int code)
{
    arm(kind, NULL, nth, false, code);
}

void tsr__fault_arm_from(tsr__fault_kind kind, uint64_t nth, int code)
{
    arm(kind, NULL, nth, true, code);
}

void tsr__fault_arm_at(tsr__fault_kind kind, const char *site, int code)
{
    arm(kind, site, 0, false, code);
}

void tsr__fault_disarm(void)
{
    atomic_store(&armed_kind, TSR__FAULT_NONE);
}

const char *tsr__fault_site(void)
{
    return atomic_load(&failed_site);
}

int tsr__fault_code(void)
{
    return atomic_load(&injected_code);
}

bool tsr__fault_hit(tsr__fault_kind kind, const char *site)
{
    if (atomic_load_explicit(&armed_kind, memory_order_acquire) != (int)kind)
        return false;
    const char *only = atomic_load(&only_site);
    if (only && strcmp(only, site) != 0)
        return false;
    if (kind == TSR__FAULT_NONE)
        return false;
    if (atomic_load(&later_fail) && atomic_load(&failed_site))
        return true;
    if (atomic_fetch_sub(&events_left, 1) != 0)
        return false;
    if (!atomic_load(&later_fail))
        atomic_store(&armed_kind, TSR__FAULT_NONE); /* disarm, so that only one event fails */
    atomic_store(&failed_site, site);
    return true;
}
