/* The queue of texts that wait for a sequence of the generator. */
#include <time.h>

#include "cli/serve/serve.h"

double serve_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void append(serve_server *s, serve_choice *c)
{
    if (s->last != NULL)
        s->last->next = c;
    else
        s->first = c;
    s->last = c;
    s->waiting++;
}

bool serve_enqueue(serve_server *s, serve_request *r)
{
    if (s->running + s->waiting >= serve_chosen.parallel + serve_chosen.queue)
        return false;
    r->arrived = serve_now();
    r->users++;
    for (int i = 0; i < r->choice_count; i++)
        append(s, &r->choices[i]);
    s->metrics.requests++;
    s->metrics.prompt_tokens += (uint64_t)r->id_count;
    pthread_cond_signal(&s->changed);
    return true;
}

serve_choice *serve_dequeue(serve_server *s)
{
    serve_choice *c = s->first;
    s->first = c->next;
    if (s->first == NULL)
        s->last = NULL;
    c->next = NULL;
    s->waiting--;
    return c;
}

void serve_requeue(serve_server *s, serve_choice *c)
{
    c->next = s->first;
    s->first = c;
    if (s->last == NULL)
        s->last = c;
    s->waiting++;
}

void serve_unqueue(serve_server *s, const serve_request *r)
{
    serve_choice *left = s->first;
    s->first = s->last = NULL;
    s->waiting = 0;
    while (left != NULL) {
        serve_choice *c = left;
        left = c->next;
        c->next = NULL;
        if (c->request != r)
            append(s, c);
    }
}
