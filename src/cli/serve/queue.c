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

/* Counts a request as one that does not wait any more. */
static void end_waiting(serve_server *s, serve_request *r)
{
    s->waiting_requests -= r->waits;
    r->waits = false;
}

bool serve_enqueue(serve_server *s, serve_request *r)
{
    /* The next requests of the queue get what is free, one text each at least. */
    const int64_t free_slots = serve_chosen.parallel - s->running;
    if (s->waiting_requests >= serve_chosen.queue + (free_slots > 0 ? free_slots : 0))
        return false;
    r->users++;
    r->waits = true;
    s->waiting_requests++;
    for (int i = 0; i < r->choice_count; i++)
        append(s, &r->choices[i]);
    s->metrics.requests++;
    s->metrics.prompt_tokens += (uint64_t)r->id_count;
    pthread_cond_signal(&s->changed);
    return true;
}

/* Returns the choice before the one that is next, or NULL if that is the first one. A text that has
 * begun before goes on first. Otherwise the request with the fewest running texts is next, so that
 * one with many texts does not keep the requests behind it waiting. */
static serve_choice *before_next(const serve_server *s)
{
    serve_choice *before = NULL, *found = NULL;
    const serve_choice *best = s->first;
    for (serve_choice *c = s->first; c != NULL && best->generated == 0 && best->request->begun > 0;
         before = c, c = c->next)
        if (c->request->begun < best->request->begun) {
            best = c;
            found = before;
        }
    return found;
}

serve_choice *serve_peek(const serve_server *s)
{
    const serve_choice *before = before_next(s);
    return before != NULL ? before->next : s->first;
}

serve_choice *serve_dequeue(serve_server *s)
{
    serve_choice *before = before_next(s);
    serve_choice *c = before != NULL ? before->next : s->first;
    if (before != NULL)
        before->next = c->next;
    else
        s->first = c->next;
    if (s->last == c)
        s->last = before;
    c->next = NULL;
    s->waiting--;
    c->request->begun++;
    end_waiting(s, c->request);
    return c;
}

void serve_requeue(serve_server *s, serve_choice *c)
{
    c->request->begun--;
    c->next = s->first;
    s->first = c;
    if (s->last == NULL)
        s->last = c;
    s->waiting++;
}

void serve_unqueue(serve_server *s, serve_request *r)
{
    end_waiting(s, r);
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
