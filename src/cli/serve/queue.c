/* The queue of requests that wait for a sequence of the generator. */
#include <time.h>

#include "cli/serve/serve.h"

double serve_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

bool serve_enqueue(serve_server *s, serve_request *r)
{
    if (s->running + s->waiting >= serve_chosen.parallel + serve_chosen.queue)
        return false;
    r->arrived = serve_now();
    r->users++;
    if (s->last != NULL)
        s->last->next = r;
    else
        s->first = r;
    s->last = r;
    s->waiting++;
    s->metrics.requests++;
    s->metrics.prompt_tokens += (uint64_t)r->id_count;
    pthread_cond_signal(&s->changed);
    return true;
}

serve_request *serve_dequeue(serve_server *s)
{
    serve_request *r = s->first;
    s->first = r->next;
    if (s->first == NULL)
        s->last = NULL;
    r->next = NULL;
    s->waiting--;
    return r;
}
