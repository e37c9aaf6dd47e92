/* Groups on one stream wait for each other's ranks: while one is waited for, all of them have to
 * progress, or two ranks that wait for different groups stand still. */
#include <pthread.h>

#include "base/alloc.h"
#include "parallel/group/group.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of the list, not of what is in it */
static tsr__group_lane *lanes;

static tsr__group_lane *find(const tsr_stream *stream)
{
    for (tsr__group_lane *lane = lanes; lane; lane = lane->next)
        if (lane->stream == stream)
            return lane;
    return NULL;
}

tsr_status tsr__group_lane_join(tsr_group *group)
{
    pthread_mutex_lock(&lock);
    tsr__group_lane *lane = find(group->stream);
    if (!lane) {
        lane = tsr__calloc(1, sizeof *lane);
        if (!lane) {
            pthread_mutex_unlock(&lock);
            return TSR_ERR_NO_MEMORY;
        }
        lane->stream = group->stream;
        lane->next = lanes;
        lanes = lane;
    }
    pthread_mutex_unlock(&lock);
    group->lane = lane;
    group->next = lane->groups;
    lane->groups = group;
    return TSR_OK;
}

void tsr__group_lane_leave(tsr_group *group)
{
    tsr__group_lane *lane = group->lane;
    if (!lane)
        return;
    tsr_group **link = &lane->groups;
    while (*link != group)
        link = &(*link)->next;
    *link = group->next;
    group->lane = NULL;
    if (lane->groups)
        return;
    pthread_mutex_lock(&lock);
    tsr__group_lane **at = &lanes;
    while (*at != lane)
        at = &(*at)->next;
    *at = lane->next;
    pthread_mutex_unlock(&lock);
    tsr__free(lane);
}
