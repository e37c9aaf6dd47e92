#include "base/fork.h"

#include <pthread.h>

static unsigned current;
static int failure; /* the errno of pthread_atfork, or 0 */

static void count_child(void)
{
    current++;
}

static void watch(void)
{
    failure = pthread_atfork(NULL, NULL, count_child);
}

tsr_status tsr__fork_generation(unsigned *out)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)pthread_once(&once, watch);
    if (failure != 0)
        return tsr__fail(TSR_ERR_NO_MEMORY, "pthread_atfork failed: error %d", failure);
    *out = current;
    return TSR_OK;
}

bool tsr__fork_inherited(unsigned generation)
{
    return generation != current;
}
